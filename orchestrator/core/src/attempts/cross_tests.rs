//! Runs the tests of each attempt on the code of every other one: in check worktrees, inside the
//! sandbox, with results cached by tree.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use base::failure::{Failure, FailureKind, Result};
use studio_git::overlay::{self, Overlay};

use crate::attempts::{Attempt, CrossResult};
use crate::landing::merge_checks::{self, TreeState};
use crate::project::Project;
use crate::tree_checks::ChecksRun;

/// Returns for each attempt the results of the tests of all attempts on its code.
pub(crate) fn run(project: &Project, attempts: &[Attempt]) -> Result<Vec<Vec<CrossResult>>> {
    let count = attempts.len();
    let cells: Vec<(usize, usize)> =
        (0..count).flat_map(|code| (0..count).map(move |tests| (code, tests))).collect();
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, CrossResult)>> {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((code, tests)) = cells.get(index) else { return Ok(results) };
            project.interrupt.check()?;
            results.push((index, cell(project, attempts, *code, *tests)?));
        }
    };
    let results: Vec<Result<Vec<(usize, CrossResult)>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores.min(count)).map(|_| scope.spawn(work)).collect();
        let results = threads.into_iter().map(thread::ScopedJoinHandle::join);
        results.map(|it| it.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let mut table = vec![vec![CrossResult::NoTests; count]; count];
    for (index, result) in results.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten() {
        table[index / count][index % count] = result;
    }
    Ok(table)
}

/// Returns the result of the tests of one attempt on the code of another one.
fn cell(project: &Project, attempts: &[Attempt], code: usize, tests: usize) -> Result<CrossResult> {
    let (code_of, tests_of) = (&attempts[code], &attempts[tests]);
    if code == tests {
        return Ok(own_result(code_of));
    }
    if tests_of.test_files.is_empty() {
        return Ok(CrossResult::NoTests);
    }
    let (Some(below), Some(above)) = (&code_of.commit, &tests_of.commit) else {
        return Ok(CrossResult::NotRun("it has no work".to_owned()));
    };
    let record = &code_of.view.record;
    let checks = &record.checks;
    if checks.is_empty() {
        return Ok(CrossResult::NotRun("no checks are configured".to_owned()));
    }
    let overlay = Overlay { below, above, paths: &tests_of.test_files };
    let repository = &project.repository;
    // A directory of one attempt may be a file of the other one.
    let Ok(overlaid) =
        overlay::commit(repository, &record.session_repo, overlay, project.clock.now())
    else {
        return Ok(CrossResult::Failed("the files of the tests do not fit".to_owned()));
    };
    let what = format!("running its tests on {}", code_of.id());
    let _step = project.console.step(tests_of.id(), &what);
    let state = TreeState { commit: &overlaid.commit, tree: &overlaid.tree };
    match merge_checks::run_cached(project, &record.templates, state, checks) {
        Ok(ChecksRun::Checks(results)) => Ok(match results.iter().find(|result| !result.ok) {
            None => CrossResult::Passed,
            Some(failed) => CrossResult::Failed(failed.failure()),
        }),
        Ok(ChecksRun::SetUpFailed { line, output, .. }) => {
            let what = format!("setup `{line}` failed with exit code {}", output.exit);
            Ok(CrossResult::Failed(what))
        }
        Err(failure) if failure.kind == FailureKind::Interrupted => Err(failure),
        Err(failure) => Ok(CrossResult::NotRun(reason(&failure))),
    }
}

fn reason(failure: &Failure) -> String {
    failure.sentence()
}

/// Returns the result of an attempt's own tests on its own code.
fn own_result(attempt: &Attempt) -> CrossResult {
    match attempt.checks() {
        _ if attempt.test_files.is_empty() => CrossResult::NoTests,
        None => CrossResult::NotRun("its checks did not run".to_owned()),
        Some([]) => CrossResult::NotRun("no checks are configured".to_owned()),
        Some(results) => match results.iter().find(|result| !result.ok) {
            None => CrossResult::Passed,
            Some(failed) => CrossResult::Failed(failed.failure()),
        },
    }
}
