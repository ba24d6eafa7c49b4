//! The changed words of a changed line.

use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};
use studio_git::hunks::{DiffLine, LineOrigin};

/// Maximum number of bytes of a line that is compared by words.
const MAX_LINE_BYTES: usize = 2000;
/// The part of two lines that must be equal for their words to be compared, in percent.
const MIN_EQUAL_PERCENT: usize = 30;

/// The changed parts of two lines, as ranges of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordChanges {
    /// In the removed line.
    pub removed: Vec<Range<usize>>,
    /// In the added line.
    pub added: Vec<Range<usize>>,
}

/// Returns the indexes of the lines that replace each other, removed and added.
pub fn replaced_lines(lines: &[DiffLine]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        let run = |from: usize, origin| {
            lines[from..].iter().take_while(|line| line.origin == origin).count()
        };
        let removed = run(index, LineOrigin::Removed);
        let added = run(index + removed, LineOrigin::Added);
        pairs.extend((0..removed.min(added)).map(|n| (index + n, index + removed + n)));
        index += (removed + added).max(1);
    }
    pairs
}

/// Compares two lines by words; `None` if they have too little in common.
pub fn changes(removed: &str, added: &str) -> Option<WordChanges> {
    if removed.len() > MAX_LINE_BYTES || added.len() > MAX_LINE_BYTES {
        return None;
    }
    let (old, new) = (tokens(removed), tokens(added));
    let texts = |tokens: &[Range<usize>], text: &str| -> Vec<String> {
        tokens.iter().map(|token| text[token.clone()].to_owned()).collect()
    };
    let (old_texts, new_texts) = (texts(&old, removed), texts(&new, added));
    let mut found = WordChanges::default();
    let mut equal = 0;
    for op in capture_diff_slices(Algorithm::Myers, &old_texts, &new_texts) {
        if let DiffOp::Equal { old_index, len, .. } = op {
            let tokens = &old_texts[old_index..old_index + len];
            equal += tokens.iter().map(|token| token.trim().len()).sum::<usize>();
            continue;
        }
        push_span(&mut found.removed, &old[op.old_range()]);
        push_span(&mut found.added, &new[op.new_range()]);
    }
    let longest = removed.trim().len().max(added.trim().len());
    (equal * 100 >= longest * MIN_EQUAL_PERCENT && equal > 0).then_some(found)
}

fn push_span(spans: &mut Vec<Range<usize>>, tokens: &[Range<usize>]) {
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return };
    match spans.last_mut() {
        Some(span) if span.end == first.start => span.end = last.end,
        Some(_) | None => spans.push(first.start..last.end),
    }
}

/// Returns the words of a line, its runs of white space, and its other characters one by one.
fn tokens(text: &str) -> Vec<Range<usize>> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 0,
        c if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut tokens: Vec<Range<usize>> = Vec::new();
    let mut last = 2;
    for (index, c) in text.char_indices() {
        let (end, kind) = (index + c.len_utf8(), kind(c));
        match tokens.last_mut() {
            Some(token) if kind == last && kind != 2 => token.end = end,
            Some(_) | None => tokens.push(index..end),
        }
        last = kind;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_changed_words_are_marked() {
        let (old, new) = ("let limit = max(a, 10);", "let limit = max(größe, 10)?;");
        let found = changes(old, new).unwrap();
        let text = |line: &'static str, ranges: &[Range<usize>]| -> Vec<&'static str> {
            ranges.iter().map(|range| &line[range.clone()]).collect()
        };
        assert_eq!(text(old, &found.removed), ["a"]);
        assert_eq!(text(new, &found.added), ["größe", "?"]);
        assert_eq!(changes("let a = 1;", "return nothing_of_that()"), None);
        assert_eq!(changes("", "x"), None);
    }
}
