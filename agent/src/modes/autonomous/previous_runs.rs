//! Runs that were begun earlier: how far they came, and how one of them goes on.

use std::path::Path;

use base::event::{RunStatus, Usage};
use base::failure::{Failure, OrFail, Result};
use base::files;
use planner::verdict::Verdict;

use super::evidence::RunBaseline;
use super::record::{NextStep, RoundHistory, RoundNote};
use agent_core::session;

/// The journal of the rounds, in the session's directory.
pub(crate) const JOURNAL: &str = "rounds.jsonl";

/// A run to go on with.
pub(crate) struct ResumableRun {
    /// The requirements' text that it began with.
    pub text: String,
    /// The checks that it began with.
    pub checks: Vec<String>,
    /// What the files were like then.
    pub start: RunBaseline,
    /// How far it came.
    pub rounds: RoundHistory,
}

impl ResumableRun {
    /// The run of a session, by its directory.
    pub(crate) fn at(session_dir: &Path) -> Result<Option<ResumableRun>> {
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

    /// The run that is meant: by its session, or the latest; and that session.
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
        match ResumableRun::at(&dir.join(&id))? {
            Some(found) => Ok((id, found)),
            None => Err(Failure::usage(format!("session `{id}` is not an autonomous run"))
                .hint(format!("g3 --resume {id}"))
                .hint("g3 --autonomous")),
        }
    }
}

/// An earlier run on the same requirements.
pub(crate) struct PreviousRun {
    /// Its session.
    pub id: String,
    /// Rounds that were played.
    pub rounds: u32,
    /// Whether the coach approved in the end.
    pub approved: bool,
    /// Its last verdict.
    pub verdict: Option<Verdict>,
    /// Tokens and money.
    pub usage: Usage,
}

/// The latest run on exactly this text, if there is one.
pub(crate) fn latest(cwd: &Path, text: &str) -> Result<Option<PreviousRun>> {
    let dir = session::sessions_dir(cwd);
    for id in session::list(cwd)?.into_iter().map(|id| id.to_string()) {
        let Ok(Some(found)) = ResumableRun::at(&dir.join(&id)) else { continue };
        if found.text != text {
            continue;
        }
        let rounds = found.rounds;
        let verdict = rounds.rounds.iter().rev().find_map(|round| round.verdict().cloned());
        let approved = rounds.next() == NextStep::End(RunStatus::Done);
        let usage = rounds.cost().usage;
        let rounds = rounds.rounds.len() as u32;
        return Ok(Some(PreviousRun { id, rounds, approved, verdict, usage }));
    }
    Ok(None)
}
