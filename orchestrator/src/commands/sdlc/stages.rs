//! The stages of the pipeline, and which of them is next.

use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;

/// A stage: a persona and its part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PersonaStage {
    /// The persona of g3, which names the stage.
    pub persona: &'static str,
    /// What it does, as the first line of its task.
    pub purpose: &'static str,
}

/// All stages, in their order.
pub(crate) const STAGES: [PersonaStage; 7] = [
    PersonaStage { persona: "euler", purpose: "update the graph of dependencies" },
    PersonaStage { persona: "breaker", purpose: "look for bugs" },
    PersonaStage { persona: "hopper", purpose: "add missing tests" },
    PersonaStage { persona: "fowler", purpose: "remove duplication" },
    PersonaStage { persona: "carmack", purpose: "make the code readable" },
    PersonaStage { persona: "lamport", purpose: "update the documentation" },
    PersonaStage { persona: "huffman", purpose: "shorten the notes for agents" },
];

/// The status of a stage in its pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StageStatus {
    /// It has no session yet.
    Pending,
    /// Its session is queued, or its agent is working.
    AtWork,
    /// Its session failed, was stopped, or needs the user to start.
    Unfinished,
    /// Its session is ready or has landed, or had nothing to change.
    Done,
    /// The user discarded its session.
    Discarded,
}

/// What the pipeline does next for a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StageAction {
    /// Start a session.
    Start,
    /// Let its session continue.
    Retry,
    /// Wait for its session.
    Wait,
}

/// The sessions of a run, by the index of their stage.
pub(crate) type StageSessions = [Option<SessionView>];

/// Returns the next stage and what to do, for the stages with these sessions; `None` if all are done.
pub(crate) fn next(sessions: &StageSessions) -> Option<(usize, StageAction)> {
    let statuses: Vec<StageStatus> =
        sessions.iter().map(|session| status_of(session.as_ref())).collect();
    next_step(&statuses)
}

/// Returns the next stage and what to do; `None` if all stages are done. The last stage with a
/// session decides: a stage starts only after the one before it is done, and what the user does with
/// the sessions of earlier stages is not repeated.
fn next_step(stages: &[StageStatus]) -> Option<(usize, StageAction)> {
    let Some(last) = stages.iter().rposition(|status| *status != StageStatus::Pending) else {
        return Some((0, StageAction::Start));
    };
    match stages[last] {
        StageStatus::Done if last + 1 == stages.len() => None,
        StageStatus::Done => Some((last + 1, StageAction::Start)),
        StageStatus::Pending | StageStatus::Discarded => Some((last, StageAction::Start)),
        StageStatus::Unfinished => Some((last, StageAction::Retry)),
        StageStatus::AtWork => Some((last, StageAction::Wait)),
    }
}

/// Returns the status of a stage with this session.
fn status_of(session: Option<&SessionView>) -> StageStatus {
    let Some(view) = session else { return StageStatus::Pending };
    match &view.state {
        // Its supervisor is landing it.
        SessionState::Ready if view.record.run_mode.accept && view.facts.locked => {
            StageStatus::AtWork
        }
        SessionState::Ready | SessionState::Empty | SessionState::Accepted => StageStatus::Done,
        SessionState::Queued if view.is_blocked() => StageStatus::Unfinished,
        SessionState::Queued
        | SessionState::Starting
        | SessionState::Working
        | SessionState::Waiting { .. }
        | SessionState::Checking
        | SessionState::Landing => StageStatus::AtWork,
        SessionState::Failed { .. } | SessionState::Stopped | SessionState::Crashed => {
            StageStatus::Unfinished
        }
        SessionState::Discarded => StageStatus::Discarded,
    }
}

#[cfg(test)]
mod tests {
    use super::StageStatus::{AtWork, Discarded, Done, Pending, Unfinished};
    use super::*;

    #[test]
    fn the_last_stage_with_a_session_decides_what_is_next() {
        for (stages, expected) in [
            ([Pending; 3], Some((0, StageAction::Start))),
            ([AtWork, Pending, Pending], Some((0, StageAction::Wait))),
            ([Done, Pending, Pending], Some((1, StageAction::Start))),
            ([Done, Unfinished, Pending], Some((1, StageAction::Retry))),
            ([Done, Discarded, Pending], Some((1, StageAction::Start))),
            ([Discarded, Done, Pending], Some((2, StageAction::Start))),
            ([Unfinished, Done, AtWork], Some((2, StageAction::Wait))),
            ([Done; 3], None),
        ] {
            assert_eq!(next_step(&stages), expected, "{stages:?}");
        }
    }
}
