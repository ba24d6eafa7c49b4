//! How much of a process is waited for and kept, and what it left.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// How long and how much. What is past `bytes` is counted and thrown away.
#[derive(Clone, Copy, Debug)]
pub struct OutputLimits {
    /// The time after which the group is ended.
    pub time: Option<Duration>,
    /// How many bytes of each stream are kept.
    pub bytes: usize,
}

impl OutputLimits {
    /// So many seconds, and 64 MiB of each stream.
    pub fn seconds(seconds: u64) -> OutputLimits {
        OutputLimits { time: Some(Duration::from_secs(seconds)), bytes: 64 << 20 }
    }
}

/// What a process left.
#[derive(Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Whether it was ended by the time limit.
    pub timed_out: bool,
    /// What it wrote, as far as the limit goes.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Returns whether it ended by itself with exit code 0.
    pub fn ok(&self) -> bool {
        !self.timed_out && self.status.success()
    }

    /// Returns the exit code as a shell gives it: 128 + signal for a process that a signal ended.
    pub fn code(&self) -> i32 {
        exit_code(self.status)
    }

    /// Stdout as text, without its last newline.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    /// Stderr as text, trimmed.
    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

/// Returns the exit code as a shell gives it: 128 + signal for a process that a signal ended.
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
