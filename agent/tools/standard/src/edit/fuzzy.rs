//! Fuzzy search for a text in a file: strategies from strict to loose, each of which must find
//! exactly one match.

use std::ops::Range;

use super::locate::{IndentShift, LineTolerance, TextLines};
use tools::fs::read_tracker::EditFit;

/// A matching strategy, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchStrategy {
    /// The exact text.
    Exact,
    /// Lines that are equal except for leading and trailing whitespace.
    LineTrimmed,
    /// First and last line equal, the middle similar.
    BlockAnchor,
    /// Equal if runs of whitespace count as one space.
    WhitespaceNormalized,
    /// Lines that are equal except for a common indentation.
    IndentationFlexible,
    /// Equal after unescaping `\n`, `\"` and similar sequences.
    EscapeNormalized,
    /// Equal without the whitespace around the whole text.
    TrimmedBoundary,
    /// First and last line equal, and half of the middle lines.
    ContextAware,
}

impl MatchStrategy {
    const LOOSE: [MatchStrategy; 7] = [
        MatchStrategy::LineTrimmed,
        MatchStrategy::BlockAnchor,
        MatchStrategy::WhitespaceNormalized,
        MatchStrategy::IndentationFlexible,
        MatchStrategy::EscapeNormalized,
        MatchStrategy::TrimmedBoundary,
        MatchStrategy::ContextAware,
    ];

    /// Returns its name in metadata.
    pub(crate) fn name(self) -> &'static str {
        match self {
            MatchStrategy::Exact => "exact",
            MatchStrategy::LineTrimmed => "line_trimmed",
            MatchStrategy::BlockAnchor => "block_anchor",
            MatchStrategy::WhitespaceNormalized => "whitespace_normalized",
            MatchStrategy::IndentationFlexible => "indentation_flexible",
            MatchStrategy::EscapeNormalized => "escape_normalized",
            MatchStrategy::TrimmedBoundary => "trimmed_boundary",
            MatchStrategy::ContextAware => "context_aware",
        }
    }
}

/// A match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FuzzyMatch {
    /// The ranges to replace.
    pub spans: Vec<Range<usize>>,
    /// The strategy that matched.
    pub strategy: MatchStrategy,
    /// The difference in indentation.
    pub shift: IndentShift,
}

impl FuzzyMatch {
    /// Returns whether the match is exact.
    pub(crate) fn fit(&self) -> EditFit {
        match self.strategy {
            MatchStrategy::Exact => EditFit::Exact,
            MatchStrategy::LineTrimmed
            | MatchStrategy::BlockAnchor
            | MatchStrategy::WhitespaceNormalized
            | MatchStrategy::IndentationFlexible
            | MatchStrategy::EscapeNormalized
            | MatchStrategy::TrimmedBoundary
            | MatchStrategy::ContextAware => EditFit::Loose,
        }
    }

    /// Returns a note about the strategy, unless the match is exact.
    pub(crate) fn note(&self) -> Option<String> {
        let name = self.strategy.name();
        (self.strategy != MatchStrategy::Exact)
            .then(|| format!("the old text was not found exactly; it was matched by {name}"))
    }
}

/// Why there is no match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FuzzyMiss {
    /// No strategy finds a match.
    Nowhere,
    /// This many matches.
    Several(usize),
}

/// Minimum similarity of the middle of a block that is identified only by its first and last line.
const MIN_SIMILARITY: f64 = 0.5;
/// Maximum length of a match, as a multiple of the length of the searched text.
const MAX_STRETCH: usize = 2;

/// Finds the exact text: one match, or all.
pub(crate) fn exact(text: &str, expected: &str, all: bool) -> Result<FuzzyMatch, FuzzyMiss> {
    let spans: Vec<Range<usize>> =
        text.match_indices(expected).map(|(offset, hit)| offset..offset + hit.len()).collect();
    match spans.len() {
        0 => Err(FuzzyMiss::Nowhere),
        n if n > 1 && !all => Err(FuzzyMiss::Several(n)),
        _ => Ok(FuzzyMatch { spans, strategy: MatchStrategy::Exact, shift: IndentShift::None }),
    }
}

