//! The job of a cluster: keeps its node until home has everything of a session, and runs the session's
//! supervisor; or while home runs checks in it.

use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use studio_git::repo::Repository;

use crate::interrupt::Interrupt;
use crate::place::node::spool::{self, JobFiles, Spool};
use crate::place::slurm;
use crate::project::pause;
use crate::session::store::SessionStore;
use crate::session::summary::Phase;
use crate::supervisor::control::{self, ControlRequest};
use crate::supervisor::spawn;

/// How long a job keeps its node for home: before the session is delivered, and after its run.
const LINGER: Duration = Duration::from_secs(600);
/// How long after its run if home can get everything without the node.
const SHARED_LINGER: Duration = Duration::from_secs(10);

/// Runs the sessions that are delivered to a job, until home has everything of the last one, or lets
/// checks run, until they have ended.
pub(super) fn hold(spool: &Spool, name: &str) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let files = JobFiles::new(spool, name)?;
    let _lock = files.begin()?;
    let (mut idle_since, mut has_run, mut has_checked) = (Instant::now(), false, false);
    loop {
        let is_interrupted = interrupt.check().is_err();
        // After a run it stays although it is told to end: home may not have everything yet.
        if is_interrupted && !has_run {
            break;
        }
        if let Some(session) = files.session()
            && let Some(repository) = spool.existing_repository(&session)?
        {
            let store = SessionStore::new(&repository.common_dir);
            let attempt = spool::attempt(&store, &session.id);
            if attempt.is_some() && files.settled() == attempt {
                break;
            }
            if has_run && session.shared && idle_since.elapsed() > SHARED_LINGER {
                return Ok(());
            }
            if attempt.is_some()
                && !is_interrupted
                && run_if_queued(&store, &repository, &session.id, &interrupt)?
            {
                (idle_since, has_run) = (Instant::now(), true);
            }
        }
        if files.runs_checks() {
            (idle_since, has_checked) = (Instant::now(), true);
        } else if has_checked {
            break;
        }
        if idle_since.elapsed() > LINGER {
            let minutes = base::text::count(LINGER.as_secs() / 60, "minute");
            return Err(Failure::refused(format!("home did not connect for {minutes}")));
        }
        pause();
    }
    files.remove();
    Ok(())
}

/// Runs the supervisor of a session that waits to run, and returns whether it did.
fn run_if_queued(
    store: &SessionStore,
    repository: &Repository,
    id: &Id,
    interrupt: &Interrupt,
) -> Result<bool> {
    if store.summary(id)?.phase != Phase::Queued {
        return Ok(false);
    }
    let Some(lock) = store.lock(id)? else { return Ok(false) };
    let fail = || format!("cannot run the supervisor of `{id}`");
    let mut supervisor = spawn::spawn_child(&repository.common_dir, id, lock)?;
    let mut stop = None;
    let mut is_stopped = false;
    loop {
        if supervisor.wait_until(Some(Instant::now())).or_fail(fail)?.is_some() {
            break;
        }
        if !is_stopped && interrupt.check().is_err() {
            // The work is kept, and the run can be resumed.
            let stop =
                stop.get_or_insert_with(|| ControlRequest::StopBecause { why: end_reason() });
            let sent = control::send_request(&repository.common_dir, id, stop);
            is_stopped = sent.unwrap_or(false);
        }
        pause();
    }
    match store.summary(id)?.phase {
        Phase::Ended { .. } => Ok(true),
        _ => Err(Failure::failed(fail()).because("it exited unexpectedly")),
    }
}

/// Returns why a job that was told to end does, as a clause.
fn end_reason() -> String {
    match slurm::is_near_time_limit() {
        true => "its job is about to reach its time limit",
        false => "its job was told to end",
    }
    .to_owned()
}
