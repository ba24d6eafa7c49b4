//! Draws a review into a buffer.

use base::text::{columns, count, cut_columns, printable};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use studio_core::review::hunk::{DiffSide, HunkDecision, file_name};
use studio_git::hunks::{DiffLine, LineOrigin};

use crate::review::keys::{self, KEYS};
use crate::review::rows::ReviewRow;
use crate::review::screen::{CommentTarget, ReviewMode, ReviewScreen};
use crate::review::styled_line::{LineMarks, spans};

/// The columns of a line number.
const NUMBER_COLUMNS: usize = 5;

/// Draws the screen.
pub fn draw(screen: &ReviewScreen, area: Rect, buffer: &mut Buffer) {
    if area.width < 20 || area.height < 5 {
        buffer.set_line(area.x, area.y, &Line::raw("terminal too small"), area.width);
        return;
    }
    draw_row(buffer, area, 0, &header(screen, usize::from(area.width)));
    if let ReviewMode::Help(first) = screen.mode {
        draw_help(first, area, buffer);
    } else {
        for (row, index) in screen.visible().enumerate() {
            let line = row_line(screen, index, usize::from(area.width));
            draw_row(buffer, area, row + 1, &line);
        }
        if screen.rows.is_empty() {
            draw_row(buffer, area, 1, &Line::raw("  no hunks to show"));
        }
    }
    let (status, keys) = footer(screen, usize::from(area.width));
    draw_row(buffer, area, usize::from(area.height) - 2, &status);
    draw_row(buffer, area, usize::from(area.height) - 1, &keys);
}

fn draw_row(buffer: &mut Buffer, area: Rect, row: usize, line: &Line<'_>) {
    let Ok(row) = u16::try_from(row) else { return };
    if row < area.height {
        buffer.set_line(area.x, area.y + row, line, area.width);
    }
}

fn header(screen: &ReviewScreen, width: usize) -> Line<'static> {
    let review = &screen.review;
    let (number, sessions) = screen.position;
    let view = &review.view;
    let start = match sessions {
        1 => String::new(),
        _ => format!("{number} of {sessions}  "),
    };
    let start = format!("{start}{} ({})  ", view.record.id, view.state.name());
    let mut end = count(review.hunks.len(), "hunk");
    for (decision, mark) in
        [(HunkDecision::Accepted, "accepted"), (HunkDecision::Returned, "returned")]
    {
        let hunks = review.count(decision);
        if hunks > 0 {
            end.push_str(&format!(", {hunks} {mark}"));
        }
    }
    if !review.comments.is_empty() {
        let unsent = review.unsent_comments().count();
        end.push_str(&format!(", {}", count(review.comments.len(), "comment")));
        if unsent < review.comments.len() {
            end.push_str(&format!(" ({unsent} not sent)"));
        }
    }
    if review.older_hunks > 0 {
        end.push_str(&format!(", {} older", review.older_hunks));
    }
    let start = cut_columns(&start, width.saturating_sub(columns(&end)).max(width / 3));
    let gap = width.saturating_sub(columns(&start) + columns(&end));
    let text = cut_columns(&format!("{start}{}{end}", " ".repeat(gap)), width);
    Line::styled(text, Style::new().add_modifier(Modifier::REVERSED))
}

