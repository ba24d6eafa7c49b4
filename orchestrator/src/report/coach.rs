//! What is shown of a session's player and coach: verdict, rounds, what they took, and where coach
//! and checks disagree.

use base::event::Usage;
use base::text::head;
use planner::verdict::{Disagreement, Judged};
use serde_json::{Value, json};

use crate::session::coach::Coach;
use crate::session::facts::Story;
use crate::session::journal::CheckResult;

/// Bytes of evidence, and of feedback, that are shown and noted; the journal has all of it.
const MOST: usize = 1_000;
/// How many requirements are.
const FEW: usize = 500;

/// The object `coach` of a session; null where it has none.
pub fn json(story: &Story) -> Value {
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

/// What a receipt says of the coach, given the commit of the work that landed and how its checks
/// went on the merged tree. A verdict on another state of the work is left out, and that is said.
pub fn noted(story: &Story, work: &str, checks: &[CheckResult]) -> Value {
    let coach = story.coach.as_ref();
    let of_this = coach.filter(|coach| coach.is_of(work)).map(|coach| {
        let mut coach = coach.clone();
        coach.checked(checks);
        coach
    });
    let verdict = of_this.as_ref().and_then(Coach::verdict);
    let disagreements: Vec<Disagreement> =
        of_this.as_ref().map(Coach::disagreements).unwrap_or_default();
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

/// The verdict on each requirement, long evidence cut.
fn judged(all: &[Judged]) -> Vec<Judged> {
    let cut = |it: &Judged| Judged { evidence: head(&it.evidence, MOST).to_owned(), ..it.clone() };
    all.iter().take(FEW).map(cut).collect()
}

/// The same for people: a name and a text each.
pub fn rows(story: &Story) -> Vec<(String, String)> {
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
pub fn count(n: usize, word: &str) -> String {
    if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") }
}

/// Words of others on one line, and not without end.
pub fn one_line(words: &str) -> String {
    head(&words.split_whitespace().collect::<Vec<_>>().join(" "), MOST).to_owned()
}

/// Tokens in and out, and money where it is known.
pub fn usage(usage: &Usage) -> String {
    let cost = usage.cost_usd.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
    let sent = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    format!("{sent} in, {} out{cost}", usage.output)
}
