//! Searches one file: reads it, parses it once per grammar, and runs all queries on the tree.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tree_sitter::{
    Node, ParseOptions, Parser, QueryCursor, QueryCursorOptions, QueryMatch, StreamingIterator,
    Tree,
};

use super::language::GRAMMARS;
use super::query::CompiledQuery;
use tools::fs::open;

/// Maximum size in bytes of a file that is parsed.
pub(crate) const MAX_BYTES: u64 = 4 << 20;
/// Time limit per file and grammar.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// Number of bytes searched for a NUL, which indicates a binary file.
const BINARY_CHECK_BYTES: usize = 8192;
/// Maximum number of characters of a captured text.
const MAX_TEXT: usize = 1000;
/// Maximum number of characters of a context line.
const MAX_LINE: usize = 300;
/// Maximum number of context lines of a match.
const MAX_LINES: usize = 60;

/// A match.
pub(crate) struct SyntaxMatch {
    /// The line of its first capture, from 1.
    pub line: usize,
    /// The column, in characters, from 1.
    pub column: usize,
    /// The captures, in the order of the file.
    pub captures: Vec<CapturedNode>,
    /// The context lines.
    pub context: Vec<ContextLine>,
}

/// A captured node.
pub(crate) struct CapturedNode {
    /// The capture's name, without the `@`.
    pub name: String,
    /// The node's text.
    pub text: String,
    /// Its line, from 1.
    pub line: usize,
    /// Its column, in characters, from 1.
    pub column: usize,
}

/// A context line.
pub(crate) struct ContextLine {
    /// Its number, from 1.
    pub number: usize,
    /// Its text.
    pub text: String,
    /// Whether it belongs to the match.
    pub is_match: bool,
}

/// Why a file was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SkipReason {
    /// It has a NUL near its start.
    Binary,
    /// It is larger than [`MAX_BYTES`].
    Huge,
    /// It took longer than [`TIMEOUT`].
    Slow,
    /// It could not be read.
    Unreadable,
}

/// When to stop.
pub(crate) struct StopCondition<'c> {
    /// At this time.
    pub deadline: Instant,
    /// When this is set.
    pub cancel: &'c CancellationToken,
}

/// A search in a file.
pub(crate) struct SearchTarget<'q> {
    /// The query.
    pub query: &'q CompiledQuery,
    /// Number of context lines.
    pub context: usize,
    /// Maximum number of matches.
    pub max_matches: usize,
}

/// The reusable state of a thread.
#[derive(Default)]
pub(crate) struct SearchWorker {
    parsers: HashMap<usize, Parser>,
    cursor: QueryCursor,
}

