//! Compiles queries, evaluates their additional predicates, and reports errors with their position.

use regex::bytes::Regex;
use tree_sitter::{
    Language, Node, Query, QueryError, QueryErrorKind, QueryMatch, QueryPredicate,
    QueryPredicateArg,
};

use super::literal;

/// Supported predicates. `set!` only attaches metadata.
const PREDICATE_NAMES: [&str; 11] = [
    "eq?",
    "not-eq?",
    "any-eq?",
    "any-not-eq?",
    "match?",
    "not-match?",
    "any-match?",
    "any-not-match?",
    "any-of?",
    "not-any-of?",
    "set!",
];

/// A compiled query.
pub(crate) struct CompiledQuery {
    /// The query of the library, which evaluates most of its predicates.
    pub query: Query,
    /// Per pattern, predicates that at least one captured node must satisfy. The library accepts
    /// them even if no node does, so they are evaluated here.
    any: Vec<Vec<Any>>,
    /// The text that a file must contain for the query to match.
    required_literal: Option<Regex>,
}

/// A predicate that at least one node of its capture must satisfy.
struct Any {
    capture: u32,
    test: Test,
    is_positive: bool,
}

enum Test {
    Text(Box<str>),
    Capture(u32),
    Pattern(Regex),
}

/// Compiles a query. The error is for the model: what is wrong, where, and the line with a caret.
pub(crate) fn compile(language: &Language, source: &str) -> Result<CompiledQuery, String> {
    let rewritten = rewrite_operators(source);
    let query =
        Query::new(language, &rewritten).map_err(|error| error_text(language, source, &error))?;
    if let Some((offset, name)) =
        operators(source).find(|(_, name)| !PREDICATE_NAMES.contains(name))
    {
        let known = PREDICATE_NAMES.map(|name| format!("#{name}")).join(", ");
        let what = format!("`#{name}` is not known here; known are: {known}");
        return Err(with_position(source, offset, &what));
    }
    if query.capture_names().is_empty() {
        let what = "it captures nothing: put @name after a node";
        return Err(with_position(source, 0, what));
    }
    let predicates_by_pattern = (0..query.pattern_count()).map(|pattern| {
        let offset = query.start_byte_for_pattern(pattern);
        let predicates = query.general_predicates(pattern).iter();
        let predicates_by_pattern = predicates.map(|predicate| {
            Any::read(predicate).map_err(|error| with_position(source, offset, &error))
        });
        predicates_by_pattern.collect()
    });
    let predicates_by_pattern = predicates_by_pattern.collect::<Result<Vec<Vec<Any>>, String>>()?;
    let required_literal = literal::required_literal(&query, &rewritten);
    Ok(CompiledQuery { query, any: predicates_by_pattern, required_literal })
}

impl CompiledQuery {
    /// Whether a file with this text may match.
    pub(crate) fn may_match(&self, text: &[u8]) -> bool {
        self.required_literal
            .as_ref()
            .is_none_or(|required_literal| required_literal.is_match(text))
    }

    /// Evaluates the predicates that the library does not evaluate.
    pub(crate) fn matches_predicates(&self, query_match: &QueryMatch<'_, '_>, text: &[u8]) -> bool {
        self.any[query_match.pattern_index]
            .iter()
            .all(|predicate| predicate.matches_predicates(query_match, text))
    }
}

impl Any {
    fn read(predicate: &QueryPredicate) -> Result<Any, String> {
        let name = predicate.operator.replace('!', "?");
        let invalid = |reason: &str| Err(format!("`#{name}` {reason}"));
        let is_positive = !name.contains("-not-");
        let [QueryPredicateArg::Capture(capture), operand] = &*predicate.args else {
            return invalid("takes a capture, and what to compare it with");
        };
        let test = match operand {
            QueryPredicateArg::Capture(_) if name.ends_with("match?") => {
                return invalid("takes a regular expression in quotes");
            }
            QueryPredicateArg::Capture(other) => Test::Capture(*other),
            QueryPredicateArg::String(text) if name.ends_with("match?") => match Regex::new(text) {
                Ok(pattern) => Test::Pattern(pattern),
                Err(reason) => return invalid(&format!("has no regular expression: {reason}")),
            },
            QueryPredicateArg::String(text) => Test::Text(text.clone()),
        };
        Ok(Any { capture: *capture, test, is_positive })
    }

    /// A predicate on an absent capture holds.
    fn matches_predicates(&self, query_match: &QueryMatch<'_, '_>, text: &[u8]) -> bool {
        let mut nodes = query_match.nodes_for_capture_index(self.capture).peekable();
        nodes.peek().is_none()
            || nodes.any(|node| {
                self.node_matches(node_text(node, text), query_match, text) == self.is_positive
            })
    }

