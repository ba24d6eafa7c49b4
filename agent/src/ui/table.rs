//! Renders Markdown tables, aligned and fitted to the terminal's width.

use super::markdown::{DIM, MarkdownPainter, RESET, visible};
use super::wrap::columns;

/// The border between two cells.
const BORDER: &str = " │ ";
/// Minimum width of a column, in columns of the terminal.
const NARROWEST: usize = 6;

#[derive(Clone, Copy, PartialEq)]
enum Align {
    Left,
    Right,
    Centre,
}

/// How a table is drawn.
#[derive(Clone, Copy)]
struct Style {
    width: Option<usize>,
    colours: bool,
}

/// Renders the lines of a table. Lines that are not a table are returned unchanged.
pub(crate) fn render(lines: &[String], width: Option<usize>, colours: bool) -> String {
    let style = Style { width, colours };
    let mut rows = lines.iter().map(|line| cells(line));
    let (Some(header), Some(rule)) = (rows.next(), rows.next()) else { return raw(lines) };
    let Some(aligned) = rule.iter().map(|cell| align(cell)).collect::<Option<Vec<Align>>>() else {
        return raw(lines);
    };
    if aligned.len() != header.len() {
        return raw(lines);
    }
    let rows: Vec<Vec<String>> = rows
        .map(|mut row| {
            row.resize(header.len(), String::new());
            row
        })
        .collect();
    match widths(&header, &rows, style) {
        Some(widths) => grid(&header, &rows, &widths, &aligned, style),
        None => records(&header, &rows, style),
    }
}

fn raw(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Splits a line into cells; `\|` is a bar within a cell.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let mut cells = vec![String::new()];
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.next_if_eq(&'|').is_some() => push(&mut cells, '|'),
            '|' if chars.peek().is_none() => break,
            '|' => cells.push(String::new()),
            c => push(&mut cells, c),
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

fn push(cells: &mut [String], c: char) {
    if let Some(cell) = cells.last_mut() {
        cell.push(c);
    }
}

fn align(cell: &str) -> Option<Align> {
    let dashes = cell.trim_matches(':');
    if dashes.is_empty() || dashes.chars().any(|c| c != '-') {
        return None;
    }
    Some(match (cell.starts_with(':'), cell.ends_with(':')) {
        (true, true) => Align::Centre,
        (false, true) => Align::Right,
        (true | false, false) => Align::Left,
    })
}

/// Returns the width of each column; `None` if the table does not fit at the minimum widths.
fn widths(header: &[String], rows: &[Vec<String>], style: Style) -> Option<Vec<usize>> {
    let natural = |column: usize| {
        let all = rows.iter().map(|row| &row[column]).chain([&header[column]]);
        all.map(|cell| columns(&visible(&painted(cell, None, style)))).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..header.len()).map(natural).collect();
    let Some(width) = style.width else { return Some(widths) };
    let borders = columns(BORDER) * header.len().saturating_sub(1);
    let room = width.saturating_sub(borders);
    while widths.iter().sum::<usize>() > room {
        let widest = widths.iter_mut().max()?;
        if *widest <= NARROWEST {
            return None;
        }
        *widest -= 1;
    }
    Some(widths)
}

/// Renders the text of a cell, wrapped at a width.
fn painted(cell: &str, width: Option<usize>, style: Style) -> String {
    let mut painter = MarkdownPainter::inline(style.colours, width);
    let mut out = painter.paint(cell);
    out.push_str(&painter.finish());
    out
}

fn grid(
    header: &[String],
    rows: &[Vec<String>],
    widths: &[usize],
    aligned: &[Align],
    style: Style,
) -> String {
    let dim = |text: &str| match style.colours {
        true => format!("{DIM}{text}{RESET}"),
        false => text.to_owned(),
    };
    let border = dim(BORDER);
    let mut out = row(header, widths, aligned, &border, style);
    let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
    out.push_str(&dim(&rule.join("─┼─")));
    out.push('\n');
    rows.iter().for_each(|cells| out.push_str(&row(cells, widths, aligned, &border, style)));
    out
}

fn row(
    cells: &[String],
    widths: &[usize],
    aligned: &[Align],
    border: &str,
    style: Style,
) -> String {
    let lines = |(cell, width): (&String, &usize)| -> Vec<String> {
        painted(cell, Some(*width), style).lines().map(str::to_owned).collect()
    };
    let cells: Vec<Vec<String>> = cells.iter().zip(widths).map(lines).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let mut out = String::new();
    for row in 0..height {
        let padded = cells.iter().zip(widths.iter().zip(aligned)).map(|(cell, (width, align))| {
            let text = cell.get(row).map_or("", String::as_str);
            let room = width.saturating_sub(columns(&visible(text)));
            let before = match align {
                Align::Left => 0,
                Align::Right => room,
                Align::Centre => room / 2,
            };
            let reset = if text.contains('\u{1b}') { RESET } else { "" };
            format!("{}{text}{reset}{}", " ".repeat(before), " ".repeat(room - before))
        });
        let line = padded.collect::<Vec<_>>().join(border);
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Renders each row as lines of `header: cell`, for a table that is too wide.
fn records(header: &[String], rows: &[Vec<String>], style: Style) -> String {
    let record = |row: &Vec<String>| -> String {
        let cells = header.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
        let line = |(name, cell): (&String, &String)| {
            format!("{}\n", painted(&format!("{name}: {cell}"), style.width, style))
        };
        cells.map(line).collect()
    };
    rows.iter().map(record).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, width: usize) -> String {
        let lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        render(&lines, Some(width), false)
    }

    const TABLE: &str = "| Name | What it does | Lines |\n|---|:---|--:|\n| `a.rs` | reads a | 3 |\n| b.rs | writes the file and says what it did | 120 |";

    #[test]
    fn columns_are_aligned() {
        insta::assert_snapshot!(drawn(TABLE, 80), @r#"
        Name   │ What it does                         │ Lines
        ───────┼──────────────────────────────────────┼──────
        `a.rs` │ reads a                              │     3
        b.rs   │ writes the file and says what it did │   120
        "#);
    }

    #[test]
    fn cells_are_wrapped_on_a_narrow_terminal() {
        insta::assert_snapshot!(drawn(TABLE, 36), @r#"
        Name   │ What it does        │ Lines
        ───────┼─────────────────────┼──────
        `a.rs` │ reads a             │     3
        b.rs   │ writes the file and │   120
               │ says what it did    │
        "#);
    }

    #[test]
    fn a_table_that_cannot_fit_becomes_records() {
        insta::assert_snapshot!(drawn(TABLE, 20), @r#"
        Name: `a.rs`
        What it does: reads
        a
        Lines: 3

        Name: b.rs
        What it does: writes
        the file and says
        what it did
        Lines: 120
        "#);
    }

    #[test]
    fn lines_that_only_start_with_a_bar_are_unchanged() {
        assert_eq!(drawn("| grep x\n| sort", 80), "| grep x\n| sort\n");
        assert_eq!(drawn("| a |", 80), "| a |\n");
        assert_eq!(cells(r"| a \| b | c |"), ["a | b", "c"]);
    }
}