impl StopCondition<'_> {
    fn should_stop(&self) -> ControlFlow<()> {
        if self.cancel.is_cancelled() || Instant::now() >= self.deadline {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// Reads a file that can be parsed.
pub(crate) fn content(path: &Path) -> Result<Vec<u8>, SkipReason> {
    let metadata = std::fs::symlink_metadata(path).map_err(|_| SkipReason::Unreadable)?;
    if metadata.len() > MAX_BYTES {
        return Err(SkipReason::Huge);
    }
    let bytes = open::read(path).map_err(|_| SkipReason::Unreadable)?.bytes;
    if bytes.iter().take(BINARY_CHECK_BYTES).any(|byte| *byte == 0) {
        return Err(SkipReason::Binary);
    }
    Ok(bytes)
}

impl SearchWorker {
    /// Parses a text, unless it takes too long.
    pub(crate) fn parse(
        &mut self,
        grammar: usize,
        text: &[u8],
        stop: &StopCondition<'_>,
    ) -> Result<Tree, SkipReason> {
        let parser = self.parsers.entry(grammar).or_insert_with(|| {
            let mut parser = Parser::new();
            parser
                .set_language(&(GRAMMARS[grammar].language)())
                .expect("the grammars fit the library, and a test parses with each");
            parser
        });
        let mut progress = |_: &tree_sitter::ParseState| stop.should_stop();
        let options = ParseOptions::new().progress_callback(&mut progress);
        let mut read_at = |offset: usize, _| text.get(offset..).unwrap_or_default();
        let tree = parser.parse_with_options(&mut read_at, None, Some(options));
        tree.ok_or_else(|| {
            parser.reset();
            SkipReason::Slow
        })
    }

    /// Returns the matches of a query, in the order of the file, unless it takes too long.
    pub(crate) fn matches(
        &mut self,
        tree: &Tree,
        text: &[u8],
        target: &SearchTarget<'_>,
        stop: &StopCondition<'_>,
    ) -> Result<Vec<SyntaxMatch>, SkipReason> {
        let mut deadline = false;
        let mut progress = |_: &tree_sitter::QueryCursorState| {
            deadline = deadline || stop.should_stop().is_break();
            if deadline { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let options = QueryCursorOptions::new().progress_callback(&mut progress);
        let query = &target.query.query;
        let mut query_matches =
            self.cursor.matches_with_options(query, tree.root_node(), text, options);
        let mut positions = Vec::new();
        while let Some(query_match) = query_matches.next() {
            if target.query.matches_predicates(query_match, text)
                && let Some(position) = MatchPosition::of(query_match)
            {
                positions.push(position);
                if positions.len() >= target.max_matches {
                    break;
                }
            }
        }
        drop(query_matches);
        if deadline {
            return Err(SkipReason::Slow);
        }
        positions.sort_by_key(|position| (position.nodes[0].1.start_byte(), position.pattern));
        let starts = line_starts(text);
        Ok(positions.iter().map(|position| position.to_match(target, text, &starts)).collect())
    }
}

/// A match without its text.
struct MatchPosition<'t> {
    pattern: usize,
    /// Captures and nodes; never empty.
    nodes: Vec<(u32, Node<'t>)>,
}

impl<'t> MatchPosition<'t> {
    /// Returns `None` if there are no captures, and thus no position.
    fn of(query_match: &QueryMatch<'_, 't>) -> Option<MatchPosition<'t>> {
        let nodes = query_match.captures().iter().map(|capture| (capture.index, capture.node));
        let mut nodes: Vec<(u32, Node<'t>)> = nodes.collect();
        nodes.sort_by_key(|(index, node)| (node.start_byte(), *index));
        (!nodes.is_empty()).then_some(MatchPosition { pattern: query_match.pattern_index, nodes })
    }

    fn to_match(
        &self,
        target: &SearchTarget<'_>,
        text: &[u8],
        line_starts: &[usize],
    ) -> SyntaxMatch {
        let names = target.query.query.capture_names();
        let capture = |(index, node): &(u32, Node<'t>)| {
            let node_text = text.get(node.byte_range()).unwrap_or_default();
            let row = node.start_position().row;
            let text_before = text.get(line_starts[row]..node.start_byte()).unwrap_or_default();
            CapturedNode {
                name: names[*index as usize].to_owned(),
                text: truncate(&String::from_utf8_lossy(node_text), MAX_TEXT),
                line: row + 1,
                column: String::from_utf8_lossy(text_before).chars().count() + 1,
            }
        };
        let captures: Vec<CapturedNode> = self.nodes.iter().map(capture).collect();
        let first = self.nodes[0].1.start_position().row;
        let last = self.nodes.iter().map(|(_, node)| node.end_position().row).max();
        let context = match target.context {
            0 => Vec::new(),
            around => lines(text, line_starts, first, last.unwrap_or(first), around),
        };
        SyntaxMatch { line: captures[0].line, column: captures[0].column, captures, context }
    }
}

/// Returns the lines of a match with context.
fn lines(
    text: &[u8],
    line_starts: &[usize],
    first: usize,
    last: usize,
    context: usize,
) -> Vec<ContextLine> {
    let from = first.saturating_sub(context);
    let to = (last + context + 1).min(line_starts.len());
    let line = |row: usize| {
        let end = line_starts.get(row + 1).copied().unwrap_or(text.len());
        let line_text = String::from_utf8_lossy(&text[line_starts[row]..end]);
        let text = truncate(line_text.trim_end_matches(['\n', '\r']), MAX_LINE);
        ContextLine { number: row + 1, text, is_match: (first..=last).contains(&row) }
    };
    // There is no line after the last newline.
    let visible_rows = (from..to).filter(|row| line_starts[*row] < text.len());
    visible_rows.take(MAX_LINES).map(line).collect()
}

/// Returns the offset of each line.
fn line_starts(text: &[u8]) -> Vec<usize> {
    let newlines = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    std::iter::once(0).chain(newlines.map(|(offset, _)| offset + 1)).collect()
}

fn truncate(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => {
            format!("{}… [{} characters more]", &text[..end], text[end..].chars().count())
        }
        None => text.to_owned(),
    }
}
