//! Draws the dashboard: the state and the time become cells of the screen.

use base::text::{columns, cut_columns, printable};
use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use studio_core::overview::{OverviewRow, RowKey, SessionGroup};
use studio_core::session::state::SessionState;

use crate::dashboard::actions::Verb;
use crate::dashboard::keys::{Action, BINDINGS, Binding};
use crate::dashboard::line_input::LineInput;
use crate::dashboard::preview::{self, PreviewTab, Tone};
use crate::dashboard::state::{Dashboard, DashboardMode};
use crate::report::table::age;

/// The width from which the preview is beside the list instead of below it.
const MIN_WIDTH_BESIDE: u16 = 120;
/// The height from which the preview is below the list; on smaller screens it is shown alone.
const MIN_HEIGHT_BELOW: u16 = 14;
/// The width from which the number of hidden rows has words.
const MIN_WIDTH_OF_WORDS: u16 = 60;
/// The columns of a state, and of an age.
const STATE_COLUMNS: u16 = 10;
const AGE_COLUMNS: u16 = 4;
/// The columns of the keys in the help.
const KEY_COLUMNS: usize = 22;
/// Maximum columns of an id.
const MAX_ID_COLUMNS: usize = 14;

/// What is at a place of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    /// A row of the list.
    Row(RowKey),
    /// The list.
    List,
    /// The preview.
    Preview,
    /// The title of a preview, or a key of the footer.
    Button(Action),
}

/// What the event loop needs to know about a drawn screen.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    /// The places that react to the mouse; later ones are above earlier ones.
    pub hits: Vec<(Rect, Hit)>,
    /// The permission request whose end is visible.
    pub request: Option<RowKey>,
    /// The greatest distance that the preview can be scrolled.
    pub max_scroll: usize,
    /// The height of the preview's text.
    pub preview_lines: usize,
    /// The text cursor.
    pub cursor: Option<Position>,
    /// The times whose ages are shown, and the shown ages.
    pub since: Vec<(String, String)>,
}

impl Drawn {
    /// Returns what is at a place.
    pub(crate) fn at(&self, column: u16, row: u16) -> Option<&Hit> {
        let position = Position::new(column, row);
        self.hits.iter().rev().find(|(area, _)| area.contains(position)).map(|(_, hit)| hit)
    }
}

/// Draws the dashboard into a buffer.
pub(crate) fn draw(state: &Dashboard, now: Timestamp, buf: &mut Buffer) -> Drawn {
    let area = buf.area;
    let mut canvas = Canvas { buf, colours: state.colours, drawn: Drawn::default() };
    if area.width < 10 || area.height < 4 {
        return canvas.drawn;
    }
    canvas.header(state, Rect { height: 1, ..area });
    let body = Rect { y: area.y + 1, height: area.height - 3, ..area };
    let (list, preview) = split(state, body);
    if let Some(list) = list {
        canvas.list(state, now, list);
    }
    if let Some(preview) = preview {
        canvas.preview(state, now, preview, list.is_some());
    }
    let status = Rect { y: area.bottom() - 2, height: 1, ..area };
    canvas.status(state, status);
    canvas.footer(state, Rect { y: area.bottom() - 1, height: 1, ..area });
    match &state.mode {
        DashboardMode::Help(scroll) => canvas.help(*scroll, body),
        DashboardMode::Failure(text) => canvas.failure(text, body),
        DashboardMode::Browse
        | DashboardMode::Filter(_)
        | DashboardMode::Message(..)
        | DashboardMode::Confirm(..) => {}
    }
    canvas.drawn
}

/// Returns the places of the list and of the preview.
fn split(state: &Dashboard, body: Rect) -> (Option<Rect>, Option<Rect>) {
    if state.is_enlarged {
        return (None, Some(body));
    }
    if body.width >= MIN_WIDTH_BESIDE {
        let width = body.width / 2 - 1;
        let preview = Rect { x: body.x + width + 1, width: body.width - width - 1, ..body };
        return (Some(Rect { width, ..body }), Some(preview));
    }
    if body.height < MIN_HEIGHT_BELOW {
        return (Some(body), None);
    }
    let wanted = u16::try_from(list_lines(&state.rows()).len()).unwrap_or(u16::MAX);
    let height = wanted.clamp(4, body.height / 2);
    let preview = Rect { y: body.y + height, height: body.height - height, ..body };
    (Some(Rect { height, ..body }), Some(preview))
}

