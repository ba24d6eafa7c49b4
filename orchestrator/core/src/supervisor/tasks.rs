//! The long-running actions of a supervisor: each is a future that results in an input.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::failure::{Failure, FailureKind, OrFail, Result};
use tokio_util::sync::CancellationToken;

use crate::check;
use crate::exec::build_caches::BuildCaches;
use crate::exec::carried_caches;
use crate::exec::runner::{SandboxedRunner, home};
use crate::radar::SessionConflict;
use crate::session::collect;
use crate::session::journal::WorkSummary;
use crate::session::record::SessionRecord;
use crate::supervisor::run::SupervisorConfig;
use crate::supervisor::same_lines;
use crate::supervisor::step::Input;
use studio_git::recreate_worktree::Recreated;
use studio_git::repo::Repository;
use studio_git::{handle, import, recreate_worktree, snapshot, worktree};

/// Default timeout of one check or setup line, in seconds.
const DEFAULT_LINE_SECONDS: u64 = 3600;
/// The file of a session that says that the setup has to run.
const PENDING_SETUP_FILE: &str = "setup-pending";
/// Maximum number of bytes of the diff in a recap.
const DIFF_BYTES: usize = 20_000;

/// Creates or finds the worktree, and runs the setup lines unless they ran to their end before; calls
/// `on_setup` before each of them.
pub(crate) fn make_worktree(
    config: &SupervisorConfig,
    cancel: CancellationToken,
    on_setup: impl Fn(&str) + Send + Sync + 'static,
) -> impl Future<Output = Input> + Send + 'static {
    let (repository, record) = (config.repository.clone(), config.record.clone());
    let (setup_runner, setup) = (config.setup_runner.clone(), config.setup.clone());
    let caches = BuildCaches::of(&config.repository, &config.record.id);
    let timeout = line_timeout(config);
    let pool_filler = config.pool_filler.clone();
    let (carried, lines) = (config.caches.clone(), setup.clone());
    let pending_setup = config.repository.session_dir(&config.record.id).join(PENDING_SETUP_FILE);
    let marker = pending_setup.clone();
    async move {
        let prepare = move || {
            let prepare =
                || prepare_worktree(&repository, &record, carried.as_deref(), &lines, &marker);
            let prepared = handle::keep_open(prepare);
            if prepared.as_ref().is_ok_and(|prepared| prepared.is_new) {
                // Without the pool, the next session only takes longer to start.
                let _ = pool_filler.start(&record.session_repo);
            }
            prepared
        };
        let result = tokio::select! {
            result = tokio::task::spawn_blocking(prepare) => result,
            // Its thread ends with the process.
            () = cancel.cancelled() => return Input::SetupCancelled,
        };
        let result = result.unwrap_or_else(|e| Err(Failure::new(FailureKind::Bug, e.to_string())));
        let note = match result {
            Ok(prepared) => prepared.note,
            Err(failure) => return Input::CannotStart { reason: failure.full_text() },
        };
        if pending_setup.exists() {
            if let Some(runner) = &setup_runner {
                tokio::select! {
                    result = run_setup(runner, &setup, timeout, &on_setup) => {
                        if let Err(reason) = result {
                            return Input::CannotStart { reason };
                        }
                    }
                    () = cancel.cancelled() => return Input::SetupCancelled,
                }
            }
            if let Err(error) = std::fs::remove_file(&pending_setup) {
                return Input::CannotStart {
                    reason: format!("cannot remove {}: {error}", pending_setup.display()),
                };
            }
        }
        // If it fails, the caches are cold, which only costs time.
        let _ = tokio::task::spawn_blocking(move || caches.copy_to_agent()).await;
        Input::WorktreeReady { note }
    }
}

/// A worktree with its files.
struct ReadyWorktree {
    /// Whether it was created now.
    is_new: bool,
    /// A note for the user.
    note: Option<String>,
}

/// Creates or finds the worktree. If it is created, the marker tells until the end of the setup that
/// the setup has to run, also after a kill.
fn prepare_worktree(
    repository: &Repository,
    record: &SessionRecord,
    carried: Option<&[PathBuf]>,
    setup: &[String],
    pending_setup: &Path,
) -> Result<ReadyWorktree> {
    let caches = BuildCaches::of(repository, &record.id);
    let session_repo = &record.session_repo;
    let floor = record.limits.disk_floor_bytes;
    let copy = || carried_caches::copy(repository, session_repo, carried, floor);
    let joined = |notes: Vec<String>| (!notes.is_empty()).then(|| notes.join("; "));
    let is_finished = worktree::is_finished(session_repo);
    if !setup.is_empty() && (!is_finished || session_repo.worktree.symlink_metadata().is_err()) {
        base::files::replace_cache(pending_setup, b"").or_fail(|| "cannot record the setup")?;
    }
    if is_finished {
        let recreated = recreate_worktree::recreate_if_missing(repository, session_repo)?;
        // Otherwise the work of a turn could not be collected: this is reported before the turn
        // costs anything.
        import::check_pointer(session_repo)?;
        if caches.are_missing() {
            caches.prepare(&session_repo.worktree, &home(), setup)?;
        }
        let (is_new, mut notes) = match recreated {
            Recreated::Yes { note } => (true, Vec::from_iter(note)),
            Recreated::No => (false, Vec::new()),
        };
        if is_new || carried_caches::is_incomplete(session_repo) {
            notes.extend(copy());
        }
        return Ok(ReadyWorktree { is_new, note: joined(notes) });
    }
    worktree::remove_incomplete(repository, session_repo)?;
    carried_caches::begin(repository, session_repo, carried)?;
    let start = record.start.as_ref();
    // A sparse checkout is that of the checkout in which the user started the session.
    let seen = repository.seen_from(record.run_mode.directory.as_deref());
    worktree::create_at(&seen, session_repo, &record.templates.branches()?, start)?;
    let note = joined(copy());
    caches.prepare(&session_repo.worktree, &home(), setup)?;
    Ok(ReadyWorktree { is_new: true, note })
}

