//! Commands about plans and about how much is done without asking.

use base::failure::{Failure, OrFail, Result};

use super::at_work;
use crate::modes::interactive::Chat;
use crate::prompt::template;
use crate::tools::plan as plans;
use gate::permission_mode::PermissionMode;

/// `/plan [TEXT]`.
pub async fn plan(chat: &mut Chat, words: Option<String>) -> Result<()> {
    let Some(words) = words else { return show(chat) };
    if chat.work.is_none() {
        chat.open(&words)?;
    }
    take(chat, PermissionMode::Plan)?;
    chat.turn(template(&words)).await
}

fn show(chat: &mut Chat) -> Result<()> {
    let dir = at_work(chat)?.session.dir.clone();
    let Ok(text) = std::fs::read_to_string(plans::file(&dir)) else {
        return Err(Failure::failed("there is no plan").next("/plan TEXT asks for one"));
    };
    let state = if plans::is_approved(&dir) { "approved" } else { "waits for /approve" };
    chat.say(&format!("{}\n({state})", base::text::printable(text.trim_end())));
    Ok(())
}

/// `/approve`.
pub async fn approve(chat: &mut Chat, _: Option<String>) -> Result<()> {
    let work = at_work(chat)?;
    let approved = plans::approve(&work.session.dir).or_fail(|| "cannot approve the plan")?;
    let Some(approval) = approved else {
        return Err(Failure::failed("there is no plan").next("/plan TEXT asks for one"));
    };
    take(chat, PermissionMode::Auto)?;
    chat.say(&format!("approved: plan {}", &approval.sha256[..12]));
    chat.turn("I approve the plan. Carry it out.".to_owned()).await
}

/// `/mode [MODE]`.
pub fn mode(chat: &mut Chat, words: Option<String>) -> Result<()> {
    let Some(words) = words else {
        let now = chat.work.as_ref().map_or(PermissionMode::Auto, |work| work.permission_mode());
        for mode in PermissionMode::ALL {
            let mark = if mode == now { "*" } else { " " };
            chat.say(&format!("{mark} {:5} {}", mode.id(), mode.means()));
        }
        return Ok(());
    };
    let Some(mode) = PermissionMode::parse(&words) else {
        return Err(Failure::usage(format!("there is no mode `{words}`")).next("auto, ask or plan"));
    };
    if chat.work.is_none() {
        chat.open("session")?;
    }
    take(chat, mode)
}

fn take(chat: &mut Chat, mode: PermissionMode) -> Result<()> {
    at_work(chat)?.set_permission_mode(mode).or_fail(|| "cannot keep the mode")
}
