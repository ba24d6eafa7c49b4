//! Commands about the conversation: show its cost, make it smaller, copy it or write it to a file.

use std::fmt::Write;

use agent_core::run::AgentSession;
use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use base::text::count;
use tokio_util::sync::CancellationToken;

use crate::modes::interactive::session::InteractiveSession;
use crate::ui::{bill, clipboard, tokens};
use agent_core::fragment::{self, Fragment};
use agent_core::session::snapshot::{ModelUsage, SessionSnapshot};
use base::text::cut_columns;
use provider::message::{ContentPart, MessageRole};

/// `/stats`.
pub(crate) fn stats(work: &mut AgentSession, _: Option<String>) -> Result<String> {
    let (usage, window) = (work.conversation.usage(), &work.conversation.window);
    let cost = usage.cost_text().unwrap_or_else(|| "unknown".to_owned());
    Ok(format!(
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
    ))
}

/// `/cost`.
pub(crate) fn cost(work: &mut AgentSession, _: Option<String>) -> Result<String> {
    let session = &work.session;
    let entries = base::files::read_journal(&session.journal_path());
    let entries: Vec<_> = entries.or_fail(|| "cannot read the session's journal")?;
    let mut seen = SessionSnapshot::new(session.id.as_str());
    entries.iter().for_each(|entry| seen.apply(entry, None));
    let line = |(model, line): (&String, &ModelUsage)| {
        format!("{model}: {}", bill(line.calls, line.usage))
    };
    let lines: Vec<String> = seen.by_model.iter().map(line).collect();
    Ok(if lines.is_empty() { "no model requests yet".to_owned() } else { lines.join("\n") })
}

/// `/compact`.
pub(crate) async fn compact(
    work: &mut AgentSession,
    _: Option<String>,
    cancel: CancellationToken,
) -> Result<String> {
    let before = work.conversation.window.percent();
    work.compact(cancel).await?;
    Ok(format!("context: {before}% -> {}%", work.conversation.window.percent()))
}

/// `/clear`.
pub(crate) fn clear(work: &mut AgentSession, _: Option<String>) -> Result<String> {
    work.conversation.clear()?;
    Ok("the conversation was cleared".to_owned())
}

/// `/thinnify`.
pub(crate) fn thin(work: &mut AgentSession, _: Option<String>) -> Result<String> {
    thin_to(work, 3)
}

/// `/skinnify`.
pub(crate) fn skin(work: &mut AgentSession, _: Option<String>) -> Result<String> {
    thin_to(work, 1)
}

fn thin_to(work: &mut AgentSession, part: usize) -> Result<String> {
    let talk = &mut work.conversation;
    let before = talk.window.percent();
    let moved = talk.thin_now(part)?;
    let after = talk.window.percent();
    Ok(match moved {
        0 => "no large calls to move".to_owned(),
        1 => format!("moved 1 call to a file: {before}% -> {after}%"),
        _ => format!("moved {moved} calls to files: {before}% -> {after}%"),
    })
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
pub(crate) fn fragments(work: &mut AgentSession, _: Option<String>) -> Result<String> {
    let all = fragment::list(&work.session.dir);
    let line = |one: &Fragment| {
        let asked = cut_columns(&one.first_user_message.replace('\n', " "), 60);
        format!("{}  {}  {}  {asked}", one.fragment_id, one.created_at, one.calls())
    };
    let lines: Vec<String> = all.iter().map(line).collect();
    Ok(match lines.is_empty() {
        true => "no moved turns".to_owned(),
        false => format!("moved turns:\n{}", lines.join("\n")),
    })
}

/// `/rehydrate ID`.
pub(crate) fn rehydrate(work: &mut AgentSession, id: Option<String>) -> Result<String> {
    let Some(id) = id else {
        return Err(Failure::usage("which turn?").hint("/fragments lists them"));
    };
    let fragment = Fragment::read(&work.session.dir, &id).map_err(|error| {
        Failure::usage(format!("cannot restore `{id}`")).because(error).hint("/fragments")
    })?;
    let count = fragment.message_count;
    work.conversation.rehydrate(fragment)?;
    Ok(format!("restored {count} messages"))
}

/// `/dump`.
pub(crate) fn dump(work: &mut AgentSession, _: Option<String>) -> Result<String> {
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
    Ok(format!("written to {}", file.display()))
}
