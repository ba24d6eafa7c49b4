//! Git filters that the user's configuration names with their exact commands (`[studio.filters]`).
//! They run where git runs filters: when files are written, read and compared, in the worktrees of
//! sessions and in the user's checkouts. A filter that only a repository configures never runs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, SystemTime};

use base::config::filters::{FilterCommands, FilterSetting, KnownFilter};
use base::failure::{Failure, OrFail, Result};
use base::git::user_settings_in;
use base::process::search_path_outside;
use git2::{AttrCheckFlags, AttrValue};

use crate::checkout::{FileChange, FileEntry, WritableTree};
use crate::checkout_update::index_entry;
use crate::filter_program::{self, Direction, KeepAlive, RunningFilters};
use crate::repo::Repository;
use crate::session_repo::quote;
use crate::{check_worktree, entry_mode, filter_registration, worktree};

/// The line of a session's git configuration after which the trusted filters follow.
const MARKER: &str = "# filters\n";
/// The name of Git LFS in `.gitattributes`, and of its directory in a repository.
const LFS: &str = "lfs";
/// Maximum number of files that are written at the same time.
const MAX_THREADS: usize = 4;
/// How much older than now the written files are: git compares the content of a file that is as new as
/// its index.
const AGE: Duration = Duration::from_secs(2);

/// A filter that runs.
#[derive(Clone, Debug)]
pub(crate) struct TrustedFilter {
    /// Its name in `.gitattributes`.
    pub(crate) name: String,
    /// What it runs.
    pub(crate) commands: FilterCommands,
}

/// Something to do on a thread that is not confined.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The filters of this process.
pub(crate) struct FilterSet {
    /// The repository whose files they convert.
    pub(crate) repository: Repository,
    /// The filters, by name.
    pub(crate) filters: BTreeMap<String, TrustedFilter>,
    /// `PATH` of the commands.
    pub(crate) search_path: OsString,
    /// Starts jobs outside of confined threads, whose rules children inherit.
    pub(crate) starter: Sender<Job>,
    /// Its long-running processes.
    pub(crate) running: Mutex<RunningFilters>,
}

static CURRENT: RwLock<Option<Arc<FilterSet>>> = RwLock::new(None);

/// Makes this process run the filters of the user's configuration, in this repository, and adds Git
/// LFS to them if the user's own git runs it. Programs are searched for in `PATH` without its relative
/// entries and those in the repository and its worktrees. Must not be called on a confined thread.
pub fn trust(repository: &Repository, settings: &mut BTreeMap<String, FilterSetting>) {
    if !settings.contains_key(LFS) {
        settings.extend(installed_lfs(repository).map(|setting| (LFS.to_owned(), setting)));
    }
    let filters: BTreeMap<String, TrustedFilter> = settings
        .iter()
        .map(|(name, setting)| {
            (name.clone(), TrustedFilter { name: name.clone(), commands: setting.commands() })
        })
        .collect();
    let set = (!filters.is_empty()).then(|| {
        filter_registration::register();
        let search_path = search_path_outside(&written_trees(repository));
        let repository = repository.clone();
        let (starter, running) = (starter(), Mutex::default());
        Arc::new(FilterSet { repository, filters, search_path, starter, running })
    });
    if let Ok(mut current) = CURRENT.write() {
        *current = set;
    }
}

/// Returns Git LFS with the commands of the user's or the system's git configuration, in a
/// repository that has files of Git LFS; `None` if they are not those that `git lfs install` writes.
fn installed_lfs(repository: &Repository) -> Option<FilterSetting> {
    if !repository.common_dir.join(LFS).is_dir() {
        return None;
    }
    let settings = user_settings_in(&repository.common_dir, "^filter\\.lfs\\.");
    let value = |key: &str| {
        settings.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    };
    let known = FilterSetting::Known(KnownFilter::GitLfs).commands();
    let installed = FilterCommands {
        clean: value("filter.lfs.clean"),
        smudge: value("filter.lfs.smudge"),
        process: value("filter.lfs.process"),
        ..known.clone()
    };
    let skips_downloads = FilterCommands {
        smudge: Some("git-lfs smudge --skip -- %f".to_owned()),
        process: Some("git-lfs filter-process --skip".to_owned()),
        ..known.clone()
    };
    if installed == known {
        return Some(FilterSetting::Known(KnownFilter::GitLfs));
    }
    (installed == skips_downloads).then_some(FilterSetting::Commands(installed))
}

/// Returns the trees in which agents and landings write programs.
fn written_trees(repository: &Repository) -> Vec<PathBuf> {
    let mut trees: Vec<PathBuf> = repository.main_checkout.clone().into_iter().collect();
    let admin_dirs = worktree::admin_dirs(repository).unwrap_or_default();
    trees.extend(admin_dirs.iter().map(|admin| worktree::worktree_of(admin)));
    trees.extend(check_worktree::all(repository));
    // A checkout that is the home directory contains the user's own programs.
    let home = base::user_dirs::home_dir();
    trees.retain(|tree| home.as_ref().is_none_or(|home| !home.starts_with(tree)));
    trees.push(repository.common_dir.clone());
    trees
}

