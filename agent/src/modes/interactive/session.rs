//! An interactive session: opens and closes the agent's session, runs its turns, records the file
//! changes of each turn for `/undo`, and shows the greeting and the last turns.

use crate::modes::attachments;
use crate::modes::interrupt::Interrupts;
use crate::ui::session_recap::PastTurn;
use crate::ui::wrap::wrapped;
use crate::ui::{rich_output, session_recap, terminal};
use agent_core::bus::Bus;
use agent_core::call_line::call_line;
use agent_core::context::{ConversationEntry, turns};
use agent_core::run::shutdown::ShutdownHandle;
use agent_core::run::{AgentSession, AgentSettings, SessionSelector};
use agent_core::session::checkpoint::Checkpoints;
use base::event::RunStatus;
use base::failure::{Failure, FailureKind, Result};
use base::text::{count, shell_word};
use gate::Asker;
use gate::permission_mode::PermissionMode;
use provider::message::{Image, Message};
use provider::model_list;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

/// An interactive session. The agent's session is created with the first message.
pub(crate) struct InteractiveSession {
    pub(super) settings: AgentSettings,
    pub(super) selector: SessionSelector,
    pub(super) pictures: Vec<Image>,
    pub(super) work: Option<AgentSession>,
    pub(super) bus: Arc<Bus>,
    pub(super) asker: Option<Arc<dyn Asker>>,
    pub(super) interrupts: Interrupts,
    pub(super) closing: Vec<ShutdownHandle>,
    /// Whether the last turn did not finish, so that `/retry` can continue it.
    pub(super) is_unfinished: bool,
}

impl InteractiveSession {
    /// Runs a turn of the user. A failure is shown, and the session continues.
    pub(super) async fn turn(&mut self, words: String) -> Result<()> {
        if self.work.is_none()
            && let Err(failure) = self.open(&words)
        {
            self.say(&failure.to_string());
            return Ok(());
        }
        let pictures = std::mem::take(&mut self.pictures);
        let attached = attachments::message(words, pictures, &self.settings.cwd);
        attached.notes.iter().for_each(|note| self.say(note));
        self.work_on(Some(attached.message)).await
    }

    /// Continues the last turn, which did not finish.
    pub(super) async fn retry(&mut self) -> Result<()> {
        let is_empty =
            self.work.as_ref().is_none_or(|work| work.conversation.messages().is_empty());
        if !self.is_unfinished || is_empty {
            return Err(Failure::usage("the last turn did not fail"));
        }
        self.work_on(None).await
    }

    /// Runs a turn with this message, or continues the last one.
    async fn work_on(&mut self, message: Option<Message>) -> Result<()> {
        let Some(work) = &mut self.work else { return Ok(()) };
        let before = FilesBefore::take(work);
        let tokens = self.interrupts.begin();
        let cancel = tokens.cancel.clone();
        let turn = async {
            match message {
                Some(message) => work.turn(message, cancel).await,
                None => work.retry(cancel).await,
            }
        };
        let ended = tokio::select! {
            ended = turn => Some(ended),
            () = tokens.end.cancelled() => None,
        };
        self.interrupts.over();
        if let Some(work) = &self.work {
            before.note(work);
        }
        match ended {
            Some(ended) => {
                self.is_unfinished = ended.status != RunStatus::Done;
                if let Some(failure) = ended.failure {
                    let hint = "/retry    retries with the work done so far";
                    self.say(&failure.hint(hint).to_string());
                }
                Ok(())
            }
            None => Err(Failure::new(FailureKind::Interrupted, "interrupted")),
        }
    }

    /// Shows model, directory and session, and the end of a resumed conversation.
    pub(super) fn greet(&self) {
        let listed = model_list::chosen(&self.settings.config, &self.settings.choice);
        let (provider, model) = match &self.work {
            Some(work) => (work.facts().provider.clone(), Some(work.facts().model.clone())),
            None => (listed.provider, listed.model),
        };
        let model = model.map_or(provider.clone(), |model| format!("{model} on {provider}"));
        let session = self.work.as_ref().map_or("new".to_owned(), |work| {
            format!("{}, {}", work.session.id, count(work.conversation.requests(), "message"))
        });
        self.say(&format!("g3 {} · /help shows the commands", env!("CARGO_PKG_VERSION")));
        let directory = below_home(&self.settings.cwd);
        let rows = [("model", &model), ("directory", &directory), ("session", &session)];
        for (name, value) in rows {
            let width = terminal::stderr_width();
            self.say(&wrapped(value, width, &format!("{name:11}")));
        }
        self.show_end();
    }

    /// Shows the last turns of the session.
    pub(crate) fn show_end(&self) {
        let Some(work) = &self.work else { return };
        let is_terminal = std::io::stderr().is_terminal();
        let width = terminal::stderr_width();
        let colours = is_terminal && terminal::has_colours();
        let text = session_recap::recap(&turns(entries(work)), width, colours);
        if !text.is_empty() {
            self.say(&format!("\n{}", text.trim_end_matches('\n')));
        }
    }

    /// Prints the command that resumes this session.
    pub(crate) fn show_resume_hint(&self) {
        let Some(work) = &self.work else { return };
        let here = std::env::current_dir().is_ok_and(|here| here == self.settings.cwd);
        let workspace = match here {
            true => String::new(),
            false => format!(" --workspace {}", shell_word(&self.settings.cwd.to_string_lossy())),
        };
        self.say(&format!("to continue this session: g3{workspace} --resume {}", work.session.id));
    }

