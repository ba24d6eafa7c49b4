//! The long-running actions of a supervisor: each is a future that results in an input.

use std::future::Future;
use std::time::Duration;

use base::failure::{Failure, Result};
use tokio_util::sync::CancellationToken;

use crate::check;
use crate::exec::build_caches::BuildCaches;
use crate::exec::runner::{SandboxedRunner, home};
use crate::path_dependencies;
use crate::session::collect;
use crate::session::journal::WorkSummary;
use crate::session::record::SessionRecord;
use crate::supervisor::run::SupervisorConfig;
use crate::supervisor::step::Input;
use studio_git::recreate_worktree::Recreated;
use studio_git::repo::Repository;
use studio_git::{import, recreate_worktree, snapshot, worktree};

/// Default timeout of one check or setup line, in seconds.
const LINE_SECONDS: u64 = 3600;
/// Maximum number of bytes of the diff in a recap.
const DIFF_BYTES: usize = 20_000;

/// Creates or finds the worktree and runs the setup lines.
pub(crate) fn make_worktree(
    config: &SupervisorConfig,
) -> impl Future<Output = Input> + Send + 'static {
    let (repository, record) = (config.repository.clone(), config.record.clone());
    let (setup_room, setup) = (config.setup_room.clone(), config.setup.clone());
    let caches = BuildCaches::of(&config.repository, &config.record.id);
    let most = line_limit(config);
    async move {
        let made = tokio::task::spawn_blocking(move || stand_up(&repository, &record)).await;
        match made
            .unwrap_or_else(|e| Err(Failure::new(base::failure::FailureKind::Bug, e.to_string())))
        {
            Ok(WorktreeState::Before) => Input::WorktreeStands { note: None },
            Ok(WorktreeState::New { note }) => {
                prepared(&setup_room, &setup, most, note, caches).await
            }
            Err(failure) => Input::CannotStart { why: failure.in_full() },
        }
    }
}

/// Whether the worktree existed already.
enum WorktreeState {
    Before,
    New { note: Option<String> },
}

fn stand_up(repository: &Repository, record: &SessionRecord) -> Result<WorktreeState> {
    let caches = BuildCaches::of(repository, &record.id);
    if worktree::is_finished(&record.place) {
        let remade = recreate_worktree::if_gone(repository, &record.place)?;
        // Otherwise the work of a turn could not be collected: this is reported before the turn
        // costs anything.
        import::check_pointer(&record.place)?;
        if caches.are_missing() {
            caches.begin(&record.place.worktree, &home())?;
        }
        return match remade {
            Recreated::Yes { note } => Ok(WorktreeState::New { note }),
            Recreated::No => caches.hand_over().map(|()| WorktreeState::Before),
        };
    }
    worktree::unmake(repository, &record.place)?;
    worktree::make_at(repository, &record.place, &record.templates.branches()?)?;
    caches.begin(&record.place.worktree, &home())?;
    Ok(WorktreeState::New { note: None })
}

async fn prepared(
    room: &SandboxedRunner,
    setup: &[String],
    most: Duration,
    note: Option<String>,
    caches: BuildCaches,
) -> Input {
    for line in setup {
        match room.run_shell(line, most).await {
            Ok(ended) if ended.exit == 0 => {}
            Ok(ended) => {
                let tail = base::text::tail(ended.tail.trim_end(), 500);
                let mut why =
                    format!("setup `{line}` failed with exit code {}: {tail}", ended.exit);
                if let Some(hint) = path_dependencies::hint(room.worktree()) {
                    why = format!("{why}\n{hint}");
                }
                return Input::CannotStart { why };
            }
            Err(failure) => return Input::CannotStart { why: failure.in_full() },
        }
    }
    // If it fails, the caches are cold, which only costs time.
    let _ = tokio::task::spawn_blocking(move || caches.hand_over()).await;
    Input::WorktreeStands { note }
}

/// Collects the session's work: import, then a snapshot of uncommitted changes.
pub(crate) fn bring_home(
    config: &SupervisorConfig,
) -> impl Future<Output = Input> + Send + 'static {
    let (repository, record) = (config.repository.clone(), config.record.clone());
    let room = config.room.clone();
    async move {
        let bring = move || {
            let _frozen = room.freeze();
            collect::collect(&repository, &record, &snapshot::SnapshotLimits::default())
        };
        match tokio::task::spawn_blocking(bring).await {
            Ok(Ok(brought)) => Input::Imported { work: brought.work },
            Ok(Err(failure)) => Input::CannotImport { why: failure.in_full() },
            Err(e) => Input::CannotImport { why: e.to_string() },
        }
    }
}

/// Runs the session's checks in its worktree, and records the files that they left there.
pub(crate) fn check(
    config: &SupervisorConfig,
    work: Option<&WorkSummary>,
) -> impl Future<Output = Input> + Send + 'static {
    let (room, checks) = (config.check_room.clone(), config.record.checks.clone());
    let (repository, record) = (config.repository.clone(), config.record.clone());
    let work = work.cloned();
    let fails_on_base = config.fails_on_base.clone();
    let most = line_limit(config);
    let caches = BuildCaches::of(&config.repository, &config.record.id);
    async move {
        let renewed = tokio::task::spawn_blocking(move || caches.renew_checks(&home())).await;
        if let Ok(Err(failure)) = renewed {
            let red = |command: &String| check::not_run(command.clone(), failure.in_full());
            return Input::Checked { results: checks.iter().map(red).collect() };
        }
        let mut results = check::run(&room, &checks, most).await;
        if let Some(work) = work {
            // Files that cannot be recorded count as the session's work, and nothing is lost.
            let note = move || collect::note_leftovers(&repository, &record, &work);
            let _ = tokio::task::spawn_blocking(note).await;
        }
        if let Some(red) = results.iter_mut().find(|result| !result.ok) {
            let (cancel, command) = (CancellationToken::new(), red.command.clone());
            // Dropped with this future, so that cancelled checks end.
            let _guard = cancel.clone().drop_guard();
            let find_out = move || fails_on_base(&command, cancel);
            red.fails_on = tokio::task::spawn_blocking(find_out).await.ok().flatten();
        }
        Input::Checked { results }
    }
}

fn line_limit(config: &SupervisorConfig) -> Duration {
    Duration::from_secs(config.limits.check_seconds.unwrap_or(LINE_SECONDS))
}

/// Returns the prompt with the diff so far, for an agent without its conversation.
pub(crate) fn with_diff(
    config: &SupervisorConfig,
    work: Option<&WorkSummary>,
    text: String,
) -> String {
    let diff = work.and_then(|work| collect::diff(&config.repository, &config.record, work).ok());
    match diff.filter(|diff| !diff.trim().is_empty()) {
        Some(diff) => {
            let shown = base::text::head(&diff, DIFF_BYTES);
            format!("{text}\n\nThe changes so far:\n\n{shown}")
        }
        None => text,
    }
}

/// Returns the limit in words, if the free space on the disk of the worktree is below the floor.
pub(crate) fn disk_is_full(config: &SupervisorConfig) -> Option<String> {
    let floor = config.record.limits.disk_floor_bytes?;
    let stat = rustix::fs::statvfs(&config.record.place.worktree).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    (free < floor).then(|| format!("{floor} bytes of free disk space"))
}
