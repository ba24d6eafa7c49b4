//! Checks of merged and of landed trees, in a separate check worktree; passed checks are cached.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base::config::network::NetworkPolicy;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::text::{printable_output, tail};
use sha2::{Digest, Sha256};

use crate::check;
use crate::exec::build_caches;
use crate::exec::runner::{CommandOutput, Directories, DiskLimit, SandboxedRunner, home};
use crate::project::Project;
use crate::session::journal::CheckResult;
use crate::session::record::{RunLimits, SessionRecord, Templates};
use studio_git::merge::Candidate;
use studio_git::names::{BranchName, WorktreeTemplate};
use studio_git::{check_worktree, landing_history, worktreeinclude};

/// Default timeout of one check, in seconds.
const DEFAULT_CHECK_SECONDS: u64 = 3600;

/// Must change when passed results of earlier versions become invalid.
const KEY_VERSION: &str = "2: outside of the main checkout";

/// Runs the session's and the repository's checks on the merged work; fails (1) if one fails.
pub(crate) fn check_merged(
    project: &Project,
    record: &SessionRecord,
    candidate: &Candidate,
) -> Result<Vec<CheckResult>> {
    let mut checks = record.checks.clone();
    let configured = project.config.studio.checks.list();
    checks.extend(configured.into_iter().filter(|check| !record.checks.contains(check)));
    let cached: Vec<Option<CheckResult>> = checks
        .iter()
        .map(|check| read_cached(&cache_file(project, &candidate.tree, check)))
        .collect();
    if cached.iter().all(Option::is_some) {
        return Ok(cached.into_iter().flatten().collect());
    }
    let (id, target) = (&record.id, &candidate.target);
    let state = TreeState { commit: &candidate.merged_commit, tree: &candidate.tree };
    let results = {
        let lines = checks.iter().map(|line| format!("`{line}`")).collect::<Vec<_>>().join(", ");
        let _step = project.console.step(id, &format!("checking {lines} on the merged tree"));
        match run(project, &record.templates, state, &checks)? {
            ChecksRun::Checks(results) => results,
            ChecksRun::SetUpFailed { line, output, hint } => {
                let message = format!("setup `{line}` fails on the merged tree");
                return Err(Failure::failed(format!("{message} with exit code {}", output.exit))
                    .because(with_hint(
                        printable_output(tail(output.tail.trim_end(), 1500)),
                        hint.as_deref(),
                    ))
                    .hint(format!("studio send {id} 'merge {target} and make the setup pass'")));
            }
        }
    };
    match results.iter().find(|result| !result.ok) {
        None => Ok(results),
        Some(failed) => {
            let _step =
                project.console.step(id, &format!("checking `{}` on `{target}`", failed.command));
            let fails_on_target =
                fails_on(project, &record.templates, &candidate.target_tip, &failed.command)?;
            Err(check_failure(id, target, failed, fails_on_target))
        }
    }
}

