//! Runs checks on a state of the files, in a separate check worktree with a sandbox of its own.

use std::path::Path;
use std::time::Duration;

use base::config::network::NetworkPolicy;
use base::failure::{Failure, OrFail, Result};
use base::text::{printable_output, tail};
use serde::{Deserialize, Serialize};
use studio_git::check_worktree::{self, CheckWorktree};
use studio_git::names::WorktreeTemplate;
use studio_git::{landing_history, worktreeinclude};

use crate::check;
use crate::exec::runner::{CommandOutput, Directories, DiskLimit, SandboxedRunner, home, trees_of};
use crate::exec::{build_caches, cargo_downloads, carried_caches};
use crate::project::Project;
use crate::session::journal::CheckResult;
use crate::session::record::{RunLimits, Templates};

/// Default timeout of one check, in seconds.
const DEFAULT_CHECK_SECONDS: u64 = 3600;

/// The outcome of a check run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

/// An exclusive check worktree, and the sandbox of its programs.
pub(crate) struct CheckEnvironment {
    /// The worktree.
    pub worktree: CheckWorktree,
    /// Runs programs in it.
    pub runner: SandboxedRunner,
}

/// Prepares an exclusive check worktree with the files of a commit, and its sandbox. The setup
/// commands have not run.
pub(crate) fn environment(
    project: &Project,
    templates: &Templates,
    commit: &str,
) -> Result<CheckEnvironment> {
    let (repository, settings) = (&project.repository, &project.config.studio);
    // The current location of worktrees, even for sessions that were created with another one.
    let worktrees = WorktreeTemplate::parse(&settings.worktree)?;
    let configured = settings.check_caches.list();
    let kept_paths = check_worktree::parse_kept_paths("check_caches", &configured)?;
    let branches = templates.branches()?;
    // Another check worktree is used than the one that new sessions copy from.
    let carried = carried_caches::configured(settings)?;
    let copied = carried.as_ref().filter(|paths| !paths.is_empty());
    let _kept = copied.and_then(|_| carried_caches::last_passed(repository, commit));
    let prepared = check_worktree::prepare(repository, &worktrees, &branches, &kept_paths, commit)?;
    let floor = settings.limits.disk_floor_bytes;
    carried_caches::copy_dependencies(
        repository,
        &prepared.session_repo,
        carried.as_deref(),
        floor,
    );
    let home = home();
    build_caches::recreate(&prepared.caches, &home)?;
    cargo_downloads::link(&prepared.caches, &prepared.session_repo.worktree, &home)?;
    let directories = Directories { temporary: &prepared.temporary, cache: &prepared.caches };
    let sandbox = &project.config.sandbox;
    let runner = SandboxedRunner::with_directories(
        repository,
        &prepared.session_repo,
        &trees_of(repository, &prepared.session_repo),
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
    Ok(CheckEnvironment { worktree: prepared, runner })
}

/// Returns the timeout of one check, in seconds.
pub fn check_seconds(project: &Project) -> u64 {
    project.config.studio.limits.check_seconds.unwrap_or(DEFAULT_CHECK_SECONDS)
}

/// Runs the setup commands for hooks; fails (1) if one fails.
pub(crate) fn set_up_for_hooks(project: &Project, environment: &CheckEnvironment) -> Result<()> {
    let timeout = Duration::from_secs(check_seconds(project));
    let setup = project.config.studio.setup.list();
    let runner = &environment.runner;
    let failed = block_on(project, runner, set_up(runner, &setup, timeout))?;
    let Some((line, output)) = failed else { return Ok(()) };
    let exit = output.exit;
    Err(Failure::failed(format!("setup `{line}` fails on the merged tree with exit code {exit}"))
        .because(printable_output(tail(output.tail.trim_end(), 1500))))
}

/// Waits for programs of a sandbox. If the user interrupts, it returns after they ended.
pub(crate) fn block_on<T>(
    project: &Project,
    runner: &SandboxedRunner,
    programs: impl Future<Output = Result<T>>,
) -> Result<T> {
    let runtime = base::runtime::current_thread();
    let runtime = runtime.or_fail(|| "cannot start the runtime")?;
    runtime.block_on(async {
        let outcome = project.interrupt.or(programs).await;
        if outcome.is_err() {
            // Interrupted processes have ended before the worktree is reused.
            runner.wait_all().await;
        }
        outcome
    })?
}

/// Runs checks on the files of a commit: in an exclusive check worktree, set up as configured, in
/// its own sandbox.
pub(crate) fn run(
    project: &Project,
    templates: &Templates,
    commit: &str,
    checks: &[String],
) -> Result<ChecksRun> {
    let CheckEnvironment { worktree: prepared, runner } = environment(project, templates, commit)?;
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
    let outcome = block_on(project, &runner, checks_run)?;
    let ChecksRun::Checks(mut results) = outcome else { return Ok(outcome) };
    for result in results.iter_mut().filter(|result| !result.ok && result.hint.is_none()) {
        result.hint = worktreeinclude::notice(&prepared.not_copied);
    }
    if results.iter().all(|result| result.ok)
        && let Ok((_, tree)) = landing_history::resolve(&project.repository, commit)
    {
        // Otherwise new sessions build everything themselves, which only costs time.
        let _ = prepared.record_passed(&tree);
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
