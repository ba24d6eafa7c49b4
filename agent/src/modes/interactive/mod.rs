//! `g3` without a task: an interactive session, line by line.

pub mod commands;
pub mod editor;
pub mod session;

use std::sync::Arc;

use base::event::RunStatus;
use base::failure::{FailureKind, Result};

use self::commands::TypedLine;
use self::editor::{LineEditor, PromptInput};
use self::session::InteractiveSession;
use super::interrupt::Interrupts;
use crate::ui::terminal::{self, QuietInput};
use agent_core::bus::Bus;
use agent_core::prompt::template;
use agent_core::run::{AgentSettings, SessionSelector};
use gate::Asker;
use provider::message::Image;

/// The start of an interactive session.
pub(crate) struct Opening {
    /// The session to open.
    pub selector: SessionSelector,
    /// Images for the first message.
    pub pictures: Vec<Image>,
}

impl Default for Opening {
    fn default() -> Opening {
        Opening { selector: SessionSelector::New(String::new()), pictures: Vec::new() }
    }
}

/// Runs until the user exits.
pub(crate) async fn run(
    settings: AgentSettings,
    opening: Opening,
    bus: Arc<Bus>,
    asker: Option<Arc<dyn Asker>>,
) -> Result<RunStatus> {
    let interrupts = Interrupts::listen()?;
    // The line editor echoes input itself; between two prompts nothing is echoed.
    let _quiet = QuietInput::begin();
    let Opening { selector, pictures } = opening;
    let mut chat = InteractiveSession {
        settings,
        selector,
        pictures,
        work: None,
        bus,
        asker,
        interrupts,
        closing: Vec::new(),
        is_unfinished: false,
    };
    if matches!(chat.selector, SessionSelector::Resume(_)) {
        chat.open("")?;
    }
    let mut editor = LineEditor::open(&chat.settings.cwd)?;
    chat.greet();
    let ended = loop {
        let (back, line) = editor.read(chat.prompt(), terminal::take_typed()).await?;
        editor = back;
        match line {
            PromptInput::End => break Ok(()),
            PromptInput::Nothing => {}
            PromptInput::Words(words) => match handle_line(&mut chat, &words).await {
                Ok(Next::Prompt) => {}
                Ok(Next::Leave) => break Ok(()),
                Err(failure) => break Err(failure),
            },
        }
    };
    chat.show_resume_hint();
    chat.leave();
    ended?;
    chat.close().await;
    Ok(RunStatus::Done)
}

/// What follows a line.
enum Next {
    Prompt,
    Leave,
}

/// Handles a line. Only an interrupt is returned as an error.
async fn handle_line(chat: &mut InteractiveSession, words: &str) -> Result<Next> {
    match commands::read(words) {
        TypedLine::Words => chat.turn(template(words)).await?,
        TypedLine::Exit => return Ok(Next::Leave),
        TypedLine::Command(command, words) => {
            if let Err(failure) = command.run(chat, words).await {
                if failure.kind == FailureKind::Interrupted {
                    return Err(failure);
                }
                chat.say(&failure.to_string());
            }
            chat.close().await;
        }
        TypedLine::Unknown(failure) => chat.say(&failure.to_string()),
    }
    Ok(Next::Prompt)
}
