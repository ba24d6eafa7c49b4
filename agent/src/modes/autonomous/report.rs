//! The events of type `plan` that report the progress and the end of a run.

use base::event::coach_rounds::{
    JudgedRequirement, RequirementStatus, RequirementText, RoundCheck, RoundCost,
    RoundDisagreement, RoundOutcome, RoundPart, RoundReport, RoundsEvent,
};
use base::event::{EventKind, RunStatus};
use planner::verdict::{RequirementVerdict, VerdictStatus as Met};

use super::prompts::Contract;
use super::round_log::{PartCost, Round, RoundHistory};

/// Returns the event for the start of a new or resumed run.
pub(crate) fn begun(contract: &Contract, most: u32, resumed: bool) -> EventKind {
    let all = contract.requirements.iter();
    let requirements =
        all.map(|it| RequirementText { id: it.id.clone(), text: it.text.clone() }).collect();
    let checks = contract.checks.clone();
    RoundsEvent::Begun { rounds: most, resumed, requirements, checks }.into()
}

/// Returns the event for the start of the player's part of a round.
pub(crate) fn playing(n: u32, rounds: u32, model: &str) -> EventKind {
    RoundsEvent::Playing(RoundPart { round: n, rounds, model: Some(model.to_owned()) }).into()
}

/// Returns the event for the start of a round's checks.
pub(crate) fn checking(n: u32, rounds: u32) -> EventKind {
    RoundsEvent::Checking(RoundPart { round: n, rounds, model: None }).into()
}

/// Returns the event for the start of the coach's part of a round.
pub(crate) fn judging(n: u32, rounds: u32, model: &str) -> EventKind {
    RoundsEvent::Judging(RoundPart { round: n, rounds, model: Some(model.to_owned()) }).into()
}

/// Returns the event for the end of a round.
pub(crate) fn judged((n, rounds): (u32, u32), round: &Round) -> EventKind {
    RoundsEvent::Judged { rounds, round: round_of(n, round) }.into()
}

/// Returns the event for the end of the run, with its status and every round.
pub(crate) fn ended(status: RunStatus, rounds: &RoundHistory) -> EventKind {
    let report = rounds.rounds.iter().zip(1..).map(|(round, n)| round_of(n, round)).collect();
    let cost = cost(rounds.cost());
    RoundsEvent::Ended { status: Some(status), rounds: rounds.most, report, cost }.into()
}

fn round_of(n: u32, round: &Round) -> RoundReport {
    let verdict = round.verdict();
    let outcome = match verdict {
        Some(verdict) if verdict.approved => RoundOutcome::Approved,
        Some(_) => RoundOutcome::NotApproved,
        None if round.judged.is_some() => RoundOutcome::NoVerdict,
        None => RoundOutcome::NotReached,
    };
    let reason = round.judged.as_ref().and_then(|(judged, _)| judged.as_ref().err().cloned());
    let checks = round.checks.iter().flatten().map(|check| RoundCheck {
        command: check.command.clone(),
        ok: check.ok,
        exit: check.exit,
        ms: check.ms,
    });
    let disagreements = round.disagreements().into_iter();
    RoundReport {
        round: n,
        verdict: outcome,
        why: reason,
        requirements: verdict.map(|verdict| verdict.requirements.iter().map(requirement).collect()),
        feedback: verdict.map(|verdict| verdict.feedback.clone()),
        disagreements: disagreements
            .map(|it| RoundDisagreement { id: it.id, text: it.text })
            .collect(),
        checks: checks.collect(),
        cost: cost(round.cost()),
    }
}

fn requirement(judged: &RequirementVerdict) -> JudgedRequirement {
    let status = match judged.status {
        Met::Met => RequirementStatus::Met,
        Met::Unmet => RequirementStatus::Unmet,
        Met::Unknown => RequirementStatus::Unknown,
    };
    JudgedRequirement { id: judged.id.clone(), status, evidence: judged.evidence.clone() }
}

fn cost(cost: PartCost) -> RoundCost {
    RoundCost { turns: cost.turns, ms: cost.ms, usage: cost.usage }
}
