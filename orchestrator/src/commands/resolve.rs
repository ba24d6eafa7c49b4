//! `accept --resolve`: sends conflicts to the agent as a turn, and lands again.

use base::failure::FailureKind;
use base::id::Id;

use crate::commands::context::CommandContext;
use crate::commands::resume::{self, ResumeInput};
use crate::commands::run::is_attended;
use crate::commands::watch::{self, WatchFrom, WatchOutcome};
use studio_core::landing::{Landed, Rejection};
use studio_core::project::Project;
use studio_core::session::state::SessionState;

/// Maximum number of attempts of the agent.
const MAX_ROUNDS: u32 = 3;

/// Lands a session; on a conflict the agent gets a turn to resolve it, a limited number of times.
pub(crate) fn until_it_lands(
    context: &CommandContext,
    id: &Id,
    land: impl Fn() -> Result<Landed, Rejection>,
) -> Result<Landed, Rejection> {
    // Progress goes to stderr as text, even if stdout is JSON.
    let quiet_context =
        CommandContext::new(Project::new(context.repository.clone(), context.config.clone()));
    for _ in 0..MAX_ROUNDS {
        let rejection = match land() {
            Err(rejection) if rejection.failure.kind == FailureKind::Conflict => rejection,
            result => return result,
        };
        let Some(prompt) = rejection.agent_prompt.clone() else { return Err(rejection) };
        // The user at the terminal answers the agent's permission requests.
        let attended = is_attended(false).then_some(true);
        let input = ResumeInput { prompt: Some(prompt.into()), attended, ..ResumeInput::default() };
        resume::requeue_with(context, id, input)?;
        let outcome = watch::watch(&quiet_context, std::slice::from_ref(id), WatchFrom::FromNow)?;
        if outcome == WatchOutcome::Interrupted || context.view(id)?.state != SessionState::Ready {
            return Err(rejection);
        }
    }
    land()
}
