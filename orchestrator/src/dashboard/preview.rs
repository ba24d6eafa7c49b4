//! The preview of the selected session: its timeline, its diff or its log, as lines that fit.

use base::text::{columns, printable, printable_output};
use studio_core::timeline::{Timeline, TimelineEntry, TimelineKind};
use unicode_width::UnicodeWidthChar;

use crate::report::journal;

/// Maximum number of entries, and of lines of a diff or a log, that a preview shows.
const MAX_ENTRIES: usize = 500;
const MAX_LINES: usize = 5000;
/// Maximum number of lines of one entry.
const MAX_ENTRY_LINES: usize = 40;
/// The columns of the time before an entry.
const TIME_COLUMNS: usize = 10;

/// What the preview shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreviewTab {
    Timeline,
    Diff,
    Log,
}

impl PreviewTab {
    /// All previews, in the order of their keys.
    pub(crate) const ALL: [PreviewTab; 3] =
        [PreviewTab::Timeline, PreviewTab::Diff, PreviewTab::Log];

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PreviewTab::Timeline => "timeline",
            PreviewTab::Diff => "diff",
            PreviewTab::Log => "log",
        }
    }

    /// Returns the next one; the first one after the last.
    pub(crate) fn next(self) -> PreviewTab {
        match self {
            PreviewTab::Timeline => PreviewTab::Diff,
            PreviewTab::Diff => PreviewTab::Log,
            PreviewTab::Log => PreviewTab::Timeline,
        }
    }
}

/// The content of the previews of the selected session.
#[derive(Clone, Debug, Default)]
pub(crate) struct PreviewContent {
    /// The timeline.
    pub timeline: Timeline,
    /// The lines of the log.
    pub log: Vec<String>,
    /// The patch, or why it cannot be shown; `None` until it is read.
    pub diff: Option<Result<String, String>>,
    /// The permission request, if one is selected.
    pub request: Option<RequestText>,
}

/// A permission request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestText {
    /// The words before it.
    pub head: String,
    /// The agent and the directory.
    pub place: String,
    /// What the key for always does.
    pub always_text: &'static str,
    /// How to deny a host in all sessions.
    pub never_hint: Option<String>,
    /// The requested action, complete.
    pub description: String,
}

/// The appearance of a text: never the only difference, since colours may be off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Dim,
    Bold,
    Good,
    Bad,
    Attention,
    Active,
}

/// A line of a preview.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreviewLine {
    /// The time; only on the first line of an entry.
    pub time: Option<String>,
    /// The text; safe for display, and not wider than the preview.
    pub text: String,
    /// Its appearance.
    pub tone: Tone,
}

impl PreviewLine {
    fn new(text: impl Into<String>, tone: Tone) -> PreviewLine {
        PreviewLine { time: None, text: text.into(), tone }
    }
}

/// The lines of a preview, and how many of them belong to the permission request.
pub(crate) struct PreviewLines {
    /// The lines.
    pub lines: Vec<PreviewLine>,
    /// The number of lines up to the end of the request; 0 without one.
    pub request_lines: usize,
}

/// Returns the lines of a preview of this width.
pub(crate) fn lines(content: &PreviewContent, tab: PreviewTab, width: usize) -> PreviewLines {
    let mut request_lines = 0;
    let lines = match tab {
        PreviewTab::Timeline => {
            let mut lines = Vec::new();
            if let Some(request) = &content.request {
                lines.extend(request_text(request, width));
                request_lines = lines.len();
                lines.push(PreviewLine::new("", Tone::Plain));
            }
            let entries = content.timeline.entries();
            let skipped = entries.len().saturating_sub(MAX_ENTRIES);
            lines.extend(entries[skipped..].iter().flat_map(|it| entry_lines(it, width)));
            lines
        }
        PreviewTab::Diff => match &content.diff {
            None => vec![PreviewLine::new("reading the changes …", Tone::Dim)],
            Some(Err(why)) => wrapped(why, width, Tone::Plain),
            Some(Ok(patch)) if patch.is_empty() => {
                vec![PreviewLine::new("no changes", Tone::Dim)]
            }
            Some(Ok(patch)) => patch_lines(patch, width),
        },
        PreviewTab::Log => {
            let skipped = content.log.len().saturating_sub(MAX_LINES);
            let lines = content.log[skipped..].iter();
            lines.flat_map(|line| wrapped(line, width, Tone::Plain)).collect()
        }
    };
    PreviewLines { lines, request_lines }
}

