//! The questions of the inbox.

use base::text::printable;
use jiff::Timestamp;
use studio_core::inbox::InboxQuestion;

use crate::report::table;

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
