//! Commands about sessions: another model, another session, a copy of this one.

use base::failure::{Failure, Result};

use super::at_work;
use crate::modes::interactive::Chat;
use crate::run::Which;
use crate::session::snapshot::Snapshot;
use crate::session::{self, fork as copies};
use crate::ui::cut_to;

/// `/model [NAME]`.
pub fn model(chat: &mut Chat, name: Option<String>) -> Result<()> {
    let Some(name) = name else {
        let current = chat.work.as_ref().map(|work| work.facts().model.clone());
        let current = current.or_else(|| chat.settings.choice.model.clone());
        chat.say(&current.unwrap_or_else(|| "the one of the configuration".to_owned()));
        return Ok(());
    };
    let before = chat.settings.choice.model.replace(name);
    if !chat.leave() {
        return Ok(());
    }
    chat.open("").inspect_err(|_| chat.settings.choice.model = before)
}

/// `/readme`.
pub fn readme(chat: &mut Chat, _: Option<String>) -> Result<()> {
    if chat.leave() {
        chat.open("")?;
    }
    chat.say("AGENTS.md and the workspace memory are read");
    Ok(())
}

/// `/fork [TURN]`.
pub fn fork(chat: &mut Chat, before: Option<String>) -> Result<()> {
    let before = before.map(|text| turn_number(&text)).transpose()?;
    let from = at_work(chat)?.session.dir.clone();
    let made = copies::fork(&chat.settings.cwd, &from, before)?;
    let id = made.id.to_string();
    // The lock goes before the session is taken up.
    drop(made);
    take_up(chat, &id)?;
    chat.say(&format!("this is {id} now; the session before it stays as it was"));
    Ok(())
}

/// The number of a turn as typed.
pub fn turn_number(text: &str) -> Result<usize> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
        Failure::usage(format!("`{text}` is no number of a turn")).next("/rewind lists the turns")
    })
}

/// `/resume [ID]`.
pub fn resume(chat: &mut Chat, id: Option<String>) -> Result<()> {
    let cwd = &chat.settings.cwd;
    if let Some(wanted) = id {
        let id = session::find(cwd, Some(&wanted))?;
        return take_up(chat, id.as_str());
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

/// Goes on in another session; where that cannot be, the one at work stays.
fn take_up(chat: &mut Chat, id: &str) -> Result<()> {
    let was_open = chat.leave();
    let before = std::mem::replace(&mut chat.which, Which::Resume(Some(id.to_owned())));
    chat.open("").or_else(|failure| {
        chat.which = before;
        if was_open {
            chat.open("")?;
        }
        Err(failure)
    })
}
