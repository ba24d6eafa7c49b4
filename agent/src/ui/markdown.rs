//! Renders Markdown while it streams: headings, lists, code, emphasis and tables, wrapped at the
//! width of the terminal. Words appear as they arrive, a table when it is complete.

use super::table;
use super::wrap::{Wrapper, columns};

const BOLD: &str = "\u{1b}[1m";
const BOLD_AGAIN: &str = "\u{1b}[0;1m";
const CODE: &str = "\u{1b}[36m";
const HEADING: &str = "\u{1b}[1;35m";
/// Style sequence for faint text.
pub(crate) const DIM: &str = "\u{1b}[2m";
/// Resets all styles.
pub(crate) const RESET: &str = "\u{1b}[0m";

/// Renders text that contains no control sequences. Without colours and width, the output equals
/// the input, except for tables.
#[derive(Debug, Default)]
pub(crate) struct MarkdownPainter {
    colours: bool,
    wrap: Wrapper,
    /// Text that may become a marker (the start of a line, or one star), or a line of a table.
    buffer: String,
    /// Complete lines of a table.
    table: Vec<String>,
    line: Line,
    /// Whether the text is part of a line, without headings, lists and tables.
    inline: bool,
    fenced: bool,
    emphasis: Emphasis,
}

/// The styles of text within a line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Emphasis {
    bold: bool,
    code: bool,
}

/// The kind of the current line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Line {
    /// Unknown until more characters arrive.
    #[default]
    Unknown,
    Text,
    Heading,
    Fence,
    Code,
    Table,
}

impl MarkdownPainter {
    /// Creates a painter with or without colours.
    pub(crate) fn new(colours: bool) -> MarkdownPainter {
        MarkdownPainter { colours, ..MarkdownPainter::default() }
    }

    /// Creates a painter for text that is part of a line, such as a cell of a table.
    pub(crate) fn inline(colours: bool, width: Option<usize>) -> MarkdownPainter {
        let mut wrap = Wrapper::new(width);
        wrap.cuts_words = true;
        MarkdownPainter { colours, wrap, inline: true, ..MarkdownPainter::default() }
    }

    /// Sets the width at which text is wrapped.
    pub(crate) fn wrap_at(&mut self, width: Option<usize>) {
        self.wrap.width = width;
    }

    /// Renders the next piece of text.
    pub(crate) fn paint(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 16);
        for c in text.chars() {
            match (self.line, c) {
                (Line::Table, '\n') => {
                    self.table.push(std::mem::take(&mut self.buffer));
                    self.line = Line::Unknown;
                }
                (Line::Table, c) => self.buffer.push(c),
                (_, '\n') => self.end_line(&mut out),
                (Line::Unknown, c) => self.begin(c, &mut out),
                (Line::Text, c) => self.inline_char(c, &mut out),
                (Line::Heading, c) => self.wrap.put(c, &mut out),
                (Line::Fence | Line::Code, c) => out.push(c),
            }
        }
        out
    }

    /// Ends the text: returns what was held back and resets the styles.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        if self.line == Line::Table {
            self.table.push(std::mem::take(&mut self.buffer));
        }
        self.end_table(&mut out);
        self.release(&mut out);
        self.wrap.flush(&mut out);
        if self.is_styled() {
            out.push_str(RESET);
        }
        let wrap = Wrapper::new(self.wrap.width);
        let (colours, inline) = (self.colours, self.inline);
        *self = MarkdownPainter { colours, inline, wrap, ..MarkdownPainter::default() };
        out
    }

    fn is_styled(&self) -> bool {
        let line = matches!(self.line, Line::Heading | Line::Fence | Line::Code);
        self.colours && (line || self.emphasis != Emphasis::default())
    }

    fn end_line(&mut self, out: &mut String) {
        self.end_table(out);
        self.release(out);
        if self.line == Line::Fence {
            self.fenced = !self.fenced;
        }
        self.wrap.flush(out);
        if self.is_styled() {
            out.push_str(RESET);
        }
        (self.emphasis, self.line) = (Emphasis::default(), Line::Unknown);
        self.wrap.end_line(out);
    }

    fn end_table(&mut self, out: &mut String) {
        if !self.table.is_empty() {
            let lines = std::mem::take(&mut self.table);
            out.push_str(&table::render(&lines, self.wrap.width, self.colours));
        }
    }

    /// Writes the held text unchanged.
    fn release(&mut self, out: &mut String) {
        std::mem::take(&mut self.buffer).chars().for_each(|c| self.wrap.put(c, out));
    }

    /// Adds a character to the start of a line.
    fn begin(&mut self, c: char, out: &mut String) {
        let mut start = std::mem::take(&mut self.buffer);
        start.push(c);
        let line = if self.inline { Some(Line::Text) } else { kind(&start, self.fenced) };
        let Some(line) = line else {
            self.buffer = start;
            return;
        };
        self.line = line;
        if line == Line::Table {
            self.buffer = start;
            return;
        }
        self.end_table(out);
        match line {
            Line::Heading => self.style(HEADING),
            Line::Fence => out.push_str(if self.colours { DIM } else { "" }),
            Line::Code => out.push_str(if self.colours { CODE } else { "" }),
            Line::Text => {
                self.wrap.indent = continuation(&start);
                return start.chars().for_each(|c| self.inline_char(c, out));
            }
            Line::Unknown | Line::Table => {}
        }
        match line {
            Line::Heading => start.chars().for_each(|c| self.wrap.put(c, out)),
            _ => out.push_str(&start),
        }
    }

    fn style(&mut self, code: &str) {
        if self.colours {
            self.wrap.style(code);
        }
    }

    fn inline_char(&mut self, c: char, out: &mut String) {
        if !self.colours {
            return self.wrap.put(c, out);
        }
        let star = std::mem::take(&mut self.buffer) == "*";
        if star && c == '*' && !self.emphasis.code {
            self.emphasis.bold = !self.emphasis.bold;
            return self.style(if self.emphasis.bold { BOLD } else { RESET });
        }
        if star {
            self.wrap.put('*', out);
        }
        match c {
            '*' if !self.emphasis.code => self.buffer.push('*'),
            '`' => {
                self.emphasis.code = !self.emphasis.code;
                let back = if self.emphasis.bold { BOLD_AGAIN } else { RESET };
                self.style(if self.emphasis.code { CODE } else { back });
            }
            c => self.wrap.put(c, out),
        }
    }
}

