//! `accept --resolve`: conflicts go back to the agent as a turn, and landing starts again.

use base::failure::Kind;
use base::id::Id;

use crate::commands::desk::Desk;
use crate::commands::landing::{Landed, Refused};
use crate::commands::resume::{self, Wake};
use crate::commands::run::is_attended;
use crate::commands::watch::{self, Seen, Show};
use crate::session::state::State;
use studio_git::names::BranchName;

/// How often an agent may try before a person must look.
const ROUNDS: u32 = 3;

/// What the agent is asked to do. The tip is named by its id: the session's own copy of the target
/// branch is as old as the session.
pub fn request(target: &BranchName, tip: &str, hunks: &str) -> String {
    format!(
        "Your work conflicts with the branch `{target}`, which has moved to commit {tip}. Commit \
         what you have, run `git merge {tip}`, solve the conflicts so that both sides' intent is \
         kept, run the tests, and commit the merge.\n\nThe conflicts:\n{hunks}"
    )
}

/// Lands; while that ends in a conflict the agent gets it as a turn, a bounded number of times.
pub fn until_it_lands(
    desk: &Desk,
    id: &Id,
    land: impl Fn() -> Result<Landed, Refused>,
) -> Result<Landed, Refused> {
    // Progress goes to stderr as sentences, also when a script reads what landed.
    let aside = Desk::with(desk.repository.clone(), desk.config.clone());
    for _ in 0..ROUNDS {
        let refused = match land() {
            Err(refused) if refused.failure.kind == Kind::Conflict => refused,
            landed_or_other => return landed_or_other,
        };
        let Some(turn) = refused.turn.clone() else { return Err(refused) };
        // A person at the terminal is asked what the agent wants to be allowed.
        let attended = is_attended(false).then_some(true);
        let wake = Wake { prompt: Some(turn.into()), attended, ..Wake::default() };
        resume::wake_with(desk, id, wake)?;
        let seen = watch::watch(&aside, std::slice::from_ref(id), Show::FromNow)?;
        if seen == Seen::Interrupted || desk.view(id)?.state != State::Ready {
            return Err(refused);
        }
    }
    land()
}
