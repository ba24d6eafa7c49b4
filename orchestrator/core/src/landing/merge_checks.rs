//! Checks of merged and of landed trees; passed checks are cached.

use std::path::{Path, PathBuf};

use base::failure::{Failure, Result};
use base::id::Id;
use base::text::{head, printable_output, tail};
use sha2::{Digest, Sha256};
use studio_git::landing_history;
use studio_git::merge::Candidate;
use studio_git::names::BranchName;

use crate::exec::runner::CommandOutput;
use crate::place::checks_there;
use crate::project::Project;
use crate::session::journal::CheckResult;
use crate::session::record::{SessionRecord, Templates};
use crate::tree_checks::{self, ChecksRun};

/// The first of the exit codes that say nothing about the files: 124 after a timeout, 125 to 127 if the
/// sandbox or the command could not be started, 128 and above after a signal (POSIX, "Exit Status for
/// Commands").
const FIRST_INCONCLUSIVE_EXIT_CODE: i32 = 124;

/// Must change when cached results of earlier versions become invalid.
const KEY_VERSION: &str = "3: failures that the files decided";

/// Runs the session's and the repository's checks on the merged work; fails (1) if one fails.
pub(crate) fn check_merged(
    project: &Project,
    record: &SessionRecord,
    candidate: &Candidate,
) -> Result<Vec<CheckResult>> {
    let checks = checks_of(project, record);
    let state = TreeState { commit: &candidate.merged_commit, tree: &candidate.tree };
    match check_tree(project, record, state, &checks, Retry::Never)? {
        TreeOutcome::Passed(results) => Ok(results),
        outcome @ (TreeOutcome::Failed(_) | TreeOutcome::SetUpFailed { .. }) => {
            let onto = (&candidate.target, candidate.target_tip.as_str());
            Err(failure_of(project, record, onto, &outcome, None)?)
        }
    }
}

/// Returns the checks of a landing: the session's, then the repository's.
pub(crate) fn checks_of(project: &Project, record: &SessionRecord) -> Vec<String> {
    let mut checks = record.checks.clone();
    let configured = project.config.studio.checks.list();
    checks.extend(configured.into_iter().filter(|check| !record.checks.contains(check)));
    checks
}

/// Returns the checks of a landing up to this one, which later ones do not concern and earlier ones may
/// prepare.
pub(crate) fn checks_up_to(project: &Project, record: &SessionRecord, check: &str) -> Vec<String> {
    let mut checks = checks_of(project, record);
    match checks.iter().position(|it| it == check) {
        Some(place) => checks.truncate(place + 1),
        None => checks = vec![check.to_owned()],
    }
    checks
}

/// The outcome of the checks of a merged tree.
#[derive(Debug)]
pub(crate) enum TreeOutcome {
    /// All passed.
    Passed(Vec<CheckResult>),
    /// This one failed first.
    Failed(CheckResult),
    /// No check ran, because a setup line failed.
    SetUpFailed {
        /// The line.
        line: String,
        /// Its result.
        output: CommandOutput,
        /// A likely cause.
        hint: Option<String>,
    },
}

impl TreeOutcome {
    /// Returns whether all checks passed.
    pub(crate) fn has_passed(&self) -> bool {
        match self {
            TreeOutcome::Passed(_) => true,
            TreeOutcome::Failed(_) | TreeOutcome::SetUpFailed { .. } => false,
        }
    }

    /// Describes the outcome in one line.
    pub(crate) fn summary(&self) -> String {
        match self {
            TreeOutcome::Passed(_) => "its checks passed".to_owned(),
            TreeOutcome::Failed(check) => {
                format!("check `{}` fails on the merged tree", check.command)
            }
            TreeOutcome::SetUpFailed { line, .. } => {
                format!("setup `{line}` fails on the merged tree")
            }
        }
    }
}

/// Whether failed checks are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// They are not.
    Never,
    /// Once, on the same files: a check that passes then is flaky.
    Once,
}