/// Runs the lines of the setup; returns why one of them failed.
async fn run_setup(
    runner: &SandboxedRunner,
    setup: &[String],
    timeout: Duration,
    on_setup: &(impl Fn(&str) + Sync),
) -> std::result::Result<(), String> {
    for line in setup {
        on_setup(line);
        let output = runner.run_shell(line, timeout).await.map_err(|it| it.full_text())?;
        if output.exit == 0 {
            continue;
        }
        let tail = base::text::tail(output.tail.trim_end(), 500);
        let mut reason = format!("setup `{line}` failed with exit code {}: {tail}", output.exit);
        let details = [output.limit, runner.failure_hint(tail)];
        for detail in details.into_iter().flatten() {
            reason = format!("{reason}\n{detail}");
        }
        return Err(reason);
    }
    Ok(())
}

/// Collects the session's work: import, then a snapshot of uncommitted changes.
pub(crate) fn collect_work(
    config: &SupervisorConfig,
) -> impl Future<Output = Input> + Send + 'static {
    let (repository, record) = (config.repository.clone(), config.record.clone());
    let runner = config.runner.clone();
    async move {
        let collect = move || {
            let frozen = runner.freeze();
            let limits = snapshot::SnapshotLimits::default();
            let work = collect::collect(&repository, &record, &limits)?.work;
            drop(frozen);
            Ok::<_, Failure>(work)
        };
        match tokio::task::spawn_blocking(collect).await {
            Ok(Ok(work)) => Input::Imported { work },
            Ok(Err(failure)) => Input::CannotImport { reason: failure.full_text() },
            Err(e) => Input::CannotImport { reason: e.to_string() },
        }
    }
}

/// Compares the work in the session's journal with that of other sessions. Returns those that change
/// the same lines.
pub(crate) fn compare(
    config: &SupervisorConfig,
) -> impl Future<Output = Vec<SessionConflict>> + Send + 'static {
    let (repository, record) = (config.repository.clone(), config.record.clone());
    async move {
        let compare = move || same_lines::find(&repository, &record);
        tokio::task::spawn_blocking(compare).await.unwrap_or_default()
    }
}

/// Runs the session's checks in its worktree, and records the files that they left there.
pub(crate) fn check(
    config: &SupervisorConfig,
    work: Option<&WorkSummary>,
) -> impl Future<Output = Input> + Send + 'static {
    let (runner, checks) = (config.check_runner.clone(), config.record.checks.clone());
    let (repository, record) = (config.repository.clone(), config.record.clone());
    let work = work.cloned();
    let fails_on_base = config.fails_on_base.clone();
    let timeout = line_timeout(config);
    let caches = BuildCaches::of(&config.repository, &config.record.id);
    async move {
        let worktree = record.session_repo.worktree.clone();
        let renew = move || caches.renew_checks(&worktree, &home());
        let renewed = tokio::task::spawn_blocking(renew).await;
        if let Ok(Err(failure)) = renewed {
            let not_run =
                |command: &String| check::failed_result(command.clone(), failure.full_text());
            return Input::Checked { results: checks.iter().map(not_run).collect() };
        }
        let mut results = match &runner {
            Some(runner) => check::run(runner, &checks, timeout).await,
            None => Vec::new(),
        };
        if let Some(work) = work {
            // Files that cannot be recorded count as the session's work, and nothing is lost.
            let note = move || collect::note_leftovers(&repository, &record, &work);
            let _ = tokio::task::spawn_blocking(note).await;
        }
        if let Some(failed) = results.iter_mut().find(|result| !result.ok) {
            let (cancel, command) = (CancellationToken::new(), failed.command.clone());
            // Dropped with this future, so that cancelled checks end.
            let _guard = cancel.clone().drop_guard();
            let check_base = move || fails_on_base(&command, cancel);
            failed.fails_on = tokio::task::spawn_blocking(check_base).await.ok().flatten();
        }
        Input::Checked { results }
    }
}

fn line_timeout(config: &SupervisorConfig) -> Duration {
    Duration::from_secs(config.limits.check_seconds.unwrap_or(DEFAULT_LINE_SECONDS))
}

/// Returns the prompt with the diff so far, for an agent without its conversation.
pub(crate) fn append_diff(
    config: &SupervisorConfig,
    work: Option<&WorkSummary>,
    text: String,
) -> String {
    let (repository, record) = (&config.repository, &config.record);
    // A fork has the work of its origin before its own first turn.
    let start = record.start.as_ref();
    let start_diff = || studio_git::diff::patch(repository, &record.base.commit, &start?.work).ok();
    let diff = match work {
        Some(work) => collect::diff(repository, record, work).ok(),
        None => start_diff(),
    };
    match diff.filter(|diff| !diff.trim().is_empty()) {
        Some(diff) => {
            let excerpt = base::text::head(&diff, DIFF_BYTES);
            format!("{text}\n\nThe changes so far:\n\n{excerpt}")
        }
        None => text,
    }
}

/// Returns the limit in words, if the free space on the disk of the worktree is below the floor.
pub(crate) fn low_disk_space(config: &SupervisorConfig) -> Option<String> {
    let floor = config.record.limits.disk_floor_bytes?;
    let stat = rustix::fs::statvfs(&config.record.session_repo.worktree).ok()?;
    let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
    (free_bytes < floor).then(|| format!("{floor} bytes of free disk space"))
}