    fn node_matches(&self, node: &[u8], query_match: &QueryMatch<'_, '_>, text: &[u8]) -> bool {
        match &self.test {
            Test::Text(wanted) => node == wanted.as_bytes(),
            Test::Pattern(pattern) => pattern.is_match(node),
            Test::Capture(other_capture) => query_match
                .nodes_for_capture_index(*other_capture)
                .any(|other_capture| node_text(other_capture, text) == node),
        }
    }
}

fn node_text<'t>(node: Node<'_>, text: &'t [u8]) -> &'t [u8] {
    text.get(node.byte_range()).unwrap_or_default()
}

/// Returns the offsets and names of the predicates of a query. Skips strings and comments.
pub(crate) fn operators(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = source.as_bytes();
    let mut offset = 0;
    std::iter::from_fn(move || {
        while let Some(byte) = bytes.get(offset) {
            match byte {
                b'"' => offset = after_string(bytes, offset),
                b';' => offset += bytes[offset..].iter().take_while(|byte| **byte != b'\n').count(),
                b'#' => {
                    let start = offset + 1;
                    let is_end = |c: char| !(c.is_alphanumeric() || "-_.?!".contains(c));
                    let rest = &source[start..];
                    offset = start + rest.find(is_end).unwrap_or(rest.len());
                    return Some((start, &source[start..offset]));
                }
                _ => offset += 1,
            }
        }
        None
    })
}

/// Returns the offset after the string that starts here.
pub(crate) fn after_string(bytes: &[u8], start: usize) -> usize {
    let mut offset = start + 1;
    while let Some(byte) = bytes.get(offset) {
        match byte {
            b'\\' => offset += 2,
            b'"' => return offset + 1,
            _ => offset += 1,
        }
    }
    bytes.len()
}

/// Replaces the names of our own predicates, so that the library does not evaluate them. Offsets do
/// not change.
fn rewrite_operators(source: &str) -> String {
    let mut rewritten = source.to_owned();
    let any_operators = ["any-eq?", "any-not-eq?", "any-match?", "any-not-match?"];
    for (offset, name) in operators(source).filter(|(_, name)| any_operators.contains(name)) {
        rewritten.replace_range(offset..offset + name.len(), &name.replace('?', "!"));
    }
    rewritten
}

/// Formats the library's error as a sentence.
fn error_text(language: &Language, source: &str, error: &QueryError) -> String {
    let name = error.message.trim_matches('"');
    let line = source.split_inclusive('\n').take(error.row).map(str::len).sum();
    let (offset, message) = match error.kind {
        QueryErrorKind::Syntax => (error.offset, "the syntax is wrong here".to_owned()),
        QueryErrorKind::NodeType => {
            let count = u16::try_from(language.node_kind_count()).unwrap_or(u16::MAX);
            let kinds = (0..count).filter_map(|id| language.node_kind_for_id(id));
            (error.offset, unknown("kind of node", name, kinds))
        }
        QueryErrorKind::Field => {
            let count = u16::try_from(language.field_count()).unwrap_or(u16::MAX);
            let fields = (1..=count).filter_map(|id| language.field_name_for_id(id));
            (error.offset, unknown("field", name, fields))
        }
        QueryErrorKind::Capture => (error.offset, format!("no capture is called `@{name}`")),
        QueryErrorKind::Structure => {
            (error.offset, "the language has no such structure: it could never match".to_owned())
        }
        QueryErrorKind::Predicate | QueryErrorKind::Language => (line, error.message.clone()),
    };
    with_position(source, offset, &message)
}

fn unknown<'k>(subject: &str, name: &str, known: impl Iterator<Item = &'k str>) -> String {
    let similar = base::text::similar(name, known);
    let nearest =
        similar.first().map(|known| format!("; the nearest is `{known}`")).unwrap_or_default();
    format!("no {subject} `{name}` in this language{nearest}")
}

/// Formats an error with its position and the line of the query with a caret.
fn with_position(source: &str, offset: usize, message: &str) -> String {
    let text_before = source.get(..offset).unwrap_or(source);
    let row = text_before.matches('\n').count();
    let column = text_before.rsplit('\n').next().unwrap_or_default().chars().count();
    let line = source.split('\n').nth(row).unwrap_or_default().trim_end();
    let caret = " ".repeat(column);
    format!("line {}, column {}: {message}\n  {line}\n  {caret}^", row + 1, column + 1)
}
