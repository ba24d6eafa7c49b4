//! Syntax classes of the lines of a hunk, without colours.

use std::ops::Range;
use std::path::Path;

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

/// Maximum number of bytes of a line that is parsed.
const MAX_LINE_BYTES: usize = 2000;

/// What a part of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntaxClass {
    /// A comment.
    Comment,
    /// A string or a character.
    String,
    /// A number or another constant.
    Constant,
    /// A keyword or an operator word.
    Keyword,
    /// The name of a type.
    Type,
    /// The name of a function.
    Function,
}

/// The classes and the scopes of syntect that belong to them; the first match decides.
const CLASSES: &[(&str, SyntaxClass)] = &[
    ("comment", SyntaxClass::Comment),
    ("string", SyntaxClass::String),
    ("constant", SyntaxClass::Constant),
    ("keyword", SyntaxClass::Keyword),
    ("storage", SyntaxClass::Keyword),
    ("entity.name.function", SyntaxClass::Function),
    ("support.function", SyntaxClass::Function),
    ("entity.name", SyntaxClass::Type),
    ("support.type", SyntaxClass::Type),
    ("support.class", SyntaxClass::Type),
];

/// Parts of a line with their classes; other parts are plain.
pub type SyntaxSpans = Vec<(Range<usize>, SyntaxClass)>;

/// The syntax definitions. Loading them takes some milliseconds.
pub struct SyntaxHighlighter {
    set: SyntaxSet,
    classes: Vec<(Scope, SyntaxClass)>,
}

impl SyntaxHighlighter {
    /// Loads the definitions.
    pub fn load() -> SyntaxHighlighter {
        let classes =
            CLASSES.iter().filter_map(|(name, class)| Some((Scope::new(name).ok()?, *class)));
        SyntaxHighlighter { set: two_face::syntax::extra_newlines(), classes: classes.collect() }
    }

    fn syntax(&self, path: &Path) -> Option<&SyntaxReference> {
        let name = path.file_name()?.to_str()?;
        let extension = path.extension().and_then(|extension| extension.to_str());
        let by_extension = |text| self.set.find_syntax_by_extension(text);
        by_extension(name).or_else(|| extension.and_then(by_extension))
    }

    /// Returns the classes of consecutive lines of a file; `None` for an unknown language.
    pub fn spans<'a>(
        &self,
        path: &Path,
        lines: impl IntoIterator<Item = &'a str>,
    ) -> Option<Vec<SyntaxSpans>> {
        let mut state = ParseState::new(self.syntax(path)?);
        let mut stack = ScopeStack::new();
        let spans = lines.into_iter().map(|line| self.line_spans(line, &mut state, &mut stack));
        Some(spans.collect())
    }

    fn line_spans(
        &self,
        line: &str,
        state: &mut ParseState,
        stack: &mut ScopeStack,
    ) -> SyntaxSpans {
        if line.len() > MAX_LINE_BYTES {
            return Vec::new();
        }
        let Ok(ops) = state.parse_line(&format!("{line}\n"), &self.set) else { return Vec::new() };
        let mut spans: SyntaxSpans = Vec::new();
        let mut start = 0;
        for (end, op) in ops {
            self.push(&mut spans, line, start..end.min(line.len()), stack);
            start = end.min(line.len());
            if stack.apply(&op).is_err() {
                return spans;
            }
        }
        self.push(&mut spans, line, start..line.len(), stack);
        spans
    }

    fn push(&self, spans: &mut SyntaxSpans, line: &str, range: Range<usize>, stack: &ScopeStack) {
        if range.is_empty() {
            return;
        }
        let class_of = |scope: &Scope| {
            self.classes
                .iter()
                .find(|(prefix, _)| prefix.is_prefix_of(*scope))
                .map(|(_, class)| *class)
        };
        let Some(class) = stack.as_slice().iter().rev().find_map(class_of) else { return };
        // Operators are keywords for syntect; those of punctuation stay plain.
        let is_word = line[range.clone()].contains(char::is_alphabetic);
        if class == SyntaxClass::Keyword && !is_word {
            return;
        }
        match spans.last_mut() {
            Some((last, same)) if *same == class && last.end == range.start => last.end = range.end,
            Some(_) | None => spans.push((range, class)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_known_languages_have_classes() {
        let highlighter = SyntaxHighlighter::load();
        let of = |path: &str, line: &'static str| {
            let spans = highlighter.spans(Path::new(path), [line])?;
            let parts = spans[0].iter().map(|(range, class)| (&line[range.clone()], *class));
            Some(parts.collect::<Vec<_>>())
        };
        let rust = of("a.rs", "let x = \"é\"; // why").unwrap();
        assert!(rust.contains(&("let", SyntaxClass::Keyword)), "{rust:?}");
        assert!(rust.contains(&("\"é\"", SyntaxClass::String)), "{rust:?}");
        assert!(rust.contains(&("// why", SyntaxClass::Comment)), "{rust:?}");
        for path in ["a.py", "a.ts", "a.go", "Cargo.toml", "a.kt", "Makefile", "Dockerfile"] {
            assert!(of(path, "x = 1").is_some(), "{path}");
        }
        assert_eq!(of("a.unknown", "x"), None);
    }
}
