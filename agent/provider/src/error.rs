//! Errors of model requests, by how callers handle them.

use std::fmt;
use std::time::Duration;

use base::failure::Failure;

/// An error of a model request. Callers handle each variant differently.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// Too many requests (429). The server may specify how long to wait.
    #[error("the provider limits requests{}", wait_text(*.after))]
    RateLimited {
        /// From `retry-after`.
        after: Option<Duration>,
    },
    /// The model is overloaded (503, 529). The server may specify how long to wait.
    #[error("the model is busy: {message}{}", wait_text(*.after))]
    Busy {
        /// The server's message.
        message: String,
        /// From `retry-after`.
        after: Option<Duration>,
    },
    /// The server failed (5xx): {0}.
    #[error("the provider is overloaded: {0}")]
    Overloaded(String),
    /// The request does not fit the model's context.
    #[error("the request does not fit the model's context: {0}")]
    TooLong(String),
    /// The key, the model or the request is invalid; the user must act.
    #[error("the provider refused the request: {0}")]
    Rejected(Refusal),
    /// No server answers at the address.
    #[error("{0}")]
    Unreachable(String),
    /// The connection or the stream broke.
    #[error("the reply broke off: {0}")]
    Broken(String),
    /// The user cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// A rejected request: the reason and what the user can do about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The service's message, on one line.
    pub text: String,
    /// The HTTP status, if the service returned one.
    pub status: Option<u16>,
    /// Hints, each a command or a sentence.
    pub hints: Vec<String>,
}

impl Refusal {
    /// Creates a refusal without a status and without hints.
    pub(crate) fn new(text: impl Into<String>) -> Refusal {
        Refusal { text: text.into(), ..Refusal::default() }
    }

    /// Adds a hint.
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
    /// Creates a [`ProviderError::Rejected`] without a status and without hints.
    pub fn rejected(text: impl Into<String>) -> ProviderError {
        ProviderError::Rejected(Refusal::new(text))
    }

    /// Whether the service does not know the requested resource (404).
    pub fn is_missing(&self) -> bool {
        matches!(self, ProviderError::Rejected(Refusal { status: Some(404), .. }))
    }

    /// Returns a failure of the operation `what`, caused by this error, with its hints.
    pub fn failure_of(&self, what: &str) -> Failure {
        let cause = self.failure();
        cause.hints.into_iter().fold(Failure::failed(what).because(cause.what), Failure::hint)
    }

    /// Returns the error as a failure for users, with its hints.
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
    after.map(|delay| format!(" (retry after {} s)", delay.as_secs())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_separate_from_the_error_message() {
        let message = Refusal::new("HTTP 401: no\ntry: something else").hint("check the key");
        let failure = ProviderError::from(message).failure();
        let what = "the provider refused the request: HTTP 401: no\ntry: something else";
        assert_eq!(
            (failure.what.as_str(), failure.hints),
            (what, vec!["check the key".to_owned()])
        );
    }
}