/// Runs checks on a merged tree. Passed results are cached; if all have passed before, none runs.
pub(crate) fn check_tree(
    project: &Project,
    record: &SessionRecord,
    state: TreeState<'_>,
    checks: &[String],
    retry: Retry,
) -> Result<TreeOutcome> {
    let cached: Vec<Option<CheckResult>> =
        checks.iter().map(|check| read_cached(&cache_file(project, state.tree, check))).collect();
    if cached.iter().all(Option::is_some) {
        return Ok(TreeOutcome::Passed(cached.into_iter().flatten().collect()));
    }
    let lines = checks.iter().map(|line| format!("`{line}`")).collect::<Vec<_>>().join(", ");
    let there = project.config.studio.checks_on.as_ref();
    let there = there.map(|place| format!(" at {place}")).unwrap_or_default();
    let activity = format!("checking {lines} on the merged tree{there}");
    let _step = project.console.step(&record.id, &activity);
    let first = run(project, &record.templates, state, checks)?;
    let repeated = match (&first, retry) {
        (_, Retry::Never) => None,
        (ChecksRun::Checks(results), Retry::Once) => results.iter().rposition(|it| !it.ok),
        (ChecksRun::SetUpFailed { .. }, Retry::Once) => checks.len().checked_sub(1),
    };
    let Some(last) = repeated else { return Ok(outcome_of(first)) };
    // Earlier checks may prepare the files of those that failed.
    let second = run(project, &record.templates, state, &checks[..=last])?;
    let (mut results, second) = match (first, second) {
        (ChecksRun::Checks(first), ChecksRun::Checks(second)) => (first, second),
        (_, second) => return Ok(outcome_of(second)),
    };
    for (result, again) in results.iter_mut().zip(second).filter(|(result, _)| !result.ok) {
        *result = CheckResult { flaky: again.ok, ..again };
        if result.ok {
            write_cached(&cache_file(project, state.tree, &result.command), result);
        }
    }
    Ok(outcome_of(ChecksRun::Checks(results)))
}

fn outcome_of(run: ChecksRun) -> TreeOutcome {
    match run {
        ChecksRun::SetUpFailed { line, output, hint } => {
            TreeOutcome::SetUpFailed { line, output, hint }
        }
        ChecksRun::Checks(results) => match results.iter().find(|result| !result.ok) {
            Some(failed) => TreeOutcome::Failed(failed.clone()),
            None => TreeOutcome::Passed(results),
        },
    }
}

/// Returns a note for each check that passed only when it was repeated.
pub(super) fn flaky_notes(results: &[CheckResult]) -> impl Iterator<Item = String> {
    results.iter().filter(|result| result.flaky).map(|result| {
        format!("check `{}` is flaky: it failed, and passed when it was repeated", result.command)
    })
}

/// Returns how many merged trees are checked at the same time: one for each core, fewer with
/// `[studio] jobs`, and not more than fit into the memory with the configured limit of each.
pub(crate) fn parallel_runs(project: &Project) -> usize {
    let settings = &project.config.studio;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = settings.jobs.map_or(cores, |jobs| jobs.max(1) as usize);
    let memory = total_memory().zip(settings.limits.memory_bytes.filter(|bytes| *bytes > 0));
    let by_memory = memory.map_or(cores, |(total, limit)| (total / limit).max(1) as usize);
    cores.min(jobs).min(by_memory)
}

#[cfg(target_os = "linux")]
fn total_memory() -> Option<u64> {
    Some(rustix::system::sysinfo().totalram as u64)
}

#[cfg(not(target_os = "linux"))]
fn total_memory() -> Option<u64> {
    None
}

/// The commit of the target with which the checks of a session begin to fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Culprit {
    /// The commit.
    pub commit: String,
    /// The session that landed as this commit.
    pub session: Option<Id>,
}

