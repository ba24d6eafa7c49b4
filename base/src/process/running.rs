//! Operations on a running process: wait for it, signal it, kill its group.

use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::process::{AsyncRunning, GRACE, Running, signal_group, system};

/// How long a process that cleans up by itself may take to exit.
const CLEAN_UP_TIME: Duration = Duration::from_secs(5);

impl Running {
    /// Returns the process id, which is also the id of its group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the exit, at most until the given moment; returns `None` if that comes first.
    pub fn wait_until(&mut self, deadline: Option<Instant>) -> io::Result<Option<ExitStatus>> {
        let Some(deadline) = deadline else {
            let status = self.child.wait()?;
            self.ended = true;
            return Ok(Some(status));
        };
        let end = system::ExitWatch::process(self.child.id())?;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.ended = true;
                return Ok(Some(status));
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(None);
            }
            end.wait(remaining)?;
        }
    }

    /// Ends the group: SIGTERM, then SIGKILL after the grace period.
    pub fn end(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        signal_group(self.child.id(), Signal::TERM);
        let status =
            self.wait_until(Some(Instant::now() + grace_period(self.last_signal, grace)))?;
        signal_group(self.child.id(), Signal::KILL);
        match status {
            Some(status) => Ok(status),
            None => {
                self.ended = true;
                self.child.wait()
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended && self.last_signal == Signal::TERM {
            let _ = self.end(GRACE);
        } else if !self.ended {
            signal_group(self.child.id(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl AsyncRunning {
    /// Returns the id of the process and of its group.
    pub fn id(&self) -> Option<u32> {
        self.group.map(|pid| pid.as_raw_nonzero().get().cast_unsigned())
    }

    /// Sends a signal to the whole group.
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    /// Ends the group: SIGTERM, then SIGKILL after the grace period; waits for the process.
    pub async fn end(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM);
        let result =
            tokio::time::timeout(grace_period(self.last_signal, grace), self.child.wait()).await;
        self.signal(Signal::KILL);
        match result {
            Ok(status) => status,
            Err(_) => self.child.wait().await,
        }
    }

    /// Lets the group keep running after the handle is dropped.
    pub fn forget(&mut self) {
        self.group = None;
        self.watched = None;
    }
}

impl Drop for AsyncRunning {
    fn drop(&mut self) {
        self.signal(self.last_signal);
    }
}

/// Returns the time to wait before SIGKILL: a process that cleans up by itself needs more.
fn grace_period(last_signal: Signal, grace: Duration) -> Duration {
    if last_signal == Signal::TERM { grace.max(CLEAN_UP_TIME) } else { grace }
}
