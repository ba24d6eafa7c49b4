//! Finds a block of lines in a text, exactly or with increasing tolerance.

use std::ops::Range;

/// Whether a text is distinctive enough to identify a position; braces and whitespace are not.
pub(crate) fn is_distinctive(text: &str) -> bool {
    text.chars().filter(|c| c.is_alphanumeric()).count() >= 3
}

/// A text split into lines.
#[derive(Debug)]
pub(crate) struct TextLines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

/// The tolerance of a line comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineTolerance {
    /// No tolerance.
    Exact,
    /// Ignores trailing whitespace.
    Trailing,
    /// Ignores leading and trailing whitespace, thus the indentation.
    Indent,
    /// Also equates typographic dashes, quotes and spaces with ASCII ones.
    Punctuation,
}

impl LineTolerance {
    /// All tolerances, strictest first.
    pub(crate) const ALL: [LineTolerance; 4] = [
        LineTolerance::Exact,
        LineTolerance::Trailing,
        LineTolerance::Indent,
        LineTolerance::Punctuation,
    ];

    /// Returns the tolerated deviation, for a note; `None` for an exact match.
    pub(crate) fn tolerance_note(self) -> Option<&'static str> {
        match self {
            LineTolerance::Exact => None,
            LineTolerance::Trailing => Some("blanks at the ends of lines"),
            LineTolerance::Indent => Some("indentation"),
            LineTolerance::Punctuation => Some("indentation and typographic characters"),
        }
    }

    /// Whether two lines are equal under this tolerance.
    pub(crate) fn matches(self, a: &str, b: &str) -> bool {
        match self {
            LineTolerance::Exact => a == b,
            LineTolerance::Trailing => a.trim_end() == b.trim_end(),
            LineTolerance::Indent => a.trim() == b.trim(),
            LineTolerance::Punctuation => {
                a.trim().chars().map(normalize_char).eq(b.trim().chars().map(normalize_char))
            }
        }
    }
}

/// Returns the ASCII equivalent of a typographic character.
fn normalize_char(c: char) -> char {
    match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        c => c,
    }
}

impl<'t> TextLines<'t> {
    /// Splits a text at its newlines. A trailing newline starts no new line.
    pub(crate) fn new(text: &'t str) -> TextLines<'t> {
        let after = text.match_indices('\n').map(|(index, _)| index + 1);
        let starts = std::iter::once(0).chain(after).filter(|index| *index < text.len()).collect();
        TextLines { text, starts }
    }

    /// Returns the number of lines.
    pub(crate) fn count(&self) -> usize {
        self.starts.len()
    }

    /// Returns a line, counted from 0, without its newline.
    pub(crate) fn line(&self, index: usize) -> &'t str {
        let line = &self.text[self.start(index)..self.start(index + 1)];
        line.strip_suffix('\n').unwrap_or(line)
    }

    /// Returns the offset of a line; the end of the text for lines past the last.
    pub(crate) fn start(&self, index: usize) -> usize {
        self.starts.get(index).copied().unwrap_or(self.text.len())
    }

    /// Returns the byte range of lines, including newlines.
    pub(crate) fn span(&self, lines: Range<usize>) -> Range<usize> {
        self.start(lines.start)..self.start(lines.end)
    }

    /// Finds a block. Returns the first lines of all matches within the given lines.
    pub(crate) fn find(
        &self,
        block_lines: &[&str],
        search_range: Range<usize>,
        tolerance: LineTolerance,
    ) -> Vec<usize> {
        let last = (search_range.end + 1).saturating_sub(block_lines.len());
        let is_match = |index: &usize| {
            block_lines
                .iter()
                .enumerate()
                .all(|(i, expected)| tolerance.matches(self.line(index + i), expected))
        };
        if block_lines.is_empty() {
            Vec::new()
        } else {
            (search_range.start..last).filter(is_match).collect()
        }
    }

