//! The list of files to search, and the threads that process it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

use super::language::GRAMMARS;
use super::request::SyntaxSearch;
use tools::walk::{self, Skip};

/// A file and its searches: pairs of a grammar index and a search index, grouped by grammar.
pub(crate) struct FileJob {
    /// The file.
    pub path: PathBuf,
    /// The searches.
    pub tasks: Vec<(usize, usize)>,
}

/// Returns the files of all searches, each once, by path.
pub(crate) fn list(searches: &[SyntaxSearch], cancel: &CancellationToken) -> Vec<FileJob> {
    let mut roots: BTreeMap<&Path, Vec<usize>> = BTreeMap::new();
    for (search_index, search) in searches.iter().enumerate().filter(|(_, s)| s.error.is_none()) {
        for root in &search.roots {
            roots.entry(root).or_default().push(search_index);
        }
    }
    let mut jobs: BTreeMap<PathBuf, BTreeSet<(usize, usize)>> = BTreeMap::new();
    for (root, numbers) in roots {
        let tasks = |path: &Path| {
            let files = numbers.iter().flat_map(|search_index| {
                tasks(*search_index, &searches[*search_index], path, root)
            });
            let tasks: Vec<(usize, usize)> = files.collect();
            (!tasks.is_empty()).then_some(tasks)
        };
        for file in walk::files(root, Skip::IgnoredAndHidden, cancel, || tasks) {
            jobs.entry(file.path).or_default().extend(file.result);
        }
    }
    let file_job = |(path, tasks): (PathBuf, BTreeSet<_>)| FileJob {
        path,
        tasks: tasks.into_iter().collect(),
    };
    jobs.into_iter().map(file_job).collect()
}

/// Returns the searches of a file. A file that is named explicitly is searched regardless of its
/// extension.
fn tasks(
    search_index: usize,
    search: &SyntaxSearch,
    path: &Path,
    root: &Path,
) -> Vec<(usize, usize)> {
    let rows = search.queries.iter().map(|(row, _)| *row);
    let matching = rows.clone().filter(|row| GRAMMARS[*row].matches(path));
    let mut tasks: Vec<(usize, usize)> = matching.map(|row| (row, search_index)).collect();
    if tasks.is_empty() && path == root {
        tasks.extend(rows.take(1).map(|row| (row, search_index)));
    }
    tasks
}

/// Processes all jobs on at most this many threads. Each thread has its own state and takes the
/// next unassigned job. The work returns whether there is more to do.
pub(crate) fn run_all<J: Sync, B>(
    jobs: &[J],
    threads: usize,
    new_worker: impl Fn() -> B + Sync,
    work: impl Fn(&mut B, usize, &J) -> bool + Sync,
) {
    let next = AtomicUsize::new(0);
    let run_worker = || {
        let mut new_worker = new_worker();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { break };
            if !work(&mut new_worker, index, job) {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(jobs.len()) {
            scope.spawn(run_worker);
        }
        run_worker();
    });
}
