//! The answer of the box process to its caller: why it could not start the program.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

/// Why the program in the box did not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartFailure {
    /// The program, or the interpreter that its first line names, does not exist.
    NotFound(String),
    /// It exists, and cannot be executed in the box.
    NotExecutable(String),
}

impl StartFailure {
    /// Returns what an error of the start of this program means.
    pub(crate) fn new(error: &io::Error, program: &str) -> StartFailure {
        let text = error.to_string();
        let named = format!("cannot start `{program}`: ");
        let why = text.strip_prefix(&named).unwrap_or(&text).to_owned();
        match error.kind() {
            io::ErrorKind::NotFound => StartFailure::NotFound(why),
            _ => StartFailure::NotExecutable(why),
        }
    }

    /// Returns the shell's exit code for it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            StartFailure::NotFound(_) => 127,
            StartFailure::NotExecutable(_) => 126,
        }
    }

    /// Writes it where [`StartReport::read`] finds it.
    pub(crate) fn send(&self, to: OwnedFd) -> io::Result<()> {
        File::from(to).write_all(&serde_json::to_vec(self)?)
    }
}

/// Bytes of a report that are read.
const MOST: u64 = 16 << 10;

/// The reading end of a pipe whose writing end only the guard and the box hold.
#[derive(Debug)]
pub struct StartReport(OwnedFd);

impl StartReport {
    /// Reads from this pipe.
    pub(crate) fn new(pipe: OwnedFd) -> StartReport {
        StartReport(pipe)
    }

    /// Returns why the program was not started; none when it was. To be called after the guard has
    /// ended.
    pub fn read(self) -> Option<StartFailure> {
        // A box that outlives its guard must not block the reader.
        rustix::io::ioctl_fionbio(&self.0, true).ok()?;
        let mut bytes = Vec::new();
        let _ = File::from(self.0).take(MOST).read_to_end(&mut bytes);
        serde_json::from_slice(&bytes).ok()
    }
}