/// Returns the last two rows: a message, a question or the place; and the keys.
fn footer(screen: &ReviewScreen, width: usize) -> (Line<'static>, Line<'static>) {
    let keys = Line::styled(keys::footer(width), Style::new().add_modifier(Modifier::DIM));
    match &screen.mode {
        ReviewMode::Comment { target, text } => {
            let place = match target {
                CommentTarget::New { hunk, lines } => {
                    let anchor = screen.review.anchor(*hunk, lines.0..=lines.1);
                    match (anchor.first, anchor.last) {
                        (0, _) => "file".to_owned(),
                        (first, last) if first == last => format!("line {first}"),
                        (first, last) => format!("lines {first}-{last}"),
                    }
                }
                CommentTarget::Existing { number, .. } => format!("comment {number}"),
            };
            let prompt = format!("{place}> ");
            // The end of a long text stays visible.
            let room = width.saturating_sub(columns(&prompt) + 1).max(1);
            let mut shown = printable(text);
            while columns(&shown) > room {
                shown.remove(0);
            }
            let bold = Style::new().add_modifier(Modifier::BOLD);
            let cursor = Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED));
            let line = Line::from(vec![Span::styled(prompt, bold), Span::raw(shown), cursor]);
            (line, Line::raw("Enter saves   Esc cancels   Ctrl-U clears"))
        }
        ReviewMode::Confirm { question, .. } => {
            let bold = Style::new().add_modifier(Modifier::BOLD);
            (Line::styled(cut_columns(question, width), bold), keys)
        }
        ReviewMode::Help(_) => {
            (Line::raw("down and up scroll; any other key closes the help"), keys)
        }
        ReviewMode::Browse if !screen.message.is_empty() => {
            let text = printable(&screen.message).replace('\n', " ");
            let bold = Style::new().add_modifier(Modifier::BOLD);
            (Line::styled(cut_columns(&text, width), bold), keys)
        }
        ReviewMode::Browse => (Line::raw(cut_columns(&place(screen), width)), keys),
    }
}

/// Returns the place of the cursor, for the row above the keys.
fn place(screen: &ReviewScreen) -> String {
    let Some(hunk) = screen.current_hunk() else { return String::new() };
    let selected = if screen.selection.is_some() { "  selecting lines" } else { "" };
    let column = match screen.column {
        0 => String::new(),
        column => format!("  from column {}", column + 1),
    };
    format!("hunk {} of {}{selected}{column}", hunk + 1, screen.review.hunks.len())
}

fn row_line(screen: &ReviewScreen, index: usize, width: usize) -> Line<'static> {
    let row = &screen.rows[index];
    let is_cursor = index == screen.cursor;
    let is_selected = screen
        .selection
        .is_some_and(|from| (from.min(screen.cursor)..=from.max(screen.cursor)).contains(&index));
    let mark = if is_cursor {
        ">"
    } else if is_selected {
        "|"
    } else {
        " "
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut parts = vec![Span::styled(mark, bold)];
    let room = width.saturating_sub(1);
    match row {
        ReviewRow::Blank => {}
        ReviewRow::Title(hunk) => parts.extend(title(screen, *hunk, room)),
        ReviewRow::Risk(hunk) => {
            let text = risk_text(screen, *hunk);
            parts.push(Span::raw(cut_columns(&format!("  {text}"), room)));
        }
        ReviewRow::Note(_, text) => parts.push(Span::raw(cut_columns(&format!("  {text}"), room))),
        ReviewRow::Header(hunk) => {
            let text = printable(&screen.review.hunks[*hunk].hunk.header());
            let style = colour(screen, Color::Cyan);
            parts.push(Span::styled(cut_columns(&text, room), style));
        }
        ReviewRow::Line(hunk, line) => {
            parts.extend(code_line(screen, (*hunk, *line), DiffSide::New, room))
        }
        ReviewRow::Pair(hunk, old, new) => {
            let half = room.saturating_sub(3) / 2;
            let mut left = old
                .map_or(Vec::new(), |line| code_line(screen, (*hunk, line), DiffSide::Old, half));
            let used: usize = left.iter().map(|span| columns(&span.content)).sum();
            left.push(Span::raw(format!("{} | ", " ".repeat(half.saturating_sub(used)))));
            parts.extend(left);
            parts.extend(
                new.map_or(Vec::new(), |line| {
                    code_line(screen, (*hunk, line), DiffSide::New, half)
                }),
            );
        }
        ReviewRow::Comment(_, _, text) => {
            let style = Style::new().add_modifier(Modifier::ITALIC);
            let style = if screen.colours { style.fg(Color::Yellow) } else { style };
            parts.push(Span::styled(cut_columns(&format!("    # {text}"), room), style));
        }
    }
    Line::from(parts)
}

fn colour(screen: &ReviewScreen, colour: Color) -> Style {
    if screen.colours { Style::new().fg(colour) } else { Style::new() }
}