/// Returns the filters of this process.
pub(crate) fn current() -> Option<Arc<FilterSet>> {
    CURRENT.read().ok()?.clone()
}

/// Keeps the long-running processes of the filters until the result is dropped. Whatever reads or
/// writes several files holds one.
pub(crate) fn keep_alive() -> Option<KeepAlive> {
    current().map(|set| KeepAlive::new(&set))
}

/// Starts a thread that runs each job on a thread of its own.
fn starter() -> Sender<Job> {
    let (sender, receiver) = mpsc::channel::<Job>();
    std::thread::spawn(move || {
        for job in receiver {
            std::thread::spawn(job);
        }
    });
    sender
}

/// Returns whether any filter runs.
pub(crate) fn are_trusted() -> bool {
    current().is_some()
}

/// Returns the lines of the configuration that make studio run a filter as the user's own git
/// configuration says; `None` if that has no such filter.
pub(crate) fn setting_for(repository: &Repository, name: &str) -> Option<String> {
    let settings = user_settings_in(&repository.common_dir, "^filter\\.");
    let value = |key: &str| {
        let key = format!("filter.{name}.{key}");
        settings.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| value.as_str())
    };
    let (clean, smudge, process) = (value("clean"), value("smudge"), value("process"));
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    clean.or(smudge).or(process)?;
    let is_bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let table_key = if is_bare { name.to_owned() } else { quoted(name) };
    let known = FilterSetting::Known(KnownFilter::GitLfs).commands();
    let is_known = clean == known.clean.as_deref() && smudge == known.smudge.as_deref();
    if is_known && (process.is_none() || process == known.process.as_deref()) {
        return Some(format!("[studio.filters]\n{table_key} = \"git-lfs\""));
    }
    let mut lines = vec![format!("[studio.filters.{table_key}]")];
    let commands = [("clean", clean), ("smudge", smudge), ("process", process)].into_iter();
    let commands = commands.filter_map(|(key, line)| Some((key, line?)));
    lines.extend(commands.map(|(key, line)| format!("{key} = {}", quoted(line))));
    lines
        .extend(value("required").filter(|it| *it == "true").map(|_| "required = true".to_owned()));
    Some(lines.join("\n"))
}

/// Returns what tells sets of filters apart: files that another set wrote are not used. Empty without
/// filters.
pub(crate) fn fingerprint() -> String {
    current().map(|set| format!("{:?}", set.filters)).unwrap_or_default()
}

/// Returns whether a filter of the user applies to a file.
pub(crate) fn applies(repo: &git2::Repository, path: &Path) -> bool {
    current().is_some_and(|set| filter_of(&set, repo, path).is_some())
}

fn filter_of<'s>(
    set: &'s FilterSet,
    repo: &git2::Repository,
    path: &Path,
) -> Option<&'s TrustedFilter> {
    let attribute = repo.get_attr(path, "filter", AttrCheckFlags::FILE_THEN_INDEX).ok()?;
    match AttrValue::from_string(attribute) {
        AttrValue::String(name) => set.filters.get(name),
        AttrValue::True | AttrValue::False | AttrValue::Bytes(_) | AttrValue::Unspecified => None,
    }
}

/// Returns the content of a file for that of its blob; `None` if no filter applies or it fails.
pub(crate) fn smudged(repo: &git2::Repository, path: &Path, blob: &[u8]) -> Option<Vec<u8>> {
    let set = current()?;
    let filter = filter_of(&set, repo, path)?;
    filter_program::convert(&set, filter, Direction::Smudge, path, blob).ok().flatten()
}

/// Converts the new content of each filtered file, so that a filter that fails does so before the
/// first file is written: libgit2 empties a file before it runs the filter.
pub(crate) fn check_smudges(repo: &git2::Repository, changes: &[FileChange]) -> Result<()> {
    let Some(set) = current() else { return Ok(()) };
    for change in changes {
        let Some(entry) = change.after.filter(|entry| entry_mode::is_file(entry.mode)) else {
            continue;
        };
        let Some(filter) = filter_of(&set, repo, &change.path) else { continue };
        let what = || format!("cannot read {}", change.path.display());
        let blob = repo.find_blob(entry.id).or_fail(what)?;
        filter_program::convert(&set, filter, Direction::Smudge, &change.path, blob.content())
            .map_err(|reason| with_hints(Failure::failed(reason)))?;
    }
    Ok(())
}

/// Returns whether a blob is what the filter of its path makes of its file.
pub(crate) fn is_filtered(repo: &git2::Repository, path: &Path, blob: &[u8]) -> bool {
    let Some(set) = current() else { return false };
    let Some(filter) = filter_of(&set, repo, path) else { return false };
    let convert = |direction, content: &[u8]| {
        filter_program::convert(&set, filter, direction, path, content).ok().flatten()
    };
    convert(Direction::Smudge, blob)
        .and_then(|content| convert(Direction::Clean, &content))
        .is_some_and(|cleaned| cleaned == blob)
}