/// Returns the failure of a session whose checks fail on top of a commit of its target. Without a
/// culprit, tells whether the check fails on that commit itself.
pub(crate) fn failure_of(
    project: &Project,
    record: &SessionRecord,
    (target, onto): (&BranchName, &str),
    outcome: &TreeOutcome,
    culprit: Option<&Culprit>,
) -> Result<Failure> {
    let id = &record.id;
    let failed = match outcome {
        TreeOutcome::SetUpFailed { line, output, hint } => {
            let message = format!("setup `{line}` fails on the merged tree");
            return Ok(Failure::failed(format!("{message} with exit code {}", output.exit))
                .because(with_hint(
                    printable_output(tail(output.tail.trim_end(), 1500)),
                    hint.as_deref(),
                ))
                .hint(format!("studio send {id} 'merge {target} and make the setup pass'")));
        }
        TreeOutcome::Passed(_) => return Ok(Failure::failed("the checks passed")),
        TreeOutcome::Failed(failed) => failed,
    };
    let reason = match culprit {
        Some(Culprit { commit, session }) => {
            let short = head(commit, 12);
            let partner = match session {
                Some(partner) => format!("`{partner}`, which landed as {short}"),
                None => format!("commit {short} of `{target}`"),
            };
            Some(format!("it passes without {partner}, and fails together with it"))
        }
        None => {
            let activity = format!("checking `{}` on `{target}`", failed.command);
            let _step = project.console.step(id, &activity);
            let fails_on_target = fails_on(project, record, onto, &failed.command)?;
            fails_on_target.then(|| format!("this check also fails on `{target}`"))
        }
    };
    let is_its_own = culprit.is_some() || reason.is_none();
    Ok(check_failure(id, target, failed, reason, is_its_own))
}

/// Returns the failure of a landing whose check fails on the merged tree.
fn check_failure(
    id: &Id,
    target: &BranchName,
    failed: &CheckResult,
    reason: Option<String>,
    is_its_own: bool,
) -> Failure {
    let output = printable_output(tail(failed.tail.trim_end(), 1500));
    let output = with_hint(output, failed.hint.as_deref());
    let mut failure = Failure::failed(format!(
        "check `{}` fails on the merged tree with exit code {}",
        failed.command, failed.exit
    ));
    if is_its_own {
        let command = format!("studio send {id} 'merge {target} and make it pass'");
        failure = failure.hint(command);
    }
    let cause = match reason {
        Some(reason) => format!("{reason}\n{output}"),
        None => output,
    };
    let failure = match cause.trim() {
        "" => failure.because("no output"),
        because => failure.because(because),
    };
    failure
        .hint(format!("studio edit {id} --check 'another command'"))
        .hint(format!("studio accept {id} --no-checks    lands it without checks"))
}

/// Returns the output of a command, and a likely cause of its failure that the output does not
/// name.
fn with_hint(output: String, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("{output}\n{hint}"),
        None => output,
    }
}

/// Returns whether a check fails on a commit of the target as well, so that the session did not
/// cause it. Cached by tree. A check that cannot be run there counts as not failing.
fn fails_on(project: &Project, record: &SessionRecord, commit: &str, check: &str) -> Result<bool> {
    let (commit, tree) = landing_history::resolve(&project.repository, commit)?;
    if let Some(result) = read_any_cached(&cache_file(project, &tree, check)) {
        return Ok(!result.ok);
    }
    let state = TreeState { commit: &commit, tree: &tree };
    let checks = checks_up_to(project, record, check);
    match run(project, &record.templates, state, &checks)? {
        ChecksRun::SetUpFailed { .. } => Ok(false),
        ChecksRun::Checks(results) => {
            cache_failures(project, &tree, &results);
            Ok(results.last().is_some_and(|result| !result.ok))
        }
    }
}

/// Returns the base branch of a session if a check fails on its tip as well.
pub fn fails_on_base(
    project: &Project,
    record: &SessionRecord,
    check: &str,
) -> Result<Option<String>> {
    let Some(branch) = &record.base.branch else { return Ok(None) };
    let Some(tip) = project.repository.tip(branch)? else { return Ok(None) };
    let fails = fails_on(project, record, &tip, check)?;
    Ok(fails.then(|| branch.as_str().to_owned()))
}

/// The state of the files to check.
#[derive(Clone, Copy, Debug)]
pub struct TreeState<'a> {
    /// A commit with these files.
    pub commit: &'a str,
    /// Their tree.
    pub tree: &'a str,
}

