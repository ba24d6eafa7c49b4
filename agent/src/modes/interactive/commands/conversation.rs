//! Commands about the conversation: what it costs, and how it is made smaller.

use std::fmt::Write;

use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use base::text::count;

use super::at_work;
use crate::fragment::{self, Fragment};
use crate::modes::interactive::Chat;
use crate::session::snapshot::Snapshot;
use crate::ui::{bill, clipboard, cut_to, tokens};
use provider::message::{Part, Role};

/// `/stats`.
pub fn stats(chat: &mut Chat, _: Option<String>) -> Result<()> {
    let work = at_work(chat)?;
    let (usage, window) = (work.talk.usage(), &work.talk.window);
    let cost = usage.cost_text().unwrap_or_else(|| "unknown".to_owned());
    let text = format!(
        "session  {}\nmodel    {} on {}\nturns    {}\ntokens   {} in, {} from cache, {} out\n\
         cost     {cost}\ncontext  {} of {} ({}%)",
        work.session.id,
        work.facts().model,
        work.facts().provider,
        work.talk.turns(),
        tokens(usage.input.saturating_add(usage.cache_write)),
        tokens(usage.cache_read),
        tokens(usage.output),
        tokens(window.used()),
        tokens(window.limit()),
        window.percent()
    );
    chat.say(&text);
    Ok(())
}

/// `/cost`.
pub fn cost(chat: &mut Chat, _: Option<String>) -> Result<()> {
    let session = &at_work(chat)?.session;
    let entries = base::files::read_journal(&session.journal_path());
    let entries: Vec<_> = entries.or_fail(|| "cannot read the session's journal")?;
    let mut seen = Snapshot::new(session.id.as_str());
    entries.iter().for_each(|entry| seen.take(entry, None));
    for (model, line) in &seen.by_model {
        chat.say(&format!("{model}: {}", bill(line.calls, line.usage)));
    }
    Ok(())
}

/// `/compact`.
pub async fn compact(chat: &mut Chat, _: Option<String>) -> Result<()> {
    let tokens = chat.interrupts.begin();
    let done = match at_work(chat) {
        Ok(work) => work.compact(tokens.cancel).await,
        Err(failure) => Err(failure),
    };
    chat.interrupts.over();
    done
}

/// `/clear`.
pub fn clear(chat: &mut Chat, _: Option<String>) -> Result<()> {
    if let Some(work) = &mut chat.work {
        work.talk.clear()?;
    }
    chat.is_unfinished = false;
    chat.say("the conversation is empty now");
    Ok(())
}

/// `/thinnify`.
pub fn thin(chat: &mut Chat, _: Option<String>) -> Result<()> {
    thin_to(chat, 3)
}

/// `/skinnify`.
pub fn skin(chat: &mut Chat, _: Option<String>) -> Result<()> {
    thin_to(chat, 1)
}

fn thin_to(chat: &mut Chat, part: usize) -> Result<()> {
    let talk = &mut at_work(chat)?.talk;
    let before = talk.window.percent();
    let moved = talk.thin_now(part)?;
    let after = talk.window.percent();
    chat.say(&match moved {
        0 => "there is nothing large to move".to_owned(),
        1 => format!("1 call is in a file now: {before}% -> {after}%"),
        _ => format!("{moved} calls are in files now: {before}% -> {after}%"),
    });
    Ok(())
}

/// `/copy`.
pub fn copy(chat: &mut Chat, _: Option<String>) -> Result<()> {
    let cwd = chat.settings.cwd.clone();
    let messages = at_work(chat)?.talk.messages().iter().rev();
    let mut answers = messages.filter(|message| message.role == Role::Assistant);
    let words = answers.find_map(|message| {
        Some(message.words().trim().to_owned()).filter(|words| !words.is_empty())
    });
    let words = words.ok_or_else(|| Failure::failed("there is no answer yet"))?;
    let how = clipboard::copy(&words, &cwd)
        .map_err(|why| Failure::failed("cannot copy the answer").because(why))?;
    chat.say(&format!("copied {} {how}", count(words.lines().count(), "line")));
    Ok(())
}

/// `/fragments`.
pub fn fragments(chat: &mut Chat, _: Option<String>) -> Result<()> {
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

/// `/rehydrate ID`.
pub fn rehydrate(chat: &mut Chat, id: Option<String>) -> Result<()> {
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

/// `/dump`.
pub fn dump(chat: &mut Chat, _: Option<String>) -> Result<()> {
    let work = at_work(chat)?;
    let stamp = Clock::from_env().stamp().replace(':', "-");
    let file = work.session.dir.join(format!("dump-{stamp}.txt"));
    let mut text = String::new();
    for (n, message) in work.talk.messages().iter().enumerate() {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        for part in &message.parts {
            let (kind, words) = match part {
                Part::Text { text } => ("text", text.clone()),
                Part::Note(note) => ("note", note.text.clone()),
                Part::Reasoning { text, .. } => ("reasoning", text.clone()),
                Part::Call(call) => ("call", format!("{} {}", call.name, call.args)),
                Part::Result(result) => ("result", result.text.clone()),
                Part::Image(image) => ("image", image.media_type.clone()),
            };
            let _ = writeln!(text, "--- {n} {role} {kind} {} bytes\n{words}", words.len());
        }
    }
    base::files::replace(&file, text.as_bytes())
        .or_fail(|| format!("cannot write {}", file.display()))?;
    chat.say(&format!("written to {}", file.display()));
    Ok(())
}