    /// Finds the most similar position of a block. Returns its first line and the number of similar
    /// lines.
    pub(crate) fn nearest(&self, block: &[&str]) -> Option<(usize, usize)> {
        let similarity = |index: usize| {
            let pairs = block.iter().enumerate().filter(|(i, _)| index + i < self.count());
            let matches = |(i, expected): &(usize, &&str)| {
                !expected.trim().is_empty()
                    && LineTolerance::Punctuation.matches(self.line(index + i), expected)
            };
            pairs.filter(matches).count()
        };
        let scored = (0..self.count())
            .map(|index| (index, similarity(index)))
            .filter(|(_, score)| *score > 0);
        scored.max_by_key(|(index, score)| (*score, std::cmp::Reverse(*index)))
    }
}

/// Maximum number of bytes of indentation that is added to each replacement line.
pub(crate) const MAX_ADDED_INDENT: usize = 1000;

/// The difference in indentation between a block and its match, the same for every line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IndentShift {
    /// No difference, not the same for every line, or too long.
    None,
    /// The file has this additional indentation.
    More(String),
    /// The file lacks this indentation.
    Less(String),
}

impl IndentShift {
    /// Compares the searched lines with the lines found.
    pub(crate) fn of_lines<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> IndentShift {
        let mut shift: Option<IndentShift> = None;
        for (expected, actual) in pairs {
            if expected.trim().is_empty() {
                continue;
            }
            let (expected, actual) = (indent(expected), indent(actual));
            let pair_shift = if let Some(added) = actual.strip_suffix(expected) {
                if added.len() > MAX_ADDED_INDENT {
                    return IndentShift::None;
                }
                IndentShift::More(added.to_owned())
            } else if let Some(removed) = expected.strip_suffix(actual) {
                IndentShift::Less(removed.to_owned())
            } else {
                return IndentShift::None;
            };
            match &shift {
                Some(first_shift) if *first_shift != pair_shift => return IndentShift::None,
                Some(_) | None => shift = Some(pair_shift),
            }
        }
        shift.unwrap_or(IndentShift::None)
    }

    /// Adjusts the indentation of a replacement line to the file.
    pub(crate) fn apply(&self, line: &str) -> String {
        match self {
            IndentShift::More(more) if !line.trim().is_empty() => format!("{more}{line}"),
            IndentShift::Less(less) => line.strip_prefix(less.as_str()).unwrap_or(line).to_owned(),
            IndentShift::None | IndentShift::More(_) => line.to_owned(),
        }
    }
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_with_increasing_tolerance() {
        let lines = TextLines::new("a\n  b \nc\n  b\n");
        assert_eq!(lines.count(), 4);
        let find = |block: &[&str], pass| lines.find(block, 0..4, pass);
        assert_eq!(find(&["  b"], LineTolerance::Exact), [3]);
        assert_eq!(find(&["  b"], LineTolerance::Trailing), [1, 3]);
        assert_eq!(find(&["b", "c"], LineTolerance::Indent), [1]);
        assert!(find(&["c", "b", "d"], LineTolerance::Indent).is_empty());
        assert!(find(&[], LineTolerance::Exact).is_empty());
        let typographic = TextLines::new("it’s — fine");
        assert_eq!(typographic.find(&["it's - fine"], 0..1, LineTolerance::Punctuation), [0]);
        assert_eq!(lines.nearest(&["x", "b", "c"]), Some((0, 2)));
    }

    #[test]
    fn no_huge_indentation_is_added_to_every_line() {
        let shift = |count: usize| {
            let line = format!("{}x", "\t".repeat(count));
            IndentShift::of_lines([("x", line.as_str())].into_iter()).apply("y").len()
        };
        assert_eq!(shift(MAX_ADDED_INDENT), MAX_ADDED_INDENT + 1);
        assert_eq!(shift(MAX_ADDED_INDENT + 1), 1);
    }

    #[test]
    fn an_indentation_shift_requires_all_lines_to_agree() {
        let of_lines =
            |pairs: &[(&'static str, &'static str)]| IndentShift::of_lines(pairs.iter().copied());
        assert_eq!(
            of_lines(&[("a", "  a"), ("", ""), (" b", "   b")]),
            IndentShift::More("  ".into())
        );
        assert_eq!(of_lines(&[("    a", "  a")]), IndentShift::Less("  ".into()));
        assert_eq!(of_lines(&[("a", "  a"), ("b", "b")]), IndentShift::None);
        assert_eq!(IndentShift::More("  ".into()).apply("x"), "  x");
        assert_eq!(IndentShift::More("  ".into()).apply(""), "");
    }
}
