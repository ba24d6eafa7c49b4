//! The error that a command prints: what failed, why, and hints.

use std::error::Error;
use std::fmt;

/// The category of a failure; also the exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The work failed: an agent, a check, a tool.
    Failed = 1,
    /// An invalid flag or configuration.
    Usage = 2,
    /// Continuing would lose something, or a limit was reached.
    Refused = 3,
    /// The work conflicts with its target.
    Conflict = 4,
    /// No such session, file or operation.
    NotFound = 5,
    /// A bug in g3 or studio.
    Bug = 70,
    /// The user pressed Ctrl-C.
    Interrupted = 130,
}

/// A failure with its cause and hints.
#[derive(Debug)]
pub struct Failure {
    /// The category.
    pub kind: FailureKind,
    /// One sentence without a full stop.
    pub what: String,
    /// The cause, if known: an error with its own sources, or a sentence.
    pub cause: Option<Box<dyn Error + Send + Sync>>,
    /// Hints: one command or sentence each.
    pub hints: Vec<String>,
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Creates a failure of the given kind.
    pub fn new(kind: FailureKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), cause: None, hints: Vec::new() }
    }

    /// Creates a failure of the work (exit code 1).
    pub fn failed(what: impl Into<String>) -> Self {
        Self::new(FailureKind::Failed, what)
    }

    /// Creates a failure of the command line or the configuration (exit code 2).
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(FailureKind::Usage, what)
    }

    /// Creates a refusal: something would be lost or is not ready (exit code 3).
    pub fn refused(what: impl Into<String>) -> Self {
        Self::new(FailureKind::Refused, what)
    }

    /// Creates a conflict (exit code 4).
    pub fn conflict(what: impl Into<String>) -> Self {
        Self::new(FailureKind::Conflict, what)
    }

    /// Creates a failure for something that does not exist (exit code 5).
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::new(FailureKind::NotFound, what)
    }

    /// Sets the cause: an error, which is kept, or a sentence.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, command: impl Into<String>) -> Self {
        self.hints.push(command.into());
        self
    }

    /// Returns the text of the cause; `None` if it is empty. Its sources are not appended: an error
    /// includes its source in its own text or leaves that to [`Error::source`].
    pub fn reason(&self) -> Option<String> {
        self.cause.as_ref().map(ToString::to_string).filter(|reason| !reason.trim().is_empty())
    }

    /// Returns the cause, or the failure's own sentence if it has none: for a caller that adds the
    /// rest itself.
    pub fn into_cause(self) -> Box<dyn Error + Send + Sync> {
        self.cause.unwrap_or_else(|| self.what.into())
    }

    /// Returns the failure and its cause in one line, for journals and tables.
    pub fn sentence(&self) -> String {
        match self.reason() {
            Some(reason) => format!("{}: {}", self.what, reason.trim()),
            None => self.what.clone(),
        }
    }

    /// Like [`Failure::sentence`], with the hints: for journals that are read when nothing else is
    /// left.
    pub fn full_text(&self) -> String {
        match self.hints.is_empty() {
            true => self.sentence(),
            false => {
                let next = self.hints.iter().map(|next| next.strip_prefix("or ").unwrap_or(next));
                format!("{}; try: {}", self.sentence(), next.collect::<Vec<_>>().join(", or: "))
            }
        }
    }

    /// Serializes the failure for another program: `{"what", "why", "try", "exit"}`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "what": self.what, "why": self.cause.as_ref().map(ToString::to_string), "try": self.hints, "exit": self.exit_code(),
        })
    }

    /// Parses a failure that another program serialized with [`Failure::to_json`].
    pub fn from_json(json: &serde_json::Value) -> Option<Failure> {
        let kind = match json["exit"].as_u64() {
            Some(2) => FailureKind::Usage,
            Some(3) => FailureKind::Refused,
            Some(4) => FailureKind::Conflict,
            Some(5) => FailureKind::NotFound,
            Some(70) => FailureKind::Bug,
            Some(130) => FailureKind::Interrupted,
            Some(_) | None => FailureKind::Failed,
        };
        let mut failure = Failure::new(kind, json["what"].as_str()?);
        if let Some(reason) = json["why"].as_str().filter(|reason| !reason.trim().is_empty()) {
            failure = failure.because(reason);
        }
        let hints = json["try"].as_array().into_iter().flatten().filter_map(|it| it.as_str());
        Some(hints.fold(failure, Failure::hint))
    }

    /// Returns the exit code of a process that ends with this failure.
    pub fn exit_code(&self) -> u8 {
        self.kind as u8
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if let Some(reason) = self.reason() {
            write!(f, "\n  why: {}", reason.replace('\n', "\n       "))?;
        }
        for hint in &self.hints {
            write!(f, "\n  try: {}", hint.replace('\n', "\n       "))?;
        }
        Ok(())
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn Error + 'static))
    }
}

/// Puts a sentence before the cause: `fs::read(p).or_fail(|| format!("cannot read {p}"))?`.
pub trait OrFail<T> {
    /// Turns the error into a failure of kind `Failed` that keeps the error as its cause.
    fn or_fail<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> OrFail<T> for std::result::Result<T, E> {
    fn or_fail<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| Failure::failed(what()).because(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_survives_serialization() {
        let failure = Failure::usage("no key").because("unset").hint("set KEY").hint("or log in");
        let parsed = Failure::from_json(&failure.to_json()).unwrap();
        assert_eq!((parsed.to_string(), parsed.exit_code()), (failure.to_string(), 2));
        assert_eq!(parsed.full_text(), "no key: unset; try: set KEY, or: log in");
        assert!(Failure::from_json(&serde_json::json!({"why": "x"})).is_none());
    }

    #[test]
    fn the_cause_is_kept_as_an_error_and_its_text_appears_once() {
        let missing = std::fs::read("/nonexistent/file");
        let text = missing.as_ref().unwrap_err().to_string();
        let inner = missing.or_fail(|| "cannot read the file").unwrap_err();
        let source = inner.cause.as_deref().and_then(|why| why.downcast_ref::<std::io::Error>());
        assert_eq!(source.unwrap().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(inner.to_string().matches(&text).count(), 1);

        let outer = Failure::failed("cannot start").because(inner);
        assert_eq!(outer.to_string().matches(&text).count(), 1);
        let chain = std::iter::successors(outer.source(), |&it| it.source());
        assert_eq!(chain.last().unwrap().to_string(), text, "the first cause can be reached");
    }

    #[test]
    fn an_empty_cause_is_omitted() {
        let failure = Failure::failed("it failed").because(" ");
        assert_eq!(
            (failure.to_string(), failure.sentence()),
            ("error: it failed".into(), "it failed".into())
        );
    }

    #[test]
    fn a_failure_displays_what_why_and_hints() {
        let failure = Failure::refused("session `x` is still working")
            .because("its supervisor holds the lock")
            .hint("studio stop x");
        assert_eq!(
            failure.to_string(),
            "error: session `x` is still working\n  why: its supervisor holds the lock\n  try: studio stop x"
        );
        assert_eq!(failure.exit_code(), 3);
    }
}
