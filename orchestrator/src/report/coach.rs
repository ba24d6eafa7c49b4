//! The player and coach of a session, for display: verdict, rounds, cost, and disagreements between
//! coach and checks.

use base::event::Usage;
use base::text::head;
use planner::verdict::Disagreement;

use studio_core::session::summary::JournalSummary;

/// Maximum number of bytes of evidence, and of feedback, that are shown; the journal has all of it.
const MAX_BYTES: usize = 1_000;

/// Returns the rows for display: a name and a text each.
pub(crate) fn rows(summary: &JournalSummary) -> Vec<(String, String)> {
    let Some(coach) = &summary.coach else { return Vec::new() };
    let cost = coach.cost();
    let rounds = count(coach.costs.len(), "round");
    let turns = count(cost.turns as usize, "turn");
    let verdict = match &coach.last {
        None => "no verdict yet".to_owned(),
        Some(last) => {
            let reason =
                last.why.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let suffix = if summary.has_current_verdict() { "" } else { ", for an earlier state" };
            one_line(&format!("{}{reason}{suffix}", last.verdict.name()))
        }
    };
    let usage = usage(&cost.usage);
    let mut rows = vec![("coach".to_owned(), format!("{verdict}; {rounds}, {turns}, {usage}"))];
    for it in coach.verdict().into_iter().flat_map(|verdict| verdict.requirements) {
        let evidence = one_line(&it.evidence);
        rows.push((one_line(&it.id), format!("{:7} {evidence}", it.status.word())));
    }
    let to_row = |it: Disagreement| ("warning".to_owned(), one_line(&it.text));
    rows.extend(coach.disagreements().into_iter().map(to_row));
    rows
}

/// Returns a number with its noun: `1 round`, `2 rounds`.
pub(crate) fn count(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

/// Returns a text on one line, of limited length.
pub(crate) fn one_line(text: &str) -> String {
    head(&text.split_whitespace().collect::<Vec<_>>().join(" "), MAX_BYTES).to_owned()
}

/// Returns the input and output tokens, and the cost if it is known.
pub(crate) fn usage(usage: &Usage) -> String {
    let cost = usage.cost_usd.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    format!("{input} in, {} out{cost}", usage.output)
}
