//! The list of sessions: fits the terminal, sorted by urgency, without truncating anything that the
//! user types.

use std::collections::BTreeMap;

use base::id::Id;
use base::parallel;
use base::text::{columns, cut_columns, printable};
use jiff::Timestamp;

use crate::report::table::{age, agent, changes};
use studio_core::session::id::shortest_prefix;
use studio_core::session::state::SessionState;
use studio_core::session::summary::Unchecked;
use studio_core::session_view::SessionView;

/// The gap between two columns.
const GAP: usize = 2;
/// Minimum width of the task column in the table layout.
const MIN_TASK_WIDTH: usize = 10;
/// The width of the task column from which ids are written in full.
const FULL_TASK_WIDTH: usize = 36;
/// The minimum number of sessions for formatting them on several threads.
const MIN_SESSIONS_PER_THREAD: usize = 100;
/// Maximum length of a command that is printed when space is limited.
const MAX_COMMAND_WIDTH: usize = 32;

const DIM: &str = "\u{1b}[2m";
const BOLD: &str = "\u{1b}[1m";
const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const CYAN: &str = "\u{1b}[36m";
const RESET: &str = "\u{1b}[m";

/// The layout of the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListLayout {
    /// The number of columns.
    pub width: usize,
    /// The number of lines, if it is limited.
    pub height: Option<usize>,
    /// Whether to use colours.
    pub colours: bool,
}

/// Returns the lines of the list, the most urgent sessions first; `ids` has the ids of all
/// sessions, sorted.
pub(crate) fn sessions(
    views: &[SessionView],
    ids: &[Id],
    now: Timestamp,
    layout: ListLayout,
) -> String {
    let mut views: Vec<&SessionView> = views.iter().collect();
    views.sort_by_key(|view| rank(view));
    let mut rows = parallel::map(&views, MIN_SESSIONS_PER_THREAD, |view| Row::full(view, now));
    let mut widths = Widths::of(&rows, layout.width).filter(|it| it.task >= FULL_TASK_WIDTH);
    if widths.is_none() {
        rows.iter_mut().zip(&views).for_each(|(row, view)| row.shorten(view, ids));
        widths = Widths::of(&rows, layout.width);
    }
    let mut lines: Vec<String> = widths.iter().map(|it| it.header(layout)).collect();
    let format = |row: &Row| row.lines(widths.as_ref(), layout);
    let blocks = parallel::map(&rows, MIN_SESSIONS_PER_THREAD, format);
    // The summary line and the next prompt take a line each.
    let max_lines =
        layout.height.map_or(usize::MAX, |height| height.saturating_sub(lines.len() + 2));
    let total: usize = blocks.iter().map(Vec::len).sum();
    let mut used = 0;
    let mut fits = |block: &Vec<String>| {
        used += block.len();
        total <= max_lines || used <= max_lines
    };
    let count = blocks.iter().take_while(|block| fits(block)).count();
    lines.extend(blocks.into_iter().take(count).flatten());
    if count < views.len() {
        lines.push(cut_columns(&summarize(&views[count..]), layout.width));
    }
    lines.join("\n")
}

/// Returns the summary line: `… 7 more: 4 working, 3 queued`.
fn summarize(views: &[&SessionView]) -> String {
    let mut states: BTreeMap<u8, (&str, usize)> = BTreeMap::new();
    for view in views {
        states.entry(rank(view)).or_insert((view.state.name(), 0)).1 += 1;
    }
    let states = states.values().map(|(name, n)| format!("{n} {name}"));
    format!("… {} more: {}", views.len(), states.collect::<Vec<_>>().join(", "))
}

/// Returns the sort key of a session: those that need the user come first.
fn rank(view: &SessionView) -> u8 {
    match &view.state {
        SessionState::Waiting { .. } if !view.facts.summary.open_requests.is_empty() => 0,
        SessionState::Failed { .. } => 1,
        SessionState::Crashed => 2,
        SessionState::Ready => 3,
        SessionState::Stopped => 4,
        SessionState::Empty => 5,
        SessionState::Waiting { .. } => 6,
        SessionState::Checking => 7,
        SessionState::Working => 8,
        SessionState::Starting => 9,
        SessionState::Landing => 10,
        SessionState::Queued => 11,
        SessionState::Accepted => 12,
        SessionState::Discarded => 13,
    }
}

