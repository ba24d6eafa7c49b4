//! The commands at the prompt: one table, with a function for each.

pub mod conversation;
pub mod files;
pub mod plan;
pub mod sessions;

use agent_core::run::AgentSession;
use base::failure::{Failure, Result};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::session::InteractiveSession;

/// A command.
pub(crate) struct SlashCommand {
    /// The name, as typed.
    pub name: &'static str,
    /// Its description in `/help`.
    pub does: &'static str,
    run: CommandFunction,
}

/// The function of a command.
enum CommandFunction {
    Terminal(TerminalFunction),
    Conversation(ConversationFunction),
}

/// Runs a command at the terminal with the text after its name.
type TerminalFunction =
    for<'a> fn(&'a mut InteractiveSession, Option<String>) -> BoxFuture<'a, Result<()>>;

/// Runs a command about the conversation with the text after its name, at the terminal or in an
/// editor, and returns a text for the user.
pub(crate) type ConversationFunction = for<'a> fn(
    &'a mut AgentSession,
    Option<String>,
    CancellationToken,
) -> BoxFuture<'a, Result<String>>;

/// A row of the table; the function may be `async`.
macro_rules! command {
    ($name:literal, $does:literal, in_editors $run:path) => {
        SlashCommand {
            name: $name,
            does: $does,
            run: CommandFunction::Conversation(|work, words, _| {
                Box::pin(async move { $run(work, words) })
            }),
        }
    };
    ($name:literal, $does:literal, async in_editors $run:path) => {
        SlashCommand {
            name: $name,
            does: $does,
            run: CommandFunction::Conversation(|work, words, cancel| {
                Box::pin($run(work, words, cancel))
            }),
        }
    };
    ($name:literal, $does:literal, async $run:path) => {
        SlashCommand {
            name: $name,
            does: $does,
            run: CommandFunction::Terminal(|chat, words| Box::pin($run(chat, words))),
        }
    };
    ($name:literal, $does:literal, $run:path) => {
        SlashCommand {
            name: $name,
            does: $does,
            run: CommandFunction::Terminal(|chat, words| {
                Box::pin(async move { $run(chat, words) })
            }),
        }
    };
}

/// All commands, in the order of `/help`.
pub(crate) const TABLE: &[SlashCommand] = &[
    command!("/help", "show this list", help),
    command!("/stats", "show tokens, cost and context usage", in_editors conversation::stats),
    command!("/cost", "show the cost of each model", in_editors conversation::cost),
    command!("/model", "list the models, or switch: /model NAME", sessions::model),
    command!("/new", "start a new session with your next message", sessions::new),
    command!("/retry", "retry after an error or an interrupt", async retry),
    command!("/diff", "show the file changes of this session", files::diff),
    command!("/copy", "copy the last answer to the clipboard", conversation::copy),
    command!("/plan", "plan before making changes: /plan TEXT; without TEXT: show the plan", async plan::plan),
    command!("/approve", "approve the plan", async plan::approve),
    command!("/mode", "show or set the permission mode: /mode auto, ask or plan", plan::mode),
    command!("/undo", "undo the file changes of the last turn", files::undo),
    command!(
        "/rewind",
        "list the turns, or go back to before one, with its files: /rewind TURN",
        files::rewind
    ),
    command!("/fork", "fork this session, whole or up to a turn: /fork TURN", sessions::fork),
    command!("/resume", "list the sessions, or resume one: /resume ID", sessions::resume),
    command!("/clear", "clear the conversation, keep the session", in_editors conversation::clear),
    command!(
        "/compact",
        "replace the conversation with a summary",
        async in_editors conversation::compact
    ),
    command!(
        "/thinnify",
        "move large calls and results of the first third into files",
        in_editors conversation::thin
    ),
    command!("/skinnify", "the same for all but the last calls", in_editors conversation::skin),
    command!("/fragments", "list the turns that --acd moved into files", in_editors conversation::fragments),
    command!("/rehydrate", "restore a moved turn: /rehydrate ID", in_editors conversation::rehydrate),
    command!("/run", "send the content of a file as a message: /run FILE", async files::run),
    command!("/project", "tell the model about a project: /project DIRECTORY", files::project),
    command!("/unproject", "unload the project", files::unproject),
    command!("/readme", "reload AGENTS.md and the workspace memory", sessions::readme),
    command!("/dump", "write the conversation to a file", in_editors conversation::dump),
    command!("/exit", "exit (or Ctrl-D)", exit),
];

/// The meaning of a line.
pub(crate) enum TypedLine {
    /// A message to the model.
    Words,
    /// Exits.
    Exit,
    /// A command and the text after it.
    Command(&'static SlashCommand, Option<String>),
    /// An unknown command.
    Unknown(Failure),
}

/// Parses a line.
pub(crate) fn read(line: &str) -> TypedLine {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let words = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
    if rest.is_empty() && matches!(name, "exit" | "quit" | "/quit" | "/exit") {
        return TypedLine::Exit;
    }
    if !name.starts_with('/') || name[1..].contains('/') {
        return TypedLine::Words;
    }
    match TABLE.iter().find(|command| command.name == name) {
        Some(command) => TypedLine::Command(command, words),
        None => {
            let similar = base::text::similar(name, TABLE.iter().map(|command| command.name));
            let failure = Failure::usage(format!("no such command: `{name}`"));
            TypedLine::Unknown(failure.hint(similar.first().copied().unwrap_or("/help")))
        }
    }
}

impl SlashCommand {
    /// Runs the command at the terminal.
    pub(crate) async fn run(
        &self,
        chat: &mut InteractiveSession,
        words: Option<String>,
    ) -> Result<()> {
        let run = match &self.run {
            CommandFunction::Terminal(run) => return run(chat, words).await,
            CommandFunction::Conversation(run) => run,
        };
        let tokens = chat.interrupts.begin();
        let result = match chat.at_work() {
            Ok(work) => run(work, words, tokens.cancel).await,
            Err(failure) => Err(failure),
        };
        chat.interrupts.over();
        result.map(|text| chat.say(&text))
    }

    /// Returns its function if it is about the conversation, so that an editor can run it as well.
    pub(crate) fn about_conversation(&self) -> Option<ConversationFunction> {
        match &self.run {
            CommandFunction::Conversation(run) => Some(*run),
            CommandFunction::Terminal(_) => None,
        }
    }
}

fn help(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    let line = |command: &SlashCommand| format!("{:11} {}", command.name, command.does);
    let lines: Vec<String> = TABLE.iter().map(line).collect();
    chat.say(&lines.join("\n"));
    Ok(())
}

async fn retry(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    chat.retry().await
}

fn exit(_: &mut InteractiveSession, words: Option<String>) -> Result<()> {
    let words = words.unwrap_or_default();
    Err(Failure::usage(format!("/exit takes no arguments: `{words}`")).hint("/exit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_table_is_parsed() {
        for command in TABLE {
            let fits = match read(command.name) {
                TypedLine::Command(found, None) => found.name == command.name,
                TypedLine::Exit => command.name == "/exit",
                TypedLine::Command(..) | TypedLine::Words | TypedLine::Unknown(_) => false,
            };
            assert!(fits, "{}", command.name);
        }
        let TypedLine::Unknown(failure) = read("/comapct") else { panic!("it is known") };
        assert_eq!(failure.hints, ["/compact"]);
    }

    #[test]
    fn paths_and_text_are_messages_to_the_model() {
        for line in ["/usr/bin is full", "explain exit codes", "exit now please"] {
            assert!(matches!(read(line), TypedLine::Words), "{line}");
        }
    }
}
