//! The rounds of player and coach for people: a line while they go on, a table at the end.

use base::event::Usage;
use base::text::printable;
use serde::Deserialize;
use serde_json::Value;

use super::{cut_to, tokens};

/// Characters of a requirement's line.
const WIDE: usize = 110;

#[derive(Deserialize)]
struct Told {
    mode: String,
    state: String,
    #[serde(default)]
    round: u32,
    /// At most.
    #[serde(default)]
    rounds: u32,
    model: Option<String>,
    verdict: Option<String>,
    why: Option<String>,
    #[serde(default)]
    checks: Vec<Value>,
    requirements: Option<Vec<Value>>,
    #[serde(default)]
    disagreements: Vec<Value>,
    #[serde(default)]
    report: Vec<Line>,
    cost: Option<Cost>,
}

#[derive(Deserialize)]
struct Line {
    round: u32,
    verdict: String,
    why: Option<String>,
    requirements: Option<Vec<Value>>,
    #[serde(default)]
    checks: Vec<Value>,
    #[serde(default)]
    disagreements: Vec<Value>,
    cost: Cost,
}

#[derive(Deserialize)]
struct Cost {
    turns: u32,
    ms: u64,
    usage: Usage,
}

/// What a person is shown of a `plan` event; nothing where it speaks of something else.
pub fn lines(plan: &Value) -> Vec<String> {
    let Ok(told) = Told::deserialize(plan) else { return Vec::new() };
    if told.mode != "autonomous" {
        return Vec::new();
    }
    let of = format!("round {} of {}", told.round, told.rounds);
    let by = told.model.as_deref().map(|model| format!(" ({model})")).unwrap_or_default();
    let lines = match told.state.as_str() {
        "begun" => vec![begun(&told)],
        "playing" => vec![format!("{of}: the player works{by}")],
        "checking" => vec![format!("{of}: the checks run")],
        "judging" => vec![format!("{of}: the coach looks{by}")],
        "judged" => judged(&of, &told),
        "ended" => ended(&told),
        _ => Vec::new(),
    };
    lines.iter().map(|line| printable(line)).collect()
}

fn begun(told: &Told) -> String {
    let count = |n: usize, word: &str| match n {
        1 => format!("1 {word}"),
        n => format!("{n} {word}s"),
    };
    let requirements = count(told.requirements.iter().flatten().count(), "requirement");
    let (checks, rounds) =
        (count(told.checks.len(), "check"), count(told.rounds as usize, "round"));
    format!("{requirements}, {checks}, at most {rounds}")
}

fn judged(of: &str, told: &Told) -> Vec<String> {
    let word = told.verdict.as_deref().unwrap_or_default();
    let why = told.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    let mut lines = vec![format!("{of}: {word}{why}")];
    lines.extend(checks(&told.checks));
    lines.extend(statuses(told.requirements.as_deref()));
    lines.extend(apart(&told.disagreements));
    lines
}

/// Checks that failed, one line each.
fn checks(all: &[Value]) -> impl Iterator<Item = String> {
    let red = all.iter().filter(|check| check["ok"] == false);
    red.map(|check| {
        let command = check["command"].as_str().unwrap_or_default();
        cut_to(&format!("  check failed ({}): {command}", check["exit"]), WIDE)
    })
}

fn statuses(requirements: Option<&[Value]>) -> impl Iterator<Item = String> {
    requirements.unwrap_or_default().iter().map(|judged| {
        let text = |key: &str| judged[key].as_str().unwrap_or_default().trim();
        let evidence = text("evidence").lines().next().unwrap_or_default();
        cut_to(&format!("  {:4} {:7}  {evidence}", text("id"), text("status")), WIDE)
    })
}

/// Where coach and checks disagree.
fn apart(all: &[Value]) -> impl Iterator<Item = String> {
    all.iter().map(|it| format!("  look at: {}", it["text"].as_str().unwrap_or_default()))
}

fn ended(told: &Told) -> Vec<String> {
    let mut lines =
        vec![row(["round", "verdict", "met", "checks", "turns", "in", "out", "cost", "time"])];
    lines.extend(told.report.iter().map(|line| {
        let met = line.requirements.as_deref().map_or_else(
            || "-".to_owned(),
            |all| {
                let met = all.iter().filter(|judged| judged["status"] == "met").count();
                format!("{met} of {}", all.len())
            },
        );
        let green = line.checks.iter().filter(|check| check["ok"] == true).count();
        let checks = match line.checks.len() {
            0 => "-".to_owned(),
            all => format!("{green} of {all}"),
        };
        costs([&line.round.to_string(), &line.verdict, &met, &checks], &line.cost)
    }));
    if let (Some(cost), true) = (&told.cost, told.report.len() > 1) {
        lines.push(costs(["all", "", "", ""], cost));
    }
    let last = told.report.last();
    lines.extend(last.and_then(|line| line.why.as_ref()).map(|why| format!("  {why}")));
    lines.extend(last.into_iter().flat_map(|line| checks(&line.checks).collect::<Vec<_>>()));
    lines.extend(statuses(last.and_then(|line| line.requirements.as_deref())));
    lines.extend(last.into_iter().flat_map(|line| apart(&line.disagreements)));
    lines
}

fn costs([round, verdict, met, checks]: [&str; 4], cost: &Cost) -> String {
    let usage = cost.usage;
    let sent = tokens(usage.sent());
    let paid = usage.cost_text().unwrap_or_else(|| "-".to_owned());
    let time = format!("{:.1} s", cost.ms as f64 / 1e3);
    let (turns, written) = (cost.turns.to_string(), tokens(usage.output));
    row([round, verdict, met, checks, &turns, &sent, &written, &paid, &time])
}

fn row(cells: [&str; 9]) -> String {
    const WIDTHS: [usize; 9] = [6, 13, 9, 8, 6, 8, 8, 9, 8];
    let padded = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:width$}"));
    padded.collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_end_is_a_table_of_rounds_and_the_last_verdict() {
        let usage = json!({"input": 1200, "output": 80, "cache_read": 0, "cache_write": 0, "cost_usd": null});
        let cost = json!({"turns": 3, "ms": 1500, "usage": usage});
        let plan = json!({
            "mode": "autonomous", "state": "ended", "status": "not_approved", "rounds": 5,
            "cost": cost, "report": [{
                "round": 1, "verdict": "not approved", "cost": cost,
                "checks": [{"command": "make\u{1b}[2J", "ok": false, "exit": 2}],
                "requirements": [
                    {"id": "R1", "status": "met", "evidence": "a.rs:3"},
                    {"id": "R2", "status": "unmet", "evidence": "nothing there\nat all"}],
                "disagreements": [{"id": "R1", "text": "`R1` is said to be met by `make`"}],
            }],
        });
        insta::assert_snapshot!(lines(&plan).join("\n"), @r"
        round verdict      met      checks  turns in      out     cost     time
        1     not approved 1 of 2   0 of 1  3     1.2k    80      -        1.5 s
          check failed (2): make^[[2J
          R1   met      a.rs:3
          R2   unmet    nothing there
          look at: `R1` is said to be met by `make`
        ");
    }

    #[test]
    fn plans_of_others_are_not_ours_to_show() {
        assert!(lines(&json!({"mode": "planning", "state": "ended"})).is_empty());
        assert!(lines(&json!({"x": 1})).is_empty());
    }
}
