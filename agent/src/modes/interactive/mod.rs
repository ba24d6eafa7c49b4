//! `g3` without a task: a conversation, line by line.

pub mod commands;
pub mod editor;

use std::io::IsTerminal;
use std::sync::Arc;

use base::event::Status;
use base::failure::{Failure, Kind, Result};

use self::commands::Typed;
use self::editor::{Line, LineEditor};
use super::interrupt::Interrupts;
use crate::gate::Asker;
use crate::gate::stance::Stance;
use crate::message::{Message, Role};
use crate::prompt::template;
use crate::run::left::Left;
use crate::run::{Settings, Which, Work};
use crate::session::checkpoint::Checkpoints;
use crate::ui::{Bus, rich};

/// A conversation. The session is made when the first words are said.
pub struct Chat {
    settings: Settings,
    which: Which,
    work: Option<Work>,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
    interrupts: Interrupts,
    left: Vec<Left>,
}

/// Talks until the user leaves.
pub async fn run(
    settings: Settings,
    which: Which,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
) -> Result<Status> {
    let interrupts = Interrupts::listen()?;
    let mut chat = Chat { settings, which, work: None, bus, asker, interrupts, left: Vec::new() };
    if matches!(chat.which, Which::Resume(_)) {
        chat.open("")?;
    }
    let mut editor = LineEditor::open(&chat.settings.cwd)?;
    chat.say(&format!("g3 {} · /help shows the commands", env!("CARGO_PKG_VERSION")));
    loop {
        let (back, line) = editor.read(chat.prompt()).await?;
        editor = back;
        match line {
            Line::End => break,
            Line::Nothing => {}
            Line::Words(words) => match commands::read(&words) {
                Typed::Words => chat.turn(template(&words)).await?,
                Typed::Exit => break,
                Typed::Command(command, words) => {
                    if let Err(failure) = command.run(&mut chat, words).await {
                        if failure.kind == Kind::Interrupted {
                            return Err(failure);
                        }
                        chat.say(&failure.to_string());
                    }
                    chat.close().await;
                }
                Typed::Unknown(failure) => chat.say(&failure.to_string()),
            },
        }
    }
    chat.leave();
    chat.close().await;
    Ok(Status::Done)
}

/// The files as they were before a turn.
struct Picture(Result<(Checkpoints, String)>);

impl Picture {
    /// Without git, or where it fails, there is none; `/undo` says why.
    fn take(work: &Work) -> Picture {
        let taken = Checkpoints::open(&work.session.dir, work.root());
        Picture(taken.and_then(|checkpoints| checkpoints.take().map(|tree| (checkpoints, tree))))
    }

    /// Notes what the turn did to them.
    fn note(self, work: &Work) {
        let noted = self.0.and_then(|(checkpoints, before)| {
            checkpoints.note(work.talk.requests(), before, checkpoints.take()?)
        });
        if let Err(failure) = noted {
            work.warn(format!("/undo will not know this turn: {}", failure.what));
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
        let before = Picture::take(work);
        let tokens = self.interrupts.begin();
        let message = Message::text(Role::User, words);
        let ended = tokio::select! {
            ended = work.turn(message, tokens.cancel.clone()) => Some(ended),
            () = tokens.end.cancelled() => None,
        };
        self.interrupts.over();
        before.note(work);
        match ended {
            Some(ended) => {
                if let Some(failure) = ended.failure {
                    self.say(&failure.to_string());
                }
                Ok(())
            }
            None => Err(Failure::new(Kind::Interrupted, "interrupted")),
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

    /// Leaves the session, if one is open; its lock is free at once.
    pub fn leave(&mut self) -> bool {
        let Some(mut work) = self.work.take() else { return false };
        self.left.push(work.leave());
        true
    }

    /// Ends what the sessions kept running that were left.
    async fn close(&mut self) {
        for left in std::mem::take(&mut self.left) {
            left.close().await;
        }
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
        let stance = self.work.as_ref().map(Work::stance);
        match stance {
            Some(Stance::Plan) => "plan> ".to_owned(),
            Some(Stance::Ask) => "ask> ".to_owned(),
            Some(Stance::Auto) | None => "g3> ".to_owned(),
        }
    }
}
