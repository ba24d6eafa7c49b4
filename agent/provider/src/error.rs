//! Why a model gave no reply: the kinds that callers treat differently.

use std::fmt;
use std::time::Duration;

use base::failure::Failure;

/// Only what a caller does something different about.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// Too many requests; the server may say how long to wait.
    #[error("the provider limits requests{}", wait_text(*.after))]
    RateLimited {
        /// From `retry-after`.
        after: Option<Duration>,
    },
    /// The model has too much to do (503, 529); the server may say how long to wait.
    #[error("the model is busy: {said}{}", wait_text(*.after))]
    Busy {
        /// The server's words.
        said: String,
        /// From `retry-after`.
        after: Option<Duration>,
    },
    /// The server failed (5xx): {0}.
    #[error("the provider is overloaded: {0}")]
    Overloaded(String),
    /// The request does not fit the model's context.
    #[error("the request does not fit the model's context: {0}")]
    TooLong(String),
    /// Key, model or request is wrong: the user must act.
    #[error("the provider refused the request: {0}")]
    Rejected(Refusal),
    /// Nobody answers at the address.
    #[error("{0}")]
    Unreachable(String),
    /// The connection or the stream broke.
    #[error("the reply broke off: {0}")]
    Broken(String),
    /// The user cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// Why a request was refused, and what the user can do about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// What the service says, in one line.
    pub text: String,
    /// The HTTP status, where the service answered with one.
    pub status: Option<u16>,
    /// What to try, one command or sentence each.
    pub hints: Vec<String>,
}

impl Refusal {
    /// A refusal without a status and without a hint.
    pub(crate) fn new(text: impl Into<String>) -> Refusal {
        Refusal { text: text.into(), ..Refusal::default() }
    }

    /// Adds something to try.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hints.push(hint.into());
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Refusal> for ProviderError {
    fn from(refusal: Refusal) -> ProviderError {
        ProviderError::Rejected(refusal)
    }
}

impl ProviderError {
    /// A refusal without a status and without a hint.
    pub fn rejected(text: impl Into<String>) -> ProviderError {
        ProviderError::Rejected(Refusal::new(text))
    }

    /// Whether the service does not know what it is asked about (404).
    pub fn is_missing(&self) -> bool {
        matches!(self, ProviderError::Rejected(Refusal { status: Some(404), .. }))
    }

    /// The failure of what this error ended, with what to try.
    pub fn failure_of(&self, what: &str) -> Failure {
        let cause = self.failure();
        cause.hints.into_iter().fold(Failure::failed(what).because(cause.what), Failure::hint)
    }

    /// The error as people read it, with what to try.
    pub fn failure(&self) -> Failure {
        let what = self.to_string();
        match self {
            ProviderError::Cancelled => Failure::new(base::failure::FailureKind::Interrupted, what),
            ProviderError::Rejected(refusal) => {
                refusal.hints.iter().cloned().fold(Failure::failed(what), Failure::hint)
            }
            ProviderError::RateLimited { .. }
            | ProviderError::Busy { .. }
            | ProviderError::Overloaded(_)
            | ProviderError::TooLong(_)
            | ProviderError::Unreachable(_)
            | ProviderError::Broken(_) => Failure::failed(what),
        }
    }
}

fn wait_text(after: Option<Duration>) -> String {
    after.map(|d| format!(" (retry after {} s)", d.as_secs())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_what_to_try_apart() {
        let said = Refusal::new("HTTP 401: no\ntry: something else").hint("check the key");
        let failure = ProviderError::from(said).failure();
        let what = "the provider refused the request: HTTP 401: no\ntry: something else";
        assert_eq!(
            (failure.what.as_str(), failure.hints),
            (what, vec!["check the key".to_owned()])
        );
    }
}
