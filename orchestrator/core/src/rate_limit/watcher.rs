//! Waits until a rate limit changes: with inotify if available, else by a timer.

use std::path::Path;
use std::time::Duration;

/// The wait where changes are not reported.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Watches the files of the rate limits.
pub(crate) struct RateLimitWatcher {
    #[cfg(target_os = "linux")]
    inotify: Option<tokio::net::unix::pipe::Receiver>,
}

impl RateLimitWatcher {
    /// Creates a watcher; creates the directory, if it is missing. Call it within a runtime.
    pub(crate) fn start(directory: Option<&Path>) -> RateLimitWatcher {
        if let Some(directory) = directory {
            let mut builder = std::fs::DirBuilder::new();
            std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
            let _ = builder.create(directory);
        }
        RateLimitWatcher {
            #[cfg(target_os = "linux")]
            inotify: directory.and_then(watch),
        }
    }

    /// Returns when a limit changed.
    pub(crate) async fn changed(&self) {
        #[cfg(target_os = "linux")]
        if let Some(inotify) = &self.inotify {
            let mut bytes = [0; 4096];
            loop {
                if inotify.readable().await.is_err() {
                    break;
                }
                match inotify.try_read(&mut bytes) {
                    Ok(_) => return,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => break,
                }
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(target_os = "linux")]
fn watch(directory: &Path) -> Option<tokio::net::unix::pipe::Receiver> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    add_watch(&inotify, directory, WatchFlags::MOVED_TO | WatchFlags::DELETE).ok()?;
    tokio::net::unix::pipe::Receiver::from_owned_fd_unchecked(inotify).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_replaced_file_wakes_the_watcher() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().join("state");
        let watcher = RateLimitWatcher::start(Some(&directory));
        base::files::replace(&directory.join("a.json"), b"{}").unwrap();
        watcher.changed().await;
    }
}
