//! The outcome of a run, and how it is reported.

use base::event::{EventKind, RunStatus, Usage};
use base::failure::{Failure, FailureKind};

use crate::bus::Bus;

/// The outcome of a user turn.
#[derive(Debug)]
pub struct RunOutcome {
    /// The status, as in the event `end`.
    pub status: RunStatus,
    /// The failure, unless the turn succeeded.
    pub failure: Option<Failure>,
    /// Commands that resume the session from a shell; not needed at g3's own prompt.
    pub resume: Vec<String>,
}

impl RunOutcome {
    /// Creates an outcome without resume hints.
    pub fn new(status: RunStatus, failure: Option<Failure>) -> RunOutcome {
        RunOutcome { status, failure, resume: Vec::new() }
    }

    /// Returns the failure with the resume hints, for when g3 exits with it.
    pub fn into_failure(self) -> Option<Failure> {
        self.failure.map(|failure| self.resume.into_iter().fold(failure, Failure::hint))
    }

    /// Returns the failure as an event.
    pub fn error_event(&self) -> Option<EventKind> {
        let resume = self.resume.iter().cloned();
        self.failure.as_ref().map(|failure| error_event(failure, resume))
    }
}

/// Reports a run that failed before it started.
pub fn report_failure(bus: &Bus, failure: &Failure) {
    bus.emit(error_event(failure, std::iter::empty()));
    let (exit, usage) = (failure.exit_code(), Usage::default());
    let status = if failure.kind == FailureKind::Interrupted {
        RunStatus::Cancelled
    } else {
        RunStatus::Failed
    };
    bus.emit(EventKind::End { status, exit, turns: 0, usage });
}

fn error_event(failure: &Failure, resume: impl Iterator<Item = String>) -> EventKind {
    let kind = match failure.kind {
        FailureKind::Failed => "failed",
        FailureKind::Usage => "usage",
        FailureKind::Refused => "refused",
        FailureKind::Conflict => "conflict",
        FailureKind::NotFound => "not_found",
        FailureKind::Bug => "bug",
        FailureKind::Interrupted => "interrupted",
    };
    let suffix = failure.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    let text = format!("{}{suffix}", failure.what);
    let next = failure.hints.iter().cloned().chain(resume).collect();
    EventKind::Error { kind: kind.to_owned(), text, next }
}
