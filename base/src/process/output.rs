//! The limits and the result of a process.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// Limits of time and size. Output past `bytes` is read and discarded.
#[derive(Clone, Copy, Debug)]
pub struct OutputLimits {
    /// The time after which the group is killed.
    pub time: Option<Duration>,
    /// The number of bytes of each stream that are kept.
    pub bytes: usize,
}

impl OutputLimits {
    /// Creates limits of this many seconds and 64 MiB of each stream.
    pub fn seconds(seconds: u64) -> OutputLimits {
        OutputLimits { time: Some(Duration::from_secs(seconds)), bytes: 64 << 20 }
    }
}

/// The result of a process.
#[derive(Debug)]
pub struct Output {
    /// The exit status.
    pub status: ExitStatus,
    /// Whether the timeout killed it.
    pub timed_out: bool,
    /// Its stdout, up to the limit.
    pub stdout: Vec<u8>,
    /// Its stderr, up to the limit.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Returns whether it exited by itself with code 0.
    pub fn ok(&self) -> bool {
        !self.timed_out && self.status.success()
    }

    /// Returns the exit code as in a shell: 128 + signal for a process that a signal killed.
    pub fn code(&self) -> i32 {
        exit_code(self.status)
    }

    /// Returns stdout as text, without its last newline.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    /// Returns stderr as text, trimmed; if it is empty, the signal that killed the process.
    pub fn error_text(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        match (text.trim(), self.status.signal()) {
            ("", Some(signal)) => format!("it was killed by signal {signal}"),
            (text, _) => text.to_owned(),
        }
    }
}

/// Returns the exit code as in a shell: 128 + signal for a process that a signal killed.
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
