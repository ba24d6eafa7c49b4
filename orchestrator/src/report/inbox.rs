//! The questions of the inbox.

use base::text::printable;
use jiff::Timestamp;
use studio_core::inbox::InboxQuestion;
use studio_core::radar::ConflictingPair;

use crate::report::table;

/// Formats the pairs of sessions that change the same lines, one per line.
pub(crate) fn conflicts(pairs: &[ConflictingPair]) -> String {
    let line = |pair: &ConflictingPair| {
        let [first, second] = &pair.ids;
        printable(&format!("{first} and {second} change the same lines: {}", pair.files.join(", ")))
    };
    pairs.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Formats questions, each with the commands that answer it.
pub(crate) fn questions(questions: &[InboxQuestion<'_>], now: Timestamp) -> String {
    let block = |question: &InboxQuestion<'_>| {
        let record = &question.view.record;
        let asked_at = question.request.asked_at.as_deref().unwrap_or_default();
        let description = question.request.description.replace('\n', "\n  ");
        let never = question.never_hint().map(|hint| format!("\n{hint}")).unwrap_or_default();
        printable(&format!(
            "{} asked {} ago for permission {} ({}, in {}):\n  {description}\n{}\n{}{never}",
            record.id,
            table::age(asked_at, now),
            question.number,
            record.agent,
            record.session_repo.worktree.display(),
            question.command("allow"),
            question.command("deny"),
        ))
    };
    questions.iter().map(block).collect::<Vec<_>>().join("\n\n")
}
