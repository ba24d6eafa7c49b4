//! Compiles queries, evaluates their additional predicates, and reports errors with their position.

use regex::bytes::Regex;
use tree_sitter::{
    Language, Node, Query, QueryError, QueryErrorKind, QueryMatch, QueryPredicate,
    QueryPredicateArg,
};

use super::literal;

/// Supported predicates. `set!` only attaches metadata.
const PREDICATES: [&str; 11] = [
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
    needed: Option<Regex>,
}

/// A predicate that at least one node of its capture must satisfy.
struct Any {
    capture: u32,
    test: Test,
    positive: bool,
}

enum Test {
    Text(Box<str>),
    Capture(u32),
    Pattern(Regex),
}

/// Compiles a query. The error is for the model: what is wrong, where, and the line with a caret.
pub(crate) fn compile(language: &Language, source: &str) -> Result<CompiledQuery, String> {
    let ours = with_our_operators(source);
    let query = Query::new(language, &ours).map_err(|error| worded(language, source, &error))?;
    if let Some((at, name)) = operators(source).find(|(_, name)| !PREDICATES.contains(name)) {
        let known = PREDICATES.map(|name| format!("#{name}")).join(", ");
        let what = format!("`#{name}` is not known here; known are: {known}");
        return Err(shown(source, at, &what));
    }
    if query.capture_names().is_empty() {
        let what = "it captures nothing: put @name after a node";
        return Err(shown(source, 0, what));
    }
    let any = (0..query.pattern_count()).map(|pattern| {
        let at = query.start_byte_for_pattern(pattern);
        let predicates = query.general_predicates(pattern).iter();
        let any = predicates.map(|one| Any::read(one).map_err(|why| shown(source, at, &why)));
        any.collect()
    });
    let any = any.collect::<Result<Vec<Vec<Any>>, String>>()?;
    let needed = literal::needed(&query, &ours);
    Ok(CompiledQuery { query, any, needed })
}

impl CompiledQuery {
    /// Whether a file with this text may match.
    pub(crate) fn may_match(&self, text: &[u8]) -> bool {
        self.needed.as_ref().is_none_or(|needed| needed.is_match(text))
    }

    /// Evaluates the predicates that the library does not evaluate.
    pub(crate) fn holds(&self, found: &QueryMatch<'_, '_>, text: &[u8]) -> bool {
        self.any[found.pattern_index].iter().all(|any| any.holds(found, text))
    }
}

impl Any {
    fn read(predicate: &QueryPredicate) -> Result<Any, String> {
        let name = predicate.operator.replace('!', "?");
        let wrong = |why: &str| Err(format!("`#{name}` {why}"));
        let positive = !name.contains("-not-");
        let [QueryPredicateArg::Capture(capture), second] = &*predicate.args else {
            return wrong("takes a capture, and what to compare it with");
        };
        let test = match second {
            QueryPredicateArg::Capture(_) if name.ends_with("match?") => {
                return wrong("takes a regular expression in quotes");
            }
            QueryPredicateArg::Capture(other) => Test::Capture(*other),
            QueryPredicateArg::String(text) if name.ends_with("match?") => match Regex::new(text) {
                Ok(pattern) => Test::Pattern(pattern),
                Err(why) => return wrong(&format!("has no regular expression: {why}")),
            },
            QueryPredicateArg::String(text) => Test::Text(text.clone()),
        };
        Ok(Any { capture: *capture, test, positive })
    }

    /// A predicate on an absent capture holds.
    fn holds(&self, found: &QueryMatch<'_, '_>, text: &[u8]) -> bool {
        let mut nodes = found.nodes_for_capture_index(self.capture).peekable();
        nodes.peek().is_none()
            || nodes.any(|node| self.fits(words(node, text), found, text) == self.positive)
    }

    fn fits(&self, node: &[u8], found: &QueryMatch<'_, '_>, text: &[u8]) -> bool {
        match &self.test {
            Test::Text(wanted) => node == wanted.as_bytes(),
            Test::Pattern(pattern) => pattern.is_match(node),
            Test::Capture(other) => {
                found.nodes_for_capture_index(*other).any(|other| words(other, text) == node)
            }
        }
    }
}

fn words<'t>(node: Node<'_>, text: &'t [u8]) -> &'t [u8] {
    text.get(node.byte_range()).unwrap_or_default()
}

/// Returns the offsets and names of the predicates of a query. Skips strings and comments.
pub(crate) fn operators(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = source.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => at = after_string(bytes, at),
                b';' => at += bytes[at..].iter().take_while(|byte| **byte != b'\n').count(),
                b'#' => {
                    let start = at + 1;
                    let ends = |c: char| !(c.is_alphanumeric() || "-_.?!".contains(c));
                    let rest = &source[start..];
                    at = start + rest.find(ends).unwrap_or(rest.len());
                    return Some((start, &source[start..at]));
                }
                _ => at += 1,
            }
        }
        None
    })
}

/// Returns the offset after the string that starts here.
pub(crate) fn after_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Replaces the names of our own predicates, so that the library does not evaluate them. Offsets do
/// not change.
fn with_our_operators(source: &str) -> String {
    let mut ours = source.to_owned();
    let any = ["any-eq?", "any-not-eq?", "any-match?", "any-not-match?"];
    for (at, name) in operators(source).filter(|(_, name)| any.contains(name)) {
        ours.replace_range(at..at + name.len(), &name.replace('?', "!"));
    }
    ours
}

/// Formats the library's error as a sentence.
fn worded(language: &Language, source: &str, error: &QueryError) -> String {
    let name = error.message.trim_matches('"');
    let line = source.split_inclusive('\n').take(error.row).map(str::len).sum();
    let (at, what) = match error.kind {
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
    shown(source, at, &what)
}

fn unknown<'k>(what: &str, name: &str, known: impl Iterator<Item = &'k str>) -> String {
    let similar = base::text::similar(name, known);
    let near =
        similar.first().map(|known| format!("; the nearest is `{known}`")).unwrap_or_default();
    format!("no {what} `{name}` in this language{near}")
}

/// Formats an error with its position and the line of the query with a caret.
fn shown(source: &str, at: usize, what: &str) -> String {
    let before = source.get(..at).unwrap_or(source);
    let row = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let line = source.split('\n').nth(row).unwrap_or_default().trim_end();
    let caret = " ".repeat(column);
    format!("line {}, column {}: {what}\n  {line}\n  {caret}^", row + 1, column + 1)
}
