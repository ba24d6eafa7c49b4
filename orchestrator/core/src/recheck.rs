//! Checks ready sessions again after their target has moved: in the background, one at a time, with
//! a lower priority. The next landing finds the results; `status` shows what no longer passes.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use base::failure::{OrFail, Result};
use base::lock::Lock;
use base::process::{Command, Stream};

use crate::landing::merge_checks::{self, Retry, TreeState};
use crate::live_sessions::LiveSessions;
use crate::project::{Project, pause};
use crate::project_args::ProjectArgs;
use crate::session::collect;
use crate::session::state::SessionState;
use crate::session::target_check::{TargetCheck, TargetCheckOutcome};
use crate::session_view::SessionView;
use studio_git::merge::{self, MergeMethod, PreparedMerge};
use studio_git::snapshot::Snapshot;

/// The hidden command of the process.
const COMMAND: &str = "__recheck";
/// Linux gives a process with it about a third of the time of another one (`sched(7)`). With less, checks
/// on a busy machine would reach their limit of time.
const PRIORITY_REDUCTION: i32 = 5;

/// Parses the arguments of the process; returns `None` for other commands.
pub fn parse(args: impl Iterator<Item = OsString>) -> Option<ProjectArgs> {
    ProjectArgs::parse(COMMAND, args)
}

/// Runs the process.
pub fn main(args: &ProjectArgs) -> Result<u8> {
    run(&args.project()?)?;
    Ok(0)
}

/// Starts the process if there is something to check.
pub fn start(project: &Project) -> Result<()> {
    if !is_needed(project)? {
        return Ok(());
    }
    let common_dir = &project.repository.common_dir;
    let fail = || "cannot start the checks of ready sessions";
    let studio = std::env::current_exe().or_fail(fail)?;
    let null = || File::options().read(true).write(true).open("/dev/null");
    let directory = project.directory.as_deref().unwrap_or(common_dir);
    let command = Command::new(studio, existing(directory, common_dir))
        .arg(COMMAND)
        .arg(common_dir)
        .arg(directory)
        .args(&project.config_file)
        .stdin(Stream::File(null().or_fail(fail)?))
        .stdout(Stream::File(null().or_fail(fail)?))
        .stderr(Stream::File(null().or_fail(fail)?))
        .detached();
    command.spawn_forget().map(|_| ()).or_fail(fail)
}

fn existing<'a>(directory: &'a Path, other: &'a Path) -> &'a Path {
    if directory.is_dir() { directory } else { other }
}

/// Like [`run`], but reads only the open sessions if there is nothing to check.
pub(crate) fn run_if_needed(project: &Project) -> Result<()> {
    if is_needed(project)? { run(project) } else { Ok(()) }
}

/// Checks until no ready session is behind its target. The priority of this process stays low.
fn run(project: &Project) -> Result<()> {
    if !project.config.studio.recheck {
        return Ok(());
    }
    let mut sessions = LiveSessions::read(project)?;
    if next(project, sessions.views())?.is_none() {
        return Ok(());
    }
    // One process checks, and at most one waits to look for what that one has not seen.
    let Some(waiting) = try_lock(project, "recheck.next.lock")? else { return Ok(()) };
    let path = project.repository.studio_dir()?.join("recheck.lock");
    let _lock = Lock::take(&path).or_fail(|| format!("cannot lock {}", path.display()))?;
    drop(waiting);
    base::process::lower_priority(PRIORITY_REDUCTION);
    loop {
        // Only the sessions that changed are read again.
        sessions.refresh(project)?;
        let views = sessions.oldest_first().into_iter().map(|(view, _)| view);
        let Some((view, tip)) = next(project, views)? else { return Ok(()) };
        // A landing runs its own checks, and moves the target.
        while is_held(project, "queue.lock") || is_held(project, "landing.lock") {
            pause();
        }
        let work = view.work().map(|work| work.commit().to_owned()).unwrap_or_default();
        let target = view.record.base.branch.as_ref().map(ToString::to_string).unwrap_or_default();
        let outcome = check(project, &view, &tip)
            .unwrap_or_else(|failure| TargetCheckOutcome::Failed { why: failure.sentence() });
        // Without a stored result it would be checked again and again.
        TargetCheck { work, target, tip, outcome }.store(&project.store, &view.record.id)?;
    }
}

/// Returns whether there is something to check.
fn is_needed(project: &Project) -> Result<bool> {
    Ok(project.config.studio.recheck && next(project, project.open_views()?.iter())?.is_some())
}

/// Returns the first ready session that is behind its target and was not checked with its tip.
fn next<'a>(
    project: &Project,
    views: impl Iterator<Item = &'a SessionView>,
) -> Result<Option<(SessionView, String)>> {
    for view in views {
        if view.state != SessionState::Ready
            || merge_checks::checks_of(project, &view.record).is_empty()
        {
            continue;
        }
        let Some((work, branch)) = view.work().zip(view.record.base.branch.as_ref()) else {
            continue;
        };
        let Some(tip) = project.repository.tip(branch)? else { continue };
        let is_checked = TargetCheck::read(&project.store, &view.record.id)
            .is_some_and(|check| check.tip == tip && check.work == work.commit());
        if work.base.as_ref() != Some(&tip) && !is_checked {
            return Ok(Some((view.clone(), tip)));
        }
    }
    Ok(None)
}

/// Merges the work of a session with a tip of its target, and runs its checks.
fn check(project: &Project, view: &SessionView, tip: &str) -> Result<TargetCheckOutcome> {
    let record = &view.record;
    let failed = |why: &str| TargetCheckOutcome::Failed { why: why.to_owned() };
    let Some((work, branch)) = view.work().zip(record.base.branch.as_ref()) else {
        return Ok(failed("there is nothing to check"));
    };
    let snapshot = Snapshot {
        head: work.head.clone(),
        work: work.commit().to_owned(),
        number: None,
        omissions: Vec::new(),
        changed_by_checks: Vec::new(),
    };
    let repository = &project.repository;
    let repo = repository.open()?;
    let base = collect::base_for(&repo, repository, record, &work.head, Some(branch))?;
    let prepared = merge::prepare_onto(
        repository,
        &record.session_repo,
        &snapshot,
        merge::MergeTarget { branch, tip },
        // The next landing merges in the same way.
        MergeMethod { by_syntax: project.config.studio.merge_by_syntax, ..MergeMethod::default() },
        base.landed.as_deref(),
        project.clock.now(),
    )?;
    let candidate = match prepared {
        PreparedMerge::Ready(candidate) => candidate,
        PreparedMerge::Nothing => return Ok(failed("the target already has all of it")),
        PreparedMerge::Conflicts(conflicts) => {
            let files = conflicts.into_iter().map(|conflict| conflict.path).collect();
            return Ok(TargetCheckOutcome::Conflicts { files });
        }
    };
    let state = TreeState { commit: &candidate.merged_commit, tree: &candidate.tree };
    let checks = merge_checks::checks_of(project, record);
    let outcome = merge_checks::check_tree(project, record, state, &checks, Retry::Once)?;
    Ok(match outcome.has_passed() {
        true => TargetCheckOutcome::Passed,
        false => failed(&outcome.summary()),
    })
}

fn try_lock(project: &Project, name: &str) -> Result<Option<Lock>> {
    let path = project.repository.studio_dir()?.join(name);
    Lock::try_take(&path).or_fail(|| format!("cannot lock {}", path.display()))
}

fn is_held(project: &Project, name: &str) -> bool {
    Lock::is_held(&project.repository.common_dir.join("studio").join(name)).unwrap_or(false)
}
