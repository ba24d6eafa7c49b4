//! How a run begins in a session, or is taken up again.

use std::sync::Arc;

use base::clock::Clock;
use base::failure::{OrFail, Result};
use base::files::Journal;

use super::evidence::Place;
use super::pair::Pair;
use super::past::{Found, JOURNAL};
use super::purse::Purse;
use super::record::{Note, Rounds};
use super::words::Contract;
use super::{Run, report};
use crate::run::AgentSession;
use crate::ui::Bus;
use gate::Asker;

/// Rounds at most, unless said.
pub const ROUNDS: u32 = 5;

/// Who hears what happens, and who can be asked.
#[derive(Clone)]
pub struct Heard {
    /// Hears.
    pub bus: Arc<Bus>,
    /// Is asked.
    pub asker: Option<Arc<dyn Asker>>,
}

/// A run that is taken up again.
pub struct Again {
    /// As it stopped.
    pub found: Found,
    /// That it goes on, and for how long.
    pub note: Note,
}

/// Begins a run of this pair in the player's session, or goes on with the one that is there.
pub async fn open<'w>(
    pair: &Pair,
    contract: Contract,
    again: Option<Again>,
    work: &'w mut AgentSession,
    heard: Heard,
) -> Result<Run<'w>> {
    let place = Place { cwd: pair.player.cwd.clone(), keep: work.session.dir.clone() };
    let path = work.session.dir.join(JOURNAL);
    let journal = Journal::open(&path).or_fail(|| format!("cannot open {}", path.display()))?;
    let (rounds, start, note) = match again {
        Some(Again { found, note }) => (found.rounds, found.start, note),
        None => {
            let start = place.begin().await?;
            let note = Note::Begun {
                time: Clock::from_env().stamp(),
                requirements: contract.text.clone(),
                rounds: pair.rounds.unwrap_or(ROUNDS),
                checks: contract.checks.clone(),
                start: start.clone(),
            };
            (Rounds::default(), start, note)
        }
    };
    let Heard { bus, asker } = heard;
    let purse = Purse::new(pair.limits);
    let (coach, room) = (pair.coach.clone(), pair.room);
    let mut run =
        Run { contract, rounds, journal, place, start, purse, work, coach, room, bus, asker };
    let taken_up = matches!(note, Note::Resumed { .. });
    run.note(note)?;
    run.bus.tell(report::begun(&run.contract, run.rounds.most, taken_up));
    Ok(run)
}
