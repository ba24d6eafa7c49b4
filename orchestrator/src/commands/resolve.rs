//! `accept --resolve`: sends conflicts to the agent as a turn, and lands again.

use base::failure::{Failure, FailureKind};
use base::id::Id;

use crate::commands::context::CommandContext;
use crate::commands::resume::{self, ResumeInput};
use crate::commands::run::is_attended;
use crate::commands::watch::{self, WatchFrom, WatchOutcome};
use studio_core::landing::{Landed, Rejection};
use studio_core::project::Project;
use studio_core::session::state::SessionState;

/// Lands a session; on a conflict the agent gets a turn to resolve it, a limited number of times.
pub(crate) fn until_it_lands(
    context: &CommandContext,
    id: &Id,
    turns: u32,
    land: impl Fn() -> Result<Landed, Rejection>,
) -> Result<Landed, Rejection> {
    for _ in 0..turns {
        let rejection = match land() {
            Err(rejection) if rejection.failure.kind == FailureKind::Conflict => rejection,
            result => return result,
        };
        let Some(prompt) = rejection.agent_prompt.clone() else { return Err(rejection) };
        send(context, id, prompt.into())?;
        let outcome = watch_turns(context, std::slice::from_ref(id))?;
        if outcome == WatchOutcome::Interrupted || context.view(id)?.state != SessionState::Ready {
            return Err(rejection);
        }
    }
    land()
}

/// The sessions of a queue whose agents had a turn to resolve their conflicts.
#[derive(Default)]
pub(super) struct ResolvedConflicts {
    /// Those that are ready again.
    pub ready: Vec<Id>,
    /// The others.
    pub refused: Vec<(Id, Rejection)>,
    /// Whether the user pressed Ctrl-C.
    pub is_interrupted: bool,
    /// The error that ended the wait for the agents.
    pub failure: Option<Failure>,
}

/// Gives conflicts to the agents of their sessions, as a turn of each at the same time.
pub(super) fn resolve_together(
    context: &CommandContext,
    conflicts: Vec<(Id, Rejection)>,
) -> ResolvedConflicts {
    let mut resolved = ResolvedConflicts::default();
    let mut sent = Vec::new();
    for (id, rejection) in conflicts {
        let prompt = rejection.agent_prompt.clone().unwrap_or_default();
        match send(context, &id, prompt.into()) {
            Ok(()) => sent.push((id, rejection)),
            Err(failure) => resolved.refused.push((id, failure.into())),
        }
    }
    let ids: Vec<Id> = sent.iter().map(|(id, _)| id.clone()).collect();
    match watch_turns(context, &ids) {
        Ok(outcome) => resolved.is_interrupted = outcome == WatchOutcome::Interrupted,
        Err(failure) => resolved.failure = Some(failure),
    }
    for (id, rejection) in sent {
        let is_complete = !resolved.is_interrupted && resolved.failure.is_none();
        match context.view(&id) {
            Ok(view) if view.state == SessionState::Ready && is_complete => resolved.ready.push(id),
            Ok(_) => resolved.refused.push((id, rejection)),
            Err(failure) => resolved.refused.push((id, failure.into())),
        }
    }
    resolved
}

/// Queues a session with a conflict as its prompt.
fn send(context: &CommandContext, id: &Id, prompt: String) -> base::failure::Result<()> {
    // The user at the terminal answers the agent's permission requests.
    let attended = is_attended(false).then_some(true);
    let input = ResumeInput { prompt: Some(prompt), attended, ..ResumeInput::default() };
    resume::requeue_with(context, id, input)
}

fn watch_turns(context: &CommandContext, ids: &[Id]) -> base::failure::Result<WatchOutcome> {
    // Progress goes to stderr as text, even if stdout is JSON.
    let quiet_context =
        CommandContext::new(Project::new(context.repository.clone(), context.config.clone()));
    watch::watch(&quiet_context, ids, WatchFrom::FromNow)
}