/// Returns the kind of a line by its start; `None` if more characters are needed.
fn kind(start: &str, fenced: bool) -> Option<Line> {
    let marker = start.trim_start();
    if marker.is_empty() && start.len() < 4 {
        return None;
    }
    if marker.starts_with("```") {
        return Some(Line::Fence);
    }
    if !marker.is_empty() && "```".starts_with(marker) {
        return None;
    }
    if fenced {
        return Some(Line::Code);
    }
    if marker.starts_with('|') {
        return Some(Line::Table);
    }
    let hashes = marker.bytes().take_while(|b| *b == b'#').count();
    match marker.as_bytes().get(hashes) {
        None if (1..=6).contains(&hashes) => None,
        Some(b' ') if (1..=6).contains(&hashes) => Some(Line::Heading),
        None | Some(_) if begins_item(marker) => None,
        None | Some(_) => Some(Line::Text),
    }
}

/// Returns whether this is the marker of a list item or a quotation, without its space.
fn begins_item(marker: &str) -> bool {
    let number = marker.trim_end_matches(['.', ')']);
    let numbered = (1..=3).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && marker.len() - number.len() < 2;
    matches!(marker, "-" | "*" | "+" | ">") || numbered
}

/// Returns the column at which the continuation of a line begins: after the marker of its item.
fn continuation(start: &str) -> usize {
    let marker = start.trim_start();
    let indent = start.len() - marker.len();
    let item = marker.strip_suffix(' ').filter(|marker| begins_item(marker));
    indent + item.map_or(0, |item| columns(item) + 1)
}

/// Removes the style sequences from rendered text.
pub(crate) fn visible(painted: &str) -> String {
    let mut pieces = painted.split('\u{1b}');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        out.push_str(piece.split_once('m').map_or("", |(_, rest)| rest));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painted_at(width: Option<usize>, colours: bool, pieces: &[&str]) -> String {
        let mut painter = MarkdownPainter::new(colours);
        painter.wrap_at(width);
        let mut out: String = pieces.iter().map(|piece| painter.paint(piece)).collect();
        out.push_str(&painter.finish());
        out.replace('\u{1b}', "^")
    }

    fn painted(pieces: &[&str]) -> String {
        painted_at(None, true, pieces)
    }

    #[test]
    fn markup_becomes_colours() {
        assert_eq!(painted(&["# Top\n"]), "^[1;35m# Top^[0m\n");
        assert_eq!(painted(&["a **b** `c`\n"]), "a ^[1mb^[0m ^[36mc^[0m\n");
        assert_eq!(
            painted(&["```rust\nlet a = \"**\";\n```\nend"]),
            "^[2m```rust^[0m\n^[36mlet a = \"**\";^[0m\n^[2m```^[0m\nend"
        );
        assert_eq!(painted(&["2 * 3 * 4\n* item\n"]), "2 * 3 * 4\n* item\n");
    }

    #[test]
    fn the_output_does_not_depend_on_how_the_stream_is_split() {
        let text = "# T\n\n- **one** `two`\n  ```sh\n  ls *\n  ```\n| a | b |\n|--|--|\n| 1 | 2 |\n#hash 1 * 2\n12. x";
        for width in [None, Some(8)] {
            let whole = painted_at(width, true, &[text]);
            for at in (1..text.len()).filter(|at| text.is_char_boundary(*at)) {
                let cut = painted_at(width, true, &[&text[..at], &text[at..]]);
                assert_eq!(cut, whole, "cut at {at}");
            }
        }
    }

    #[test]
    fn items_are_wrapped_with_a_hanging_indent_and_code_is_not_wrapped() {
        let text =
            "- one two three\n  12. four five\n> six seven eight\n```\nlet a = 1 + 2 + 3;\n```\n";
        let expected = "- one two\n  three\n  12. four\n      five\n> six\n  seven\n  eight\n```\nlet a = 1 + 2 + 3;\n```\n";
        assert_eq!(painted_at(Some(10), false, &[text]), expected);
    }

    #[test]
    fn without_colours_and_width_text_is_unchanged() {
        let text = "# T\n- **a** `b`\n  c  d\n> e\n12 f\n-\n";
        assert_eq!(painted_at(None, false, &[text]), text);
    }
}
