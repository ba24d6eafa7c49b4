//! The commands at the prompt: one table, one function each.

pub mod conversation;
pub mod files;
pub mod plan;
pub mod sessions;

use base::failure::{Failure, Result};
use futures_util::future::BoxFuture;

use super::Chat;
use crate::run::AgentSession;

/// A command.
pub struct Command {
    /// As typed.
    pub name: &'static str,
    /// What `/help` says about it.
    pub does: &'static str,
    run: Run,
}

/// Carries a command out; what follows its name is given along.
type Run = for<'a> fn(&'a mut Chat, Option<String>) -> BoxFuture<'a, Result<()>>;

/// A row of the table; the function is `async` or not.
macro_rules! command {
    ($name:literal, $does:literal, async $run:path) => {
        Command { name: $name, does: $does, run: |chat, words| Box::pin($run(chat, words)) }
    };
    ($name:literal, $does:literal, $run:path) => {
        Command {
            name: $name,
            does: $does,
            run: |chat, words| Box::pin(async move { $run(chat, words) }),
        }
    };
}

/// Every command, in the order of `/help`.
pub const TABLE: &[Command] = &[
    command!("/help", "show this list", help),
    command!("/stats", "tokens, cost and context of this session", conversation::stats),
    command!("/cost", "what each model cost", conversation::cost),
    command!("/model", "list the models, or go on with another: /model NAME", sessions::model),
    command!("/new", "begin a new session with your next words", sessions::new),
    command!("/retry", "ask again after an error or an interrupt", async retry),
    command!("/diff", "what this session changed in files", files::diff),
    command!("/copy", "copy the last answer to the clipboard", conversation::copy),
    command!("/plan", "plan before anything is changed: /plan TEXT; alone: the plan", async plan::plan),
    command!("/approve", "approve the plan as it stands", async plan::approve),
    command!("/mode", "how much g3 may do by itself: /mode auto, ask or plan", plan::mode),
    command!("/undo", "take back what the last turn did to files", files::undo),
    command!(
        "/rewind",
        "list the turns, or go back to before one, files included: /rewind TURN",
        files::rewind
    ),
    command!("/fork", "go on in a copy of this session, whole or before a turn", sessions::fork),
    command!("/resume", "list the sessions here, or take one up: /resume ID", sessions::resume),
    command!("/clear", "drop the conversation, keep the session", conversation::clear),
    command!(
        "/compact",
        "replace the conversation by a summary of it",
        async conversation::compact
    ),
    command!(
        "/thinnify",
        "move what large calls of the first third said and got into files",
        conversation::thin
    ),
    command!("/skinnify", "the same for all calls but the last ones", conversation::skin),
    command!("/fragments", "list the turns that --acd moved into files", conversation::fragments),
    command!(
        "/rehydrate",
        "put such a turn back in its place: /rehydrate ID",
        conversation::rehydrate
    ),
    command!("/run", "say what a file says: /run FILE", async files::run),
    command!("/project", "tell the model about a project: /project DIRECTORY", files::project),
    command!("/unproject", "let that project go", files::unproject),
    command!("/readme", "read AGENTS.md and the workspace memory again", sessions::readme),
    command!("/dump", "write the conversation into a file", conversation::dump),
    command!("/exit", "leave (Ctrl-D does as well)", exit),
];

/// What a line means.
pub enum Typed {
    /// Words for the model.
    Words,
    /// The end.
    Exit,
    /// A command and what follows it.
    Command(&'static Command, Option<String>),
    /// There is no such command.
    Unknown(Failure),
}

/// Reads a line.
pub fn read(line: &str) -> Typed {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let words = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
    if rest.is_empty() && matches!(name, "exit" | "quit" | "/quit" | "/exit") {
        return Typed::Exit;
    }
    if !name.starts_with('/') || name[1..].contains('/') {
        return Typed::Words;
    }
    match TABLE.iter().find(|command| command.name == name) {
        Some(command) => Typed::Command(command, words),
        None => {
            let nearest = TABLE
                .iter()
                .map(|command| (strsim::jaro_winkler(command.name, name), command.name))
                .filter(|(score, _)| *score > 0.8)
                .max_by(|a, b| a.0.total_cmp(&b.0));
            let failure = Failure::usage(format!("there is no command `{name}`"));
            Typed::Unknown(failure.next(nearest.map_or("/help", |(_, name)| name)))
        }
    }
}

impl Command {
    /// Carries it out.
    pub async fn run(&self, chat: &mut Chat, words: Option<String>) -> Result<()> {
        (self.run)(chat, words).await
    }
}

fn help(chat: &mut Chat, _: Option<String>) -> Result<()> {
    let line = |command: &Command| format!("{:11} {}", command.name, command.does);
    let lines: Vec<String> = TABLE.iter().map(line).collect();
    chat.say(&lines.join("\n"));
    Ok(())
}

async fn retry(chat: &mut Chat, _: Option<String>) -> Result<()> {
    chat.retry().await
}

fn exit(_: &mut Chat, words: Option<String>) -> Result<()> {
    let words = words.unwrap_or_default();
    Err(Failure::usage(format!("/exit takes no words, and `{words}` was given")).next("/exit"))
}

/// The session, once something was said in it.
fn at_work(chat: &mut Chat) -> Result<&mut AgentSession> {
    chat.work.as_mut().ok_or_else(|| Failure::failed("nothing was said yet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_table_is_understood() {
        for command in TABLE {
            let fits = match read(command.name) {
                Typed::Command(found, None) => found.name == command.name,
                Typed::Exit => command.name == "/exit",
                Typed::Command(..) | Typed::Words | Typed::Unknown(_) => false,
            };
            assert!(fits, "{}", command.name);
        }
        let Typed::Unknown(failure) = read("/comapct") else { panic!("it is known") };
        assert_eq!(failure.next, ["/compact"]);
    }

    #[test]
    fn paths_and_words_are_for_the_model() {
        for line in ["/usr/bin is full", "explain exit codes", "exit now please"] {
            assert!(matches!(read(line), Typed::Words), "{line}");
        }
    }
}
