//! Shows the rounds of player and coach: a line for each step, a table at the end.

use base::event::coach_rounds::{
    JudgedRequirement, RequirementStatus, RoundCheck, RoundCost, RoundDisagreement, RoundPart,
    RoundReport, RoundsEvent,
};
use base::text::printable;
use serde_json::Value;

use super::tokens;
use base::text::cut_columns;

/// Maximum number of characters in the line of a requirement.
const WIDE: usize = 110;

/// Returns the lines that show a `plan` event; none for the events of another mode.
pub(crate) fn lines(plan: &Value) -> Vec<String> {
    let Some(event) = RoundsEvent::parse(plan) else { return Vec::new() };
    let lines = match &event {
        RoundsEvent::Begun { rounds, requirements, checks, .. } => {
            vec![begun(requirements.len(), checks.len(), *rounds)]
        }
        RoundsEvent::Playing(part) => vec![format!("{}: player{}", of(part), by(part))],
        RoundsEvent::Checking(part) => vec![format!("{}: checks", of(part))],
        RoundsEvent::Judging(part) => vec![format!("{}: coach{}", of(part), by(part))],
        RoundsEvent::Judged { rounds, round } => judged(*rounds, round),
        RoundsEvent::Ended { report, cost, .. } => ended(report, cost),
    };
    lines.iter().map(|line| printable(line)).collect()
}

fn of(part: &RoundPart) -> String {
    format!("round {} of {}", part.round, part.rounds)
}

fn by(part: &RoundPart) -> String {
    part.model.as_deref().map(|model| format!(" ({model})")).unwrap_or_default()
}

fn begun(requirements: usize, checks: usize, rounds: u32) -> String {
    let count = |n: usize, word: &str| base::text::count(n as u64, word);
    let (requirements, checks) = (count(requirements, "requirement"), count(checks, "check"));
    format!("{requirements}, {checks}, at most {}", count(rounds as usize, "round"))
}

fn judged(rounds: u32, round: &RoundReport) -> Vec<String> {
    let suffix = round.why.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let verdict = round.verdict.name();
    let mut lines = vec![format!("round {} of {rounds}: {verdict}{suffix}", round.round)];
    lines.extend(checks(&round.checks));
    lines.extend(statuses(round.requirements.as_deref()));
    lines.extend(apart(&round.disagreements));
    lines
}

/// Formats the failed checks, one line each.
fn checks(all: &[RoundCheck]) -> impl Iterator<Item = String> {
    let red = all.iter().filter(|check| !check.ok);
    red.map(|check| {
        cut_columns(&format!("  check failed ({}): {}", check.exit, check.command), WIDE)
    })
}

fn statuses(requirements: Option<&[JudgedRequirement]>) -> impl Iterator<Item = String> {
    requirements.unwrap_or_default().iter().map(|judged| {
        let evidence = judged.evidence.trim().lines().next().unwrap_or_default();
        cut_columns(
            &format!("  {:4} {:7}  {evidence}", judged.id.trim(), judged.status.word()),
            WIDE,
        )
    })
}

/// Formats the disagreements of coach and checks.
fn apart(all: &[RoundDisagreement]) -> impl Iterator<Item = String> {
    all.iter().map(|it| format!("  warning: {}", it.text))
}

fn ended(report: &[RoundReport], cost: &RoundCost) -> Vec<String> {
    let mut lines =
        vec![row(["round", "verdict", "met", "checks", "turns", "in", "out", "cost", "time"])];
    lines.extend(report.iter().map(|line| {
        let met = line.requirements.as_deref().map_or_else(
            || "-".to_owned(),
            |all| {
                let met = all.iter().filter(|it| it.status == RequirementStatus::Met).count();
                format!("{met} of {}", all.len())
            },
        );
        let green = line.checks.iter().filter(|check| check.ok).count();
        let checks = match line.checks.len() {
            0 => "-".to_owned(),
            all => format!("{green} of {all}"),
        };
        costs([&line.round.to_string(), line.verdict.name(), &met, &checks], &line.cost)
    }));
    if report.len() > 1 {
        lines.push(costs(["all", "", "", ""], cost));
    }
    let last = report.last();
    lines.extend(last.and_then(|line| line.why.as_ref()).map(|reason| format!("  {reason}")));
    lines.extend(last.into_iter().flat_map(|line| checks(&line.checks)));
    lines.extend(statuses(last.and_then(|line| line.requirements.as_deref())));
    lines.extend(last.into_iter().flat_map(|line| apart(&line.disagreements)));
    lines
}

fn costs([round, verdict, met, checks]: [&str; 4], cost: &RoundCost) -> String {
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
    fn the_end_shows_a_table_of_rounds_and_the_last_verdict() {
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
          warning: `R1` is said to be met by `make`
        ");
    }

    #[test]
    fn plan_events_of_other_modes_are_ignored() {
        assert!(lines(&json!({"mode": "planning", "state": "ended"})).is_empty());
        assert!(lines(&json!({"x": 1})).is_empty());
    }
}
