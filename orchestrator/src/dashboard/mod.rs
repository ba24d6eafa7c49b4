//! The dashboard: `studio` on a terminal. Its state, keys and drawing need no terminal; this file is
//! the loop that waits for keys, changes on disk and results of commands.

mod actions;
mod background;
#[cfg(any(test, fuzzing))]
pub mod fuzz_tests;
mod input;
mod keys;
mod line_input;
mod preview;
mod preview_reader;
mod state;
mod terminal;
mod view;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::time::Duration;

use base::failure::{OrFail, Result};
use base::id::Id;
use studio_core::interrupt::Interrupt;
use studio_core::live_sessions::LiveSessions;
use studio_core::overview::{Notice, Overview};
use studio_core::seen;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::commands::changes::DirectoryWatcher;
use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::editor::{self, EditedText};
use crate::dashboard::actions::{BackgroundCommand, Verb};
use crate::dashboard::background::{BackgroundTasks, Finished};
use crate::dashboard::input::{InputParser, InputWatcher, TerminalInput};
use crate::dashboard::preview::PreviewTab;
use crate::dashboard::preview_reader::PreviewReader;
use crate::dashboard::state::{Dashboard, DashboardEffect, DashboardMode};
use crate::dashboard::terminal::Screen;
use crate::dashboard::view::{Drawn, Hit};
use crate::report;

/// The minimum time between two readings of the sessions.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);
/// The number of lines that the wheel scrolls.
const WHEEL_LINES: isize = 3;
/// How long the rest of an escape sequence may take; an escape character alone is a key.
const SEQUENCE_TIMEOUT: Duration = Duration::from_millis(50);
/// What the editor shows for a new task.
const TASK_TEMPLATE: &str = "\n\n# ------------------------ >8 ------------------------\n\
    # Write the task above this line. An empty task starts nothing.\n";

/// Returns whether the dashboard can be shown: stdin and stdout are a terminal that can be drawn on.
pub(crate) fn is_available(common: &CommonArgs) -> bool {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    is_terminal && report::can_redraw() && !common.json
}

/// Shows the dashboard until the user quits; returns the exit code.
pub(crate) fn run(common: &CommonArgs) -> Result<u8> {
    // Its notices appear before the screen is taken.
    let context = CommandContext::open(common)?;
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let _guard = runtime.enter();
    let mut dashboard = EventLoop::open(common, context)?;
    let result = dashboard.run(&runtime);
    dashboard.screen.leave();
    // The threads of running commands end with the process; the commands continue.
    for (id, verb) in &dashboard.state.running {
        report::say(&format!("{id}: {} continues in the background", verb.name()));
    }
    result
}

/// Why a wait ended.
enum Woken {
    /// Keys or the mouse.
    Input,
    /// The rest of an escape sequence did not arrive.
    SequenceEnded,
    /// Something may have changed on disk, or a second passed.
    Changed,
    /// A task ended.
    Finished(Finished),
    /// The terminal has another size.
    Resized,
    /// The program continues after it was stopped.
    Continued,
    /// The program is asked to end.
    Ended,
}

/// The dashboard with everything that it waits for.
struct EventLoop {
    context: CommandContext,
    sessions: LiveSessions,
    state: Dashboard,
    screen: Screen,
    drawn: Drawn,
    preview: Option<PreviewReader>,
    tasks: BackgroundTasks,
    changes: DirectoryWatcher,
    watched: BTreeSet<Id>,
    input: InputWatcher,
    signals: Signals,
    notices: BTreeSet<Notice>,
    /// The version of the sessions that were compared last, and whether a comparison runs.
    compared: Option<u64>,
    is_comparing: bool,
    refreshed: Instant,
    needs_draw: bool,
    parser: InputParser,
    /// The session that is selected as soon as it is in the list.
    wanted: Option<Id>,
}

struct Signals {
    int: Signal,
    term: Signal,
    hup: Signal,
    cont: Signal,
    winch: Signal,
}

