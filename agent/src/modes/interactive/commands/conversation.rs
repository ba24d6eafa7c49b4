//! Commands about the conversation: show its cost, make it smaller, copy it or write it to a file.

use std::fmt::Write;

use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use base::text::count;

use crate::modes::interactive::session::InteractiveSession;
use crate::ui::{bill, clipboard, tokens};
use agent_core::fragment::{self, Fragment};
use agent_core::session::snapshot::SessionSnapshot;
use base::text::cut_columns;
use provider::message::{ContentPart, MessageRole};

/// `/stats`.
pub(crate) fn stats(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    let work = chat.at_work()?;
    let (usage, window) = (work.conversation.usage(), &work.conversation.window);
    let cost = usage.cost_text().unwrap_or_else(|| "unknown".to_owned());
    let text = format!(
        "session  {}\nmodel    {} on {}\nturns    {}\ntokens   {} in, {} from cache, {} out\n\
         cost     {cost}\ncontext  {} of {} ({}%)",
        work.session.id,
        work.facts().model,
        work.facts().provider,
        work.conversation.turns(),
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
pub(crate) fn cost(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    let session = &chat.at_work()?.session;
    let entries = base::files::read_journal(&session.journal_path());
    let entries: Vec<_> = entries.or_fail(|| "cannot read the session's journal")?;
    let mut seen = SessionSnapshot::new(session.id.as_str());
    entries.iter().for_each(|entry| seen.apply(entry, None));
    for (model, line) in &seen.by_model {
        chat.say(&format!("{model}: {}", bill(line.calls, line.usage)));
    }
    Ok(())
}

/// `/compact`.
pub(crate) async fn compact(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    let tokens = chat.interrupts.begin();
    let done = match chat.at_work() {
        Ok(work) => work.compact(tokens.cancel).await,
        Err(failure) => Err(failure),
    };
    chat.interrupts.over();
    done
}

/// `/clear`.
pub(crate) fn clear(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    if let Some(work) = &mut chat.work {
        work.conversation.clear()?;
    }
    chat.is_unfinished = false;
    chat.say("the conversation was cleared");
    Ok(())
}

/// `/thinnify`.
pub(crate) fn thin(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    thin_to(chat, 3)
}

/// `/skinnify`.
pub(crate) fn skin(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    thin_to(chat, 1)
}

fn thin_to(chat: &mut InteractiveSession, part: usize) -> Result<()> {
    let talk = &mut chat.at_work()?.conversation;
    let before = talk.window.percent();
    let moved = talk.thin_now(part)?;
    let after = talk.window.percent();
    chat.say(&match moved {
        0 => "no large calls to move".to_owned(),
        1 => format!("moved 1 call to a file: {before}% -> {after}%"),
        _ => format!("moved {moved} calls to files: {before}% -> {after}%"),
    });
    Ok(())
}

/// `/copy`.
pub(crate) fn copy(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    let cwd = chat.settings.cwd.clone();
    let messages = chat.at_work()?.conversation.messages().iter().rev();
    let mut answers = messages.filter(|message| message.role == MessageRole::Assistant);
    let words = answers.find_map(|message| {
        Some(message.full_text().trim().to_owned()).filter(|words| !words.is_empty())
    });
    let words = words.ok_or_else(|| Failure::failed("no answer yet"))?;
    let method = clipboard::copy(&words, &cwd)
        .map_err(|error| Failure::failed("cannot copy the answer").because(error))?;
    chat.say(&format!("copied {} {method}", count(words.lines().count(), "line")));
    Ok(())
}

/// `/fragments`.
pub(crate) fn fragments(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    let all = fragment::list(&chat.at_work()?.session.dir);
    let line = |one: &Fragment| {
        let asked = cut_columns(&one.first_user_message.replace('\n', " "), 60);
        format!("{}  {}  {}  {asked}", one.fragment_id, one.created_at, one.calls())
    };
    let lines: Vec<String> = all.iter().map(line).collect();
    chat.say(if lines.is_empty() { "no moved turns" } else { "moved turns:" });
    chat.say(&lines.join("\n"));
    Ok(())
}

/// `/rehydrate ID`.
pub(crate) fn rehydrate(chat: &mut InteractiveSession, id: Option<String>) -> Result<()> {
    let Some(id) = id else {
        return Err(Failure::usage("which turn?").hint("/fragments lists them"));
    };
    let work = chat.at_work()?;
    let fragment = Fragment::read(&work.session.dir, &id).map_err(|error| {
        Failure::usage(format!("cannot restore `{id}`")).because(error).hint("/fragments")
    })?;
    let count = fragment.message_count;
    work.conversation.rehydrate(fragment)?;
    chat.say(&format!("restored {count} messages"));
    Ok(())
}

/// `/dump`.
pub(crate) fn dump(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    let work = chat.at_work()?;
    let stamp = Clock::from_env().stamp().replace(':', "-");
    let file = work.session.dir.join(format!("dump-{stamp}.txt"));
    let mut text = String::new();
    for (n, message) in work.conversation.messages().iter().enumerate() {
        let role = match message.role {
            MessageRole::User => "user",
            MessageRole::Assistant => "assistant",
        };
        for part in &message.parts {
            let (kind, words) = match part {
                ContentPart::Text { text } => ("text", text.clone()),
                ContentPart::Note(note) => ("note", note.text.clone()),
                ContentPart::Reasoning { text, .. } => ("reasoning", text.clone()),
                ContentPart::Call(call) => ("call", format!("{} {}", call.name, call.args)),
                ContentPart::Result(result) => ("result", result.text.clone()),
                ContentPart::Image(image) => ("image", image.media_type.clone()),
            };
            let _ = writeln!(text, "--- {n} {role} {kind} {} bytes\n{words}", words.len());
        }
    }
    base::files::replace(&file, text.as_bytes())
        .or_fail(|| format!("cannot write {}", file.display()))?;
    chat.say(&format!("written to {}", file.display()));
    Ok(())
}
