//! The commands at the prompt: one table, one function each.

use base::failure::{Failure, Result};

use super::Chat;
use crate::fragment::{self, Fragment};
use crate::run::{Which, Work};
use crate::session;
use crate::session::snapshot::Snapshot;
use crate::ui::{cut_to, tokens};

/// Every command and what it does, in the order of `/help`.
pub const TABLE: &[(&str, &str)] = &[
    ("/help", "show this list"),
    ("/stats", "tokens, cost and context of this session"),
    ("/compact", "replace the conversation by a summary of it"),
    ("/clear", "drop the conversation, keep the session"),
    ("/fragments", "list the turns that --acd moved into files"),
    ("/rehydrate", "put such a turn back in its place: /rehydrate ID"),
    ("/model", "show the model, or go on with another: /model NAME"),
    ("/resume", "list the sessions here, or take one up: /resume ID"),
    ("/exit", "leave (Ctrl-D does as well)"),
];

/// A command as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `/help`.
    Help,
    /// `/stats`.
    Stats,
    /// `/compact`.
    Compact,
    /// `/clear`.
    Clear,
    /// `/fragments`.
    Fragments,
    /// `/rehydrate ID`.
    Rehydrate(Option<String>),
    /// `/model [NAME]`.
    Model(Option<String>),
    /// `/resume [ID]`.
    Resume(Option<String>),
    /// `/exit`.
    Exit,
}

impl Command {
    /// Reads a line; `None` when it is meant for the model.
    pub fn parse(line: &str) -> Option<Result<Command>> {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
        Some(Ok(match name {
            "exit" | "quit" if rest.is_empty() => Command::Exit,
            _ if !name.starts_with('/') || name[1..].contains('/') => return None,
            "/help" => Command::Help,
            "/stats" => Command::Stats,
            "/compact" => Command::Compact,
            "/clear" => Command::Clear,
            "/fragments" => Command::Fragments,
            "/rehydrate" => Command::Rehydrate(argument),
            "/model" => Command::Model(argument),
            "/resume" => Command::Resume(argument),
            "/exit" | "/quit" => Command::Exit,
            _ => {
                let what = format!("there is no command `{name}`");
                return Some(Err(Failure::usage(what).next("/help")));
            }
        }))
    }
}

/// Carries a command out.
pub async fn run(command: Command, chat: &mut Chat) -> Result<()> {
    match command {
        Command::Help => help(chat),
        Command::Stats => stats(chat),
        Command::Compact => return compact(chat).await,
        Command::Clear => clear(chat)?,
        Command::Fragments => fragments(chat)?,
        Command::Rehydrate(id) => rehydrate(chat, id)?,
        Command::Model(name) => model(chat, name)?,
        Command::Resume(id) => resume(chat, id)?,
        Command::Exit => {}
    }
    Ok(())
}

fn help(chat: &Chat) {
    let lines: Vec<String> = TABLE.iter().map(|(name, does)| format!("{name:10} {does}")).collect();
    chat.say(&lines.join("\n"));
}

fn stats(chat: &Chat) {
    let Some(work) = &chat.work else { return chat.say("nothing was said yet") };
    let (usage, window) = (work.talk.usage(), &work.talk.window);
    let cost = usage.cost_usd.map_or_else(|| "unknown".to_owned(), |usd| format!("${usd:.4}"));
    chat.say(&format!(
        "session  {}\nmodel    {} on {}\nturns    {}\ntokens   {} in, {} from cache, {} out\n\
         cost     {cost}\ncontext  {} of {} ({}%)",
        work.session.id,
        work.facts().model,
        work.facts().provider,
        work.talk.turns(),
        tokens(usage.input + usage.cache_write),
        tokens(usage.cache_read),
        tokens(usage.output),
        tokens(window.used()),
        tokens(window.limit()),
        window.percent()
    ));
}

async fn compact(chat: &mut Chat) -> Result<()> {
    let tokens = chat.interrupts.begin();
    let done = match at_work(chat) {
        Ok(work) => work.compact(tokens.cancel).await,
        Err(failure) => Err(failure),
    };
    chat.interrupts.over();
    done
}

fn clear(chat: &mut Chat) -> Result<()> {
    if let Some(work) = &mut chat.work {
        work.talk.clear()?;
    }
    chat.say("the conversation is empty now");
    Ok(())
}

fn fragments(chat: &mut Chat) -> Result<()> {
    let all = fragment::list(&at_work(chat)?.session.dir);
    let line = |one: &Fragment| {
        let asked = cut_to(&one.first_user_message.replace('\n', " "), 60);
        format!("{}  {}  {}  {asked}", one.fragment_id, one.created_at, one.calls())
    };
    let lines: Vec<String> = all.iter().map(line).collect();
    chat.say(if lines.is_empty() { "no turn was moved into a file" } else { "moved turns:" });
    chat.say(&lines.join("\n"));
    Ok(())
}

fn rehydrate(chat: &mut Chat, id: Option<String>) -> Result<()> {
    let Some(id) = id else {
        return Err(Failure::usage("which turn?").next("/fragments lists them"));
    };
    let work = at_work(chat)?;
    let fragment = Fragment::read(&work.session.dir, &id).map_err(|why| {
        Failure::usage(format!("cannot bring `{id}` back")).because(why).next("/fragments")
    })?;
    let count = fragment.message_count;
    work.talk.rehydrate(fragment)?;
    chat.say(&format!("{count} messages are back in their place"));
    Ok(())
}

/// The session, taken up when it was not yet.
fn at_work(chat: &mut Chat) -> Result<&mut Work> {
    chat.work.as_mut().ok_or_else(|| Failure::failed("nothing was said yet"))
}

fn model(chat: &mut Chat, name: Option<String>) -> Result<()> {
    let Some(name) = name else {
        let current = chat.work.as_ref().map(|work| work.facts().model.clone());
        let current = current.or_else(|| chat.settings.model.clone());
        chat.say(&current.unwrap_or_else(|| "the one of the configuration".to_owned()));
        return Ok(());
    };
    let before = chat.settings.model.replace(name);
    if chat.work.take().is_none() {
        return Ok(());
    }
    chat.open("").inspect_err(|_| chat.settings.model = before)
}

fn resume(chat: &mut Chat, id: Option<String>) -> Result<()> {
    let cwd = &chat.settings.cwd;
    if let Some(wanted) = id {
        let id = session::find(cwd, Some(&wanted))?;
        chat.work = None;
        chat.which = Which::Resume(Some(id.to_string()));
        return chat.open("");
    }
    let dir = session::sessions_dir(cwd);
    let line = |id: base::id::Id| {
        let seen = Snapshot::read(&dir.join(id.as_str()), id.as_str());
        format!("{id:30}  {:20}  {}", seen.updated_at, cut_to(&seen.task.replace('\n', " "), 60))
    };
    let lines: Vec<String> = session::list(cwd)?.into_iter().take(20).map(line).collect();
    chat.say(if lines.is_empty() { "there are no sessions here" } else { "sessions here:" });
    chat.say(&lines.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_table_is_understood() {
        for (name, _) in TABLE {
            assert!(matches!(Command::parse(name), Some(Ok(_))), "{name}");
        }
        assert!(matches!(Command::parse("/nope"), Some(Err(_))));
    }

    #[test]
    fn paths_and_words_are_for_the_model() {
        for line in ["/usr/bin is full", "explain exit codes", "exit now please"] {
            assert!(Command::parse(line).is_none(), "{line}");
        }
    }
}