fn request_text(request: &RequestText, width: usize) -> Vec<PreviewLine> {
    let mut lines = wrapped(&request.head, width, Tone::Bold);
    for line in printable(&request.description).split('\n') {
        let parts = wrap(line, width.saturating_sub(2));
        lines.extend(parts.iter().map(|it| PreviewLine::new(format!("  {it}"), Tone::Attention)));
    }
    lines.extend(wrapped(&request.place, width, Tone::Plain));
    lines.push(PreviewLine::new("", Tone::Plain));
    let keys = format!("y allow   n deny   a {}", request.always_text);
    lines.extend(wrapped(&keys, width, Tone::Bold));
    let hint = request.never_hint.iter();
    lines.extend(hint.flat_map(|hint| wrapped(hint, width, Tone::Plain)));
    lines
}

fn entry_lines(entry: &TimelineEntry, width: usize) -> Vec<PreviewLine> {
    let tone = match entry.kind {
        TimelineKind::User => Tone::Bold,
        TimelineKind::Call { ok: None } => Tone::Active,
        TimelineKind::Request => Tone::Attention,
        TimelineKind::Answer { allow: true } | TimelineKind::Check { ok: true } => Tone::Good,
        TimelineKind::Call { ok: Some(false) }
        | TimelineKind::Answer { allow: false }
        | TimelineKind::Check { ok: false }
        | TimelineKind::Error => Tone::Bad,
        TimelineKind::Call { ok: Some(true) } | TimelineKind::State | TimelineKind::Turn => {
            Tone::Dim
        }
        TimelineKind::Agent | TimelineKind::Work | TimelineKind::Note => Tone::Plain,
    };
    let prefix = journal::prefix(entry.kind);
    let text = printable_output(&format!("{prefix}{}", entry.text));
    let width = width.saturating_sub(TIME_COLUMNS);
    let mut lines: Vec<PreviewLine> = text
        .split('\n')
        .flat_map(|line| wrap(line, width))
        .take(MAX_ENTRY_LINES + 1)
        .map(|line| PreviewLine::new(format!("{:TIME_COLUMNS$}{line}", ""), tone))
        .collect();
    if lines.len() > MAX_ENTRY_LINES {
        lines.pop();
        lines.push(PreviewLine::new(format!("{:TIME_COLUMNS$}…", ""), Tone::Dim));
    }
    if let Some(first) = lines.first_mut() {
        first.time = entry.time.get(11..19).map(str::to_owned);
    }
    lines
}

fn patch_lines(patch: &str, width: usize) -> Vec<PreviewLine> {
    let mut lines: Vec<PreviewLine> = patch
        .lines()
        .take(MAX_LINES)
        .flat_map(|line| {
            let tone = match line.as_bytes() {
                [b'd', b'i', b'f', b'f', b' ', ..] => Tone::Bold,
                [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => Tone::Dim,
                [b'+', ..] => Tone::Good,
                [b'-', ..] => Tone::Bad,
                [b'@', b'@', ..] => Tone::Active,
                _ => Tone::Plain,
            };
            wrapped(line, width, tone)
        })
        .collect();
    if patch.lines().nth(MAX_LINES).is_some() {
        lines.push(PreviewLine::new("… more: d shows all in the pager", Tone::Dim));
    }
    lines
}

fn wrapped(text: &str, width: usize, tone: Tone) -> Vec<PreviewLine> {
    let text = printable_output(text);
    text.split('\n')
        .flat_map(|line| wrap(line, width))
        .map(|it| PreviewLine::new(it, tone))
        .collect()
}

/// Breaks a line into parts of at most `width` columns, after a space if there is one in the second
/// half. No character is dropped; a tab becomes spaces.
pub(crate) fn wrap(line: &str, width: usize) -> Vec<String> {
    let width = width.max(4);
    let line = line.replace('\t', "    ");
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut used = 0;
    for c in line.chars() {
        let next = c.width().unwrap_or(0);
        if used + next > width {
            let at = part.rfind(' ').map(|at| at + 1);
            let at = at.filter(|at| columns(&part[..*at]) * 2 > width).unwrap_or(part.len());
            let rest = part.split_off(at);
            parts.push(std::mem::replace(&mut part, rest));
            used = columns(&part);
        }
        part.push(c);
        used += next;
    }
    parts.push(part);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_break_after_spaces_and_lose_nothing() {
        assert_eq!(wrap("", 10), [""]);
        assert_eq!(wrap("one two three", 9), ["one two ", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("数据库数据", 5), ["数据", "库数", "据"]);
    }

    proptest! {
        #[test]
        fn wrapped_lines_fit_and_are_complete(text in "[ a-z数é]{0,60}", width in 4usize..20) {
            let parts = wrap(&text, width);
            prop_assert_eq!(parts.concat(), text);
            prop_assert!(parts.iter().all(|part| columns(part) <= width));
        }
    }
}
