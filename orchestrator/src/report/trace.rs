//! The output of `studio trace`: a table, a page for each requirement, a Markdown report.

use base::text::{head, printable};

use crate::report::coach::{count, one_line, usage};
use crate::report::requirements::{ServedRequirement, ServingSession, WorkCost};
use crate::report::{markdown, table};
use studio_git::landing_history::Landing;

/// Length of an abbreviated commit id.
const SHORT_COMMIT: usize = 12;

/// Returns a line for each requirement, and the total cost of all sessions.
pub(crate) fn summary(requirements: &[ServedRequirement<'_>]) -> String {
    let line = |it: &ServedRequirement<'_>| {
        let commits: Vec<&str> =
            it.row.commits.iter().map(|commit| head(commit, SHORT_COMMIT)).collect();
        [
            it.row.id.clone(),
            it.state().to_owned(),
            it.coach_status(),
            commits.join(" "),
            printable(&it.row.checks.join("; ")),
            printable(&cost_text(it)),
            printable(head(&it.requirement.text, 200)),
        ]
    };
    let header = ["ID", "STATE", "COACH", "COMMITS", "CHECKS", "TOOK", "REQUIREMENT"];
    let mut text = table::plain(header, requirements.iter().map(line).collect());
    for it in requirements.iter().flat_map(ServedRequirement::disagreements) {
        text.push_str(&format!("\nwarning: {}", printable(&it.text)));
    }
    if let Some(total) = total(requirements) {
        text.push_str(&format!("\n{total}"));
    }
    text
}

/// Formats one requirement in full.
pub(crate) fn page(it: &ServedRequirement<'_>) -> String {
    let mut lines = vec![format!("{}: {} ({})", it.row.id, it.requirement.text, it.state())];
    if let Some((verdict, _)) = it.coach() {
        let evidence = one_line(&verdict.evidence);
        lines.push(format!("  coach: {}: {evidence}", it.coach_status()));
    }
    lines.extend(it.disagreements().iter().map(|it| format!("  warning: {}", it.text)));
    for landing in &it.landings {
        lines.push(format!("  {} {}", head(&landing.commit, SHORT_COMMIT), landing.subject));
        let Some(receipt) = &landing.receipt else {
            lines.push("    without a receipt: the commit was rewritten".to_owned());
            continue;
        };
        let session = session(it, landing).map(|session| details(&session)).unwrap_or_default();
        lines.push(format!("    session {}{session}", receipt.session));
        if receipt.judged_earlier {
            lines.push("    the coach judged an earlier state".to_owned());
        }
        lines.extend(receipt.checks.iter().map(|check| {
            format!("    {} {}", if check.ok { "passed" } else { "failed" }, check.command)
        }));
    }
    printable(&lines.join("\n"))
}

/// Returns a report: a table, then a section for each requirement.
pub(crate) fn report(requirements: &[ServedRequirement<'_>]) -> String {
    let line = |it: &ServedRequirement<'_>| {
        let commits: Vec<String> = it
            .row
            .commits
            .iter()
            .map(|commit| markdown::code(head(commit, SHORT_COMMIT)))
            .collect();
        let checks = match it.row.checks.len() {
            0 => "none".to_owned(),
            n => format!("{n} passed"),
        };
        let coach = it.coach_status();
        let id = markdown::text(&it.row.id);
        [
            id,
            it.state().to_owned(),
            coach,
            commits.join(" "),
            checks,
            markdown::text(&cost_text(it)),
        ]
    };
    let header = ["requirement", "state", "coach", "commits", "checks", "took"];
    let rows: Vec<_> = requirements.iter().map(line).collect();
    let mut parts = vec![markdown::table(header, &rows)];
    parts.extend(total(requirements).map(|total| markdown::text(&total)));
    parts.extend(requirements.iter().map(section));
    parts.join("\n\n")
}

