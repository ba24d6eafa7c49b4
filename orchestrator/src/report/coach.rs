//! What is shown of a session's player and coach: verdict, rounds, what they took, and where coach
//! and checks disagree.

use base::event::Usage;
use base::text::head;
use planner::verdict::Disagreement;

use studio_core::session::summary::JournalSummary;

/// Bytes of evidence, and of feedback, that are shown and noted; the journal has all of it.
const MOST: usize = 1_000;

/// Returns the same for people: a name and a text each.
pub(crate) fn rows(story: &JournalSummary) -> Vec<(String, String)> {
    let Some(coach) = &story.coach else { return Vec::new() };
    let cost = coach.cost();
    let rounds = count(coach.costs.len(), "round");
    let turns = count(cost.turns as usize, "turn");
    let said = match &coach.last {
        None => "no verdict yet".to_owned(),
        Some(last) => {
            let why = last.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            let earlier = if story.is_judged_now() { "" } else { ", for an earlier state" };
            one_line(&format!("{}{why}{earlier}", last.verdict.words()))
        }
    };
    let usage = usage(&cost.usage);
    let mut rows = vec![("coach".to_owned(), format!("{said}; {rounds}, {turns}, {usage}"))];
    for it in coach.verdict().into_iter().flat_map(|verdict| verdict.requirements) {
        let evidence = one_line(&it.evidence);
        rows.push((one_line(&it.id), format!("{:7} {evidence}", it.status.word())));
    }
    let look = |it: Disagreement| ("warning".to_owned(), one_line(&it.text));
    rows.extend(coach.disagreements().into_iter().map(look));
    rows
}

/// `1 round`, `2 rounds`.
pub(crate) fn count(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

/// Words of others on one line, and not without end.
pub(crate) fn one_line(words: &str) -> String {
    head(&words.split_whitespace().collect::<Vec<_>>().join(" "), MOST).to_owned()
}

/// Tokens in and out, and money where it is known.
pub(crate) fn usage(usage: &Usage) -> String {
    let cost = usage.cost_usd.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    let sent = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    format!("{sent} in, {} out{cost}", usage.output)
}
