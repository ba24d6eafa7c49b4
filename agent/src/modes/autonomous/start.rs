//! How a run begins in a session, or is taken up again.

use std::sync::Arc;

use base::clock::Clock;
use base::failure::{OrFail, Result};
use base::files::Journal;

use super::budget::RoundBudget;
use super::evidence::EvidencePaths;
use super::player_coach::PlayerCoach;
use super::previous_runs::{JOURNAL, ResumableRun};
use super::prompts::Contract;
use super::record::{RoundHistory, RoundNote};
use super::{Run, report};
use agent_core::bus::Bus;
use agent_core::run::AgentSession;
use gate::Asker;

/// Rounds at most, unless said.
pub(crate) const ROUNDS: u32 = 5;

/// Who hears what happens, and who can be asked.
#[derive(Clone)]
pub(crate) struct Listeners {
    /// Hears.
    pub bus: Arc<Bus>,
    /// Is asked.
    pub asker: Option<Arc<dyn Asker>>,
}

/// A run that is taken up again.
pub(crate) struct ResumedRun {
    /// As it stopped.
    pub found: ResumableRun,
    /// That it goes on, and for how long.
    pub note: RoundNote,
}

/// Begins a run of this pair in the player's session, or goes on with the one that is there.
pub(crate) async fn open<'w>(
    pair: &PlayerCoach,
    contract: Contract,
    again: Option<ResumedRun>,
    work: &'w mut AgentSession,
    heard: Listeners,
) -> Result<Run<'w>> {
    let place = EvidencePaths { cwd: pair.player.cwd.clone(), keep: work.session.dir.clone() };
    let path = work.session.dir.join(JOURNAL);
    let journal = Journal::open(&path).or_fail(|| format!("cannot open {}", path.display()))?;
    let (rounds, start, note) = match again {
        Some(ResumedRun { found, note }) => (found.rounds, found.start, note),
        None => {
            let start = place.begin().await?;
            let note = RoundNote::Begun {
                time: Clock::from_env().stamp(),
                requirements: contract.text.clone(),
                rounds: pair.rounds.unwrap_or(ROUNDS),
                checks: contract.checks.clone(),
                start: start.clone(),
            };
            (RoundHistory::default(), start, note)
        }
    };
    let Listeners { bus, asker } = heard;
    let purse = RoundBudget::new(pair.limits);
    let (coach, room) = (pair.coach.clone(), pair.room);
    let mut run =
        Run { contract, rounds, journal, place, start, purse, work, coach, room, bus, asker };
    let taken_up = matches!(note, RoundNote::Resumed { .. });
    run.note(note)?;
    run.bus.emit(report::begun(&run.contract, run.rounds.most, taken_up));
    Ok(run)
}