/// A line of the list.
enum ListLine<'r> {
    Title(SessionGroup, usize),
    Row(&'r OverviewRow),
}

impl<'r> ListLine<'r> {
    fn row(&self) -> Option<&'r OverviewRow> {
        match self {
            ListLine::Row(row) => Some(row),
            ListLine::Title(..) => None,
        }
    }
}

fn list_lines<'r>(rows: &[&'r OverviewRow]) -> Vec<ListLine<'r>> {
    let mut lines = Vec::with_capacity(rows.len() + SessionGroup::ALL.len());
    for group in SessionGroup::ALL {
        let in_group = || rows.iter().filter(|row| row.group == group);
        let count = in_group().count();
        if count > 0 {
            lines.push(ListLine::Title(group, count));
            lines.extend(in_group().map(|row| ListLine::Row(row)));
        }
    }
    lines
}

/// The buffer, and what was drawn.
struct Canvas<'b> {
    buf: &'b mut Buffer,
    colours: bool,
    drawn: Drawn,
}

impl Canvas<'_> {
    /// Writes a text into a line, safe and cut to the width; returns the columns used.
    fn put(&mut self, at: Rect, text: &str, style: Style) -> u16 {
        if at.width == 0 || at.y >= self.buf.area.bottom() || at.x >= self.buf.area.right() {
            return 0;
        }
        let text = printable(text).replace(['\n', '\t'], " ");
        let text = cut_columns(&text, usize::from(at.width));
        self.buf.set_stringn(at.x, at.y, &text, usize::from(at.width), style);
        u16::try_from(columns(&text)).unwrap_or(at.width).min(at.width)
    }

    /// Writes texts one after the other; returns the columns used.
    fn put_all(&mut self, at: Rect, parts: &[(&str, Style)]) -> u16 {
        let mut used = 0;
        for (text, style) in parts {
            let rest = Rect { x: at.x + used, width: at.width - used, ..at };
            used += self.put(rest, text, *style);
        }
        used
    }

    fn style(&self, tone: Tone) -> Style {
        let style = Style::new();
        let coloured = |color: Color| if self.colours { style.fg(color) } else { style };
        match tone {
            Tone::Plain => style,
            Tone::Dim => style.add_modifier(Modifier::DIM),
            Tone::Bold => style.add_modifier(Modifier::BOLD),
            Tone::Good => coloured(Color::Green),
            Tone::Bad => coloured(Color::Red),
            Tone::Attention => coloured(Color::Yellow).add_modifier(Modifier::BOLD),
            Tone::Active => coloured(Color::Cyan),
        }
    }

    fn clear(&mut self, area: Rect) {
        for y in area.top()..area.bottom() {
            let blank = " ".repeat(usize::from(area.width));
            self.buf.set_stringn(area.x, y, blank, usize::from(area.width), Style::reset());
        }
    }

    fn header(&mut self, state: &Dashboard, at: Rect) {
        let bold = self.style(Tone::Bold);
        let counts: Vec<String> = SessionGroup::ALL
            .iter()
            .map(|group| (group.title(), state.overview.count(*group)))
            .filter(|(_, count)| *count > 0)
            .map(|(title, count)| format!("{count} {title}"))
            .collect();
        let cost = state.overview.cost_usd().map(|usd| format!("${usd:.2}"));
        let right = counts.into_iter().chain(cost).collect::<Vec<_>>().join("  ");
        let width = u16::try_from(columns(&right)).unwrap_or(at.width).min(at.width);
        let right_at = Rect { x: at.right() - width, width, ..at };
        self.put(right_at, &right, Style::new());
        let rest = Rect { width: (at.width - width).saturating_sub(2), ..at };
        self.put_all(rest, &[("studio ", bold), (&state.title, Style::new())]);
    }

    fn list(&mut self, state: &Dashboard, now: Timestamp, at: Rect) {
        if at.is_empty() {
            return;
        }
        self.drawn.hits.push((at, Hit::List));
        let rows = state.rows();
        if rows.is_empty() {
            let text = match state.overview.rows.is_empty() {
                true => "no sessions yet: t starts one",
                false if state.filter.is_empty() => "no open sessions: h shows the others",
                false => "no session matches the filter: Esc shows all",
            };
            self.put(
                Rect { x: at.x + 2, width: at.width - 2, height: 1, ..at },
                text,
                Style::new(),
            );
            return;
        }
        let lines = list_lines(&rows);
        let is_selected = |row: &OverviewRow| Some(&row.key) == state.selected.as_ref();
        let selected =
            lines.iter().position(|line| matches!(line, ListLine::Row(row) if is_selected(row)));
        let height = usize::from(at.height);
        let middle = selected.unwrap_or_default().saturating_sub(height / 2);
        let first = middle.min(lines.len().saturating_sub(height));
        let shown = &lines[first..lines.len().min(first + height)];
        let columns = ListColumns::of(&rows, at.width);
        let (above, below) = (&lines[..first], &lines[first + shown.len()..]);
        for (index, line) in (0..).zip(shown) {
            let line_at = Rect { y: at.y + index, height: 1, ..at };
            match line {
                ListLine::Title(group, count) => {
                    let title = format!("{} {count}", group.title().to_uppercase());
                    self.put(line_at, &title, self.style(Tone::Bold));
                }
                ListLine::Row(row) => {
                    self.row(state, row, now, &columns, line_at);
                    if is_selected(row) {
                        let style = Style::new().add_modifier(Modifier::REVERSED);
                        self.buf.set_style(line_at, style);
                    }
                    self.drawn.hits.push((line_at, Hit::Row(row.key.clone())));
                }
            }
        }
        self.hidden_rows('↑', above, Rect { height: 1, ..at });
        self.hidden_rows('↓', below, Rect { y: at.bottom() - 1, height: 1, ..at });
    }

    /// Says at the end of a line how many rows are out of sight, and how many of them need the user.
    fn hidden_rows(&mut self, arrow: char, hidden: &[ListLine<'_>], at: Rect) {
        let rows = || hidden.iter().filter_map(ListLine::row);
        let (count, urgent) =
            (rows().count(), rows().filter(|row| row.group == SessionGroup::NeedsYou).count());
        let is_narrow = at.width < MIN_WIDTH_OF_WORDS;
        let (text, tone) = match (count, urgent) {
            (0, _) => return,
            (count, 0) if is_narrow => (format!(" {arrow}{count}"), Tone::Dim),
            (count, 0) => (format!(" {arrow} {count} more "), Tone::Dim),
            (_, urgent) if is_narrow => (format!(" {arrow}{urgent}"), Tone::Attention),
            (_, urgent) => {
                let title = SessionGroup::NeedsYou.title();
                (format!(" {arrow} {urgent} {title} "), Tone::Attention)
            }
        };
        let width = u16::try_from(columns(&text)).unwrap_or(at.width).min(at.width);
        let end = Rect { x: at.right() - width, width, ..at };
        self.buf.set_style(end, Style::reset());
        self.put(end, &text, self.style(tone));
    }

    fn row(
        &mut self,
        state: &Dashboard,
        row: &OverviewRow,
        now: Timestamp,
        columns: &ListColumns,
        at: Rect,
    ) {
        let is_selected = Some(&row.key) == state.selected.as_ref();
        let mark = match (is_selected, row.is_new) {
            (true, true) => ">*",
            (true, false) => ">",
            (false, true) => " *",
            (false, false) => "",
        };
        let verb = state.running.get(&row.key.id).map(|verb| verb.progress());
        let (name, tone) = match verb {
            Some(verb) => (verb.to_owned(), Tone::Active),
            None => state_name(row),
        };
        let age = age(&row.since, now);
        self.drawn.since.push((row.since.clone(), age.clone()));
        let mut x = at.x;
        let mut cell = |canvas: &mut Canvas<'_>, width: u16, text: &str, style: Style| {
            let end = at.right().min(x + width);
            canvas.put(Rect { x, width: end.saturating_sub(x), ..at }, text, style);
            x = end.saturating_add(1).min(at.right());
        };
        let (plain, dim) = (Style::new(), self.style(Tone::Dim));
        let (bold, toned) = (self.style(Tone::Bold), self.style(tone));
        let id = cut_middle(&row.prefix, usize::from(columns.id));
        cell(self, columns.id + 2, &format!("{mark:<2}{id}"), bold);
        cell(self, STATE_COLUMNS, &name, toned);
        cell(self, AGE_COLUMNS, &age, dim);
        if columns.changes > 0 {
            cell(self, columns.changes, &changes(row), plain);
        }
        if columns.cost > 0 {
            cell(self, columns.cost, &cost(row), plain);
        }
        let text = match row.text.is_empty() {
            true => &row.task,
            false => &row.text,
        };
        cell(self, at.width, text, if row.key.request.is_some() { toned } else { plain });
    }

    fn preview(&mut self, state: &Dashboard, now: Timestamp, at: Rect, beside_list: bool) {
        self.drawn.hits.push((at, Hit::Preview));
        let is_beside = beside_list && at.x > self.buf.area.x;
        let at = match is_beside {
            true => {
                for y in at.top()..at.bottom() {
                    self.put(Rect { y, height: 1, width: 1, ..at }, "│", self.style(Tone::Dim));
                }
                Rect { x: at.x + 2, width: at.width - 2, ..at }
            }
            false => at,
        };
        self.tabs(state, Rect { height: 1, ..at });
        let Some(row) = state.row() else { return };
        let mut top = 1;
        if !state.shows_request() {
            top += self.summary(row, now, Rect { y: at.y + top, height: 1, ..at }, at.height);
        }
        let Some(height) = at.height.checked_sub(top).filter(|height| *height > 0) else { return };
        let text_at = Rect { y: at.y + top, height, ..at };
        self.preview_text(state, text_at);
    }

    /// Draws the task and the next command; returns the number of lines.
    fn summary(&mut self, row: &OverviewRow, _now: Timestamp, at: Rect, height: u16) -> u16 {
        let mut lines = vec![format!("task  {}", row.task)];
        let next = row.next.as_deref().unwrap_or("-");
        lines.push(format!("next  {next}"));
        if let Some(warning) = &row.warning {
            lines.push(format!("warning  {warning}; plain git in its worktree would run it"));
        }
        if !row.conflicts.is_empty() {
            lines.push(format!("conflicts  {}", row.conflicts.join(", ")));
        }
        for other in &row.conflicts_with {
            lines.push(format!("conflicts  with {}: {}", other.id, other.files.join(", ")));
        }
        let max = if height < 8 { 1 } else { lines.len() };
        for (index, line) in (0..).zip(lines.iter().take(max)) {
            self.put(Rect { y: at.y + index, ..at }, line, self.style(Tone::Dim));
        }
        u16::try_from(max).unwrap_or_default()
    }

    fn tabs(&mut self, state: &Dashboard, at: Rect) {
        let dim = self.style(Tone::Dim);
        let line = "─".repeat(usize::from(at.width));
        self.put(at, &line, dim);
        let mut x = at.x;
        for (index, tab) in PreviewTab::ALL.into_iter().enumerate() {
            let name = match tab == state.tab {
                true => format!("[{} {}]", index + 1, tab.name()),
                false => format!(" {} {} ", index + 1, tab.name()),
            };
            let style = if tab == state.tab { self.style(Tone::Bold) } else { Style::new() };
            let width = at.right().saturating_sub(x);
            let used = self.put(Rect { x, width, ..at }, &name, style);
            let action = match tab {
                PreviewTab::Timeline => Action::Timeline,
                PreviewTab::Diff => Action::Diff,
                PreviewTab::Log => Action::Log,
            };
            self.drawn.hits.push((Rect { x, width: used, ..at }, Hit::Button(action)));
            x += used;
        }
        if let Some(row) = state.row() {
            let rest = Rect { x: x + 1, width: at.right().saturating_sub(x + 1), ..at };
            self.put(rest, &format!(" {} ", row.key.id), Style::new());
        }
    }

    fn preview_text(&mut self, state: &Dashboard, at: Rect) {
        let text = preview::lines(&state.preview, state.tab, usize::from(at.width));
        let height = usize::from(at.height);
        let max_scroll = text.lines.len().saturating_sub(height);
        let scroll = state.scroll.min(max_scroll);
        let first = if state.preview_starts_at_end() { max_scroll - scroll } else { scroll };
        self.drawn.max_scroll = max_scroll;
        self.drawn.preview_lines = height;
        for (index, line) in (0..).zip(text.lines.iter().skip(first).take(height)) {
            let line_at = Rect { y: at.y + index, height: 1, ..at };
            let style = self.style(line.tone);
            self.put(line_at, &line.text, style);
            if let Some(time) = &line.time {
                self.put(line_at, time, self.style(Tone::Dim));
            }
        }
        let is_end_shown = text.request_lines > 0 && first + height >= text.request_lines;
        let is_shown = state.shows_request() && state.preview.request.is_some();
        if is_end_shown && is_shown && state.mode == DashboardMode::Browse {
            self.drawn.request.clone_from(&state.selected);
        }
        let hidden = max_scroll - first;
        if hidden > 0 && first + height < text.request_lines {
            let last = Rect { y: at.bottom() - 1, height: 1, ..at };
            self.clear(last);
            let more = format!("… {hidden} more lines: PgDn; the keys answer after the last one");
            self.put(last, &more, self.style(Tone::Attention));
        }
    }

    fn status(&mut self, state: &Dashboard, at: Rect) {
        match &state.mode {
            DashboardMode::Filter(input) => self.input("filter: ", input, at),
            DashboardMode::Message(id, input) => {
                self.input(&format!("message to {id}: "), input, at)
            }
            DashboardMode::Confirm(question, command) => {
                let keys = if command.verb == Verb::Accept { ": A lands it" } else { " [y/N]" };
                self.put(at, &format!("{question}{keys}"), self.style(Tone::Attention));
            }
            DashboardMode::Browse | DashboardMode::Help(_) | DashboardMode::Failure(_) => {
                match &state.status {
                    Some((text, is_error)) => {
                        let tone = if *is_error { Tone::Bad } else { Tone::Plain };
                        self.put(at, text, self.style(tone));
                    }
                    None if !state.filter.is_empty() => {
                        self.put(
                            at,
                            &format!("filter: {}  (Esc shows all)", state.filter),
                            Style::new(),
                        );
                    }
                    None if state.unreadable > 0 => {
                        let text = format!("{} cannot be read: studio doctor", state.unreadable);
                        self.put(at, &text, self.style(Tone::Bad));
                    }
                    None => {}
                }
            }
        }
    }

    /// Draws a line of text that the user edits, with its end before the cursor visible.
    fn input(&mut self, label: &str, input: &LineInput, at: Rect) {
        let used = self.put(at, label, self.style(Tone::Bold));
        let rest = Rect { x: at.x + used, width: at.width - used, ..at };
        let width = usize::from(rest.width).saturating_sub(1);
        let before = printable(&input.text[..input.cursor]).replace(['\n', '\t'], " ");
        let mut start = 0;
        while columns(&before[start..]) > width {
            start += before[start..].chars().next().map_or(1, char::len_utf8);
        }
        let after = &input.text[input.cursor..];
        self.put(rest, &format!("{}{after}", &before[start..]), Style::new());
        let column = u16::try_from(columns(&before[start..])).unwrap_or_default();
        self.drawn.cursor = Some(Position::new(rest.x + column, rest.y));
    }

    fn footer(&mut self, state: &Dashboard, at: Rect) {
        let keys: Vec<(&str, &str)> = match &state.mode {
            DashboardMode::Browse => return self.footer_keys(state, at),
            DashboardMode::Filter(_) => vec![("Enter", "keep"), ("Esc", "show all")],
            DashboardMode::Message(..) => vec![("Enter", "send"), ("Esc", "cancel")],
            DashboardMode::Confirm(_, command) if command.verb == Verb::Accept => {
                vec![("A", "land it"), ("any other key", "no")]
            }
            DashboardMode::Confirm(..) => vec![("y", "yes"), ("any other key", "no")],
            DashboardMode::Help(_) => vec![("j/k", "scroll"), ("any other key", "close")],
            DashboardMode::Failure(_) => vec![("any key", "close")],
        };
        let text: Vec<String> = keys.iter().map(|(key, name)| format!("{key} {name}")).collect();
        self.put(at, &text.join("  "), Style::new());
    }

    /// Draws the keys that apply to the selected row; `help` and `quit` always fit.
    fn footer_keys(&mut self, state: &Dashboard, at: Rect) {
        let row = state.row();
        let named: Vec<&Binding> =
            BINDINGS.iter().filter(|it| !it.name.is_empty() && (it.applies)(row)).collect();
        let label = |binding: &Binding| {
            let key = binding.keys.first().map(|key| key.label()).unwrap_or_default();
            (key, binding.name)
        };
        let width_of = |binding: &Binding| {
            let (key, name) = label(binding);
            u16::try_from(columns(&key) + columns(name) + 3).unwrap_or(u16::MAX)
        };
        let is_fixed = |it: &&&Binding| matches!(it.action, Action::Help | Action::Quit);
        let fixed: u16 = named.iter().filter(is_fixed).map(|it| width_of(it)).sum();
        let mut left = at.width.saturating_sub(fixed.saturating_sub(2));
        let mut x = at.x;
        for binding in named {
            let width = width_of(binding);
            if !is_fixed(&&binding) {
                match left.checked_sub(width) {
                    Some(rest) => left = rest,
                    None => continue,
                }
            }
            let (key, name) = label(binding);
            let room = Rect { x, width: at.right().saturating_sub(x), ..at };
            let used = self.put_all(room, &[(&key, self.style(Tone::Bold)), (" ", Style::new())]);
            let rest = Rect { x: x + used, width: room.width - used, ..at };
            let used = used + self.put(rest, name, Style::new());
            self.drawn.hits.push((Rect { x, width: used, ..at }, Hit::Button(binding.action)));
            x = x.saturating_add(used + 2).min(at.right());
        }
    }

    fn help(&mut self, scroll: usize, at: Rect) {
        self.clear(at);
        self.drawn.hits.clear();
        let mut lines = vec![("Keys of the dashboard".to_owned(), Tone::Bold)];
        for binding in BINDINGS {
            let keys: Vec<String> = binding.keys.iter().map(|key| key.label()).collect();
            let keys = format!("{:<KEY_COLUMNS$}", keys.join(", "));
            let width = usize::from(at.width).saturating_sub(KEY_COLUMNS);
            for (part, text) in preview::wrap(binding.help, width).iter().enumerate() {
                let keys = if part == 0 { keys.as_str() } else { "" };
                lines.push((format!("{keys:<KEY_COLUMNS$}{text}"), Tone::Plain));
            }
        }
        lines.extend(
            [
                "",
                "A row that starts with * is new: you have not looked at it since it settled.",
                "Mouse: click selects a row, a preview or a key of the footer; the wheel scrolls.",
            ]
            .map(|line| (line.to_owned(), Tone::Plain)),
        );
        let max_scroll = lines.len().saturating_sub(usize::from(at.height));
        for (index, (line, tone)) in (0..at.height).zip(lines.iter().skip(scroll.min(max_scroll))) {
            self.put(Rect { y: at.y + index, height: 1, ..at }, line, self.style(*tone));
        }
        self.drawn.max_scroll = max_scroll;
    }

    fn failure(&mut self, text: &str, at: Rect) {
        let width = at.width.min(76);
        let inner = usize::from(width).saturating_sub(4);
        let lines: Vec<String> = printable(text)
            .lines()
            .flat_map(|line| preview::wrap(line, inner))
            .take(usize::from(at.height).saturating_sub(2))
            .collect();
        let height = u16::try_from(lines.len() + 2).unwrap_or(at.height).min(at.height);
        let x = at.x + (at.width - width) / 2;
        let y = at.y + (at.height - height) / 2;
        let area = Rect { x, y, width, height };
        self.clear(area);
        self.drawn.hits.clear();
        let bar = "─".repeat(usize::from(width).saturating_sub(2));
        self.put(Rect { height: 1, ..area }, &format!("┌{bar}┐"), self.style(Tone::Bad));
        for (index, line) in (1..).zip(&lines) {
            let at = Rect { y: y + index, height: 1, ..area };
            self.put(at, "│", self.style(Tone::Bad));
            self.put(Rect { x: x + 2, width: width - 4, ..at }, line, Style::new());
            self.put(Rect { x: area.right() - 1, width: 1, ..at }, "│", self.style(Tone::Bad));
        }
        let last = Rect { y: area.bottom() - 1, height: 1, ..area };
        self.put(last, &format!("└{bar}┘"), self.style(Tone::Bad));
    }
}

