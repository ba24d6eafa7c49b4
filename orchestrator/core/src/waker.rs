//! The waker: a process that calls the scheduler while queued sessions wait for the end of a rate
//! limit or for room on the machine, and no session is running whose supervisor would.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use base::lock::Lock;
use base::process::{Command, Stream};

/// The hidden command.
pub(crate) const COMMAND: &str = "__wake";

/// Returns the lock that a waker holds.
pub(crate) fn lock_path(root: &Path) -> PathBuf {
    root.join("waker.lock")
}

/// Where the configuration of a command comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigLocation<'a> {
    /// The directory whose `g3.toml` is read.
    pub directory: &'a Path,
    /// The file given with `--config`.
    pub config_file: Option<&'a Path>,
}

/// Opens the log of the waker.
pub(crate) fn open_log(root: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(root.join("waker.log"))
}

/// Starts the waker of a repository, unless one is running: with the same configuration as this
/// command. The caller holds the scheduler lock.
pub(crate) fn start(common_dir: &Path, root: &Path, location: ConfigLocation<'_>) {
    if Lock::is_held(&lock_path(root)).unwrap_or(true) {
        return;
    }
    let spawn = || -> io::Result<u32> {
        let studio = std::env::current_exe()?;
        drop(File::create(root.join("waker.log"))?);
        let log = open_log(root)?;
        let stderr = log.try_clone()?;
        // The directory may be gone before the waker ends.
        Command::new(studio, common_dir)
            .arg(COMMAND)
            .arg(common_dir)
            .arg(location.directory)
            .args(location.config_file)
            .stdin(Stream::Null)
            .stdout(Stream::File(log))
            .stderr(Stream::File(stderr))
            .detached()
            .spawn_forget()
    };
    // Without it, the next command starts the sessions.
    let _ = spawn();
}
