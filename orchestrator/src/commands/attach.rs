//! `studio attach`: the live conversation of a session on a terminal. What the user types is sent
//! to the agent; permission requests are answered in place. Detaching leaves the session as it is.

use std::io::IsTerminal;

use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use rustix::fs::{Mode, OFlags};
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios};
use studio_core::project::Project;
use studio_core::seen;
use studio_core::session_view::SessionView;
use studio_core::supervisor::control::{self, ControlRequest};
use tokio::net::unix::pipe::Receiver;

use crate::commands::changes::DirectoryWatcher;
use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::journal_follower::JournalFollower;
use crate::commands::send;
use crate::commands::watch::TerminationSignals;
use crate::report::prompt_line::{PromptLine, TypedInput};
use crate::report::{self, table};

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
        skipped: 0,
        state: String::new(),
        drawn_label: String::new(),
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
    /// The last permission request that the user put off.
    skipped: u32,
    /// The state of the session.
    state: String,
    /// The text before the prompt that is shown.
    drawn_label: String,
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
        loop {
            let view = self.context.view(&self.id)?;
            self.show(&view, &terminal)?;
            if view.state.is_over() {
                PromptLine::clear();
                report::say(&format!("{} is {}", self.id, view.state.name()));
                return Ok(0);
            }
            let attachment = tokio::select! {
                () = changes.next() => Attachment::Attached,
                () = signals.recv() => Attachment::Detached,
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
        let requests = &view.facts.summary.open_requests;
        let next = requests.iter().find(|(number, _)| **number > self.skipped);
        let number = next.map(|(number, _)| *number);
        if number != self.question {
            self.question = number;
            if let Some((number, request)) = next {
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

    /// Returns the text before the prompt.
    fn label(&self) -> String {
        match self.question {
            Some(_) => {
                "[y] allow  [n] deny  [a] always allow this in this session  [s] later".to_owned()
            }
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