    /// Opens the selected session; a new one is named after the first message.
    pub(crate) fn open(&mut self, words: &str) -> Result<()> {
        let selector = match &self.selector {
            SessionSelector::New(_) => SessionSelector::New(words.to_owned()),
            SessionSelector::Resume(wanted) => SessionSelector::Resume(wanted.clone()),
        };
        let work =
            AgentSession::begin(&self.settings, &selector, self.bus.clone(), self.asker.clone())?;
        self.selector = SessionSelector::Resume(Some(work.session.id.to_string()));
        self.is_unfinished = is_unfinished(&entries(&work));
        self.work = Some(work);
        Ok(())
    }

    /// Closes the session and frees its lock immediately. Returns whether one was open.
    pub(crate) fn leave(&mut self) -> bool {
        let Some(mut work) = self.work.take() else { return false };
        self.closing.push(work.shutdown());
        true
    }

    /// Ends everything that the closed sessions keep running.
    pub(super) async fn close(&mut self) {
        for handle in std::mem::take(&mut self.closing) {
            handle.finish().await;
        }
    }

    /// Prints a text for the user, not for the model.
    pub(crate) fn say(&self, text: &str) {
        crate::ui::say(text);
    }

    pub(super) fn prompt(&self) -> String {
        let full = self.work.as_ref().map_or(0, |work| work.conversation.window.percent());
        if std::io::stdout().is_terminal() && full > 0 {
            self.say(&rich_output::context_bar(full));
        }
        let mode = self.work.as_ref().map(AgentSession::permission_mode);
        match mode {
            Some(PermissionMode::Plan) => "plan> ".to_owned(),
            Some(PermissionMode::Ask) => "ask> ".to_owned(),
            Some(PermissionMode::Auto) | None => "g3> ".to_owned(),
        }
    }

    /// Returns the agent's session, or an error before the first message.
    pub(super) fn at_work(&mut self) -> Result<&mut AgentSession> {
        self.work.as_mut().ok_or_else(|| Failure::failed("the session is empty"))
    }
}

/// Reads the journal of a session; empty if it cannot be read.
fn entries(work: &AgentSession) -> Vec<ConversationEntry> {
    base::files::read_journal(&work.session.journal_path()).unwrap_or_default()
}

/// Formats a directory with `~` for the home directory.
fn below_home(path: &Path) -> String {
    let home = base::user_dirs::home_dir();
    match home.as_deref().and_then(|home| path.strip_prefix(home).ok()) {
        Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}

/// The state of the files before a turn.
struct FilesBefore(Result<(Checkpoints, String)>);

impl FilesBefore {
    /// Records the state of the files. An error, e.g. without git, is kept for
    /// [`FilesBefore::note`].
    fn take(work: &AgentSession) -> FilesBefore {
        let taken = Checkpoints::open(&work.session.dir, work.root());
        FilesBefore(
            taken.and_then(|checkpoints| {
                checkpoints.take_snapshot().map(|tree| (checkpoints, tree))
            }),
        )
    }

    /// Records the file changes of the turn, or warns that `/undo` cannot undo it.
    fn note(self, work: &AgentSession) {
        let noted = self.0.and_then(|(checkpoints, before)| {
            checkpoints.record(work.conversation.requests(), before, checkpoints.take_snapshot()?)
        });
        if let Err(failure) = noted {
            work.warn(format!("/undo cannot undo this turn: {}", failure.what));
        }
    }
}

/// Returns whether the last turn did not finish.
pub(crate) fn is_unfinished(entries: &[ConversationEntry]) -> bool {
    let mut unfinished = false;
    for entry in entries {
        match entry {
            ConversationEntry::Request { .. } => unfinished = true,
            ConversationEntry::Ended { status } => {
                unfinished = unfinished && status != RunStatus::Done.word()
            }
            ConversationEntry::Cleared | ConversationEntry::Rewound { .. } => unfinished = false,
            _ => {}
        }
    }
    unfinished
}

/// Returns the turns in these entries of a journal.
pub(crate) fn turns(entries: Vec<ConversationEntry>) -> Vec<PastTurn> {
    let mut all: Vec<PastTurn> = Vec::new();
    for entry in turns::effective(entries).entries {
        match entry {
            ConversationEntry::Request { message } => {
                all.push(PastTurn { asked: message.user_text(), ..PastTurn::default() });
            }
            ConversationEntry::Reply { message, .. } => {
                let Some(turn) = all.last_mut() else { continue };
                turn.calls.extend(message.calls().map(|call| call_line(&call.name, &call.args)));
                let words = message.full_text();
                if !words.trim().is_empty() {
                    turn.answer = words;
                }
            }
            ConversationEntry::Cleared => all.clear(),
            ConversationEntry::Opened { .. }
            | ConversationEntry::Prompt { .. }
            | ConversationEntry::Steered { .. }
            | ConversationEntry::Result { .. }
            | ConversationEntry::Thinned { .. }
            | ConversationEntry::Compacted { .. }
            | ConversationEntry::Dehydrated { .. }
            | ConversationEntry::Rehydrated { .. }
            | ConversationEntry::Rewound { .. }
            | ConversationEntry::Noted { .. }
            | ConversationEntry::Ended { .. } => {}
        }
    }
    all
}