impl Signals {
    fn listen() -> Result<Signals> {
        let listen = |kind| signal(kind).or_fail(|| "cannot handle signals");
        Ok(Signals {
            int: listen(SignalKind::interrupt())?,
            term: listen(SignalKind::terminate())?,
            hup: listen(SignalKind::hangup())?,
            cont: listen(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?,
            winch: listen(SignalKind::window_change())?,
        })
    }

    async fn next(&mut self) -> Woken {
        tokio::select! {
            _ = self.int.recv() => Woken::Ended,
            _ = self.term.recv() => Woken::Ended,
            _ = self.hup.recv() => Woken::Ended,
            _ = self.cont.recv() => Woken::Continued,
            _ = self.winch.recv() => Woken::Resized,
        }
    }
}

impl EventLoop {
    /// Reads the sessions and takes the terminal. Call it within a runtime.
    fn open(common: &CommonArgs, context: CommandContext) -> Result<EventLoop> {
        let sessions = LiveSessions::read(&context)?;
        let root = context.repository.main_checkout.as_ref();
        let root = root.unwrap_or(&context.repository.common_dir);
        let title = root.file_name().unwrap_or(root.as_os_str()).to_string_lossy();
        let mut state = Dashboard::new(title.into_owned(), report::wants_colours());
        let overview = overview(&sessions);
        let notices = overview.notices();
        state.set_overview(overview);
        state.unreadable = sessions.unreadable().count();
        let changes = DirectoryWatcher::start();
        changes.add(context.store.root());
        changes.add(&context.store.root().join("sessions"));
        Ok(EventLoop {
            tasks: BackgroundTasks::new(common)?,
            screen: Screen::open(state.has_mouse)?,
            input: InputWatcher::start(),
            signals: Signals::listen()?,
            context,
            sessions,
            state,
            drawn: Drawn::default(),
            preview: None,
            changes,
            watched: BTreeSet::new(),
            notices,
            compared: None,
            is_comparing: false,
            refreshed: Instant::now(),
            needs_draw: true,
            parser: InputParser::default(),
            wanted: None,
        })
    }

    fn run(&mut self, runtime: &Runtime) -> Result<u8> {
        loop {
            self.update_preview();
            if self.needs_draw {
                if let Some(code) = self.draw()? {
                    return Ok(code);
                }
                continue;
            }
            self.compare();
            self.watch_sessions();
            let ended = match self.wait(runtime) {
                Woken::Input => {
                    let ended = self.read_pending()?;
                    self.input.resume();
                    ended
                }
                Woken::SequenceEnded => match self.parser.end() {
                    Some(input) => self.handle(input)?,
                    None => None,
                },
                Woken::Changed => {
                    self.refresh()?;
                    None
                }
                Woken::Finished(finished) => {
                    self.finish(finished)?;
                    None
                }
                Woken::Resized => {
                    self.needs_draw = true;
                    None
                }
                Woken::Continued => {
                    self.screen.enter(self.state.has_mouse)?;
                    self.needs_draw = true;
                    None
                }
                Woken::Ended => Some(130),
            };
            if let Some(code) = ended {
                return Ok(code);
            }
        }
    }

    fn wait(&mut self, runtime: &Runtime) -> Woken {
        let EventLoop { input, changes, tasks, signals, refreshed, parser, .. } = self;
        let is_incomplete = parser.is_incomplete();
        let next_refresh = *refreshed + REFRESH_INTERVAL;
        runtime.block_on(async {
            let changed = async {
                tokio::time::sleep_until(next_refresh).await;
                changes.next().await;
            };
            tokio::select! {
                biased;
                woken = signals.next() => woken,
                () = input.wait() => Woken::Input,
                () = tokio::time::sleep(SEQUENCE_TIMEOUT), if is_incomplete => Woken::SequenceEnded,
                finished = tasks.next() => Woken::Finished(finished),
                () = changed => Woken::Changed,
            }
        })
    }

    /// Draws what changed. Keys that were typed before a permission request was shown do not answer
    /// it: they are handled before it can be answered.
    fn draw(&mut self) -> Result<Option<u8>> {
        self.needs_draw = false;
        self.drawn = self.screen.draw(&self.state, self.context.clock.now())?;
        self.state.scroll = self.state.scroll.min(self.drawn.max_scroll);
        self.state.page_lines = self.drawn.preview_lines.saturating_sub(1).max(1);
        if let DashboardMode::Help(scroll) = &mut self.state.mode {
            *scroll = (*scroll).min(self.drawn.max_scroll);
        }
        let selected = self.state.selected.clone();
        if self.state.answerable != selected {
            self.state.answerable = None;
        }
        let Some(shown) = self.drawn.request.clone() else { return Ok(None) };
        if self.state.answerable.is_none() {
            let ended = self.read_pending()?;
            // A key may have selected something else.
            if self.state.selected.as_ref() == Some(&shown)
                && self.state.mode == DashboardMode::Browse
            {
                self.state.answerable = Some(shown);
            }
            return Ok(ended);
        }
        Ok(None)
    }

