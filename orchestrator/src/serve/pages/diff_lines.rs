//! The lines of a hunk: numbers, changed words, and syntax colours as classes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use base::text::printable;
use maud::{Markup, html};
use studio_core::review::syntax::{SyntaxClass, SyntaxHighlighter, SyntaxSpans};
use studio_core::review::words;
use studio_git::hunks::{DiffLine, LineOrigin};

/// How lines are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DiffLayout {
    /// Removed lines above added ones.
    #[default]
    Unified,
    /// Removed lines beside added ones.
    Split,
}

impl DiffLayout {
    /// Returns the name, as in a query.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DiffLayout::Unified => "unified",
            DiffLayout::Split => "split",
        }
    }
}

/// The lines of a hunk with everything that is shown of them.
struct StyledLines<'h> {
    lines: &'h [DiffLine],
    syntax: Vec<SyntaxSpans>,
    words: BTreeMap<usize, Vec<Range<usize>>>,
    shared: &'h BTreeMap<usize, Vec<String>>,
}

/// Returns the lines as a table; those that other sessions change too are marked.
pub(crate) fn table(
    highlighter: &SyntaxHighlighter,
    path: &Path,
    (lines, shared): (&[DiffLine], &BTreeMap<usize, Vec<String>>),
    layout: DiffLayout,
) -> Markup {
    let mut changed_words = BTreeMap::new();
    for (removed, added) in words::replaced_lines(lines) {
        if let Some(changes) = words::changes(&lines[removed].text, &lines[added].text) {
            changed_words.insert(removed, changes.removed);
            changed_words.insert(added, changes.added);
        }
    }
    let syntax = syntax(highlighter, path, lines);
    let styled = StyledLines { lines, syntax, words: changed_words, shared };
    html! {
        table.diff.(layout.name()) {
            tbody {
                @match layout {
                    DiffLayout::Unified => {
                        @for index in 0..lines.len() { (styled.unified_row(index)) }
                    }
                    DiffLayout::Split => {
                        @for (left, right) in pairs(lines) { (styled.split_row(left, right)) }
                    }
                }
            }
        }
    }
}

/// Returns the classes of the lines: of the old file for removed lines, else of the new one.
fn syntax(highlighter: &SyntaxHighlighter, path: &Path, lines: &[DiffLine]) -> Vec<SyntaxSpans> {
    let of = |side: LineOrigin| {
        let texts = lines.iter().filter(|line| line.origin != side).map(|line| line.text.as_str());
        highlighter.spans(path, texts).unwrap_or_default().into_iter()
    };
    let (mut old, mut new) = (of(LineOrigin::Added), of(LineOrigin::Removed));
    let mut spans_of = |line: &DiffLine| match line.origin {
        LineOrigin::Removed => old.next().unwrap_or_default(),
        LineOrigin::Added => new.next().unwrap_or_default(),
        LineOrigin::Context => {
            old.next();
            new.next().unwrap_or_default()
        }
    };
    lines.iter().map(&mut spans_of).collect()
}

/// Returns the indexes of the lines that are beside each other.
fn pairs(lines: &[DiffLine]) -> Vec<(Option<usize>, Option<usize>)> {
    let mut rows = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        if lines[index].origin == LineOrigin::Context {
            rows.push((Some(index), Some(index)));
            index += 1;
            continue;
        }
        let run = |from: usize, origin| {
            lines[from..].iter().take_while(|line| line.origin == origin).count()
        };
        let removed = run(index, LineOrigin::Removed);
        let added = run(index + removed, LineOrigin::Added);
        rows.extend((0..removed.max(added)).map(|n| {
            let left = (n < removed).then_some(index + n);
            let right = (n < added).then_some(index + removed + n);
            (left, right)
        }));
        index += removed + added;
    }
    rows
}

