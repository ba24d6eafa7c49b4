//! A review as plain text, for pipes and screen readers.

use std::fmt::Write as _;

use base::text::{count, printable};
use studio_core::review::hunk::{HunkDecision, file_name, file_note};
use studio_core::review::placement::CommentPlacement;
use studio_core::review::text_format::summary;
use studio_core::review::{Review, ReviewComment};
use studio_git::hunks::LineOrigin;

/// Returns the review; `all` includes the lines of mechanical hunks.
pub(crate) fn plain(review: &Review, all: bool) -> String {
    let mut text = String::new();
    let view = &review.view;
    let task = printable(base::text::head(&view.record.task, 200)).replace('\n', " ");
    let _ = writeln!(text, "Review of {} ({}): {task}", view.record.id, view.state.name());
    let _ = writeln!(text, "{}", counts(review));
    for note in &review.notes {
        let _ = writeln!(text, "Note: {}", printable(note));
    }
    for index in 0..review.hunks.len() {
        write_hunk(&mut text, review, index, all);
    }
    let others: Vec<_> = review.comments.iter().filter(|comment| comment.hunk.is_none()).collect();
    if !others.is_empty() {
        text.push_str("\nComments on files that are not shown\n");
        others.iter().for_each(|comment| write_comment(&mut text, comment));
    }
    text
}

/// Returns how many hunks and comments a review has, in one line.
pub(crate) fn counts(review: &Review) -> String {
    let mut parts = vec![count(review.hunks.len(), "hunk")];
    for decision in [HunkDecision::Accepted, HunkDecision::Returned, HunkDecision::Undecided] {
        let hunks = review.count(decision);
        if hunks > 0 {
            parts.push(format!("{hunks} {}", decision.name()));
        }
    }
    parts.push(count(review.comments.len(), "comment"));
    let unsent = review.unsent_comments().count();
    if unsent < review.comments.len() {
        parts.push(format!("{unsent} not sent"));
    }
    if review.older_hunks > 0 {
        parts.push(format!("{} not shown", count(review.older_hunks, "older hunk")));
    }
    parts.join(", ")
}

fn write_hunk(text: &mut String, review: &Review, index: usize, all: bool) {
    let hunk = &review.hunks[index];
    let file = &review.files[hunk.file];
    let name = printable(&file_name(file));
    let _ = writeln!(text, "\n{name}: {} {}", hunk.decision.name(), hunk.hunk.id);
    let _ = writeln!(text, "{}", printable(&summary(review, index)));
    if let Some(note) = file_note(file) {
        let _ = writeln!(text, "{}", printable(&note));
    }
    let comments = || review.comments.iter().filter(|comment| comment.hunk == Some(index));
    if hunk.mechanical.is_some() && !all {
        let (added, removed) = hunk.hunk.line_counts();
        let _ = writeln!(text, "folded: +{added} -{removed}");
    } else if !hunk.hunk.lines.is_empty() {
        let _ = writeln!(text, "{}", printable(&hunk.hunk.header()));
        for line in &hunk.hunk.lines {
            let mark = match line.origin {
                LineOrigin::Context => ' ',
                LineOrigin::Removed => '-',
                LineOrigin::Added => '+',
            };
            let _ = writeln!(text, "{mark}{}", printable(&line.text));
        }
    }
    comments().for_each(|comment| write_comment(text, comment));
}

fn write_comment(text: &mut String, comment: &ReviewComment) {
    let place = match (comment.placement, comment.line()) {
        (CommentPlacement::Stale, _) => format!("line {}, stale", comment.anchor.first),
        (_, Some(0)) => "file".to_owned(),
        (_, line) => format!("line {}", line.unwrap_or_default()),
    };
    let sent = if comment.is_sent { ", sent" } else { "" };
    let path = printable(&comment.anchor.path);
    let body = printable(&comment.text).replace('\n', "\n  ");
    let _ = writeln!(text, "Comment {} ({path}, {place}{sent}): {body}", comment.number);
}
