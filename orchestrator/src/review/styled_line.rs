//! A line of code with its colours: syntax, changed words, and every character visible.

use std::ops::Range;

use base::text::printable;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use studio_core::review::syntax::SyntaxClass;

/// The columns between two tab stops.
const TAB_COLUMNS: usize = 4;

/// What is known about a line.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineMarks<'a> {
    /// Its syntax; `None` if it is not known.
    pub syntax: Option<&'a [(Range<usize>, SyntaxClass)]>,
    /// The changed parts.
    pub words: &'a [Range<usize>],
    /// The colour of the change; `None` for an unchanged line.
    pub change: Option<Color>,
    /// Whether colours may be used.
    pub colours: bool,
}

/// Returns the columns of a line from `skip` on, at most `columns`; a cut line ends in `…`.
pub fn spans(text: &str, marks: LineMarks<'_>, skip: usize, columns: usize) -> Vec<Span<'static>> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut column = 0;
    for (index, c) in text.char_indices() {
        let shown = shown(c, column);
        let width = base::text::columns(&shown);
        let start = column;
        column += width;
        if start < skip {
            continue;
        }
        if column > skip + columns.saturating_sub(1)
            && column_count(text, index, column) > skip + columns
        {
            push(&mut spans, "…", Style::new().add_modifier(Modifier::DIM));
            return spans;
        }
        push(&mut spans, &shown, style_at(index, marks));
    }
    spans
}

/// Returns the columns of the line up to its end, as far as it matters: whether more follows.
fn column_count(text: &str, index: usize, column: usize) -> usize {
    let rest = text[index..].chars().count();
    if rest > 1 { column + 1 } else { column }
}

fn push(spans: &mut Vec<Span<'static>>, text: &str, style: Style) {
    match spans.last_mut() {
        Some(last) if last.style == style => last.content.to_mut().push_str(text),
        Some(_) | None => spans.push(Span::styled(text.to_owned(), style)),
    }
}

/// Returns a character as it is shown.
fn shown(c: char, column: usize) -> String {
    match c {
        '\t' => " ".repeat(TAB_COLUMNS - column % TAB_COLUMNS),
        c if c.is_ascii() && !c.is_ascii_control() => c.to_string(),
        c => printable(&c.to_string()),
    }
}

fn style_at(index: usize, marks: LineMarks<'_>) -> Style {
    let is_changed_word = marks.words.iter().any(|range| range.contains(&index));
    let mut style = Style::new();
    if is_changed_word {
        style = style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    }
    if !marks.colours {
        return style;
    }
    let spans = marks.syntax.unwrap_or_default();
    let class = spans.iter().find(|(range, _)| range.contains(&index)).map(|(_, class)| *class);
    let colour = match (class, marks.change) {
        (_, Some(change)) if is_changed_word || marks.syntax.is_none() => Some(change),
        (Some(class), _) => Some(colour_of(class)),
        (None, _) => None,
    };
    colour.map_or(style, |colour| style.fg(colour))
}

/// Returns the colour of a class, of the 16 that a terminal's theme defines. Red and green are those
/// of changes.
fn colour_of(class: SyntaxClass) -> Color {
    match class {
        SyntaxClass::Comment => Color::DarkGray,
        SyntaxClass::String => Color::Cyan,
        SyntaxClass::Constant => Color::Yellow,
        SyntaxClass::Keyword => Color::Magenta,
        SyntaxClass::Type | SyntaxClass::Function => Color::Blue,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str, skip: usize, columns: usize) -> String {
        spans(line, LineMarks::default(), skip, columns)
            .iter()
            .map(|it| it.content.as_ref())
            .collect()
    }

    #[test]
    fn every_character_is_visible_and_long_lines_are_cut() {
        assert_eq!(text("a\tb\u{1b}[31m\r\u{202e}", 0, 80), "a   b^[[31m^M<U+202E>");
        assert_eq!(text("abcdef", 0, 6), "abcdef");
        assert_eq!(text("abcdefg", 0, 6), "abcde…");
        assert_eq!(text("abcdefg", 3, 6), "defg");
        assert_eq!(text("界界界", 0, 5), "界界…");
    }

    #[test]
    fn colours_are_left_out_if_they_are_not_wanted() {
        let syntax = [(0..3, SyntaxClass::Keyword)];
        let word = std::slice::from_ref(&(4..5));
        let marks = LineMarks {
            syntax: Some(&syntax),
            words: word,
            change: Some(Color::Green),
            colours: true,
        };
        let with = spans("let x", marks, 0, 80);
        assert_eq!(
            (with[0].style.fg, with[2].style.fg),
            (Some(Color::Magenta), Some(Color::Green))
        );
        let without = spans("let x", LineMarks { colours: false, ..marks }, 0, 80);
        assert!(without.iter().all(|span| span.style.fg.is_none()));
        assert!(without[1].style.add_modifier.contains(Modifier::UNDERLINED));
    }
}
