//! A requirement with its commits, checks, verdict and cost.

use base::event::Usage;
use planner::requirement::Requirement;
use planner::requirement_coverage::{CoverageRow, Gap};
use planner::verdict::{Disagreement, RequirementVerdict};
use serde::Serialize;
use serde_json::{Value, json};

use studio_git::landing_history::{Landing, Receipt};

/// A requirement with its coverage and landings.
#[derive(Clone, Debug)]
pub(crate) struct ServedRequirement<'a> {
    /// The requirement.
    pub requirement: Requirement,
    /// Its commits, and the checks that passed there.
    pub row: CoverageRow,
    /// The landings of these commits, oldest first.
    pub landings: Vec<&'a Landing>,
}

/// A session that worked on requirements, from its receipt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ServingSession {
    /// Its id.
    pub id: String,
    /// The landed commit.
    pub commit: String,
    /// Number of rounds of player and coach.
    pub rounds: Option<u32>,
    /// Number of model replies.
    pub turns: Option<u32>,
    /// Tokens and cost.
    pub usage: Option<Usage>,
    /// The other requirements that it worked on.
    pub shared_with: Vec<String>,
}

/// The total cost of sessions; `None` for values that no session reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct WorkCost {
    /// Number of sessions.
    pub sessions: usize,
    /// Number of model replies.
    pub turns: Option<u32>,
    /// Tokens and cost.
    pub usage: Option<Usage>,
}

impl WorkCost {
    /// Returns the total of these sessions, counting each once.
    pub(crate) fn of(sessions: &[ServingSession]) -> WorkCost {
        let mut cost = WorkCost::default();
        let mut counted: Vec<&str> = Vec::new();
        // The newest receipt of a session is the most complete.
        for session in sessions.iter().rev().filter(|it| !it.id.is_empty()) {
            if counted.contains(&session.id.as_str()) {
                continue;
            }
            counted.push(&session.id);
            cost.sessions += 1;
            if let Some(turns) = session.turns {
                cost.turns = Some(cost.turns.unwrap_or_default().saturating_add(turns));
            }
            if let Some(usage) = session.usage {
                cost.usage = Some(cost.usage.unwrap_or_default().plus(usage));
            }
        }
        cost
    }
}

impl ServedRequirement<'_> {
    /// Returns the state of the requirement, in a word or two.
    pub(crate) fn state(&self) -> &'static str {
        match self.row.gap() {
            Some(Gap::Task | Gap::Landing) => "not landed",
            Some(Gap::Check) => "no check",
            None => "shown",
        }
    }

    /// Returns the last verdict of a coach, and its landing.
    pub(crate) fn coach(&self) -> Option<(&RequirementVerdict, &Landing)> {
        self.landings.iter().rev().find_map(|landing| {
            let all = landing.receipt.as_ref()?.verdict.as_ref()?;
            let verdict = all.iter().find(|it| it.id == self.row.id)?;
            Some((verdict, *landing))
        })
    }

    /// Returns the coach's verdict in one word, marked if more has landed since; `earlier` if only
    /// another state of the work was judged.
    pub(crate) fn coach_status(&self) -> String {
        match self.coach() {
            Some((verdict, landing)) if self.is_newest(landing) => verdict.status.word().to_owned(),
            Some((verdict, _)) => format!("{} (earlier)", verdict.status.word()),
            None if self.judged_earlier() => "earlier".to_owned(),
            None => "-".to_owned(),
        }
    }

    fn is_newest(&self, landing: &Landing) -> bool {
        self.landings.last().is_some_and(|newest| newest.commit == landing.commit)
    }

    /// Returns whether the work changed between the verdict and the landing.
    fn judged_earlier(&self) -> bool {
        self.receipts().any(|receipt| receipt.judged_earlier)
    }

    /// Returns the disagreements of coach and checks about it, or about its work as a whole.
    pub(crate) fn disagreements(&self) -> Vec<&Disagreement> {
        let all = self.receipts().flat_map(|receipt| &receipt.disagreements);
        all.filter(|it| it.id.as_ref().is_none_or(|id| *id == self.row.id)).collect()
    }

    /// Returns its sessions, oldest landing first.
    pub(crate) fn sessions(&self) -> Vec<ServingSession> {
        let session = |landing: &&Landing| {
            let receipt = landing.receipt.as_ref()?;
            let others = landing.requirements.iter().filter(|id| **id != self.row.id);
            Some(ServingSession {
                id: receipt.session.clone(),
                commit: landing.commit.clone(),
                rounds: receipt.rounds,
                turns: receipt.turns,
                usage: receipt.usage,
                shared_with: others.cloned().collect(),
            })
        };
        self.landings.iter().filter_map(session).collect()
    }

    /// Returns one object of `trace --json`.
    pub(crate) fn json(&self) -> Value {
        let coach = self.coach().map(|(verdict, landing)| {
            json!({
                "status": verdict.status, "evidence": verdict.evidence, "commit": landing.commit,
                "newest": self.is_newest(landing),
            })
        });
        let sessions = self.sessions();
        let cost = WorkCost::of(&sessions);
        json!({
            "id": self.row.id, "text": self.requirement.text, "state": self.state(),
            "commits": self.row.commits, "checks": self.row.checks,
            "coach": coach, "judged_earlier": self.judged_earlier(),
            "disagreements": self.disagreements(),
            "sessions": sessions, "turns": cost.turns, "usage": cost.usage,
        })
    }

    fn receipts(&self) -> impl Iterator<Item = &Receipt> {
        self.landings.iter().filter_map(|landing| landing.receipt.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_counted_once_with_its_newest_receipt() {
        let session = |id: &str, turns: Option<u32>, input: Option<u64>| ServingSession {
            id: id.into(),
            commit: String::new(),
            rounds: None,
            turns,
            usage: input.map(|input| Usage { input, ..Usage::default() }),
            shared_with: Vec::new(),
        };
        let all = [
            session("a", Some(2), Some(10)),
            session("b", None, None),
            session("a", Some(5), Some(30)),
            session("c", Some(1), None),
            session("", Some(99), None),
        ];
        let cost = WorkCost::of(&all);
        assert_eq!((cost.sessions, cost.turns), (3, Some(6)));
        assert_eq!(cost.usage.map(|usage| usage.input), Some(30));
        assert_eq!(WorkCost::of(&all[1..2]), WorkCost { sessions: 1, turns: None, usage: None });
    }
}
