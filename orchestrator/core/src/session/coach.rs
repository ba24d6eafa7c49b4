//! The last verdict of a session's coach and the cost of its rounds, read from the agent's events.

use base::event::RunStatus;
use base::event::coach_rounds::{
    JudgedRequirement, RequirementStatus, RoundCost, RoundOutcome, RoundReport, RoundsEvent,
};
use planner::verdict::{
    CheckOutcomes, Disagreement, RequirementVerdict, Verdict, VerdictStatus as Met, disagreements,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::journal::{CheckResult, WorkSummary};

/// The player and coach of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoachSummary {
    /// The last judged round; `None` before the first verdict.
    pub last: Option<RoundReport>,
    /// The cost of each round so far.
    pub costs: Vec<RoundCost>,
    /// The result of the run; `None` while it runs, and if it was interrupted.
    pub status: Option<RunStatus>,
    /// The newest result of each check of the work, run by the agent or by studio.
    pub checks: Vec<(String, bool)>,
    /// The commit with the judged work; `None` before it is collected.
    #[serde(rename = "of")]
    pub judged_commit: Option<String>,
    /// Whether the player continued after the verdict.
    #[serde(rename = "played_on")]
    pub continued: bool,
}

/// Returns the verdict of a round.
fn to_verdict(round: &RoundReport) -> Option<Verdict> {
    let requirement_verdict = |it: &JudgedRequirement| RequirementVerdict {
        id: it.id.clone(),
        status: match it.status {
            RequirementStatus::Met => Met::Met,
            RequirementStatus::Unmet => Met::Unmet,
            RequirementStatus::Unknown => Met::Unknown,
        },
        evidence: it.evidence.clone(),
    };
    Some(Verdict {
        approved: round.verdict == RoundOutcome::Approved,
        requirements: round.requirements.as_ref()?.iter().map(requirement_verdict).collect(),
        feedback: round.feedback.clone().unwrap_or_default(),
    })
}

/// Processes a `plan` event; those of other modes, and unreadable ones, change nothing.
pub(crate) fn apply_event(coach: &mut Option<CoachSummary>, plan: &Value) {
    match RoundsEvent::parse(plan) {
        // A new run has its own requirements.
        Some(RoundsEvent::Begun { resumed: false, .. }) => *coach = Some(CoachSummary::default()),
        Some(RoundsEvent::Playing(_)) => {
            let coach = coach.get_or_insert_default();
            coach.continued = coach.last.is_some();
            coach.status = None;
        }
        Some(RoundsEvent::Judged { round, .. }) => {
            let coach = coach.get_or_insert_default();
            coach.costs.truncate(round.round.saturating_sub(1) as usize);
            coach.costs.push(round.cost);
            coach.record_verdict(round);
        }
        Some(RoundsEvent::Ended { status, report, .. }) => {
            let coach = coach.get_or_insert_default();
            coach.costs = report.iter().map(|round| round.cost).collect();
            coach.status = status;
            let is_reached = |round: &RoundReport| round.verdict != RoundOutcome::NotReached;
            let has_open_round = report.last().is_some_and(|round| !is_reached(round));
            let last = report.into_iter().rfind(is_reached);
            // A repeated report is not a new verdict.
            if let Some(round) = last.filter(|round| coach.last.as_ref() != Some(round)) {
                coach.record_verdict(round);
            }
            coach.continued |= has_open_round && coach.last.is_some();
        }
        Some(
            RoundsEvent::Begun { resumed: true, .. }
            | RoundsEvent::Checking(_)
            | RoundsEvent::Judging(_),
        )
        | None => {}
    }
}

impl CoachSummary {
    fn record_verdict(&mut self, round: RoundReport) {
        self.checks = round.checks.iter().map(|check| (check.command.clone(), check.ok)).collect();
        self.last = Some(round);
        (self.judged_commit, self.continued) = (None, false);
    }

    /// Records that the work was collected.
    pub(crate) fn record_work(&mut self, work: &WorkSummary) {
        if self.last.is_some() && self.judged_commit.is_none() {
            self.judged_commit = Some(work.commit().to_owned());
        }
    }

    /// Records that studio ran checks on the work.
    pub(crate) fn record_checks(&mut self, results: &[CheckResult]) {
        for result in results {
            self.checks.retain(|(command, _)| *command != result.command);
            self.checks.push((result.command.clone(), result.ok));
        }
    }

    /// Returns whether the verdict is on the work of that commit, unchanged since.
    pub(crate) fn is_for(&self, commit: &str) -> bool {
        !self.continued && self.judged_commit.as_deref() == Some(commit)
    }

    /// Returns the verdict.
    pub fn verdict(&self) -> Option<Verdict> {
        to_verdict(self.last.as_ref()?)
    }

    /// Returns the contradictions between the verdict and the newest results of the checks.
    pub fn disagreements(&self) -> Vec<Disagreement> {
        let outcomes = self.checks.iter().map(|(command, ok)| (command.as_str(), *ok));
        let checks = CheckOutcomes::of(outcomes);
        self.verdict().map(|verdict| disagreements(&verdict, &checks)).unwrap_or_default()
    }