fn title(screen: &ReviewScreen, hunk: usize, room: usize) -> Vec<Span<'static>> {
    let it = &screen.review.hunks[hunk];
    let (mark, style) = match it.decision {
        HunkDecision::Undecided => ("[ ]", Style::new()),
        HunkDecision::Accepted => ("[accepted]", colour(screen, Color::Green)),
        HunkDecision::Returned if it.is_sent => ("[returned, sent]", colour(screen, Color::Red)),
        HunkDecision::Returned => ("[returned]", colour(screen, Color::Red)),
    };
    let (added, removed) = it.hunk.line_counts();
    let folded = if screen.is_folded(hunk) { "  folded" } else { "" };
    let end = format!("  +{added} -{removed}{folded}");
    let name = printable(&file_name(&screen.review.files[it.file]));
    let name = cut_columns(&name, room.saturating_sub(columns(mark) + 1 + columns(&end)).max(8));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    vec![
        Span::styled(mark, style.add_modifier(Modifier::BOLD)),
        Span::styled(format!(" {name}"), bold),
        Span::raw(end),
    ]
}

fn risk_text(screen: &ReviewScreen, hunk: usize) -> String {
    let it = &screen.review.hunks[hunk];
    let reasons = it.mechanical.map(|it| it.text().to_owned()).into_iter();
    let reasons = reasons.chain(it.risk.reasons.iter().map(|reason| reason.text.clone()));
    let reasons: Vec<String> = reasons.map(|reason| printable(&reason)).collect();
    match reasons.as_slice() {
        [] => "risk 0".to_owned(),
        reasons => format!("risk {}: {}", it.risk.score, reasons.join("; ")),
    }
}

fn code_line(
    screen: &ReviewScreen,
    (hunk, index): (usize, usize),
    side: DiffSide,
    room: usize,
) -> Vec<Span<'static>> {
    let line: &DiffLine = &screen.review.hunks[hunk].hunk.lines[index];
    let (sign, change) = match line.origin {
        LineOrigin::Context => (" ", None),
        LineOrigin::Removed => ("-", Some(Color::Red)),
        LineOrigin::Added => ("+", Some(Color::Green)),
    };
    let number = match side {
        DiffSide::Old => line.old.or(line.new),
        DiffSide::New => line.new.or(line.old),
    };
    let number = number.unwrap_or_default();
    let marks = screen.marks.get(&hunk);
    let syntax = marks.and_then(|marks| marks.syntax.as_ref()).and_then(|lines| lines.get(index));
    let line_marks = LineMarks {
        syntax: syntax.map(Vec::as_slice),
        words: marks.and_then(|marks| marks.words.get(&index)).map_or(&[], Vec::as_slice),
        change,
        colours: screen.colours,
    };
    let sign_style = change.map_or(Style::new(), |change| colour(screen, change));
    let dim = Style::new().add_modifier(Modifier::DIM);
    let mut parts = vec![
        Span::styled(format!("{number:>NUMBER_COLUMNS$} "), dim),
        Span::styled(sign, sign_style.add_modifier(Modifier::BOLD)),
    ];
    let room = room.saturating_sub(NUMBER_COLUMNS + 2);
    parts.extend(spans(&line.text, line_marks, screen.column, room));
    parts
}

/// The columns of one of two columns of the help.
const HELP_COLUMNS: usize = 40;

fn draw_help(first: usize, area: Rect, buffer: &mut Buffer) {
    let rows = usize::from(area.height.saturating_sub(3));
    let text = |key: &keys::KeyBinding| format!("  {:<6} {}", key.label, key.help);
    let lines: Vec<String> = match usize::from(area.width) >= 2 * HELP_COLUMNS {
        true => {
            let (left, right) = KEYS.split_at(KEYS.len().div_ceil(2));
            let right = right.iter().map(text).chain(std::iter::once(String::new()));
            let pairs = left.iter().map(text).zip(right);
            pairs.map(|(left, right)| format!("{left:<HELP_COLUMNS$}{right}")).collect()
        }
        false => KEYS.iter().map(text).collect(),
    };
    let first = first.min(lines.len().saturating_sub(rows));
    for (row, line) in lines.into_iter().skip(first).take(rows).enumerate() {
        draw_row(buffer, area, row + 1, &Line::raw(line));
    }
}
