//! What the dashboard shows and what its keys do, without a terminal: an event changes the state
//! and returns what is to be done outside of it.

use std::collections::BTreeMap;

use base::id::Id;
use studio_core::overview::{Overview, OverviewRow, RowFilter, RowKey, SessionGroup};

use crate::dashboard::actions::{BackgroundCommand, CommandError, Verb};
use crate::dashboard::keys::{self, Action, Key};
use crate::dashboard::line_input::LineInput;
use crate::dashboard::preview::{PreviewContent, PreviewTab};

/// The state of the dashboard.
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub(crate) struct Dashboard {
    /// The name of the repository.
    pub title: String,
    /// The sessions.
    pub overview: Overview,
    /// Sessions that cannot be read.
    pub unreadable: usize,
    /// The selected row.
    pub selected: Option<RowKey>,
    /// The selected preview.
    pub tab: PreviewTab,
    /// What it shows.
    pub preview: PreviewContent,
    /// The distance of the preview from its first position in lines: from the end for a timeline
    /// and a log, from the start for a diff and a permission request.
    pub scroll: usize,
    /// The number of lines that a key scrolls the preview.
    pub page_lines: usize,
    /// Whether the preview covers the list.
    pub is_enlarged: bool,
    /// Who gets the keys.
    pub mode: DashboardMode,
    /// The filter, as typed.
    pub filter: String,
    /// Whether accepted and discarded sessions are hidden.
    pub hides_done: bool,
    /// Whether the terminal reports the mouse.
    pub has_mouse: bool,
    /// Whether to use colours.
    pub colours: bool,
    /// The commands that run in the background, by session.
    pub running: BTreeMap<Id, Verb>,
    /// The last message, and whether it is an error.
    pub status: Option<(String, bool)>,
    /// The permission request that was shown to its end before the next key was typed.
    pub answerable: Option<RowKey>,
}

/// Who gets the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DashboardMode {
    /// The table of keys.
    Browse,
    /// The line of the filter.
    Filter(LineInput),
    /// The line of a message to a session.
    Message(Id, LineInput),
    /// A question about a command, which `y` starts.
    Confirm(String, BackgroundCommand),
    /// The help, scrolled by this many lines.
    Help(usize),
    /// The error of a command.
    Failure(String),
}

/// What is to be done outside of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DashboardEffect {
    /// End with this exit code.
    Quit(u8),
    /// Stop like a program that got Ctrl-Z.
    Suspend,
    /// Draw the whole screen again.
    Redraw,
    /// Tell the terminal whether to report the mouse.
    SetMouse,
    /// Run a command in the background.
    Run(BackgroundCommand),
    /// Run a command on the terminal.
    RunOnTerminal(Vec<String>),
    /// Write a task in the editor and start a session with it.
    NewTask,
    /// The user looks at the results of this session.
    MarkSeen(Id),
}

impl Dashboard {
    /// Creates a dashboard without sessions.
    pub(crate) fn new(title: String, colours: bool) -> Dashboard {
        Dashboard {
            title,
            overview: Overview::default(),
            unreadable: 0,
            selected: None,
            tab: PreviewTab::Timeline,
            preview: PreviewContent::default(),
            scroll: 0,
            page_lines: 1,
            is_enlarged: false,
            mode: DashboardMode::Browse,
            filter: String::new(),
            hides_done: false,
            has_mouse: true,
            colours,
            running: BTreeMap::new(),
            status: None,
            answerable: None,
        }
    }

    /// Returns the rows of the list.
    pub(crate) fn rows(&self) -> Vec<&OverviewRow> {
        let filter = RowFilter::parse(&self.filter);
        let is_shown = |row: &&OverviewRow| {
            (!self.hides_done || row.group != SessionGroup::Done) && filter.matches(row)
        };
        self.overview.rows.iter().filter(is_shown).collect()
    }

    /// Returns the selected row.
    pub(crate) fn row(&self) -> Option<&OverviewRow> {
        self.overview.row(self.selected.as_ref()?)
    }

    /// Replaces the sessions. The selection stays on its row; if that is gone, it moves to the next
    /// permission request, to another row of the session, or to the row in its place.
    pub(crate) fn set_overview(&mut self, overview: Overview) {
        let index = self.selected_index();
        self.overview = overview;
        self.keep_selection(index);
    }