/// The widths of the columns of the list; 0 for those that do not fit.
struct ListColumns {
    id: u16,
    changes: u16,
    cost: u16,
}

impl ListColumns {
    fn of(rows: &[&OverviewRow], width: u16) -> ListColumns {
        let widest = |cell: &dyn Fn(&OverviewRow) -> usize| {
            let widest = rows.iter().map(|row| cell(row)).max().unwrap_or_default();
            u16::try_from(widest).unwrap_or_default()
        };
        let id = widest(&|row| columns(&row.prefix).min(MAX_ID_COLUMNS));
        let cost = widest(&|row| columns(&cost(row)));
        let changes = widest(&|row| columns(&changes(row)));
        let fits = |column: u16| if width >= 70 { column } else { 0 };
        ListColumns { id, changes: fits(changes), cost: fits(cost) }
    }
}

/// Shortens an id in its middle: tasks of one kind begin with the same words, and differ at the end of
/// the shortest unique prefix.
fn cut_middle(id: &str, max: usize) -> String {
    if columns(id) <= max {
        return id.to_owned();
    }
    let start = max.saturating_sub(1) / 2;
    let end = id.len() - max.saturating_sub(1 + start);
    format!("{}…{}", &id[..start], &id[end..])
}

fn state_name(row: &OverviewRow) -> (String, Tone) {
    if row.key.request.is_some() {
        return ("asks".to_owned(), Tone::Attention);
    }
    let has_conflicts = !row.conflicts.is_empty() || !row.conflicts_with.is_empty();
    let mark = if has_conflicts || row.warning.is_some() { " (!)" } else { "" };
    let tone = match &row.state {
        _ if !mark.is_empty() => Tone::Attention,
        SessionState::Failed { .. } | SessionState::Crashed => Tone::Bad,
        SessionState::Waiting { .. } => Tone::Attention,
        SessionState::Ready => Tone::Good,
        SessionState::Starting
        | SessionState::Working
        | SessionState::Checking
        | SessionState::Landing => Tone::Active,
        SessionState::Queued | SessionState::Stopped | SessionState::Empty => Tone::Plain,
        SessionState::Accepted | SessionState::Discarded => Tone::Dim,
    };
    (format!("{}{mark}", row.state.name()), tone)
}

fn changes(row: &OverviewRow) -> String {
    row.changes.map_or_else(String::new, |(insertions, deletions, is_dirty)| {
        format!("+{insertions} -{deletions}{}", if is_dirty { "*" } else { "" })
    })
}

fn cost(row: &OverviewRow) -> String {
    row.cost_usd.map_or_else(String::new, |usd| format!("${usd:.2}"))
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