/// The cells of a session.
struct Row {
    id: String,
    state: String,
    style: &'static str,
    task: String,
    agent: String,
    changes: String,
    age: String,
    reason: Option<String>,
    next: String,
    /// The command if the next one is too long.
    short_next: String,
}

impl Row {
    /// Creates a row with the whole id.
    fn full(view: &SessionView, now: Timestamp) -> Row {
        let has_warning = view.conflict_text().is_some() || view.tampered.is_some();
        let mark = if has_warning { " (!)" } else { "" };
        let one_line =
            |text: &str| printable(text).split_whitespace().collect::<Vec<_>>().join(" ");
        let mut row = Row {
            id: String::new(),
            state: format!("{}{mark}", view.state_with_place()),
            style: if has_warning { YELLOW } else { style(&view.state) },
            task: match view.attempt_number() {
                Some(number) => format!("{number}: {}", one_line(&view.record.task)),
                None => one_line(&view.record.task),
            },
            agent: one_line(&agent(&view.record)),
            changes: changes(view),
            age: age(&view.record.created_at, now),
            reason: reason(view).map(|text| one_line(&text)),
            next: String::new(),
            short_next: String::new(),
        };
        row.name(view, view.record.id.as_str());
        row
    }

    /// Replaces the id by its shortest unique prefix, and leaves out details that `status` shows.
    fn shorten(&mut self, view: &SessionView, ids: &[Id]) {
        self.name(view, shortest_prefix(&view.record.id, ids));
        if let Some(work) = view.work() {
            let dirty = if work.dirty { "*" } else { "" };
            self.changes = format!("+{} -{}{dirty}", work.insertions, work.deletions);
        }
        if columns(&self.next) > MAX_COMMAND_WIDTH {
            self.next.clone_from(&self.short_next);
        }
    }

    /// Sets the id and the commands that contain it.
    fn name(&mut self, view: &SessionView, id: &str) {
        id.clone_into(&mut self.id);
        self.next = view.next_commands(id).into_iter().next().unwrap_or_default();
        self.short_next = short_command(view, id);
    }

    /// Returns one line, or several if the page is too narrow; then the reason.
    fn lines(&self, widths: Option<&Widths>, layout: ListLayout) -> Vec<String> {
        let width = layout.width.saturating_sub(GAP);
        let indented = |style: &str, text: &str| {
            format!("{:GAP$}{}", "", layout.styled(style, &cut_columns(text, width)))
        };
        let reason = self.reason.as_ref().map(|text| indented(self.style, text));
        let mut lines = match widths {
            Some(widths) => vec![widths.row(self, layout)],
            None => {
                let state = layout.styled(self.style, &self.state);
                let head = format!("{}  {state}  {}", layout.styled(BOLD, &self.id), self.age);
                vec![head, indented("", &format!("{}  {}", self.changes, self.task))]
            }
        };
        lines.extend(reason);
        if widths.is_none() && !self.next.is_empty() {
            let too_long = columns(&self.next) > width;
            lines.push(indented("", if too_long { &self.short_next } else { &self.next }));
        }
        lines
    }
}

/// Returns the command for a session whose next command does not fit.
fn short_command(view: &SessionView, id: &str) -> String {
    match view.open_request() {
        Some(_) => "studio inbox".to_owned(),
        None => format!("studio status {id}"),
    }
}

