//! `studio list`: all sessions of the repository.

use base::failure::Result;
use serde_json::json;

use crate::commands::desk::{Common, Desk};
use crate::report;
use crate::report::table;
use crate::report::view::View;
use crate::session::state::State;

/// The command line of `list`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// Show accepted and discarded sessions too
    #[arg(long, short)]
    pub all: bool,
}

/// Runs it.
pub fn run(common: &Common, args: &Args) -> Result<u8> {
    let desk = Desk::open(common)?;
    let (views, unreadable) = desk.sessions()?;
    let views: Vec<View> = views.into_iter().map(|view| desk.salvaged(view)).collect();
    let whys = unreadable.iter().map(|(id, failure)| (id, failure.sentence()));
    if desk.json {
        let sessions: Vec<_> = views.iter().map(View::json).collect();
        let unreadable: Vec<_> = whys.map(|(id, why)| json!({"id": id, "why": why})).collect();
        report::json_line(&json!({"schema": 1, "sessions": sessions, "unreadable": unreadable}));
        return Ok(0);
    }
    let (over, open): (Vec<View>, Vec<View>) =
        views.into_iter().partition(|view| view.state.is_over() && !args.all);
    if open.is_empty() {
        report::say("no session is open; start one: studio run 'your task'");
    } else {
        report::out(&table::sessions(&open, desk.clock.now()));
    }
    for (_, why) in whys {
        report::say(&format!("{why}: studio doctor"));
    }
    let crashed = open.iter().filter(|view| view.state == State::Crashed).count();
    if crashed > 0 {
        report::say(&format!("{crashed} crashed, everything is kept: studio resume --all"));
    }
    let (held, waiting): (Vec<&View>, Vec<&View>) =
        open.iter().filter(|view| view.state == State::Queued).partition(|view| view.is_held());
    let (held, waiting) = (held.len(), waiting.len());
    if held > 0 {
        let wait = if held == 1 { "waits" } else { "wait" };
        report::say(&format!("{held} {wait} for what has not landed: studio status ID"));
    }
    if waiting > 0 && !open.iter().any(|view| view.state.is_active()) {
        report::say(&format!("{waiting} wait and nobody is at work: studio resume --all"));
    }
    if !over.is_empty() {
        report::say(&format!("{} accepted or discarded: studio list --all", over.len()));
    }
    Ok(0)
}
