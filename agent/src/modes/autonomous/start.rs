//! Starts or resumes a run in a session, and finds runs of earlier sessions.

use super::budget::RoundBudget;
use super::evidence::{EvidencePaths, RunBaseline};
use super::player_coach::PlayerCoach;
use super::prompts::Contract;
use super::round_log::{NextStep, RoundHistory, RoundNote};
use super::{Run, report};
use agent_core::bus::Bus;
use agent_core::run::AgentSession;
use agent_core::session;
use base::clock::Clock;
use base::event::{RunStatus, Usage};
use base::failure::{Failure, OrFail, Result};
use base::files;
use base::files::Journal;
use gate::Asker;
use planner::verdict::Verdict;
use std::path::Path;
use std::sync::Arc;

/// Default maximum number of rounds.
pub(crate) const ROUNDS: u32 = 5;

/// The event bus, and the asker if there is a user.
#[derive(Clone)]
pub(crate) struct Listeners {
    /// Receives the events.
    pub bus: Arc<Bus>,
    /// Asks the user.
    pub asker: Option<Arc<dyn Asker>>,
}

/// A run to resume.
pub(crate) struct ResumedRun {
    /// The run as it stopped.
    pub run: ResumableRun,
    /// The note that the run resumes, with the new number of rounds.
    pub note: RoundNote,
}

/// Starts a run of this pair in the player's session, or resumes the run in it.
pub(crate) async fn open<'w>(
    pair: &PlayerCoach,
    contract: Contract,
    resumed_run: Option<ResumedRun>,
    work: &'w mut AgentSession,
    listeners: Listeners,
) -> Result<Run<'w>> {
    let place = EvidencePaths { cwd: pair.player.cwd.clone(), keep: work.session.dir.clone() };
    let path = work.session.dir.join(JOURNAL);
    let journal = Journal::open(&path).or_fail(|| format!("cannot open {}", path.display()))?;
    let (rounds, start, note) = match resumed_run {
        Some(ResumedRun { run, note }) => (run.rounds, run.start, note),
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
    let Listeners { bus, asker } = listeners;
    let budget = RoundBudget::new(pair.limits);
    let (coach, room) = (pair.coach.clone(), pair.room);
    let mut run =
        Run { contract, rounds, journal, place, start, budget, work, coach, room, bus, asker };
    let resumed = matches!(note, RoundNote::Resumed { .. });
    run.note(note)?;
    run.bus.emit(report::begun(&run.contract, run.rounds.most, resumed));
    Ok(run)
}

/// Name of the journal of the rounds in the session's directory.
pub(crate) const JOURNAL: &str = "rounds.jsonl";

/// A run as its journal recorded it.
pub(crate) struct ResumableRun {
    /// The text of the requirements at its start.
    pub text: String,
    /// The checks at its start.
    pub checks: Vec<String>,
    /// The state of the files at its start.
    pub start: RunBaseline,
    /// Its rounds so far.
    pub rounds: RoundHistory,
}

impl ResumableRun {
    /// Reads the run of a session, by the session's directory; `None` if it has no run.
    pub(crate) fn read(session_dir: &Path) -> Result<Option<ResumableRun>> {
        let path = session_dir.join(JOURNAL);
        let notes: Vec<RoundNote> =
            files::read_journal(&path).or_fail(|| format!("cannot read {}", path.display()))?;
        let rounds = RoundHistory::of(&notes);
        Ok(match notes.into_iter().next() {
            Some(RoundNote::Begun { requirements: text, checks, start, .. }) => {
                Some(ResumableRun { text, checks, start, rounds })
            }
            Some(_) | None => None,
        })
    }

    /// Finds the run to resume, and its session: that of `wanted`, or the latest run.
    pub(crate) fn meant(cwd: &Path, wanted: Option<&str>) -> Result<(String, ResumableRun)> {
        let dir = session::sessions_dir(cwd);
        let id = match wanted {
            Some(wanted) => session::find(cwd, Some(wanted))?.to_string(),
            None => {
                let mut all = session::list(cwd)?.into_iter().map(|id| id.to_string());
                all.find(|id| dir.join(id).join(JOURNAL).exists()).ok_or_else(|| {
                    Failure::usage("no autonomous run to resume").hint("g3 --autonomous")
                })?
            }
        };
        match ResumableRun::read(&dir.join(&id))? {
            Some(run) => Ok((id, run)),
            None => Err(Failure::usage(format!("session `{id}` is not an autonomous run"))
                .hint(format!("g3 --resume {id}"))
                .hint("g3 --autonomous")),
        }
    }
}

/// An earlier run with the same requirements.
pub(crate) struct PreviousRun {
    /// The id of its session.
    pub id: String,
    /// Number of rounds played.
    pub rounds: u32,
    /// Whether the coach approved it at its end.
    pub approved: bool,
    /// Its last verdict.
    pub verdict: Option<Verdict>,
    /// Tokens and money.
    pub usage: Usage,
}

/// Returns the latest run with exactly this text, if there is one.
pub(crate) fn latest(cwd: &Path, text: &str) -> Result<Option<PreviousRun>> {
    let dir = session::sessions_dir(cwd);
    for id in session::list(cwd)?.into_iter().map(|id| id.to_string()) {
        let Ok(Some(run)) = ResumableRun::read(&dir.join(&id)) else { continue };
        if run.text != text {
            continue;
        }
        let rounds = run.rounds;
        let verdict = rounds.rounds.iter().rev().find_map(|round| round.verdict().cloned());
        let approved = rounds.next() == NextStep::End(RunStatus::Done);
        let usage = rounds.cost().usage;
        let rounds = rounds.rounds.len() as u32;
        return Ok(Some(PreviousRun { id, rounds, approved, verdict, usage }));
    }
    Ok(None)
}
