//! `studio attach`: the live conversation of a session on a terminal. What the user types is sent
//! to the agent; permission requests are answered in place. Detaching leaves the session as it is.

use std::io::IsTerminal;

use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::text::{columns, head};
use rustix::fs::{Mode, OFlags};
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios};
use studio_core::launch::live_message::LiveMessage;
use studio_core::project::Project;
use studio_core::seen;
use studio_core::session_view::SessionView;
use studio_core::supervisor::control::{self, ControlRequest, MessageFollower};
use tokio::net::unix::pipe::Receiver;

use crate::commands::changes::DirectoryWatcher;
use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::journal_follower::JournalFollower;
use crate::commands::send;
use crate::commands::watch::TerminationSignals;
use crate::report::prompt_line::{PromptLine, TypedInput};
use crate::report::{self, journal, table};

/// The columns of the time before a message.
const CLOCK_COLUMNS: usize = 10;

/// The command line of `attach`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Session (default: the only open one)
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let view = context.find(args.id.as_deref(), |state| !state.is_over())?;
    let id = view.record.id.clone();
    if view.state.is_over() {
        return Err(Project::already_ended(&view));
    }
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let _guard = runtime.enter();
    let terminal = RawTerminal::open().filter(|_| !context.json).ok_or_else(|| {
        Failure::usage("`attach` needs a terminal")
            .hint(format!("studio logs {id} -f"))
            .hint(format!("studio send {id} 'what to do'"))
    })?;
    report::say(&format!(
        "attached to {id}: what you type is sent to its agent; Ctrl-D or /detach leaves it running"
    ));
    let conversation = Conversation {
        context: &context,
        timeline: JournalFollower::of(&context, &id, true)?,
        id,
        line: PromptLine::default(),
        question: None,
        always_text: "",
        skipped: 0,
        state: String::new(),
        drawn_label: String::new(),
        message: LiveMessage::default(),
        shown_number: 0,
        shown_bytes: 0,
    };
    runtime.block_on(conversation.run(terminal))
}

/// The conversation with one session.
struct Conversation<'d> {
    context: &'d CommandContext,
    id: Id,
    timeline: JournalFollower,
    line: PromptLine,
    /// The permission request that the keys answer.
    question: Option<u32>,
    /// What its key for always does.
    always_text: &'static str,
    /// The last permission request that the user put off.
    skipped: u32,
    /// The state of the session.
    state: String,
    /// The text before the prompt that is shown.
    drawn_label: String,
    /// The message that the agent is writing.
    message: LiveMessage,
    /// The number of the message that was shown in part, and how many of its bytes were shown.
    shown_number: u64,
    shown_bytes: usize,
}

/// Whether the conversation continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attachment {
    Attached,
    Detached,
}