    /// Returns the cost of all rounds.
    pub fn cost(&self) -> RoundCost {
        self.costs.iter().fold(RoundCost::default(), |sum, cost| RoundCost {
            turns: sum.turns.saturating_add(cost.turns),
            ms: sum.ms.saturating_add(cost.ms),
            usage: sum.usage.plus(cost.usage),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::event::Usage;
    use serde_json::json;

    fn judged_event(n: u32, status: &str) -> Value {
        json!({
            "mode": "autonomous", "state": "judged", "round": n, "rounds": 5,
            "verdict": if status == "met" { "approved" } else { "not approved" },
            "requirements": [{"id": "R1", "status": status, "evidence": "make"}],
            "checks": [{"command": "make", "ok": false}],
            "cost": {"turns": 2, "ms": 10, "usage": Usage { input: 5, ..Usage::default() }},
        })
    }

    fn state_event(state: &str) -> Value {
        json!({"mode": "autonomous", "state": state, "round": 2, "rounds": 5})
    }

    fn summary_of(events: &[Value]) -> CoachSummary {
        let mut coach = None;
        events.iter().for_each(|plan| apply_event(&mut coach, plan));
        coach.expect("it was heard")
    }

    fn work(head: &str) -> WorkSummary {
        WorkSummary { head: head.into(), ..WorkSummary::default() }
    }

    #[test]
    fn an_interrupted_run_keeps_its_last_verdict() {
        let mut coach = summary_of(&[
            state_event("begun"),
            state_event("playing"),
            judged_event(1, "unmet"),
            state_event("playing"),
        ]);
        assert!(coach.verdict().is_some_and(|it| !it.approved && it.feedback.is_empty()));
        assert_eq!((coach.status, coach.cost().turns), (None, 2));
        coach.record_work(&work("a"));
        assert!(!coach.is_for("a"), "the player went on");
    }

    #[test]
    fn a_verdict_applies_to_the_work_collected_after_it() {
        let mut coach =
            summary_of(&[judged_event(1, "unmet"), state_event("playing"), judged_event(2, "met")]);
        assert!(!coach.is_for("a"));
        coach.record_work(&work("a"));
        coach.record_work(&work("b"));
        assert!(coach.is_for("a") && !coach.is_for("b"));
        assert_eq!((coach.costs.len(), coach.cost().usage.input), (2, 10));
    }

    #[test]
    fn a_verdict_repeated_at_the_end_is_not_a_new_one() {
        let mut coach = Some(summary_of(&[judged_event(1, "met")]));
        coach.as_mut().unwrap().record_work(&work("a"));
        let mut round = judged_event(1, "met");
        let end_event =
            json!({"mode": "autonomous", "state": "ended", "status": "done", "report": [round]});
        apply_event(&mut coach, &end_event);
        assert!(
            coach.as_ref().is_some_and(|it| it.is_for("a") && it.status == Some(RunStatus::Done))
        );
        round["requirements"][0]["evidence"] = json!("other");
        apply_event(
            &mut coach,
            &json!({"mode": "autonomous", "state": "ended", "report": [round]}),
        );
        coach.as_mut().unwrap().record_work(&work("a"));
        assert!(coach.as_ref().is_some_and(|it| it.is_for("a")), "the coach judged the new work");
        let open_round = json!({"round": 2, "verdict": "not reached"});
        apply_event(
            &mut coach,
            &json!({"mode": "autonomous", "state": "ended", "report": [round, open_round]}),
        );
        assert!(!coach.unwrap().is_for("a"), "the player had begun another round");
    }

    #[test]
    fn the_newest_result_of_a_check_counts() {
        let mut coach = summary_of(&[judged_event(1, "met")]);
        assert_eq!(coach.disagreements().len(), 1);
        let passed = CheckResult {
            command: "make".into(),
            ok: true,
            exit: 0,
            ms: 1,
            tail: String::new(),
            hint: None,
            limit: None,
            fails_on: None,
            flaky: false,
        };
        coach.record_checks(&[passed]);
        assert!(coach.disagreements().is_empty());
    }

    #[test]
    fn an_unreadable_event_changes_nothing() {
        let before = summary_of(&[judged_event(1, "met")]);
        let mut coach = Some(before.clone());
        let mut unreadable = judged_event(2, "met");
        unreadable["requirements"][0]["status"] = json!("perhaps");
        for plan in [
            json!({}),
            json!({"mode": "planning", "state": "ended"}),
            unreadable,
            state_event("later"),
        ] {
            apply_event(&mut coach, &plan);
        }
        assert_eq!(coach, Some(before.clone()));
        apply_event(&mut coach, &json!({"mode": "autonomous", "state": "begun", "resumed": true}));
        assert_eq!(coach, Some(before));
        apply_event(&mut coach, &state_event("begun"));
        assert_eq!(coach, Some(CoachSummary::default()), "a new run has new requirements");
    }
}
