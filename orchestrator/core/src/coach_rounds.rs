//! Describes the rounds of player and coach.

use base::event::coach_rounds::{RoundPart, RoundsEvent};
use serde_json::Value;

/// Describes the current phase from a `plan` event: `round 1 of 5: player`.
pub fn describe(plan: &Value) -> Option<String> {
    let text = |part: &RoundPart, role: &str| {
        let model = part.model.as_ref().map(|model| format!(" ({model})")).unwrap_or_default();
        Some(format!("round {} of {}: {role}{model}", part.round, part.rounds))
    };
    match &RoundsEvent::parse(plan)? {
        RoundsEvent::Playing(part) => text(part, "player"),
        RoundsEvent::Checking(part) => text(part, "checks"),
        RoundsEvent::Judging(part) => text(part, "coach"),
        RoundsEvent::Begun { .. } | RoundsEvent::Judged { .. } | RoundsEvent::Ended { .. } => None,
    }
}

/// Returns the speaker from now on, if a `plan` event changes it.
pub fn speaker(plan: &Value) -> Option<&'static str> {
    match RoundsEvent::parse(plan)? {
        RoundsEvent::Playing(_) => Some("player"),
        RoundsEvent::Judging(_) => Some("coach"),
        RoundsEvent::Begun { .. }
        | RoundsEvent::Checking(_)
        | RoundsEvent::Judged { .. }
        | RoundsEvent::Ended { .. } => None,
    }
}
