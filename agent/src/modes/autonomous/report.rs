//! What a run tells while it goes on and at its end: events of the type `plan`.

use base::event::{Status, What};
use serde_json::{Value, json};

use super::record::{Cost, Round, Rounds};
use super::words::Contract;

/// The run begins, or goes on.
pub fn begun(contract: &Contract, most: u32, taken_up: bool) -> What {
    let ids = contract.requirements.iter().map(|it| json!({"id": it.id, "text": it.text}));
    plan(json!({
        "state": "begun", "rounds": most, "resumed": taken_up,
        "requirements": ids.collect::<Vec<_>>(), "checks": contract.checks,
    }))
}

/// A part of a round begins: `playing`, `checking` or `judging`.
pub fn at(state: &str, (n, most): (u32, u32), model: Option<&str>) -> What {
    plan(json!({"state": state, "round": n, "rounds": most, "model": model}))
}

/// A round is over.
pub fn judged((n, most): (u32, u32), round: &Round) -> What {
    let mut told = round_of(n, round);
    told["state"] = json!("judged");
    told["rounds"] = json!(most);
    plan(told)
}

/// The run is over: every round, and how it ended.
pub fn ended(status: Status, rounds: &Rounds) -> What {
    let all: Vec<Value> =
        rounds.rounds.iter().zip(1..).map(|(round, n)| round_of(n, round)).collect();
    plan(json!({
        "state": "ended", "status": status, "rounds": rounds.most, "report": all,
        "cost": cost(rounds.cost()),
    }))
}

fn plan(mut told: Value) -> What {
    told["mode"] = json!("autonomous");
    What::Plan { plan: told }
}

fn round_of(n: u32, round: &Round) -> Value {
    let verdict = round.verdict();
    let word = match verdict {
        Some(verdict) if verdict.approved => "approved",
        Some(_) => "not approved",
        None if round.judged.is_some() => "no verdict",
        None => "not reached",
    };
    let why = round.judged.as_ref().and_then(|(judged, _)| judged.as_ref().err());
    let checks = round.checks.iter().flatten();
    let checks = checks
        .map(|ran| json!({"command": ran.command, "ok": ran.ok, "exit": ran.exit, "ms": ran.ms}));
    json!({
        "round": n, "verdict": word, "why": why,
        "requirements": verdict.map(|verdict| &verdict.requirements),
        "feedback": verdict.map(|verdict| &verdict.feedback),
        "disagreements": round.disagreements(),
        "checks": checks.collect::<Vec<_>>(), "cost": cost(round.cost()),
    })
}

fn cost(cost: Cost) -> Value {
    json!({"turns": cost.turns, "ms": cost.ms, "usage": cost.usage})
}
