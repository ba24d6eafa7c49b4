//! The hidden command that calls the scheduler while queued sessions wait.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use base::lock::Lock;

use crate::project_args::ProjectArgs;
use crate::queue_reasons::QueueReasons;
use crate::rate_limit::{RateLimitWatcher, RateLimits, scaled};
use crate::schedule;
use crate::session::store::SessionStore;
use crate::waker::{self, COMMAND, lock_path};

/// The interval of scheduler calls.
const INTERVAL: Duration = Duration::from_secs(30);

/// The wait after the first failure; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest wait after a failure.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// Parses the arguments of the process; returns `None` for other commands.
pub fn parse(args: impl Iterator<Item = OsString>) -> Option<ProjectArgs> {
    ProjectArgs::parse(COMMAND, args)
}

/// Calls the scheduler until no session waits for something that changes by itself. After a failure it
/// waits and tries again, as long as the repository exists.
pub fn run(args: &ProjectArgs) -> Result<u8> {
    let root = SessionStore::new(&args.common_dir).root().to_owned();
    let Some(lock) = Lock::try_take(&lock_path(&root)).or_fail(|| "cannot lock the waker")? else {
        return Ok(0);
    };
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let limits = RateLimits::of_user();
    runtime.block_on(async {
        let watcher = RateLimitWatcher::start(limits.directory());
        let mut failures: u32 = 0;
        loop {
            let wait = match failures {
                0 => pause(&QueueReasons::read(&root)),
                failures => backoff(failures),
            };
            tokio::select! {
                () = watcher.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
            match schedule(args) {
                Ok(Some(_scheduler)) => {
                    drop(lock);
                    return Ok(0);
                }
                Ok(None) => failures = 0,
                Err(failure) if !root.is_dir() => return Err(failure),
                Err(failure) => {
                    failures = failures.saturating_add(1);
                    log(&root, &failure, backoff(failures));
                }
            }
        }
    })
}

/// Calls the scheduler. Returns the scheduler's lock if the waker is not needed any more: no scheduler
/// may count on a waker that is ending.
fn schedule(args: &ProjectArgs) -> Result<Option<Lock>> {
    let project = args.project()?;
    project.schedule()?;
    let scheduler = schedule::lock(&project.repository)?;
    let is_needed = QueueReasons::read(project.store.root()).needs_waker();
    Ok((!is_needed || project.store.any_locked()?).then_some(scheduler))
}

/// Returns how long to wait after this many failures in a row.
fn backoff(failures: u32) -> Duration {
    let factor = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    scaled(FIRST_BACKOFF.saturating_mul(factor).min(MAX_BACKOFF))
}

/// Records a failure in the log of the waker.
fn log(root: &Path, failure: &Failure, wait: Duration) {
    let time = Clock::from_env().stamp();
    let seconds = wait.as_secs_f64();
    let line = format!("{time} {}; retrying in {seconds:.1} s\n", failure.full_text());
    // Without the log the reason is lost; the next command that schedules shows it.
    let _ = waker::open_log(root).and_then(|mut log| log.write_all(line.as_bytes()));
}

/// Returns how long to wait for the earliest time at which a session may start.
fn pause(reasons: &QueueReasons) -> Duration {
    let now = Clock::from_env().now();
    let wait =
        reasons.earliest().and_then(|time| Duration::try_from(time.duration_since(now)).ok());
    wait.map_or(INTERVAL, |wait| wait.min(INTERVAL)) + Duration::from_millis(50)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_after_failures_grows_up_to_a_maximum() {
        let seconds: Vec<u64> = [1, 2, 3, 9, 10, u32::MAX].map(|n| backoff(n).as_secs()).into();
        assert_eq!(seconds, [1, 2, 4, 256, 300, 300]);
    }
}
