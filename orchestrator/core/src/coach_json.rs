//! What scripts and receipts are told of a session's player and coach.

use base::text::head;
use planner::verdict::{Disagreement, RequirementVerdict};
use serde_json::{Value, json};

use crate::session::coach::CoachSummary;
use crate::session::journal::CheckResult;
use crate::session::summary::JournalSummary;

/// Bytes of evidence, and of feedback, that are passed on; the journal has all of it.
const MOST: usize = 1_000;
/// How many requirements are.
const FEW: usize = 500;

/// Returns the object `coach` of a session; null where it has none.
pub fn json(story: &JournalSummary) -> Value {
    let Some(coach) = &story.coach else { return Value::Null };
    let (verdict, cost, last) = (coach.verdict(), coach.cost(), coach.last.as_ref());
    let requirements = verdict.as_ref().map(|it| judged(&it.requirements));
    let feedback = verdict.as_ref().map(|it| head(&it.feedback, MOST).to_owned());
    json!({
        "status": coach.status,
        "approved": verdict.as_ref().map(|it| it.approved),
        "why": last.and_then(|round| round.why.as_deref()),
        "requirements": requirements,
        "feedback": feedback,
        "rounds": coach.costs.len(), "turns": cost.turns, "ms": cost.ms, "usage": cost.usage,
        "disagreements": coach.disagreements(),
        "earlier": last.is_some() && !story.is_judged_now(),
    })
}

/// Returns what a receipt says of the coach, given the commit of the work that landed and how its
/// checks went on the merged tree. A verdict on another state of the work is left out, and that is
/// said.
pub(crate) fn noted(story: &JournalSummary, work: &str, checks: &[CheckResult]) -> Value {
    let coach = story.coach.as_ref();
    let of_this = coach.filter(|coach| coach.is_of(work)).map(|coach| {
        let mut coach = coach.clone();
        coach.checked(checks);
        coach
    });
    let verdict = of_this.as_ref().and_then(CoachSummary::verdict);
    let disagreements: Vec<Disagreement> =
        of_this.as_ref().map(CoachSummary::disagreements).unwrap_or_default();
    let earlier = of_this.is_none() && coach.is_some_and(|coach| coach.last.is_some());
    json!({
        "approved": verdict.as_ref().map(|it| it.approved),
        "verdict": verdict.as_ref().map(|it| judged(&it.requirements)),
        "judged_earlier": earlier,
        "rounds": coach.map(|coach| coach.costs.len()),
        "turns": story.replies(),
        "disagreements": disagreements,
    })
}

/// Returns the verdict on each requirement, long evidence cut.
fn judged(all: &[RequirementVerdict]) -> Vec<RequirementVerdict> {
    let cut = |it: &RequirementVerdict| RequirementVerdict {
        evidence: head(&it.evidence, MOST).to_owned(),
        ..it.clone()
    };
    all.iter().take(FEW).map(cut).collect()
}