    fn selected_index(&self) -> usize {
        let selected = self.selected.as_ref();
        let index = self.rows().iter().position(|row| Some(&row.key) == selected);
        index.unwrap_or_default()
    }

    /// Selects another row if the selected one is not in the list.
    fn keep_selection(&mut self, index: usize) {
        let rows = self.rows();
        if rows.iter().any(|row| Some(&row.key) == self.selected.as_ref()) {
            return;
        }
        let in_place = rows.get(index.min(rows.len().saturating_sub(1)));
        let next_request = in_place.filter(|row| {
            let was_request = self.selected.as_ref().is_some_and(|key| key.request.is_some());
            was_request && row.key.request.is_some()
        });
        let same_session = || {
            let id = &self.selected.as_ref()?.id;
            rows.iter().find(|row| row.key.id == *id)
        };
        let row = next_request.or_else(same_session).or(in_place);
        let key = row.map(|row| row.key.clone());
        self.select(key);
    }

    /// Selects a row.
    pub(crate) fn select(&mut self, key: Option<RowKey>) {
        if self.selected != key {
            self.selected = key;
            self.scroll = 0;
            self.answerable = None;
        }
    }

    /// Selects the first row of a session.
    pub(crate) fn select_session(&mut self, id: &Id) {
        let key = self.rows().iter().find(|row| row.key.id == *id).map(|row| row.key.clone());
        if key.is_some() {
            self.select(key);
        }
    }

