//! The state of a session's player and coach as JSON, for scripts and receipts.

use base::text::head;
use planner::verdict::{Disagreement, RequirementVerdict};
use serde_json::{Value, json};

use crate::session::coach::CoachSummary;
use crate::session::journal::CheckResult;
use crate::session::summary::JournalSummary;

/// Maximum number of bytes of evidence, and of feedback; the journal has all of it.
const MOST: usize = 1_000;
/// Maximum number of requirements.
const FEW: usize = 500;

/// Returns the object `coach` of a session; null if it has none.
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

/// Returns the coach's part of a receipt, given the commit of the landed work and the results of
/// its checks on the merged tree. A verdict on another state of the work is omitted, with a remark.
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

/// Returns the verdict on each requirement, with long evidence truncated.
fn judged(all: &[RequirementVerdict]) -> Vec<RequirementVerdict> {
    let cut = |it: &RequirementVerdict| RequirementVerdict {
        evidence: head(&it.evidence, MOST).to_owned(),
        ..it.clone()
    };
    all.iter().take(FEW).map(cut).collect()
}
