//! The waker: a process that calls the scheduler while queued sessions wait for the end of a rate
//! limit or for room on the machine, and no session is running whose supervisor would.

use std::fs::File;
use std::path::{Path, PathBuf};

use base::lock::Lock;
use base::process::{Command, Stream};

/// The hidden command.
pub(crate) const COMMAND: &str = "__wake";

/// Returns the lock that a waker holds.
pub(crate) fn lock_path(root: &Path) -> PathBuf {
    root.join("waker.lock")
}

/// Starts the waker of a repository, unless one is running. The caller holds the scheduler lock.
pub(crate) fn start(common_dir: &Path, root: &Path, directory: Option<&Path>) {
    if Lock::is_held(&lock_path(root)).unwrap_or(true) {
        return;
    }
    let spawn = || -> std::io::Result<u32> {
        let studio = std::env::current_exe()?;
        let log = File::create(root.join("waker.log"))?;
        let stderr = log.try_clone()?;
        Command::new(studio, directory.unwrap_or(common_dir))
            .arg(COMMAND)
            .arg(common_dir)
            .stdin(Stream::Null)
            .stdout(Stream::File(log))
            .stderr(Stream::File(stderr))
            .detached()
            .spawn_forget()
    };
    // Without it, the next command starts the sessions.
    let _ = spawn();
}