/// Finds the exact text, or else uses the first strategy with exactly one match (or any number,
/// with `all`).
pub(crate) fn find(text: &str, expected: &str, all: bool) -> Result<FuzzyMatch, FuzzyMiss> {
    let mut miss = match exact(text, expected, all) {
        Err(FuzzyMiss::Nowhere) => FuzzyMiss::Nowhere,
        decided => return decided,
    };
    for strategy in MatchStrategy::LOOSE {
        let mut spans = candidates(strategy, text, expected);
        spans.retain(|span| !span.is_empty() && has_similar_length(&text[span.clone()], expected));
        spans.dedup();
        remove_overlaps(&mut spans);
        match spans.len() {
            0 => {}
            n if n > 1 && !all => miss = FuzzyMiss::Several(n),
            _ => {
                let shift = indent_shift(strategy, &text[spans[0].clone()], expected);
                return Ok(FuzzyMatch { spans, strategy, shift });
            }
        }
    }
    Err(miss)
}

fn has_similar_length(hit: &str, expected: &str) -> bool {
    let weight = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
    weight(hit) <= weight(expected).max(1) * MAX_STRETCH
}

fn remove_overlaps(spans: &mut Vec<Range<usize>>) {
    let mut end = 0;
    spans.retain(|span| {
        let is_free = span.start >= end;
        if is_free {
            end = span.end;
        }
        is_free
    });
}

fn indent_shift(strategy: MatchStrategy, hit: &str, expected: &str) -> IndentShift {
    match strategy {
        MatchStrategy::LineTrimmed | MatchStrategy::IndentationFlexible => {
            IndentShift::of_lines(expected.lines().zip(hit.lines()))
        }
        MatchStrategy::Exact
        | MatchStrategy::BlockAnchor
        | MatchStrategy::WhitespaceNormalized
        | MatchStrategy::EscapeNormalized
        | MatchStrategy::TrimmedBoundary
        | MatchStrategy::ContextAware => IndentShift::None,
    }
}

fn candidates(strategy: MatchStrategy, text: &str, expected: &str) -> Vec<Range<usize>> {
    let lines = TextLines::new(text);
    let block = Block::new(expected);
    let spans = |hits: Vec<usize>, length: usize| -> Vec<Range<usize>> {
        hits.into_iter().map(|index| block.span(&lines, index..index + length)).collect()
    };
    let height = block.lines.len();
    match strategy {
        MatchStrategy::Exact => Vec::new(),
        MatchStrategy::LineTrimmed => {
            spans(lines.find(&block.lines, 0..lines.count(), LineTolerance::Indent), height)
        }
        MatchStrategy::BlockAnchor => anchored(&lines, &block),
        MatchStrategy::WhitespaceNormalized => normalized(text, &lines, &block, expected),
        MatchStrategy::IndentationFlexible => {
            let expected = dedent(&block.lines);
            let is_match = |index: &usize| {
                let actual: Vec<&str> = (*index..index + height).map(|i| lines.line(i)).collect();
                dedent(&actual) == expected
            };
            let last = (lines.count() + 1).saturating_sub(height);
            spans((0..last).filter(is_match).collect(), height)
        }
        MatchStrategy::EscapeNormalized => {
            let unescaped_text = unescape(expected);
            let hits =
                text.match_indices(&unescaped_text).map(|(index, hit)| index..index + hit.len());
            if unescaped_text == expected || unescaped_text.is_empty() {
                Vec::new()
            } else {
                hits.collect()
            }
        }
        MatchStrategy::TrimmedBoundary => {
            let trimmed = expected.trim();
            let hits = text.match_indices(trimmed).map(|(index, hit)| index..index + hit.len());
            if trimmed == expected || trimmed.is_empty() { Vec::new() } else { hits.collect() }
        }
        MatchStrategy::ContextAware => spans(in_context(&lines, &block), height),
    }
}

/// The lines of the searched text.
struct Block<'w> {
    lines: Vec<&'w str>,
    /// Whether it ends with a newline, so that a match includes its newline.
    ends_with_newline: bool,
}

