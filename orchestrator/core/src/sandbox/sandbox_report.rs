//! The report of the init process to its caller: why it could not start the program, or which limit
//! the program's processes reached.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::sandbox::limits::ExceededLimit;

/// Why a sandbox ended without the end of its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxFailure {
    /// The program did not start.
    Start(StartFailure),
    /// A limit was reached, and all processes were ended.
    Limit(ExceededLimit),
}

/// Why a program in the sandbox did not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartFailure {
    /// The program, or the interpreter in its first line, does not exist.
    NotFound(String),
    /// It exists but cannot be executed in the sandbox.
    NotExecutable(String),
}

impl StartFailure {
    /// Classifies the error of starting this program.
    pub(crate) fn new(error: &io::Error, program: &str) -> StartFailure {
        let text = error.to_string();
        let prefix = format!("cannot start `{program}`: ");
        let reason = text.strip_prefix(&prefix).unwrap_or(&text).to_owned();
        if let Err(denied) = rustix::fs::access(program, rustix::fs::Access::EXEC_OK)
            && std::path::Path::new(program).exists()
        {
            return StartFailure::NotExecutable(io::Error::from(denied).to_string());
        }
        match error.kind() {
            io::ErrorKind::NotFound => StartFailure::NotFound(reason),
            _ => StartFailure::NotExecutable(reason),
        }
    }

    /// Returns the exit code that a shell would return.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            StartFailure::NotFound(_) => 127,
            StartFailure::NotExecutable(_) => 126,
        }
    }
}

impl SandboxFailure {
    /// Writes the report for [`SandboxReport::read`].
    pub(crate) fn send(&self, pipe: OwnedFd) -> io::Result<()> {
        File::from(pipe).write_all(&serde_json::to_vec(self)?)
    }
}

/// Maximum size of a report, in bytes.
const MAX_REPORT_BYTES: u64 = 16 << 10;

/// The reading end of a pipe whose writing end only the reaper and the init process hold.
#[derive(Debug)]
pub struct SandboxReport(OwnedFd);

impl SandboxReport {
    /// Creates a report that reads from this pipe.
    pub(crate) fn new(pipe: OwnedFd) -> SandboxReport {
        SandboxReport(pipe)
    }

    /// Returns why the sandbox ended; `None` if the program started and ended by itself. Call it
    /// after the reaper has exited.
    pub fn read(self) -> Option<SandboxFailure> {
        // A sandbox that outlives its reaper must not block the reader.
        rustix::io::ioctl_fionbio(&self.0, true).ok()?;
        let mut bytes = Vec::new();
        let _ = File::from(self.0).take(MAX_REPORT_BYTES).read_to_end(&mut bytes);
        serde_json::from_slice(&bytes).ok()
    }
}
