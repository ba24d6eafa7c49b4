//! How a run ended, and how that is told.

use base::event::{EventKind, RunStatus, Usage};
use base::failure::{Failure, FailureKind};

use crate::bus::Bus;

/// How a turn of the user ended.
#[derive(Debug)]
pub struct RunOutcome {
    /// As in the event `end`.
    pub status: RunStatus,
    /// Why, unless all is done.
    pub failure: Option<Failure>,
    /// How the session goes on from a shell; at g3's own prompt it goes on by itself.
    pub resume: Vec<String>,
}

impl RunOutcome {
    /// An end without a hint how the session goes on.
    pub fn new(status: RunStatus, failure: Option<Failure>) -> RunOutcome {
        RunOutcome { status, failure, resume: Vec::new() }
    }

    /// The failure as it is shown where g3 ends with it: with how the session goes on.
    pub fn into_failure(self) -> Option<Failure> {
        self.failure.map(|failure| self.resume.into_iter().fold(failure, Failure::hint))
    }

    /// The failure as an event.
    pub fn error(&self) -> Option<EventKind> {
        let resume = self.resume.iter().cloned();
        self.failure.as_ref().map(|failure| error(failure, resume))
    }
}

/// Tells a run that failed before it began.
pub fn tell_failure(bus: &Bus, failure: &Failure) {
    bus.emit(error(failure, std::iter::empty()));
    let (exit, usage) = (failure.exit_code(), Usage::default());
    let status = if failure.kind == FailureKind::Interrupted {
        RunStatus::Cancelled
    } else {
        RunStatus::Failed
    };
    bus.emit(EventKind::End { status, exit, turns: 0, usage });
}

fn error(failure: &Failure, resume: impl Iterator<Item = String>) -> EventKind {
    let kind = match failure.kind {
        FailureKind::Failed => "failed",
        FailureKind::Usage => "usage",
        FailureKind::Refused => "refused",
        FailureKind::Conflict => "conflict",
        FailureKind::NotFound => "not_found",
        FailureKind::Bug => "bug",
        FailureKind::Interrupted => "interrupted",
    };
    let why = failure.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let text = format!("{}{why}", failure.what);
    let next = failure.hints.iter().cloned().chain(resume).collect();
    EventKind::Error { kind: kind.to_owned(), text, next }
}