impl<'w> Block<'w> {
    fn new(expected: &'w str) -> Block<'w> {
        let ends_with_newline = expected.ends_with('\n');
        let body = expected.strip_suffix('\n').unwrap_or(expected);
        Block { lines: body.split('\n').collect(), ends_with_newline }
    }

    fn span(&self, lines: &TextLines<'_>, range: Range<usize>) -> Range<usize> {
        let span = lines.span(range.clone());
        if self.ends_with_newline || range.is_empty() {
            return span;
        }
        let last = range.end - 1;
        span.start..lines.start(last) + lines.line(last).len()
    }
}

/// Finds blocks with the same first and last line and returns the most similar one.
fn anchored(lines: &TextLines<'_>, block: &Block<'_>) -> Vec<Range<usize>> {
    let [first, middle @ .., last] = block.lines.as_slice() else { return Vec::new() };
    if middle.is_empty() || first.trim().is_empty() || last.trim().is_empty() {
        return Vec::new();
    }
    let starts =
        (0..lines.count()).filter(|index| LineTolerance::Indent.matches(lines.line(*index), first));
    let places = starts.filter_map(|start| {
        let mut end_lines = start + 2..lines.count();
        let end =
            end_lines.find(|index| LineTolerance::Indent.matches(lines.line(*index), last))?;
        let actual: Vec<&str> = (start + 1..end).map(|index| lines.line(index)).collect();
        Some((start..end + 1, similarity(middle, &actual)))
    });
    let mut scored: Vec<(Range<usize>, f64)> =
        places.filter(|(_, s)| *s >= MIN_SIMILARITY).collect();
    scored.sort_by(|a, b| b.1.total_cmp(&a.1));
    let best = scored.first().map_or(0.0, |(_, score)| *score);
    // Two equally similar blocks are ambiguous.
    let best = scored.into_iter().take_while(|(_, score)| *score >= best);
    let mut spans: Vec<_> = best.map(|(range, _)| block.span(lines, range)).collect();
    spans.sort_by_key(|span| span.start);
    spans
}

/// Returns the similarity of two blocks, line by line, from 0 to 1.
fn similarity(expected: &[&str], actual: &[&str]) -> f64 {
    let height = expected.len().max(actual.len()).max(1);
    let sum: f64 = expected
        .iter()
        .zip(actual)
        .map(|(a, b)| strsim::normalized_levenshtein(a.trim(), b.trim()))
        .sum();
    #[allow(clippy::cast_precision_loss)] // so many lines fit into a float
    let height = height as f64;
    sum / height
}

/// Finds blocks with the same first and last line in which half of the non-empty middle lines are
/// equal.
fn in_context(lines: &TextLines<'_>, block: &Block<'_>) -> Vec<usize> {
    let height = block.lines.len();
    if height < 3 {
        return Vec::new();
    }
    let last = (lines.count() + 1).saturating_sub(height);
    let is_match = |index: &usize| {
        let is_same =
            |i: usize| LineTolerance::Indent.matches(lines.line(index + i), block.lines[i]);
        let middle: Vec<usize> =
            (1..height - 1).filter(|i| !block.lines[*i].trim().is_empty()).collect();
        let equal = middle.iter().filter(|i| is_same(**i)).count();
        is_same(0) && is_same(height - 1) && equal * 2 >= middle.len()
    };
    (0..last).filter(is_match).collect()
}

fn collapse_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Finds blocks of lines, or parts of a line, that are equal if runs of whitespace count as one
/// space.
fn normalized(
    text: &str,
    lines: &TextLines<'_>,
    block: &Block<'_>,
    expected: &str,
) -> Vec<Range<usize>> {
    let collapsed_text = collapse_whitespace(expected);
    if collapsed_text.is_empty() {
        return Vec::new();
    }
    let height = block.lines.len();
    let last = (lines.count() + 1).saturating_sub(height);
    let is_whole_match = |index: &usize| {
        collapse_whitespace(&text[lines.span(*index..index + height)]) == collapsed_text
    };
    let whole_matches: Vec<Range<usize>> = (0..last)
        .filter(is_whole_match)
        .map(|index| block.span(lines, index..index + height))
        .collect();
    if !whole_matches.is_empty() || height > 1 {
        return whole_matches;
    }
    let words: Vec<String> = collapsed_text.split(' ').map(regex::escape).collect();
    let Ok(words) = regex::Regex::new(&words.join(r"[^\S\n]+")) else { return Vec::new() };
    words.find_iter(text).map(|hit| hit.range()).collect()
}

/// Returns the lines without their common indentation.
fn dedent(lines: &[&str]) -> Vec<String> {
    let indent = |line: &&&str| line.len() - line.trim_start().len();
    let common =
        lines.iter().filter(|line| !line.trim().is_empty()).map(|line| indent(&line)).min();
    let common = common.unwrap_or(0);
    lines.iter().map(|line| line.get(common..).unwrap_or("").to_owned()).collect()
}

fn unescape(text: &str) -> String {
    let mut unescaped_text = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            unescaped_text.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => unescaped_text.push('\n'),
            Some('t') => unescaped_text.push('\t'),
            Some('r') => unescaped_text.push('\r'),
            Some(c @ ('\'' | '"' | '`' | '\\' | '$' | '\n')) => unescaped_text.push(c),
            Some(c) => unescaped_text.extend(['\\', c]),
            None => unescaped_text.push('\\'),
        }
    }
    unescaped_text
}

#[cfg(test)]
#[path = "fuzzy_tests.rs"]
mod tests;