impl Conversation<'_> {
    async fn run(mut self, mut terminal: RawTerminal) -> Result<u8> {
        let mut signals = TerminationSignals::listen()?;
        let mut changes = DirectoryWatcher::start();
        changes.add(&self.context.store.dir(&self.id));
        changes.add(self.context.store.root());
        let mut follower = None;
        loop {
            let view = self.context.view(&self.id)?;
            if follower.is_none() && view.state.is_active() {
                follower = MessageFollower::open(&self.context.repository.common_dir, &self.id);
                self.timeline.mark_shown("");
            }
            self.show(&view, &terminal)?;
            if view.state.is_over() {
                PromptLine::clear();
                report::say(&format!("{} is {}", self.id, view.state.name()));
                return Ok(0);
            }
            let attachment = tokio::select! {
                () = changes.next() => Attachment::Attached,
                () = signals.recv() => Attachment::Detached,
                message = next_message(&mut follower) => {
                    match message {
                        Some(message) => self.message = message,
                        None => (follower, self.message) = (None, LiveMessage::default()),
                    }
                    Attachment::Attached
                }
                bytes = terminal.read() => match bytes {
                    Some(bytes) => self.on_input(&bytes)?,
                    None => Attachment::Detached,
                },
            };
            if attachment == Attachment::Detached {
                PromptLine::clear();
                seen::mark(&self.context.repository, &self.context.view(&self.id)?);
                report::say(&format!(
                    "detached; {0} is {1}: studio attach {0}",
                    self.id, self.state
                ));
                return Ok(0);
            }
        }
    }

    /// Shows what is new, and the prompt line.
    fn show(&mut self, view: &SessionView, terminal: &RawTerminal) -> Result<()> {
        let width = usize::from(table::width());
        let mut lines = self.timeline.read_new(view)?;
        if self.timeline.has_new_message(self.message.text.trim()) {
            self.message.text.clear();
        }
        lines.extend(self.message_lines(width));
        let requests = &view.facts.summary.open_requests;
        let next = requests.iter().find(|(number, _)| **number > self.skipped);
        let number = next.map(|(number, _)| *number);
        if number != self.question {
            self.question = number;
            if let Some((number, request)) = next {
                self.always_text = request.always_allow_text();
                let description = base::text::printable(&request.description);
                let description = description.replace('\n', "\n  ");
                lines.push(format!("\nasks for permission {number}:\n\n  {description}\n"));
                // What was typed before the request was shown does not answer it.
                terminal.discard_input();
            }
        }
        view.state.name().clone_into(&mut self.state);
        let label = self.label();
        self.line.print_above(&lines, &label, width);
        if lines.is_empty() && self.drawn_label != label {
            self.line.draw(&label, width);
        }
        self.drawn_label = label;
        Ok(())
    }

    /// Returns the new lines of the message that the agent is writing. Its incomplete last line is
    /// shown when it fills the terminal.
    fn message_lines(&mut self, width: usize) -> Vec<String> {
        let text = self.message.text.trim_start();
        // The journal may have it already.
        if text.is_empty() || self.timeline.last_message().starts_with(text.trim_end()) {
            return Vec::new();
        }
        let is_first = !self.timeline.has_partial_message();
        if is_first {
            self.shown_bytes = 0;
        }
        // The rest of the previous message is shown before the next one.
        if !is_first && self.shown_number != self.message.number {
            return Vec::new();
        }
        // The beginning of a long message may have been dropped.
        let start = head(text, self.shown_bytes).len();
        let mut end = text.rfind('\n').map_or(start, |at| start.max(at + 1));
        let mut shown = text[start..end].to_owned();
        let width = width.saturating_sub(CLOCK_COLUMNS).max(1);
        while columns(&text[end..]) > width {
            let row = &text[end..end + cut_width(&text[end..], width)];
            let cut = row.rfind(' ').map_or(row.len(), |at| at + 1);
            if cut == 0 {
                break;
            }
            shown.push_str(&format!("{}\n", &row[..cut]));
            end += cut;
        }
        if shown.trim().is_empty() {
            return Vec::new();
        }
        let shown = shown.trim_end_matches([' ', '\n']);
        let line = match is_first {
            true => journal::timed(&self.context.clock.stamp(), shown),
            false => journal::continued(shown),
        };
        self.timeline.mark_shown(text[..end].trim_end_matches([' ', '\n']));
        (self.shown_bytes, self.shown_number) = (end, self.message.number);
        vec![line]
    }

    /// Returns the text before the prompt.
    fn label(&self) -> String {
        match self.question {
            Some(_) => format!("[y] allow  [n] deny  [a] {}  [s] later", self.always_text),
            None => format!("[{}] >", self.state),
        }
    }

    fn on_input(&mut self, bytes: &[u8]) -> Result<Attachment> {
        if let Some(number) = self.question {
            self.answer(number, bytes);
            return Ok(if bytes.contains(&4) {
                Attachment::Detached
            } else {
                Attachment::Attached
            });
        }
        for input in self.line.handle(bytes) {
            match input {
                TypedInput::End => return Ok(Attachment::Detached),
                TypedInput::Line(text) if text.trim() == "/detach" => {
                    return Ok(Attachment::Detached);
                }
                TypedInput::Line(text) if text.trim().is_empty() => {}
                TypedInput::Line(text) => self.send(&text),
            }
        }
        self.line.draw(&self.label(), usize::from(table::width()));
        Ok(Attachment::Attached)
    }

    /// Sends a message as `studio send` does.
    fn send(&self, text: &str) {
        let note = match send::deliver(self.context, &self.id, text) {
            // The journal shows the message.
            Ok(_) => return,
            Err(failure) => failure.to_string(),
        };
        PromptLine::clear();
        report::say(&format!("not sent: {text}\n{note}"));
    }

    /// Answers a permission request with the first key that means something.
    fn answer(&mut self, number: u32, bytes: &[u8]) {
        let Some(key) = bytes.iter().find(|byte| b"yYnNaAsS".contains(byte)) else { return };
        let (allow, always) = match key {
            b'y' | b'Y' => (true, false),
            b'a' | b'A' => (true, true),
            b'n' | b'N' => (false, false),
            _ => {
                self.skipped = number;
                PromptLine::clear();
                report::say(&format!("later: studio answer {} {number} allow", self.id));
                return;
            }
        };
        let request = ControlRequest::Answer { n: Some(number), allow, always };
        // A refusal means that it was answered elsewhere; the journal shows every answer.
        let _ = control::send_request(&self.context.repository.common_dir, &self.id, &request);
    }
}

/// Returns the agent's message when it has changed; `None` if its supervisor has ended.
async fn next_message(follower: &mut Option<MessageFollower>) -> Option<LiveMessage> {
    match follower {
        Some(follower) => follower.changed().await.cloned(),
        None => std::future::pending().await,
    }
}

/// Returns the number of bytes of a text that fit into this many columns.
fn cut_width(text: &str, width: usize) -> usize {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    ends.take_while(|end| columns(&text[..*end]) <= width).last().unwrap_or_default()
}

/// The terminal, without echo and line editing. Its settings are restored on drop.
struct RawTerminal {
    input: Receiver,
    saved_settings: Termios,
}

impl RawTerminal {
    /// Opens the terminal; `None` if stdin or stdout is not one. Call it within a runtime.
    fn open() -> Option<RawTerminal> {
        if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
            return None;
        }
        // Opened separately: other users of the descriptor must not find it non-blocking.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        let input = Receiver::from_owned_fd_unchecked(terminal).ok()?;
        let saved_settings = rustix::termios::tcgetattr(&input).ok()?;
        let mut settings = saved_settings.clone();
        settings.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        settings.special_codes[SpecialCodeIndex::VMIN] = 1;
        settings.special_codes[SpecialCodeIndex::VTIME] = 0;
        rustix::termios::tcsetattr(&input, OptionalActions::Now, &settings).ok()?;
        Some(RawTerminal { input, saved_settings })
    }

    /// Returns what was typed; `None` if the terminal is gone.
    async fn read(&mut self) -> Option<Vec<u8>> {
        loop {
            let mut bytes = [0; 1024];
            self.input.readable().await.ok()?;
            match self.input.try_read(&mut bytes) {
                Ok(n @ 1..) => return Some(bytes[..n].to_vec()),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return None,
            }
        }
    }

    /// Discards what was typed and not read yet.
    fn discard_input(&self) {
        let _ = rustix::termios::tcflush(&self.input, QueueSelector::IFlush);
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = rustix::termios::tcsetattr(&self.input, OptionalActions::Now, &self.saved_settings);
    }
}