/// Returns the failure of a landing whose check fails on the merged tree, and possibly on the
/// target as well.
fn check_failure(
    id: &Id,
    target: &BranchName,
    failed: &CheckResult,
    fails_on_target: bool,
) -> Failure {
    let output = printable_output(tail(failed.tail.trim_end(), 1500));
    let output = with_hint(output, failed.hint.as_deref());
    let failure = Failure::failed(format!(
        "check `{}` fails on the merged tree with exit code {}",
        failed.command, failed.exit
    ));
    let (cause, failure) = match fails_on_target {
        true => (format!("this check also fails on `{target}`\n{output}"), failure),
        false => {
            let command = format!("studio send {id} 'merge {target} and make it pass'");
            (output, failure.hint(command))
        }
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
fn fails_on(project: &Project, templates: &Templates, commit: &str, check: &str) -> Result<bool> {
    let (commit, tree) = landing_history::resolve(&project.repository, commit)?;
    let passed_file = cache_file(project, &tree, check);
    let failed_file = passed_file.with_extension("red");
    if read_cached(&passed_file).is_some() {
        return Ok(false);
    }
    if read_cached(&failed_file).is_some() {
        return Ok(true);
    }
    let state = TreeState { commit: &commit, tree: &tree };
    match run(project, templates, state, &[check.to_owned()])? {
        ChecksRun::SetUpFailed { .. } => Ok(false),
        ChecksRun::Checks(results) => {
            let failed = results.iter().find(|result| !result.ok);
            failed.iter().for_each(|result| write_cached(&failed_file, result));
            Ok(failed.is_some())
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
    let fails = fails_on(project, &record.templates, &tip, check)?;
    Ok(fails.then(|| branch.as_str().to_owned()))
}

/// Returns the timeout of one check, in seconds.
pub fn check_seconds(project: &Project) -> u64 {
    project.config.studio.limits.check_seconds.unwrap_or(DEFAULT_CHECK_SECONDS)
}

/// The state of the files to check.
#[derive(Clone, Copy, Debug)]
pub struct TreeState<'a> {
    /// A commit with these files.
    pub commit: &'a str,
    /// Their tree.
    pub tree: &'a str,
}

/// The outcome of a check run.
#[derive(Debug)]
pub enum ChecksRun {
    /// The result of each check.
    Checks(Vec<CheckResult>),
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

/// Runs checks on a state of the files: in an exclusive check worktree, set up as configured, in
/// its own sandbox. Passed checks are cached.
pub fn run(
    project: &Project,
    templates: &Templates,
    state: TreeState<'_>,
    checks: &[String],
) -> Result<ChecksRun> {
    let (repository, settings) = (&project.repository, &project.config.studio);
    // The current location of worktrees, even for sessions that were created with another one.
    let worktrees = WorktreeTemplate::parse(&settings.worktree)?;
    let kept_paths = check_worktree::parse_kept_paths(&settings.check_caches.list())?;
    let branches = templates.branches()?;
    let prepared =
        check_worktree::prepare(repository, &worktrees, &branches, &kept_paths, state.commit)?;
    let home = home();
    build_caches::recreate(&prepared.caches, &home)?;
    build_caches::seed(&prepared.caches, &prepared.session_repo.worktree, &home)?;
    let directories = Directories { temporary: &prepared.temporary, cache: &prepared.caches };
    let sandbox = &project.config.sandbox;
    let runner = SandboxedRunner::with_directories(
        repository,
        &prepared.session_repo,
        directories,
        sandbox,
        None,
    )?;
    let slot = prepared.session_repo.git_dir.parent().and_then(Path::file_name);
    let holder = Path::new("checks").join(slot.unwrap_or_default());
    let name = prepared.session_repo.id.as_str();
    let runner = runner.with_leases(repository, &holder, name, &project.config);
    let policy = settings.check_network.or(sandbox.network).unwrap_or(NetworkPolicy::AllowList);
    let runner = runner.with_network(&project.config, policy, None)?;
    let runner = runner.with_limits(&RunLimits::default(), &settings.limits, DiskLimit::Limited);
    let runtime = base::runtime::current_thread();
    let runtime = runtime.or_fail(|| "cannot start the runtime")?;
    let timeout = Duration::from_secs(check_seconds(project));
    let setup = project.config.studio.setup.list();
    let checks_run = async {
        match set_up(&runner, &setup, timeout).await? {
            Some((line, output)) => {
                let hint = runner.failure_hint(&output.tail);
                let hint = hint.or_else(|| worktreeinclude::notice(&prepared.not_copied));
                Ok(ChecksRun::SetUpFailed { line, output, hint })
            }
            None => Ok(ChecksRun::Checks(check::run(&runner, checks, timeout).await)),
        }
    };
    let outcome = runtime.block_on(async {
        let outcome = project.interrupt.or(checks_run).await;
        if outcome.is_err() {
            // Interrupted processes have ended before the worktree is reused.
            runner.wait_all().await;
        }
        outcome
    })??;
    let ChecksRun::Checks(mut results) = outcome else { return Ok(outcome) };
    for result in results.iter_mut().filter(|result| !result.ok && result.hint.is_none()) {
        result.hint = worktreeinclude::notice(&prepared.not_copied);
    }
    for result in results.iter().filter(|result| result.ok) {
        write_cached(&cache_file(project, state.tree, &result.command), result);
    }
    Ok(ChecksRun::Checks(results))
}

/// Runs the setup lines in the worktree and returns the first that failed. They run every time,
/// because the work may have changed what it needs.
async fn set_up(
    runner: &SandboxedRunner,
    setup: &[String],
    timeout: Duration,
) -> Result<Option<(String, CommandOutput)>> {
    for line in setup {
        let output = runner.run_shell(line, timeout).await?;
        if output.exit != 0 {
            return Ok(Some((line.clone(), output)));
        }
    }
    Ok(None)
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

fn read_cached(file: &Path) -> Option<CheckResult> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

fn write_cached(file: &Path, result: &CheckResult) {
    let Some(parent) = file.parent() else { return };
    // If the result cannot be stored, the check runs again next time.
    let _ = std::fs::create_dir_all(parent).and_then(|()| base::files::replace_json(file, result));
}