/// Returns the section of a session's git configuration with the filters: the agent's own git runs
/// them, in the sandbox.
pub(crate) fn configuration() -> String {
    use std::fmt::Write as _;
    let Some(set) = current() else { return String::new() };
    let mut text = MARKER.to_owned();
    for filter in set.filters.values() {
        let FilterCommands { clean, smudge, process, required, timeout_seconds: _ } =
            &filter.commands;
        let _ = write!(text, "[filter {}]\n\trequired = {required}\n", quote(&filter.name));
        for (key, line) in [("clean", clean), ("smudge", smudge), ("process", process)] {
            if let Some(line) = line {
                let _ = writeln!(text, "\t{key} = {}", quote(line));
            }
        }
    }
    text
}

/// Returns a session's git configuration without its filters.
pub(crate) fn without_filters(config: &[u8]) -> &[u8] {
    let start = config.windows(MARKER.len()).position(|part| part == MARKER.as_bytes());
    &config[..start.unwrap_or(config.len())]
}

/// Writes the files that filters apply to again, with their filters, in a new worktree whose files
/// were written without: they are those of the index.
pub(crate) fn smudge_files(git_dir: &Path, worktree: &Path, index_path: &Path) -> Result<()> {
    smudge_selected_files(git_dir, worktree, index_path, |_| true)
}

/// Like [`smudge_files`], for some of the files.
pub(crate) fn smudge_selected_files(
    git_dir: &Path,
    worktree: &Path,
    index_path: &Path,
    is_selected: impl Fn(&Path) -> bool,
) -> Result<()> {
    let Some(set) = current() else { return Ok(()) };
    let fail = || format!("cannot check files out into {}", worktree.display());
    let open = || -> Result<(WritableTree, git2::Index)> {
        let format = crate::repo::open_any(git_dir).or_fail(fail)?.object_format();
        let mut index = git2::Index::open_ext(index_path, format).or_fail(fail)?;
        Ok((WritableTree::open(git_dir, worktree, &mut index)?, index))
    };
    let (tree, mut index) = open()?;
    let entries = index.iter().filter(|entry| entry_mode::is_file(entry.mode));
    let entries = entries.map(|entry| {
        let path = PathBuf::from(OsStr::from_bytes(&entry.path));
        (path, FileEntry { id: entry.id, mode: entry.mode })
    });
    let filtered: Vec<(PathBuf, FileEntry)> = entries
        .filter(|(path, _)| is_selected(path))
        .filter(|(path, _)| filter_of(&set, &tree.repo, path).is_some())
        .filter(|(path, _)| worktree.join(path).symlink_metadata().is_ok())
        .collect();
    if filtered.is_empty() {
        return Ok(());
    }
    let _keep_alive = keep_alive();
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(MAX_THREADS);
    let chunks = filtered.chunks(filtered.len().div_ceil(threads));
    let write = |chunk: &[(PathBuf, FileEntry)]| -> Result<()> {
        let (tree, mut index) = open()?;
        let mut builder = git2::build::CheckoutBuilder::new();
        builder.force().update_index(false).disable_pathspec_match(true);
        for (path, _) in chunk {
            fs::remove_file(worktree.join(path)).or_fail(fail)?;
            builder.path(path.as_os_str().as_bytes());
        }
        tree.repo
            .checkout_index(Some(&mut index), Some(&mut builder))
            .map_err(|error| failure(fail(), &error))
    };
    std::thread::scope(|scope| {
        let write = &write;
        let running: Vec<_> = chunks.map(|chunk| scope.spawn(move || write(chunk))).collect();
        let results = running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        results.collect::<Result<Vec<()>>>()
    })?;
    let time = SystemTime::now() - AGE;
    for (path, entry) in &filtered {
        let full = worktree.join(path);
        fs::File::options()
            .read(true)
            .open(&full)
            .and_then(|file| file.set_modified(time))
            .or_fail(fail)?;
        let metadata = full.symlink_metadata().or_fail(fail)?;
        let mut written = index_entry(path, *entry, Some(&metadata));
        written.flags_extended = index.get_path(path, 0).map_or(0, |entry| entry.flags_extended);
        index.add(&written).or_fail(fail)?;
    }
    index.write().or_fail(fail)
}

/// Returns the failure for an error of libgit2, with what to try if a filter failed.
pub(crate) fn failure(what: String, error: &git2::Error) -> Failure {
    let failure = Failure::failed(what).because(error.message());
    match error.class() {
        git2::ErrorClass::Filter => with_hints(failure),
        _ => failure,
    }
}

fn with_hints(failure: Failure) -> Failure {
    failure
        .hint("run the command by hand, and correct it in `[studio.filters]`")
        .hint("or set `required = false` there: the content then stays as it is")
}