    /// Moves the selection by this many rows.
    pub(crate) fn move_selection(&mut self, by: isize) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let index = self.selected_index().saturating_add_signed(by).min(last);
        let key = rows.get(index).map(|row| row.key.clone());
        self.select(key);
    }

    /// Scrolls the preview by this many lines: down if positive.
    pub(crate) fn scroll_preview(&mut self, by: isize) {
        let by = if self.preview_starts_at_end() { by.saturating_neg() } else { by };
        self.scroll = self.scroll.saturating_add_signed(by);
    }

    /// Returns whether the preview shows its end first.
    pub(crate) fn preview_starts_at_end(&self) -> bool {
        match self.tab {
            PreviewTab::Timeline => !self.shows_request(),
            PreviewTab::Diff => false,
            PreviewTab::Log => true,
        }
    }

    /// Returns whether the preview shows a permission request.
    pub(crate) fn shows_request(&self) -> bool {
        let is_request = self.selected.as_ref().is_some_and(|key| key.request.is_some());
        is_request && self.tab == PreviewTab::Timeline
    }

    /// Sets the message of the status line.
    pub(crate) fn say(&mut self, text: impl Into<String>) {
        self.status = Some((text.into(), false));
    }

    /// Shows an error: in a box, or in the status line while the user types.
    pub(crate) fn show_failure(&mut self, text: String) {
        self.status = None;
        match self.mode {
            DashboardMode::Browse | DashboardMode::Help(_) | DashboardMode::Failure(_) => {
                self.mode = DashboardMode::Failure(text)
            }
            DashboardMode::Filter(_) | DashboardMode::Message(..) | DashboardMode::Confirm(..) => {
                let line = text.lines().next().unwrap_or_default().to_owned();
                self.status = Some((line, true));
            }
        }
    }

    /// Shows why a command failed, or asks whether to run it nevertheless.
    pub(crate) fn show_error(&mut self, error: CommandError) {
        match (error.question, &self.mode) {
            (Some(asked), DashboardMode::Browse) => {
                self.status = None;
                let (question, command) = *asked;
                self.mode = DashboardMode::Confirm(question, command);
            }
            (_, _) => self.show_failure(error.failure.to_string()),
        }
    }

    /// Handles a key.
    pub(crate) fn handle_key(&mut self, key: Key) -> Option<DashboardEffect> {
        match &mut self.mode {
            DashboardMode::Browse => self.browse(key),
            DashboardMode::Filter(_) => {
                self.edit_filter(key);
                None
            }
            DashboardMode::Message(..) => self.edit_message(key),
            DashboardMode::Confirm(_, command) => {
                let command = command.clone();
                self.mode = DashboardMode::Browse;
                match (command.verb, key) {
                    // This question appears by itself: a `y` may be the answer to a request.
                    (Verb::Accept, Key::Char('A')) => Some(self.start(command)),
                    (Verb::Accept, _) => {
                        self.say("nothing was landed");
                        None
                    }
                    (_, Key::Char('y' | 'Y')) => Some(self.start(command)),
                    (_, _) => {
                        self.say("nothing was changed");
                        None
                    }
                }
            }
            DashboardMode::Help(scroll) => {
                match key {
                    Key::Char('j' | ' ') | Key::Down | Key::PageDown => *scroll += 1,
                    Key::Char('k') | Key::Up | Key::PageUp => *scroll = scroll.saturating_sub(1),
                    Key::Ctrl('c') => return Some(DashboardEffect::Quit(130)),
                    _ => self.mode = DashboardMode::Browse,
                }
                None
            }
            DashboardMode::Failure(_) => {
                self.mode = DashboardMode::Browse;
                (key == Key::Ctrl('c')).then_some(DashboardEffect::Quit(130))
            }
        }
    }

    /// Handles pasted text; it is ignored where no text is typed, so it presses no keys.
    pub(crate) fn handle_paste(&mut self, text: &str) {
        match &mut self.mode {
            DashboardMode::Message(_, input) => input.insert(text),
            DashboardMode::Filter(input) => {
                input.insert(&text.replace(['\r', '\n'], " "));
                self.apply_filter();
            }
            DashboardMode::Browse
            | DashboardMode::Confirm(..)
            | DashboardMode::Help(_)
            | DashboardMode::Failure(_) => {}
        }
    }

    fn edit_filter(&mut self, key: Key) {
        let DashboardMode::Filter(input) = &mut self.mode else { return };
        match key {
            Key::Enter => self.mode = DashboardMode::Browse,
            Key::Esc | Key::Ctrl('c') => {
                self.mode = DashboardMode::Browse;
                self.filter.clear();
                self.keep_selection(0);
            }
            Key::Up => self.move_selection(-1),
            Key::Down => self.move_selection(1),
            key => {
                input.edit(key);
                self.apply_filter();
            }
        }
    }

    fn apply_filter(&mut self) {
        if let DashboardMode::Filter(input) = &self.mode {
            self.filter.clone_from(&input.text);
            self.keep_selection(0);
        }
    }

    fn edit_message(&mut self, key: Key) -> Option<DashboardEffect> {
        let DashboardMode::Message(id, input) = &mut self.mode else { return None };
        match key {
            Key::Enter if input.text.trim().is_empty() => None,
            Key::Enter => {
                let command = BackgroundCommand::send(id, &input.text);
                self.mode = DashboardMode::Browse;
                Some(self.start(command))
            }
            Key::Esc | Key::Ctrl('c') => {
                self.mode = DashboardMode::Browse;
                self.say("nothing was sent");
                None
            }
            key => {
                input.edit(key);
                None
            }
        }
    }

    fn browse(&mut self, key: Key) -> Option<DashboardEffect> {
        if key == Key::Esc {
            self.is_enlarged = false;
            self.filter.clear();
            self.status = None;
            self.keep_selection(0);
            return None;
        }
        let binding = keys::find(key)?;
        if (binding.applies)(self.row()) {
            return self.act(binding.action);
        }
        let text = match self.row() {
            None => "no session is selected".to_owned(),
            Some(row) => {
                format!("{} does not apply: {} is {}", key.label(), row.prefix, row.state.name())
            }
        };
        self.say(text);
        None
    }

    /// Does what a key or a click asks for, if it applies to the selected row.
    pub(crate) fn act(&mut self, action: Action) -> Option<DashboardEffect> {
        self.status = None;
        let (tab, selected) = (self.tab, self.selected.clone());
        match action {
            Action::Allow | Action::Deny | Action::AllowAlways => return self.answer(action),
            Action::Previous => self.move_selection(-1),
            Action::Next => self.move_selection(1),
            Action::First => self.move_selection(isize::MIN),
            Action::Last => self.move_selection(isize::MAX),
            Action::Enlarge => {
                self.is_enlarged = !self.is_enlarged;
                return self.look().filter(|_| self.is_enlarged);
            }
            Action::NextTab => self.tab = tab.next(),
            Action::PreviousTab => self.tab = tab.next().next(),
            Action::Timeline => self.tab = PreviewTab::Timeline,
            Action::Diff => self.tab = PreviewTab::Diff,
            Action::Log => self.tab = PreviewTab::Log,
            Action::ScrollUp => self.scroll_preview(-self.page_lines.cast_signed()),
            Action::ScrollDown => self.scroll_preview(self.page_lines.cast_signed()),
            Action::Filter => self.mode = DashboardMode::Filter(LineInput::new(&self.filter)),
            Action::ToggleDone => {
                self.hides_done = !self.hides_done;
                self.keep_selection(0);
            }
            Action::ToggleMouse => {
                self.has_mouse = !self.has_mouse;
                self.say(if self.has_mouse {
                    "mouse on"
                } else {
                    "mouse off: text can be selected"
                });
                return Some(DashboardEffect::SetMouse);
            }
            Action::Redraw => return Some(DashboardEffect::Redraw),
            Action::Suspend => return Some(DashboardEffect::Suspend),
            Action::Help => self.mode = DashboardMode::Help(0),
            Action::Quit => return Some(DashboardEffect::Quit(0)),
            Action::Interrupt => return Some(DashboardEffect::Quit(130)),
            Action::NewTask => return Some(DashboardEffect::NewTask),
            Action::Undo => self.ask_undo(),
            Action::Review
            | Action::PageDiff
            | Action::Attach
            | Action::Shell
            | Action::Accept
            | Action::Send
            | Action::Stop
            | Action::Resume
            | Action::Discard => return self.act_on_session(action),
        }
        if self.tab != tab {
            self.scroll = 0;
            self.answerable = None;
            return self.look();
        }
        let shows_result = self.tab != PreviewTab::Timeline || self.is_enlarged;
        self.look().filter(|_| self.selected != selected && shows_result)
    }

    /// Returns that the user looks at the selected session, if a changed preview shows its results.
    fn look(&self) -> Option<DashboardEffect> {
        self.row().filter(|row| row.is_new).map(|row| DashboardEffect::MarkSeen(row.key.id.clone()))
    }

    fn act_on_session(&mut self, action: Action) -> Option<DashboardEffect> {
        let row = self.row()?;
        let id = row.key.id.clone();
        if let Some(verb) = self.running.get(&id) {
            self.say(format!("{id}: {} is running", verb.name()));
            return None;
        }
        let on_terminal = |verb: &str| {
            Some(DashboardEffect::RunOnTerminal(vec![verb.to_owned(), id.as_str().to_owned()]))
        };
        match action {
            Action::Review => on_terminal("review"),
            Action::PageDiff => on_terminal("diff"),
            Action::Attach => on_terminal("attach"),
            Action::Shell => on_terminal("shell"),
            Action::Accept => Some(self.start(BackgroundCommand::of(Verb::Accept, &id))),
            Action::Stop => Some(self.start(BackgroundCommand::of(Verb::Stop, &id))),
            Action::Resume => Some(self.start(BackgroundCommand::of(Verb::Resume, &id))),
            Action::Send => {
                self.mode = DashboardMode::Message(id, LineInput::default());
                None
            }
            Action::Discard => {
                let suffix = match row.state.is_settled() {
                    true => String::new(),
                    false => format!(" It is {} and is stopped first.", row.state.name()),
                };
                let question = format!("discard {id}?{suffix}");
                self.mode =
                    DashboardMode::Confirm(question, BackgroundCommand::of(Verb::Discard, &id));
                None
            }
            _ => None,
        }
    }

    fn ask_undo(&mut self) {
        let row = self.row();
        let operation = row.and_then(|row| row.undo_operation.clone());
        let question = match (&operation, row) {
            (Some(operation), Some(row)) => {
                format!("undo {operation} ({} is {})?", row.key.id, row.state.name())
            }
            (_, _) => "undo the last accept or discard?".to_owned(),
        };
        self.mode = DashboardMode::Confirm(question, BackgroundCommand::undo(operation));
    }

    /// Answers the selected request, if it was shown to its end before the key was typed.
    fn answer(&mut self, action: Action) -> Option<DashboardEffect> {
        let key = self.selected.clone()?;
        let number = key.request?;
        if self.answerable.as_ref() != Some(&key) {
            self.say("read the request to its end first: 1 shows it, PgDn scrolls, Enter enlarges");
            return None;
        }
        if self.running.contains_key(&key.id) {
            self.say("an answer is on its way");
            return None;
        }
        let command = BackgroundCommand::answer(&key.id, number, action);
        Some(self.start(command))
    }

    fn start(&mut self, command: BackgroundCommand) -> DashboardEffect {
        if let Some(id) = &command.id {
            self.running.insert(id.clone(), command.verb);
        }
        self.say(command.progress());
        DashboardEffect::Run(command)
    }
}