    /// Handles the input that is there; a terminal that is gone ends the dashboard.
    fn read_pending(&mut self) -> Result<Option<u8>> {
        let Some(bytes) = input::read_available() else { return Ok(Some(130)) };
        for input in self.parser.add(&bytes) {
            if let Some(code) = self.handle(input)? {
                return Ok(Some(code));
            }
        }
        Ok(None)
    }

    fn handle(&mut self, input: TerminalInput) -> Result<Option<u8>> {
        self.needs_draw = true;
        let effect = match input {
            TerminalInput::Key(key) => self.state.handle_key(key),
            TerminalInput::Paste(text) => {
                self.state.handle_paste(&text);
                None
            }
            TerminalInput::Click(column, row) => self.click(column, row),
            TerminalInput::Wheel(column, row, by) => {
                self.turn_wheel(column, row, by);
                None
            }
        };
        match effect {
            Some(effect) => self.carry_out(effect),
            None => Ok(None),
        }
    }

    fn click(&mut self, column: u16, row: u16) -> Option<DashboardEffect> {
        if self.state.mode != DashboardMode::Browse {
            return None;
        }
        match self.drawn.at(column, row).cloned()? {
            Hit::Row(key) => {
                self.state.select(Some(key));
                None
            }
            Hit::Button(action) => self.state.act(action),
            Hit::List | Hit::Preview => None,
        }
    }

    fn turn_wheel(&mut self, column: u16, row: u16, by: isize) {
        if self.state.mode != DashboardMode::Browse {
            return;
        }
        match self.drawn.at(column, row) {
            Some(Hit::Row(_) | Hit::List) => self.state.move_selection(by),
            Some(Hit::Preview | Hit::Button(_)) | None => {
                self.state.scroll_preview(by * WHEEL_LINES);
            }
        }
    }

    fn carry_out(&mut self, effect: DashboardEffect) -> Result<Option<u8>> {
        match effect {
            DashboardEffect::Quit(code) => return Ok(Some(code)),
            DashboardEffect::Redraw => self.screen.clear()?,
            DashboardEffect::SetMouse => self.screen.set_mouse(self.state.has_mouse)?,
            DashboardEffect::Suspend => {
                self.screen.leave();
                // The shell that started the program sees its whole process group stop.
                let _ = rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
                self.screen.enter(self.state.has_mouse)?;
            }
            DashboardEffect::Run(command) => self.tasks.run(command),
            DashboardEffect::MarkSeen(id) => {
                if let Some(Ok(view)) = self.sessions.get(&id).map(|session| &session.view) {
                    seen::mark(&self.context.repository, view);
                }
                self.refresh()?;
            }
            DashboardEffect::RunOnTerminal(words) => {
                let runner = self.tasks.runner().clone();
                let result = self.without_screen(|| runner.run_on_terminal(&words))?;
                if let Err(failure) = result {
                    self.state.show_failure(failure.to_string());
                }
                self.refresh()?;
            }
            DashboardEffect::NewTask => self.new_task()?,
        }
        self.needs_draw = true;
        Ok(None)
    }

    /// Runs another program on the terminal, which handles Ctrl-C by itself.
    fn without_screen<T>(&mut self, program: impl FnOnce() -> T) -> Result<T> {
        self.screen.leave();
        let result = program();
        self.signals.int = Signals::listen()?.int;
        self.screen.enter(self.state.has_mouse)?;
        self.needs_draw = true;
        Ok(result)
    }

    fn new_task(&mut self) -> Result<()> {
        let directory = self.context.directory.clone().unwrap_or_default();
        let edit = || {
            editor::edit_text(&directory, &Interrupt::default(), TASK_TEMPLATE, EditedText::Task)
        };
        match self.without_screen(edit)? {
            Ok(text) => {
                let task = task_of(&text);
                if task.is_empty() {
                    self.state.say("the task is empty, so nothing was started");
                } else {
                    let command = BackgroundCommand::run(task.to_owned());
                    self.state.say(command.progress());
                    self.tasks.run(command);
                }
            }
            Err(failure) => self.state.show_failure(failure.to_string()),
        }
        Ok(())
    }

