//! Commands about the plan and the permission mode.

use base::failure::{Failure, OrFail, Result};

use crate::modes::interactive::session::InteractiveSession;
use agent_core::prompt::template;
use agent_core::session_tools::plan as plans;
use gate::permission_mode::PermissionMode;

/// `/plan [TEXT]`.
pub(crate) async fn plan(chat: &mut InteractiveSession, words: Option<String>) -> Result<()> {
    let Some(words) = words else { return show(chat) };
    if chat.work.is_none() {
        chat.open(&words)?;
    }
    take(chat, PermissionMode::Plan)?;
    chat.turn(template(&words)).await
}

fn show(chat: &mut InteractiveSession) -> Result<()> {
    let dir = chat.at_work()?.session.dir.clone();
    let Ok(text) = base::files::read_text(&plans::file(&dir)) else {
        return Err(Failure::failed("no plan").hint("/plan TEXT    creates one"));
    };
    let state = if plans::is_approved(&dir) { "approved" } else { "waits for /approve" };
    chat.say(&format!("{}\n({state})", base::text::printable(text.trim_end())));
    Ok(())
}

/// `/approve`.
pub(crate) async fn approve(chat: &mut InteractiveSession, _: Option<String>) -> Result<()> {
    let work = chat.at_work()?;
    let approved = plans::approve(&work.session.dir).or_fail(|| "cannot approve the plan")?;
    let Some(approval) = approved else {
        return Err(Failure::failed("no plan").hint("/plan TEXT    creates one"));
    };
    take(chat, PermissionMode::Auto)?;
    chat.say(&format!("approved: plan {}", &approval.sha256[..12]));
    chat.turn("I approve the plan. Carry it out.".to_owned()).await
}

/// `/mode [MODE]`.
pub(crate) fn mode(chat: &mut InteractiveSession, words: Option<String>) -> Result<()> {
    let Some(words) = words else {
        let now = chat.work.as_ref().map_or(PermissionMode::Auto, |work| work.permission_mode());
        for mode in PermissionMode::ALL {
            let mark = if mode == now { "*" } else { " " };
            chat.say(&format!("{mark} {:5} {}", mode.id(), mode.description()));
        }
        return Ok(());
    };
    let Some(mode) = PermissionMode::parse(&words) else {
        return Err(Failure::usage(format!("no such mode: `{words}`")).hint("auto, ask or plan"));
    };
    if chat.work.is_none() {
        chat.open("session")?;
    }
    take(chat, mode)
}

fn take(chat: &mut InteractiveSession, mode: PermissionMode) -> Result<()> {
    chat.at_work()?.set_permission_mode(mode).or_fail(|| "cannot keep the mode")
}
