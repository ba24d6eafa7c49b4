//! Waits until sessions write something: with inotify if available, else by polling.

use std::path::Path;
use std::time::Duration;

#[cfg(target_os = "linux")]
use base::process::{Command, Stream};

/// Files whose changes are relevant.
#[cfg(target_os = "linux")]
const WATCHED_FILES: [&str; 3] = ["journal.jsonl", "agent.log", "operations.jsonl"];
/// How long another process holds an inotify instance until this one has exited, as an argument of
/// `sleep`.
#[cfg(target_os = "linux")]
const HOLDING_SECONDS: &str = "0.2";
/// Maximum wait: changes without a file being written (a released lock) are noticed then.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// The longest such wait, when it takes long to look at all sessions.
const LONGEST_IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// How many times as long as looking the wait is at least: looking then takes about 0.3 % of a core.
const IDLE_FACTOR: u32 = 300;
/// The wait after a change: the writer of a run's exit line releases its lock shortly afterwards.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of such short waits after a change.
const ACTIVE_POLLS: u32 = 6;

/// Watched directories.
pub(crate) struct DirectoryWatcher {
    #[cfg(target_os = "linux")]
    inotify: Option<tokio::net::unix::pipe::Receiver>,
    polls_left: u32,
    idle_interval: Duration,
}

impl DirectoryWatcher {
    /// Creates a watcher without directories. Call it within a runtime.
    pub(crate) fn start() -> DirectoryWatcher {
        #[cfg(target_os = "linux")]
        let inotify = {
            use rustix::fs::inotify::{CreateFlags, init};
            let instance = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
            instance
                .and_then(|fd| tokio::net::unix::pipe::Receiver::from_owned_fd_unchecked(fd).ok())
        };
        DirectoryWatcher {
            #[cfg(target_os = "linux")]
            inotify,
            polls_left: ACTIVE_POLLS,
            idle_interval: IDLE_INTERVAL,
        }
    }

    /// Lets the maximum wait grow with the time that it takes to look at all sessions.
    pub(crate) fn set_cost(&mut self, cost: Duration) {
        self.idle_interval = (IDLE_FACTOR * cost).clamp(IDLE_INTERVAL, LONGEST_IDLE_INTERVAL);
    }

    /// Adds the files of a directory.
    pub(crate) fn add(&self, directory: &Path) {
        #[cfg(target_os = "linux")]
        if let Some(inotify) = &self.inotify {
            use rustix::fs::inotify::{WatchFlags, add_watch};
            let mask = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
            // If the system has no watch left, the maximum wait applies.
            let _ = add_watch(inotify, directory, mask);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = directory;
    }

    /// Returns when something was written, or after a timeout.
    pub(crate) async fn next(&mut self) {
        let interval = match self.polls_left {
            0 => self.idle_interval,
            _ => POLL_INTERVAL,
        };
        if tokio::time::timeout(interval, self.wait_for_write()).await.is_ok() {
            self.polls_left = ACTIVE_POLLS;
        } else {
            self.polls_left = self.polls_left.saturating_sub(1);
        }
    }

    #[cfg(target_os = "linux")]
    async fn wait_for_write(&self) {
        let Some(inotify) = &self.inotify else { return tokio::time::sleep(POLL_INTERVAL).await };
        let mut bytes = vec![0; 16 << 10];
        loop {
            if inotify.readable().await.is_err() {
                return tokio::time::sleep(POLL_INTERVAL).await;
            }
            match inotify.try_read(&mut bytes) {
                Ok(n)
                    if event_names(&bytes[..n]).iter().any(|name| WATCHED_FILES.contains(name)) =>
                {
                    return;
                }
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Lets another process end the inotify instance: the kernel takes 15 to 20 ms for that, in which
    /// a process that is about to exit would have to wait. Changes are polled for from now on.
    #[cfg(target_os = "linux")]
    pub(crate) fn close_elsewhere(&mut self) {
        let inotify = self.inotify.take().and_then(|inotify| inotify.into_nonblocking_fd().ok());
        if let Some(inotify) = inotify {
            let holder = Command::new("sleep", "/").arg(HOLDING_SECONDS);
            let holder = holder.stdin(Stream::File(inotify.into()));
            // Without that process, it ends here and takes its time.
            let _ = holder.stdout(Stream::Null).stderr(Stream::Null).spawn_forget();
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn close_elsewhere(&mut self) {}

    #[cfg(not(target_os = "linux"))]
    async fn wait_for_write(&self) {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the names of files in a batch of events. Each event has four numbers of 32 bits (watch,
/// mask, cookie, length of the name) and the name, padded with zeros: see inotify(7).
#[cfg(target_os = "linux")]
fn event_names(mut bytes: &[u8]) -> Vec<&str> {
    let mut names = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(16) {
        let length: [u8; 4] = [head[12], head[13], head[14], head[15]];
        let length = u32::from_ne_bytes(length) as usize;
        let Some((name, rest)) = rest.split_at_checked(length) else { break };
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(length);
        names.extend(std::str::from_utf8(&name[..end]));
        bytes = rest;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_written_journal_wakes_the_watcher_and_other_files_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let changes = DirectoryWatcher::start();
        changes.add(dir.path());
        std::fs::write(dir.path().join("status.json"), "x").unwrap();
        let other =
            tokio::time::timeout(Duration::from_millis(100), changes.wait_for_write()).await;
        assert!(other.is_err() || !cfg!(target_os = "linux"));
        std::fs::write(dir.path().join("journal.jsonl"), "x").unwrap();
        changes.wait_for_write().await;
    }
    #[tokio::test(flavor = "current_thread")]
    async fn the_wait_grows_with_the_cost_of_looking_up_to_its_maximum() {
        let mut changes = DirectoryWatcher::start();
        let waits = [1, 15, 500].map(|cost| {
            changes.set_cost(Duration::from_millis(cost));
            changes.idle_interval.as_millis()
        });
        assert_eq!(waits, [1000, 4500, 5000]);
    }
}