    /// Reads what changed on disk; the next frame shows it.
    fn refresh(&mut self) -> Result<()> {
        self.refreshed = Instant::now();
        if self.sessions.refresh(&self.context)? {
            self.show_sessions();
        } else if self.are_ages_old() {
            self.needs_draw = true;
        }
        Ok(())
    }

    fn are_ages_old(&self) -> bool {
        let now = self.context.clock.now();
        let ages = self.drawn.since.iter().map(|(since, _)| report::table::age(since, now));
        !ages.eq(self.drawn.since.iter().map(|(_, age)| age.clone()))
    }

    fn show_sessions(&mut self) {
        let overview = overview(&self.sessions);
        let notices = overview.notices();
        if !notices.is_subset(&self.notices) && self.context.config.studio.bell {
            self.screen.ring();
        }
        self.notices = notices;
        self.state.set_overview(overview);
        self.state.unreadable = self.sessions.unreadable().count();
        if let Some(id) = self.wanted.take_if(|id| self.sessions.get(id).is_some()) {
            self.state.select_session(&id);
        }
        self.needs_draw = true;
    }

    /// Shows the selected session in the preview, with what is new.
    fn update_preview(&mut self) {
        let Some(key) = self.state.selected.clone() else {
            self.preview = None;
            return;
        };
        let content = &mut self.state.preview;
        if self.preview.as_ref().is_none_or(|preview| *preview.key() != key) {
            self.preview = Some(PreviewReader::open(&self.context, &key, content));
            self.needs_draw = true;
        }
        let session = self.sessions.get(&key.id);
        let view = session.and_then(|session| session.view.as_ref().ok());
        if let Some(preview) = &mut self.preview
            && self.needs_draw
        {
            preview.read(view, content);
            if let Some(view) = view.filter(|_| self.state.tab == PreviewTab::Diff) {
                preview.request_diff(view, &self.tasks);
            }
        }
    }

    /// Starts a comparison of the sessions with their branches, if it may have another result.
    fn compare(&mut self) {
        let version = self.sessions.comparison_version(&self.context);
        if self.is_comparing || self.compared == Some(version) {
            return;
        }
        self.compared = Some(version);
        self.is_comparing = true;
        self.tasks.compare(self.sessions.compared_views().cloned().collect());
    }

    /// Watches the files of sessions that are not over.
    fn watch_sessions(&mut self) {
        for view in self.sessions.views().filter(|view| !view.state.is_over()) {
            if self.watched.insert(view.record.id.clone()) {
                self.changes.add(&self.context.store.dir(&view.record.id));
            }
        }
    }

    fn finish(&mut self, finished: Finished) -> Result<()> {
        match finished {
            Finished::Compared(views, has_more) => {
                self.is_comparing = false;
                if has_more {
                    self.compared = None;
                }
                let mut is_changed = false;
                for view in &views {
                    is_changed |= self.sessions.apply(view);
                }
                if is_changed {
                    self.show_sessions();
                }
            }
            Finished::Diff(id, diff) => {
                let content = &mut self.state.preview;
                if let Some(preview) = &mut self.preview {
                    self.needs_draw |= preview.take_diff(&id, diff, content);
                }
            }
            Finished::Command(command, result) => {
                if let Some(id) = &command.id {
                    self.state.running.remove(id);
                }
                match result {
                    Ok(output) => {
                        self.state.say(command.outcome(&output));
                        if command.verb == Verb::Run {
                            let id = output["id"].as_str().and_then(|id| Id::parse(id).ok());
                            self.wanted = id;
                        }
                    }
                    Err(error) => self.state.show_error(error),
                }
                self.needs_draw = true;
                self.refresh()?;
                if self.wanted.is_some() {
                    self.show_sessions();
                }
            }
        }
        Ok(())
    }
}

fn overview(sessions: &LiveSessions) -> Overview {
    Overview::of(&sessions.oldest_first())
}

/// Returns the task in the saved text: everything above the line that says so.
fn task_of(text: &str) -> &str {
    let end = text.lines().position(|line| line.starts_with("# ---") && line.contains(">8"));
    let Some(end) = end else { return text.trim() };
    let bytes: usize = text.split_inclusive('\n').take(end).map(str::len).sum();
    text[..bytes].trim()
}
