//! The message to the agent: all comments and returned hunks of a review in one turn.

use std::fmt::Write as _;

use studio_git::hunks::LineOrigin;

use crate::review::hunk::{DiffSide, file_name};
use crate::review::placement::CommentPlacement;
use crate::review::{Review, ReviewComment, ReviewHunk};

/// Maximum number of lines of a returned hunk in the message.
const MAX_HUNK_LINES: usize = 200;

/// Returns the message; `None` if nothing is to be sent.
pub fn message(review: &Review) -> Option<String> {
    let comments: Vec<&ReviewComment> = review.unsent_comments().collect();
    let hunks: Vec<&ReviewHunk> = review.unsent_returned().collect();
    if comments.is_empty() && hunks.is_empty() {
        return None;
    }
    let mut text = String::from("Review of your work.");
    if !comments.is_empty() {
        let count = base::text::count(comments.len(), "comment");
        let _ = write!(text, " It has {count}: change the work accordingly.");
    }
    if !hunks.is_empty() {
        let count = base::text::count(hunks.len(), "hunk");
        let _ = write!(text, " {count} returned: revise or revert these changes.");
    }
    text.push_str(" Leave the other changes as they are.\n");
    for comment in comments {
        write_comment(&mut text, comment);
    }
    for hunk in hunks {
        write_hunk(&mut text, review, hunk);
    }
    Some(text)
}

fn write_comment(text: &mut String, comment: &ReviewComment) {
    let anchor = &comment.anchor;
    let lines = match (anchor.first, anchor.last) {
        (0, _) => String::new(),
        (first, last) if first == last => format!(", line {first}"),
        (first, last) => format!(", lines {first}-{last}"),
    };
    let side = if anchor.side == DiffSide::Old { " before your change" } else { "" };
    let _ = writeln!(text, "\n## Comment on {}{lines}{side}", anchor.path);
    match comment.placement {
        CommentPlacement::Current => {}
        CommentPlacement::Moved { first } => {
            let _ = writeln!(text, "(These lines are at line {first} now.)");
        }
        CommentPlacement::Stale => {
            text.push_str("(These lines have changed since the comment was written.)\n");
        }
    }
    let _ = writeln!(text);
    for line in &anchor.snippet {
        let _ = writeln!(text, "> {line}");
    }
    if !anchor.snippet.is_empty() {
        text.push('\n');
    }
    let _ = writeln!(text, "{}", comment.text.trim_end());
}

fn write_hunk(text: &mut String, review: &Review, hunk: &ReviewHunk) {
    let file = &review.files[hunk.file];
    let _ = writeln!(text, "\n## Returned change in {}\n", file_name(file));
    if hunk.hunk.lines.is_empty() {
        let _ = writeln!(text, "{}", studio_git::hunks::describe_whole_file(file));
        return;
    }
    let longest = hunk.hunk.lines.iter().map(|line| longest_run(&line.text)).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = writeln!(text, "{fence}diff\n{}", hunk.hunk.header());
    for line in hunk.hunk.lines.iter().take(MAX_HUNK_LINES) {
        let mark = match line.origin {
            LineOrigin::Context => ' ',
            LineOrigin::Removed => '-',
            LineOrigin::Added => '+',
        };
        let _ = writeln!(text, "{mark}{}", line.text);
    }
    let _ = writeln!(text, "{fence}");
    if let Some(more) = hunk.hunk.lines.len().checked_sub(MAX_HUNK_LINES).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {}", base::text::count(more, "more line"));
    }
}

/// Returns the length of the longest run of backticks, which the fence must exceed.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}
