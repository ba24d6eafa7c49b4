//! An open element, and how it is written when it closes.

use super::Form;
use super::flow::Flow;
use super::table::Table;

/// An open element with its text.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Its name; elements with the same meaning share one.
    pub tag: &'static str,
    /// How it is written.
    pub kind: Kind,
    /// Its text so far.
    pub flow: Flow,
}

/// How an element is written.
#[derive(Debug)]
pub(crate) enum Kind {
    /// The page itself.
    Root,
    /// Text between two marks.
    Marked(&'static str),
    /// Code within a line.
    Code,
    /// A link with its absolute address, if it has one.
    Link(Option<String>),
    /// A heading of this level.
    Heading(usize),
    /// A block quotation.
    Quote,
    /// Preformatted text, with the language of its code.
    Pre(Option<String>),
    /// A list; the next number of a numbered one.
    List(Option<u64>),
    /// An item of a list, with its marker.
    Item(String),
    /// A table.
    Table(Table),
    /// A cell of a table.
    Cell,
}

impl Frame {
    /// An inline element.
    pub(crate) fn inline(tag: &'static str, kind: Kind) -> Frame {
        Frame { tag, kind, flow: Flow::inline() }
    }

    /// A block element.
    pub(crate) fn block(tag: &'static str, kind: Kind) -> Frame {
        Frame { tag, kind, flow: Flow::default() }
    }

    /// Whether its text must be on one line.
    pub(crate) fn holds_one_line(&self) -> bool {
        matches!(self.kind, Kind::Link(_) | Kind::Heading(_) | Kind::Cell)
    }

    /// Closes the element: writes it into the element around it.
    pub(crate) fn close_into(self, parent: &mut Frame, form: Form) {
        let text = self.flow.into_text();
        match self.kind {
            Kind::Root => parent.flow.verbatim(&text),
            // Emphasis cannot span paragraphs.
            Kind::Marked(_) if text.trim().contains('\n') => parent.flow.verbatim(&text),
            Kind::Marked(mark) => parent.flow.marked(&text, mark, mark),
            Kind::Code => {
                let (before, after) = ticks(text.trim());
                parent.flow.marked(&text, &before, &after);
            }
            Kind::Link(Some(href)) if !text.trim().is_empty() => {
                parent.flow.marked(&in_line(&text), "[", &format!("]({href})"));
            }
            Kind::Link(_) => parent.flow.words(&in_line(&text)),
            Kind::Heading(_) if parent.holds_one_line() => {
                parent.flow.words(&format!(" {} ", text.trim()));
            }
            Kind::Heading(level) => heading(&text, level, parent, form),
            Kind::Quote if form == Form::Markdown => {
                let lines = text.trim().lines().map(|line| format!("> {line}"));
                let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
                parent.flow.block(&lines.join("\n"), 2);
            }
            Kind::Quote => parent.flow.block(text.trim(), 2),
            Kind::Pre(language) => pre(&text, language, parent, form),
            Kind::List(_) => {
                let is_inner = matches!(parent.kind, Kind::Item(_));
                parent.flow.block(text.trim_end(), if is_inner { 1 } else { 2 });
            }
            Kind::Item(marker) => parent.flow.block(&item(&text, &marker), 1),
            Kind::Table(table) if parent.holds_one_line() => {
                parent.flow.words(&format!(" {} ", table.in_line()));
            }
            Kind::Table(table) => parent.flow.block(&table.render(form), 2),
            Kind::Cell => match &mut parent.kind {
                Kind::Table(table) => table.add(text.trim()),
                _ => parent.flow.words(&text),
            },
        }
    }
}

fn heading(text: &str, level: usize, parent: &mut Frame, form: Form) {
    let text = in_line(text.trim());
    let marks = if form == Form::Markdown { "#".repeat(level) + " " } else { String::new() };
    if !text.is_empty() {
        parent.flow.block(&(marks + &text), 2);
    }
}

/// A code block, between fences that do not occur in it.
fn pre(text: &str, language: Option<String>, parent: &mut Frame, form: Form) {
    let text = text.strip_prefix('\n').unwrap_or(text).trim_end();
    if parent.holds_one_line() {
        return parent.flow.words(text);
    }
    if text.is_empty() || form == Form::Text {
        return parent.flow.block(text, 2);
    }
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    parent.flow.block(&format!("{fence}{}\n{text}\n{fence}", language.unwrap_or_default()), 2);
}

fn item(text: &str, marker: &str) -> String {
    let text = text.trim();
    let indent = " ".repeat(marker.chars().count());
    let mut lines = text.lines();
    let first = lines.next().map(|line| format!("{marker}{line}")).unwrap_or_default();
    let rest = lines.map(|line| match line {
        "" => "\n".to_owned(),
        line => format!("\n{indent}{line}"),
    });
    std::iter::once(first).chain(rest).collect()
}

/// The text on one line.
pub(crate) fn in_line(text: &str) -> String {
    if text.contains('\n') {
        text.split('\n').filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join(" ")
    } else {
        text.to_owned()
    }
}

/// The marks before and after inline code.
fn ticks(code: &str) -> (String, String) {
    let ticks = "`".repeat(longest_run(code) + 1);
    let blank = if code.starts_with('`') || code.ends_with('`') { " " } else { "" };
    (format!("{ticks}{blank}"), format!("{blank}{ticks}"))
}

/// The length of the longest run of backticks.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}