/// Runs checks on a state of the files, here or at the place of `[studio] checks_on`. Passed checks are
/// cached.
pub fn run(
    project: &Project,
    templates: &Templates,
    state: TreeState<'_>,
    checks: &[String],
) -> Result<ChecksRun> {
    let outcome = match &project.config.studio.checks_on {
        Some(place) => checks_there::run(project, place, templates, state.commit, checks)?,
        None => tree_checks::run(project, templates, state.commit, checks)?,
    };
    if let ChecksRun::Checks(results) = &outcome {
        for result in results.iter().filter(|result| result.ok) {
            write_cached(&cache_file(project, state.tree, &result.command), result);
        }
    }
    Ok(outcome)
}

/// Like [`run`]; if each check has a result of an earlier run on these files, none runs. Failed ones are
/// cached as well.
pub(crate) fn run_cached(
    project: &Project,
    templates: &Templates,
    state: TreeState<'_>,
    checks: &[String],
) -> Result<ChecksRun> {
    let cached = |check: &String| read_any_cached(&cache_file(project, state.tree, check));
    if let Some(results) = checks.iter().map(cached).collect::<Option<Vec<_>>>() {
        return Ok(ChecksRun::Checks(results));
    }
    // Earlier checks may prepare the files of later ones.
    let outcome = run(project, templates, state, checks)?;
    if let ChecksRun::Checks(results) = &outcome {
        cache_failures(project, state.tree, results);
    }
    Ok(outcome)
}

/// Returns the cache file of a passed check: by tree, command, setup, toolchain and environment.
fn cache_file(project: &Project, tree: &str, command: &str) -> PathBuf {
    let mut hash = Sha256::new();
    hash.update(KEY_VERSION);
    let setup = project.config.studio.setup.list().join("\n");
    for part in [tree, command, &setup] {
        hash.update(part);
        hash.update([0]);
    }
    let settings = &project.config.studio;
    let environment = (&project.config.sandbox, &settings.check_caches, &settings.worktree);
    hash.update(serde_json::to_vec(&environment).unwrap_or_default());
    if let Some(place) = &settings.checks_on {
        hash.update(place);
        hash.update([0]);
    }
    let program = command.split_whitespace().next().unwrap_or_default();
    if let Some(path) = base::process::find_program(program)
        && let Ok(metadata) = std::fs::metadata(&path)
    {
        hash.update(format!(
            "{}:{}:{:?}",
            path.display(),
            metadata.len(),
            metadata.modified().ok()
        ));
    }
    for name in ["PATH", "RUSTUP_TOOLCHAIN", "CARGO_HOME", "NODE_ENV", "VIRTUAL_ENV", "LANG"] {
        hash.update(std::env::var(name).unwrap_or_default());
        hash.update([0]);
    }
    let digest = hash.finalize();
    let name = base::text::hex(&digest);
    project.store.root().join("cache/checks").join(name)
}

/// Caches failed checks, up to the first one that did not run to its end: those after it may have failed
/// because of that.
fn cache_failures(project: &Project, tree: &str, results: &[CheckResult]) {
    let conclusive = results.iter().take_while(|result| result.ok || is_conclusive(result));
    for failed in conclusive.filter(|result| !result.ok) {
        write_cached(&failed_file(&cache_file(project, tree, &failed.command)), failed);
    }
}

/// Returns whether the files alone decided that a check failed: it was started, and was not ended by a
/// timeout, a limit or a signal.
fn is_conclusive(result: &CheckResult) -> bool {
    result.limit.is_none() && result.exit < FIRST_INCONCLUSIVE_EXIT_CODE
}

/// Returns the cache file of a failed check, by that of a passed one.
fn failed_file(passed_file: &Path) -> PathBuf {
    passed_file.with_extension("red")
}

/// Returns the cached result of a check that passed or failed.
fn read_any_cached(passed_file: &Path) -> Option<CheckResult> {
    read_cached(passed_file).or_else(|| read_cached(&failed_file(passed_file)))
}

fn read_cached(file: &Path) -> Option<CheckResult> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

fn write_cached(file: &Path, result: &CheckResult) {
    let Some(parent) = file.parent() else { return };
    // If the result cannot be stored, the check runs again next time.
    let _ = std::fs::create_dir_all(parent).and_then(|()| base::files::replace_json(file, result));
}
