//! How a run ended, and how that is told.

use base::event::{Status, Usage, What};
use base::failure::{Failure, Kind};

use crate::ui::Bus;

/// How a turn of the user ended.
#[derive(Debug)]
pub struct Ended {
    /// As in the event `end`.
    pub status: Status,
    /// Why, unless all is done.
    pub failure: Option<Failure>,
}

/// Tells a run that failed before it began.
pub fn tell_failure(bus: &Bus, failure: &Failure) {
    bus.tell(error(failure));
    let (exit, usage) = (failure.exit_code(), Usage::default());
    let status = if failure.kind == Kind::Interrupted { Status::Cancelled } else { Status::Failed };
    bus.tell(What::End { status, exit, turns: 0, usage });
}

/// A failure as an event.
pub fn error(failure: &Failure) -> What {
    let kind = match failure.kind {
        Kind::Failed => "failed",
        Kind::Usage => "usage",
        Kind::Refused => "refused",
        Kind::Conflict => "conflict",
        Kind::NotFound => "not_found",
        Kind::Bug => "bug",
        Kind::Interrupted => "interrupted",
    };
    let why = failure.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let text = format!("{}{why}", failure.what);
    What::Error { kind: kind.to_owned(), text, next: failure.next.clone() }
}