impl StyledLines<'_> {
    fn unified_row(&self, index: usize) -> Markup {
        let line = &self.lines[index];
        html! {
            tr.(class(line.origin)) data-line=(index) {
                td.number { (number(line.old)) }
                td.number { (number(line.new)) }
                td.mark { (mark(line.origin)) (self.shared_mark(index)) }
                td.code { (self.code(index)) }
            }
        }
    }

    /// Marks a line that other sessions change too.
    fn shared_mark(&self, index: usize) -> Markup {
        let sessions = self.shared.get(&index).map(|sessions| sessions.join(", "));
        html! {
            @if let Some(sessions) = sessions {
                @let text = format!("also changed by {}", printable(&sessions));
                span.shared role="img" title=(text) aria-label=(text) { "‖" }
            }
        }
    }

    fn split_row(&self, left: Option<usize>, right: Option<usize>) -> Markup {
        let cells = |index: Option<usize>, is_left: bool| match index {
            Some(index) => {
                let line = &self.lines[index];
                let (number_of, class) = match is_left {
                    true => (line.old, class(line.origin)),
                    false => (line.new, class(line.origin)),
                };
                html! {
                    td.number { (number(number_of)) }
                    td.mark.(class) { (mark(line.origin)) (self.shared_mark(index)) }
                    td.code.(class) { (self.code(index)) }
                }
            }
            None => html! { td.number {} td.mark.none {} td.code.none {} },
        };
        html! {
            tr data-line=[right.or(left)] { (cells(left, true)) (cells(right, false)) }
        }
    }

    /// Returns the text of a line in parts: each has the class of its syntax, and is marked if its
    /// words changed.
    fn code(&self, index: usize) -> Markup {
        let line = &self.lines[index];
        let spans = self.syntax.get(index).map(Vec::as_slice).unwrap_or_default();
        let changed = self.words.get(&index).map(Vec::as_slice).unwrap_or_default();
        let mut cuts: Vec<usize> = vec![0, line.text.len()];
        cuts.extend(spans.iter().flat_map(|(range, _)| [range.start, range.end]));
        cuts.extend(changed.iter().flat_map(|range| [range.start, range.end]));
        cuts.retain(|cut| line.text.is_char_boundary(*cut));
        cuts.sort_unstable();
        cuts.dedup();
        let parts = cuts.windows(2).map(|pair| pair[0]..pair[1]);
        html! {
            @for part in parts {
                @let text = printable(&line.text[part.clone()]);
                @let class = spans.iter().find(|(range, _)| range.contains(&part.start));
                @let class = class.map(|(_, class)| syntax_name(*class));
                @if changed.iter().any(|range| range.contains(&part.start)) {
                    mark.(class.unwrap_or("plain")) { (text) }
                } @else if let Some(class) = class {
                    span.(class) { (text) }
                } @else {
                    (text)
                }
            }
            @if !line.has_newline { span.note { " ⏎ no line break at the end" } }
        }
    }
}

fn number(number: Option<u32>) -> Markup {
    html! { @if let Some(number) = number { (number) } }
}

fn class(origin: LineOrigin) -> &'static str {
    match origin {
        LineOrigin::Context => "context",
        LineOrigin::Removed => "removed",
        LineOrigin::Added => "added",
    }
}

fn mark(origin: LineOrigin) -> &'static str {
    match origin {
        LineOrigin::Context => "",
        LineOrigin::Removed => "−",
        LineOrigin::Added => "+",
    }
}

fn syntax_name(class: SyntaxClass) -> &'static str {
    match class {
        SyntaxClass::Comment => "comment",
        SyntaxClass::String => "string",
        SyntaxClass::Constant => "constant",
        SyntaxClass::Keyword => "keyword",
        SyntaxClass::Type => "type",
        SyntaxClass::Function => "function",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(origin: LineOrigin, text: &str) -> DiffLine {
        DiffLine { origin, old: Some(1), new: Some(1), text: text.to_owned(), has_newline: true }
    }

    #[test]
    fn code_is_escaped_and_only_changed_words_are_marked() {
        let lines = [
            line(LineOrigin::Removed, "let a = \"<script>x</script>\";"),
            line(LineOrigin::Added, "let b = \"<script>x</script>\";"),
        ];
        let shared = [(1, vec!["other-1a2b".to_owned()])].into();
        let highlighter = SyntaxHighlighter::load();
        let html = table(&highlighter, Path::new("a.rs"), (&lines, &shared), DiffLayout::Unified);
        let html = html.into_string();
        assert_eq!(html.matches("aria-label=\"also changed by other-1a2b\"").count(), 1, "{html}");
        assert!(!html.contains("<script"), "{html}");
        assert!(html.contains("<mark class=\"plain\">b</mark>"), "{html}");
        assert!(html.contains("<span class=\"keyword\">let</span>"), "{html}");
    }

    #[test]
    fn lines_that_replace_each_other_are_beside_each_other() {
        use LineOrigin::{Added, Context, Removed};
        let lines = [Context, Removed, Removed, Added, Context].map(|origin| line(origin, "x"));
        let expected =
            [(Some(0), Some(0)), (Some(1), Some(3)), (Some(2), None), (Some(4), Some(4))];
        assert_eq!(pairs(&lines), expected);
    }
}
