//! The rows of a review, from the first hunk to the last comment.

use std::collections::BTreeSet;

use base::text::printable;
use studio_core::review::hunk::file_note;
use studio_core::review::placement::CommentPlacement;
use studio_core::review::text_format::place;
use studio_core::review::{Review, ReviewComment};
use studio_git::hunks::LineOrigin;

/// One row of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReviewRow {
    /// An empty row between hunks.
    Blank,
    /// The file and the decision of a hunk.
    Title(usize),
    /// The risk of a hunk.
    Risk(usize),
    /// What a change does to the file as a whole.
    Note(usize, String),
    /// The header of a hunk.
    Header(usize),
    /// A line of a hunk.
    Line(usize, usize),
    /// Two lines beside each other.
    Pair(usize, Option<usize>, Option<usize>),
    /// A part of a comment: its index, its hunk, and the text.
    Comment(usize, usize, String),
}

impl ReviewRow {
    /// Returns the hunk.
    pub fn hunk(&self) -> Option<usize> {
        match self {
            ReviewRow::Blank => None,
            ReviewRow::Title(hunk)
            | ReviewRow::Risk(hunk)
            | ReviewRow::Note(hunk, _)
            | ReviewRow::Header(hunk)
            | ReviewRow::Line(hunk, _)
            | ReviewRow::Pair(hunk, ..)
            | ReviewRow::Comment(_, hunk, _) => Some(*hunk),
        }
    }

    /// Returns the line of the hunk that a comment here is on.
    pub fn line(&self) -> Option<usize> {
        match self {
            ReviewRow::Line(_, line) => Some(*line),
            ReviewRow::Pair(_, old, new) => new.or(*old),
            _ => None,
        }
    }
}

/// How hunks are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLayout {
    /// The number of columns.
    pub columns: usize,
    /// Whether old and new lines are beside each other.
    pub side_by_side: bool,
}

/// Returns all rows.
pub fn rows(review: &Review, folded: &BTreeSet<String>, layout: RowLayout) -> Vec<ReviewRow> {
    let mut rows = Vec::new();
    for (index, hunk) in review.hunks.iter().enumerate() {
        if index > 0 {
            rows.push(ReviewRow::Blank);
        }
        rows.push(ReviewRow::Title(index));
        rows.push(ReviewRow::Risk(index));
        if let Some(note) = file_note(&review.files[hunk.file]) {
            rows.push(ReviewRow::Note(index, printable(&note)));
        }
        let comments: Vec<usize> = (0..review.comments.len())
            .filter(|comment| review.comments[*comment].hunk == Some(index))
            .collect();
        let lines = &hunk.hunk.lines;
        let is_folded = folded.contains(&hunk.hunk.id);
        let push_comments = |rows: &mut Vec<ReviewRow>, at: &dyn Fn(&ReviewComment) -> bool| {
            for comment in comments.iter().filter(|it| at(&review.comments[**it])) {
                rows.extend(comment_rows(review, *comment, index, layout.columns));
            }
        };
        if is_folded {
            push_comments(&mut rows, &|_| true);
            continue;
        }
        if !lines.is_empty() {
            rows.push(ReviewRow::Header(index));
        }
        push_comments(&mut rows, &|comment| place(comment, lines).is_none());
        let groups = if layout.side_by_side { pairs(review, index) } else { unified(lines.len()) };
        for (old, new) in groups {
            rows.push(match (layout.side_by_side, new.or(old)) {
                (true, _) => ReviewRow::Pair(index, old, new),
                (false, line) => ReviewRow::Line(index, line.unwrap_or_default()),
            });
            let is_here =
                |line: Option<usize>| line == old && old.is_some() || line == new && new.is_some();
            if !comments.is_empty() {
                push_comments(&mut rows, &|comment| {
                    let line = place(comment, lines);
                    line.is_some() && is_here(line)
                });
            }
        }
    }
    rows
}

fn unified(lines: usize) -> Vec<(Option<usize>, Option<usize>)> {
    (0..lines).map(|line| (None, Some(line))).collect()
}

/// Returns the lines of a hunk side by side: removed ones beside the added ones that follow them.
fn pairs(review: &Review, hunk: usize) -> Vec<(Option<usize>, Option<usize>)> {
    let lines = &review.hunks[hunk].hunk.lines;
    let run = |from: usize, origin: LineOrigin| {
        lines[from..].iter().take_while(|line| line.origin == origin).count()
    };
    let mut pairs = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        if lines[index].origin == LineOrigin::Context {
            pairs.push((Some(index), Some(index)));
            index += 1;
            continue;
        }
        let removed = run(index, LineOrigin::Removed);
        let added = run(index + removed, LineOrigin::Added);
        let side = |start: usize, count: usize, n: usize| (n < count).then_some(start + n);
        pairs.extend(
            (0..removed.max(added))
                .map(|n| (side(index, removed, n), side(index + removed, added, n))),
        );
        index += removed + added;
    }
    pairs
}

/// Returns the rows of a comment, wrapped.
fn comment_rows(review: &Review, index: usize, hunk: usize, columns: usize) -> Vec<ReviewRow> {
    let comment = &review.comments[index];
    let mut facts = vec![format!("comment {}", comment.number)];
    match comment.placement {
        CommentPlacement::Current => {}
        CommentPlacement::Moved { .. } => facts.push("its lines moved".to_owned()),
        CommentPlacement::Stale => {
            facts.push(format!("stale, was on line {}", comment.anchor.first))
        }
    }
    if comment.is_sent {
        facts.push("sent".to_owned());
    }
    let mut texts = vec![facts.join(", ")];
    for line in printable(&comment.text).lines() {
        texts.extend(wrap(line, columns.saturating_sub(8).max(16)));
    }
    texts.into_iter().map(|text| ReviewRow::Comment(index, hunk, text)).collect()
}

/// Wraps a line at spaces, and within words that are too long.
fn wrap(line: &str, columns: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let mut word = word;
        loop {
            let row = rows.last_mut().map(|row| base::text::columns(row)).unwrap_or_default();
            if row + base::text::columns(word.trim_end()) <= columns {
                rows.last_mut().into_iter().for_each(|row| row.push_str(word));
                break;
            }
            if row > 0 {
                rows.push(String::new());
                continue;
            }
            let end = word.char_indices().map(|(at, _)| at).nth(columns / 2).unwrap_or(word.len());
            let (head, tail) = word.split_at(end);
            rows.last_mut().into_iter().for_each(|row| row.push_str(head));
            if tail.is_empty() {
                break;
            }
            rows.push(String::new());
            word = tail;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_wrapped_without_losing_text() {
        assert_eq!(wrap("one two three", 8), ["one two ", "three"]);
        assert_eq!(wrap("", 8), [""]);
        for text in ["aaaaaaaaaaaaaaaaaaaaaaaa b", "界界界界界界界界界界", "a b c d e f g"]
        {
            let rows = wrap(text, 8);
            assert_eq!(rows.concat(), text);
            assert!(rows.iter().all(|row| base::text::columns(row.trim_end()) <= 8), "{rows:?}");
        }
    }
}
