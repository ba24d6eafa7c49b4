//! Commands about models and sessions: switch the model, and start, fork or resume a session.

use base::failure::{Failure, Result};

use crate::modes::interactive::session::InteractiveSession;
use agent_core::run::SessionSelector;
use agent_core::session::snapshot::SessionSnapshot;
use agent_core::session::{self, fork as copies};
use base::text::cut_columns;
use provider::model_list::{self, ProviderModel};

/// `/model [NAME]`.
pub(crate) fn model(chat: &mut InteractiveSession, name: Option<String>) -> Result<()> {
    let Some(name) = name else {
        list_models(chat);
        return Ok(());
    };
    let config = &chat.settings.config;
    let (choice, note) = model_list::find(config, &chat.settings.choice, &name)?;
    let before = std::mem::replace(&mut chat.settings.choice, choice);
    if chat.leave()
        && let Err(failure) = chat.open("")
    {
        chat.settings.choice = before;
        // The session continues with the model that it had.
        chat.open("")?;
        return Err(failure);
    }
    let now = in_use(chat);
    let model = now.model.map_or(String::new(), |model| format!("{model} on "));
    chat.say(&format!("model: {model}{}", now.provider));
    note.iter().for_each(|note| chat.say(note));
    Ok(())
}

/// Returns the provider and the model in use.
fn in_use(chat: &InteractiveSession) -> ProviderModel {
    match &chat.work {
        Some(work) => {
            let facts = work.facts();
            ProviderModel { provider: facts.provider.clone(), model: Some(facts.model.clone()) }
        }
        None => model_list::chosen(&chat.settings.config, &chat.settings.choice),
    }
}

fn list_models(chat: &InteractiveSession) {
    let config = &chat.settings.config;
    let now = in_use(chat);
    let all = model_list::configured_and(config, &now);
    for listed in &all {
        let mark = if *listed == now { "*" } else { " " };
        let model = listed.model.as_deref().unwrap_or("(no model is set)");
        chat.say(&format!("{mark} {model}  ({})", listed.provider));
    }
    let others = model_list::others(config, &now, &all);
    if !others.is_empty() {
        chat.say(&format!("also on {}: {}", now.provider, others.join(", ")));
    }
    chat.say("/model NAME changes the model, /model TYPE.NAME the provider");
}

/// `/new`.
pub(crate) fn new(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    chat.show_resume_hint();
    chat.leave();
    chat.selector = SessionSelector::New(String::new());
    chat.say("your next message starts a new session");
    Ok(())
}

/// `/readme`.
pub(crate) fn readme(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    if chat.leave() {
        chat.open("")?;
    }
    chat.say("reloaded AGENTS.md and the workspace memory");
    Ok(())
}

/// `/fork [TURN]`.
pub(crate) fn fork(chat: &mut InteractiveSession, before: Option<String>) -> Result<()> {
    let before = before.map(|text| turn_number(&text)).transpose()?;
    let from = chat.at_work()?.session.dir.clone();
    let made = copies::fork(&chat.settings.cwd, &from, before)?;
    let id = made.id.to_string();
    // Releases the lock before the copy is opened.
    drop(made);
    switch_to(chat, &id)?;
    chat.say(&format!("this is {id} now; the session before it stays as it was"));
    Ok(())
}

/// Parses the number of a turn.
pub(crate) fn turn_number(text: &str) -> Result<usize> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
        Failure::usage(format!("`{text}` is no number of a turn")).hint("/rewind lists the turns")
    })
}

/// `/resume [ID]`.
pub(crate) fn resume(chat: &mut InteractiveSession, id: Option<String>) -> Result<()> {
    let cwd = &chat.settings.cwd;
    if let Some(wanted) = id {
        let id = session::find(cwd, Some(&wanted))?;
        switch_to(chat, id.as_str())?;
        chat.show_end();
        return Ok(());
    }
    let dir = session::sessions_dir(cwd);
    let line = |id: base::id::Id| {
        let seen = SessionSnapshot::read(&dir.join(id.as_str()), id.as_str());
        format!(
            "{id:30}  {:20}  {}",
            seen.updated_at,
            cut_columns(&seen.task.replace('\n', " "), 60)
        )
    };
    let lines: Vec<String> = session::list(cwd)?.into_iter().take(20).map(line).collect();
    chat.say(if lines.is_empty() { "there are no sessions here" } else { "sessions here:" });
    chat.say(&lines.join("\n"));
    Ok(())
}

/// Switches to another session. On an error, the current one stays open.
fn switch_to(chat: &mut InteractiveSession, id: &str) -> Result<()> {
    let was_open = chat.leave();
    let before =
        std::mem::replace(&mut chat.selector, SessionSelector::Resume(Some(id.to_owned())));
    chat.open("").or_else(|failure| {
        chat.selector = before;
        if was_open {
            chat.open("")?;
        }
        Err(failure)
    })
}