/// Returns the reason for a session's state, if it is worth a line.
fn reason(view: &SessionView) -> Option<String> {
    if let Some(clause) = view.landed_elsewhere().filter(|_| !view.state.is_over()) {
        return Some(format!("landed elsewhere: {clause}"));
    }
    if view.state == SessionState::Ready
        && let Some(text) = view.conflict_text()
    {
        return Some(text);
    }
    let summary = &view.facts.summary;
    let has_reason = match &view.state {
        SessionState::Waiting { .. } | SessionState::Failed { .. } => true,
        SessionState::Stopped => {
            matches!(summary.unchecked, Some(Unchecked::ChangedByHand | Unchecked::OtherChecks))
        }
        SessionState::Empty => view.work().is_some_and(|work| !work.omitted.is_empty()),
        SessionState::Queued => view.is_blocked(),
        SessionState::Starting
        | SessionState::Working
        | SessionState::Checking
        | SessionState::Ready
        | SessionState::Crashed
        | SessionState::Landing
        | SessionState::Accepted
        | SessionState::Discarded => false,
    };
    let has_reason = has_reason || view.placement_reason().is_some();
    let conflict = || view.conflict_text().filter(|_| !view.state.is_over());
    view.reason().filter(|_| has_reason).or_else(conflict)
}

fn style(state: &SessionState) -> &'static str {
    match state {
        SessionState::Failed { .. } | SessionState::Crashed => RED,
        SessionState::Waiting { .. } => YELLOW,
        SessionState::Ready => GREEN,
        SessionState::Starting
        | SessionState::Working
        | SessionState::Checking
        | SessionState::Landing => CYAN,
        SessionState::Queued | SessionState::Stopped | SessionState::Empty => "",
        SessionState::Accepted | SessionState::Discarded => DIM,
    }
}

/// The widths of the columns in the table layout.
struct Widths {
    id: usize,
    state: usize,
    task: usize,
    agent: Option<usize>,
    changes: usize,
    age: usize,
}

impl Widths {
    /// Returns `None` if the page is too narrow.
    fn of(rows: &[Row], width: usize) -> Option<Widths> {
        let widest = |header: &str, cell: fn(&Row) -> &String| {
            let cells = rows.iter().map(|row| columns(cell(row)));
            cells.max().unwrap_or_default().max(header.len())
        };
        let (id, state) = (widest("ID", |row| &row.id), widest("STATE", |row| &row.state));
        let (changes, age) = (widest("CHANGES", |row| &row.changes), widest("AGE", |row| &row.age));
        let next = widest("NEXT", |row| &row.next);
        let agent = widest("AGENT", |row| &row.agent);
        let remaining = width.checked_sub(id + state + changes + age + next + 5 * GAP)?;
        let beside_agent =
            remaining.checked_sub(agent + GAP).filter(|task| *task >= FULL_TASK_WIDTH);
        let widest_task = widest("TASK", |row| &row.task);
        let task = beside_agent.unwrap_or(remaining).min(widest_task);
        let agent = beside_agent.map(|_| agent);
        (remaining >= MIN_TASK_WIDTH.min(widest_task)).then_some(Widths {
            id,
            state,
            task,
            agent,
            changes,
            age,
        })
    }

    fn header(&self, layout: ListLayout) -> String {
        let agent = self.agent.map(|width| format!("{:width$}  ", "AGENT")).unwrap_or_default();
        let Widths { id, state, task, changes, age, .. } = *self;
        let line = format!(
            "{:id$}  {:state$}  {:task$}  {agent}{:changes$}  {:age$}  NEXT",
            "ID", "STATE", "TASK", "CHANGES", "AGE"
        );
        layout.styled(DIM, &line)
    }

    fn row(&self, row: &Row, layout: ListLayout) -> String {
        let agent = self.agent.map(|width| format!("{}  ", padded(&row.agent, width)));
        let line = format!(
            "{}  {}  {}  {}{}  {}  {}",
            layout.styled(BOLD, &padded(&row.id, self.id)),
            layout.styled(row.style, &padded(&row.state, self.state)),
            padded(&cut_columns(&row.task, self.task), self.task),
            agent.unwrap_or_default(),
            padded(&row.changes, self.changes),
            padded(&row.age, self.age),
            row.next
        );
        line.trim_end().to_owned()
    }
}

impl ListLayout {
    fn styled(self, style: &str, text: &str) -> String {
        match self.colours && !style.is_empty() {
            true => format!("{style}{text}{RESET}"),
            false => text.to_owned(),
        }
    }
}

fn padded(text: &str, width: usize) -> String {
    format!("{text}{:1$}", "", width.saturating_sub(columns(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_padded_by_columns() {
        assert_eq!(padded("漢", 4), "漢  ");
    }
}
