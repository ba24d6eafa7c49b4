//! What a person reads when a command fails: what, why, and what to try.

use std::error::Error;
use std::fmt;

/// Who can fix it; also the exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The work itself failed: an agent, a check, a tool.
    Failed = 1,
    /// A wrong flag, a wrong configuration.
    Usage = 2,
    /// Going on would lose something, or a limit was reached.
    Refused = 3,
    /// The work conflicts with its target.
    Conflict = 4,
    /// No such session, file or operation.
    NotFound = 5,
    /// A fault of ours.
    Bug = 70,
    /// The user pressed Ctrl-C.
    Interrupted = 130,
}

/// A failure with its reason and the commands to try next.
#[derive(Debug)]
pub struct Failure {
    /// Whose problem it is.
    pub kind: Kind,
    /// One sentence without a full stop.
    pub what: String,
    /// The cause, as far as it is known.
    pub why: Option<String>,
    /// What to try, one command or sentence each.
    pub next: Vec<String>,
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure of the given kind.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), why: None, next: Vec::new() }
    }

    /// The work failed (exit code 1).
    pub fn failed(what: impl Into<String>) -> Self {
        Self::new(Kind::Failed, what)
    }

    /// The command line or the configuration is wrong (exit code 2).
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(Kind::Usage, what)
    }

    /// Refused, because something would be lost or is not ready (exit code 3).
    pub fn refused(what: impl Into<String>) -> Self {
        Self::new(Kind::Refused, what)
    }

    /// A conflict (exit code 4).
    pub fn conflict(what: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, what)
    }

    /// Not found (exit code 5).
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, what)
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, why: impl fmt::Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    /// Adds something to try.
    #[must_use]
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }

    /// What and why in one line, for journals and tables.
    pub fn sentence(&self) -> String {
        match &self.why {
            Some(why) if !why.trim().is_empty() => format!("{}: {}", self.what, why.trim()),
            Some(_) | None => self.what.clone(),
        }
    }

    /// As [`Failure::sentence`], with what to try: for a journal that is read when all else is gone.
    pub fn in_full(&self) -> String {
        match self.next.is_empty() {
            true => self.sentence(),
            false => format!("{}; try: {}", self.sentence(), self.next.join(", or: ")),
        }
    }

    /// The exit code of a process that ends with this failure.
    pub fn exit_code(&self) -> u8 {
        self.kind as u8
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if let Some(why) = self.why.as_ref().filter(|why| !why.trim().is_empty()) {
            write!(f, "\n  why: {}", why.replace('\n', "\n       "))?;
        }
        for next in &self.next {
            write!(f, "\n  try: {next}")?;
        }
        Ok(())
    }
}

impl Error for Failure {}

/// Puts a sentence before the cause: `fs::read(p).or_fail(|| format!("cannot read {p}"))?`.
pub trait OrFail<T> {
    /// Turns the error into a failure of kind `Failed` whose cause is the error.
    fn or_fail<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: fmt::Display> OrFail<T> for std::result::Result<T, E> {
    fn or_fail<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|why| Failure::failed(what()).because(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_why_and_what_to_try() {
        let failure = Failure::refused("session `x` is still working")
            .because("its supervisor holds the lock")
            .next("studio stop x");
        assert_eq!(
            failure.to_string(),
            "error: session `x` is still working\n  why: its supervisor holds the lock\n  try: studio stop x"
        );
        assert_eq!(failure.exit_code(), 3);
    }
}
