//! `g3` without a task: a conversation, line by line.

pub mod commands;
pub mod editor;

use std::io::IsTerminal;
use std::sync::Arc;

use base::event::Status;
use base::failure::{Failure, Result};

use self::commands::Command;
use self::editor::{Line, LineEditor};
use super::interrupt::Interrupts;
use crate::gate::Asker;
use crate::message::{Message, Role};
use crate::run::{Settings, Which, Work};
use crate::ui::{Bus, rich};

/// A conversation. The session is made when the first words are said.
pub struct Chat {
    settings: Settings,
    which: Which,
    work: Option<Work>,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
    interrupts: Interrupts,
}

/// Talks until the user leaves.
pub async fn run(
    settings: Settings,
    which: Which,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
) -> Result<Status> {
    let interrupts = Interrupts::listen()?;
    let mut chat = Chat { settings, which, work: None, bus, asker, interrupts };
    if matches!(chat.which, Which::Resume(_)) {
        chat.open("")?;
    }
    let mut editor = LineEditor::open()?;
    chat.say(&format!("g3 {} · /help shows the commands", env!("CARGO_PKG_VERSION")));
    loop {
        let (back, line) = editor.read(chat.prompt()).await?;
        editor = back;
        match line {
            Line::End => return Ok(Status::Done),
            Line::Nothing => {}
            Line::Words(words) => match Command::parse(&words) {
                None => chat.turn(words).await?,
                Some(Ok(Command::Exit)) => return Ok(Status::Done),
                Some(Ok(command)) => {
                    if let Err(failure) = commands::run(command, &mut chat).await {
                        chat.say(&failure.to_string());
                    }
                }
                Some(Err(failure)) => chat.say(&failure.to_string()),
            },
        }
    }
}

impl Chat {
    /// One turn of the user. A failure is shown, and the conversation goes on.
    async fn turn(&mut self, words: String) -> Result<()> {
        if self.work.is_none()
            && let Err(failure) = self.open(&words)
        {
            self.say(&failure.to_string());
            return Ok(());
        }
        let Some(work) = &mut self.work else { return Ok(()) };
        let tokens = self.interrupts.begin();
        let message = Message::text(Role::User, words);
        let ended = tokio::select! {
            ended = work.turn(message, tokens.cancel.clone()) => Some(ended),
            () = tokens.end.cancelled() => None,
        };
        self.interrupts.over();
        match ended {
            Some(ended) => {
                if let Some(failure) = ended.failure {
                    self.say(&failure.to_string());
                }
                Ok(())
            }
            None => Err(Failure::new(base::failure::Kind::Interrupted, "interrupted")),
        }
    }

    /// Opens the session that was asked for; a new one is named after the first words.
    pub fn open(&mut self, words: &str) -> Result<()> {
        let which = match &self.which {
            Which::New(_) => Which::New(words.to_owned()),
            Which::Resume(wanted) => Which::Resume(wanted.clone()),
        };
        let work = Work::begin(&self.settings, &which, self.bus.clone(), self.asker.clone())?;
        self.which = Which::Resume(Some(work.session.id.to_string()));
        self.work = Some(work);
        Ok(())
    }

    /// Something for the person, not for the model.
    pub fn say(&self, text: &str) {
        crate::ui::say(text);
    }

    fn prompt(&self) -> String {
        let full = self.work.as_ref().map_or(0, |work| work.talk.window.percent());
        if std::io::stdout().is_terminal() && full > 0 {
            self.say(&rich::context_bar(full));
        }
        "g3> ".to_owned()
    }
}