fn section(it: &ServedRequirement<'_>) -> String {
    let mut lines = vec![
        format!("### {}", markdown::text(&it.row.id)),
        String::new(),
        markdown::text(&it.requirement.text),
        String::new(),
        format!("- State: {}", it.state()),
    ];
    for landing in &it.landings {
        let (commit, subject) =
            (markdown::code(head(&landing.commit, SHORT_COMMIT)), &landing.subject);
        let source = match (&landing.receipt, session(it, landing)) {
            (Some(receipt), Some(session)) => {
                let earlier =
                    if receipt.judged_earlier { ", judged in an earlier state" } else { "" };
                let cost_note = markdown::text(&details(&session));
                format!("session {}{cost_note}{earlier}", markdown::code(&receipt.session))
            }
            _ => "without a receipt: the commit was rewritten".to_owned(),
        };
        lines.push(format!("- Commit {commit} {}: {source}", markdown::text(subject)));
        for check in landing.receipt.iter().flat_map(|receipt| &receipt.checks) {
            let word = if check.ok { "passed" } else { "failed" };
            lines.push(format!("  - {word}: {}", markdown::code(&check.command)));
        }
    }
    if let Some((verdict, _)) = it.coach() {
        let evidence = markdown::text(&one_line(&verdict.evidence));
        lines.push(format!("- Coach: {}. {evidence}", it.coach_status()));
    }
    let disagreements = it.disagreements();
    lines.extend(disagreements.iter().map(|it| format!("- Warning: {}", markdown::text(&it.text))));
    lines.join("\n")
}

fn session(it: &ServedRequirement<'_>, landing: &Landing) -> Option<ServingSession> {
    it.sessions().into_iter().find(|session| session.commit == landing.commit)
}

/// Describes the cost of a session, to follow its name.
fn details(session: &ServingSession) -> String {
    let mut parts = Vec::new();
    parts.extend(session.rounds.map(|rounds| count(rounds as usize, "round")));
    parts.extend(session.turns.map(turns));
    parts.extend(session.usage.map(|it| usage(&it)));
    parts.extend(shared_text(session));
    parts.iter().map(|part| format!(", {part}")).collect()
}

fn shared_text(session: &ServingSession) -> Option<String> {
    let others = &session.shared_with;
    (!others.is_empty()).then(|| format!("shared with {}", others.join(", ")))
}

/// Describes the cost of a requirement's sessions, for a table cell.
fn cost_text(it: &ServedRequirement<'_>) -> String {
    let sessions = it.sessions();
    let work_cost = WorkCost::of(&sessions);
    let mut parts = Vec::new();
    parts.extend(work_cost.turns.map(turns));
    parts.extend(work_cost.usage.map(|usage| match usage.cost_usd {
        Some(cost) => format!("${cost:.2}"),
        None => {
            let sent = usage.input.saturating_add(usage.cache_read);
            let tokens = sent.saturating_add(usage.cache_write).saturating_add(usage.output);
            format!("{tokens} tokens")
        }
    }));
    if parts.is_empty() {
        return "-".to_owned();
    }
    let mut others: Vec<&str> = Vec::new();
    for id in sessions.iter().flat_map(|session| &session.shared_with) {
        if !others.contains(&id.as_str()) {
            others.push(id);
        }
    }
    if !others.is_empty() {
        parts.push(format!("shared with {}", others.join(", ")));
    }
    parts.join(", ")
}

/// Describes the total cost of all sessions, counting each once; `None` if none landed.
fn total(requirements: &[ServedRequirement<'_>]) -> Option<String> {
    let work_cost = WorkCost::of(&sessions(requirements));
    if work_cost.sessions == 0 {
        return None;
    }
    let mut parts = vec![count(work_cost.sessions, "session")];
    parts.extend(work_cost.turns.map(turns));
    parts.extend(work_cost.usage.map(|it| usage(&it)));
    Some(format!("All: {}", parts.join(", ")))
}

/// Returns the sessions of all requirements; a session with several requirements occurs several
/// times.
pub(crate) fn sessions(requirements: &[ServedRequirement<'_>]) -> Vec<ServingSession> {
    requirements.iter().flat_map(ServedRequirement::sessions).collect()
}

fn turns(n: u32) -> String {
    count(n as usize, "turn")
}
