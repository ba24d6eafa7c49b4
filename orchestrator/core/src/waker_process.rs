//! The hidden command that calls the scheduler while queued sessions wait.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::clock::Clock;
use base::config::ConfigSources;
use base::failure::{OrFail, Result};
use base::lock::Lock;

use crate::project::Project;
use crate::queue_reasons::QueueReasons;
use crate::rate_limit::{RateLimitWatcher, RateLimits};
use crate::schedule;
use crate::waker::{COMMAND, lock_path};
use studio_git::repo::Repository;

/// The interval of scheduler calls.
const INTERVAL: Duration = Duration::from_secs(30);

/// Parses `__wake COMMON`, which studio itself runs; returns `None` for other commands.
pub fn parse(mut args: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    if args.next()? != COMMAND {
        return None;
    }
    let common_dir = args.next()?.into();
    args.next().is_none().then_some(common_dir)
}

/// Calls the scheduler until no session waits for something that changes by itself.
pub fn run(common_dir: &Path) -> Result<u8> {
    let repository = Repository::discover(common_dir)?;
    let loaded = base::config::load(&ConfigSources::from_env(
        &std::env::current_dir().or_fail(|| "no current directory")?,
    ))?;
    let project = Project::new(repository, loaded.config);
    let root = project.store.root().to_owned();
    let Some(lock) = Lock::try_take(&lock_path(&root)).or_fail(|| "cannot lock the waker")? else {
        return Ok(0);
    };
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let limits = RateLimits::of_user();
    runtime.block_on(async {
        let watcher = RateLimitWatcher::start(limits.directory());
        loop {
            let reasons = QueueReasons::read(&root);
            tokio::select! {
                () = watcher.changed() => {}
                () = tokio::time::sleep(pause(&reasons)) => {}
            }
            project.schedule()?;
            // Under the lock, so that no step relies on a waker that is ending.
            let _scheduler = schedule::lock(&project.repository)?;
            let is_needed = QueueReasons::read(&root).needs_waker();
            if !is_needed || project.store.any_locked()? {
                drop(lock);
                return Ok(0);
            }
        }
    })
}

/// Returns how long to wait for the earliest time at which a session may start.
fn pause(reasons: &QueueReasons) -> Duration {
    let now = Clock::from_env().now();
    let wait =
        reasons.earliest().and_then(|time| Duration::try_from(time.duration_since(now)).ok());
    wait.map_or(INTERVAL, |wait| wait.min(INTERVAL)) + Duration::from_millis(50)
}
