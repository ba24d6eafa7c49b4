//! The state of a session's player and coach as JSON, for scripts and receipts.

use base::text::head;
use planner::verdict::{Disagreement, RequirementVerdict};
use serde_json::{Value, json};

use crate::session::coach::CoachSummary;
use crate::session::journal::CheckResult;
use crate::session::summary::JournalSummary;

/// Maximum number of bytes of evidence, and of feedback; the journal has all of it.
const MAX_TEXT_BYTES: usize = 1_000;
/// Maximum number of requirements.
const MAX_REQUIREMENTS: usize = 500;

/// Returns the object `coach` of a session; null if it has none.
pub fn json(summary: &JournalSummary) -> Value {
    let Some(coach) = &summary.coach else { return Value::Null };
    let (verdict, cost, last) = (coach.verdict(), coach.cost(), coach.last.as_ref());
    let requirements = verdict.as_ref().map(|it| truncated(&it.requirements));
    let feedback = verdict.as_ref().map(|it| head(&it.feedback, MAX_TEXT_BYTES).to_owned());
    json!({
        "status": coach.status,
        "approved": verdict.as_ref().map(|it| it.approved),
        "why": last.and_then(|round| round.why.as_deref()),
        "requirements": requirements,
        "feedback": feedback,
        "rounds": coach.costs.len(), "turns": cost.turns, "ms": cost.ms, "usage": cost.usage,
        "disagreements": coach.disagreements(),
        "earlier": last.is_some() && !summary.has_current_verdict(),
    })
}

/// Returns the coach's part of a receipt, given the commit of the landed work and the results of
/// its checks on the merged tree. A verdict on another state of the work is omitted, with a remark.
pub(crate) fn receipt_fields(
    summary: &JournalSummary,
    work: &str,
    checks: &[CheckResult],
) -> Value {
    let coach = summary.coach.as_ref();
    let current = coach.filter(|coach| coach.is_for(work)).map(|coach| {
        let mut coach = coach.clone();
        coach.record_checks(checks);
        coach
    });
    let verdict = current.as_ref().and_then(CoachSummary::verdict);
    let disagreements: Vec<Disagreement> =
        current.as_ref().map(CoachSummary::disagreements).unwrap_or_default();
    let is_earlier = current.is_none() && coach.is_some_and(|coach| coach.last.is_some());
    json!({
        "approved": verdict.as_ref().map(|it| it.approved),
        "verdict": verdict.as_ref().map(|it| truncated(&it.requirements)),
        "judged_earlier": is_earlier,
        "rounds": coach.map(|coach| coach.costs.len()),
        "turns": summary.replies(),
        "disagreements": disagreements,
    })
}

/// Returns the verdict on each requirement, with long evidence truncated.
fn truncated(all: &[RequirementVerdict]) -> Vec<RequirementVerdict> {
    let truncate = |it: &RequirementVerdict| RequirementVerdict {
        evidence: head(&it.evidence, MAX_TEXT_BYTES).to_owned(),
        ..it.clone()
    };
    all.iter().take(MAX_REQUIREMENTS).map(truncate).collect()
}
