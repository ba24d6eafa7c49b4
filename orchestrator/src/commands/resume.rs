//! `studio resume`: lets a session that ended, crashed or was stopped go on.

use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use serde_json::json;

use crate::commands::desk::{Common, Desk};
use crate::git::engine;
use crate::report;
use crate::session::journal::Entry;
use crate::session::state::State;

/// The command line of `resume`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The sessions; without any, the only one that can go on
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Every session that crashed or was stopped, and what waits in the queue
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,
}

/// Runs it.
pub fn run(common: &Common, args: &Args) -> Result<u8> {
    let desk = Desk::open(common)?;
    let can = |state: &State| {
        matches!(state, State::Crashed | State::Stopped | State::Failed { .. } | State::Empty)
    };
    let views = match args.all {
        true => {
            let mut views = desk.views()?;
            let waits =
                |state: &State| matches!(state, State::Crashed | State::Stopped | State::Queued);
            views.retain(|view| waits(&view.state));
            views
        }
        false => desk.find_all(&args.ids, can)?,
    };
    // What waits in the queue needs no more than a look at it.
    let (mut ids, mut refused): (Vec<&Id>, Vec<Failure>) = (Vec::new(), Vec::new());
    for view in &views {
        let id = &view.record.id;
        match if view.state == State::Queued { Ok(()) } else { wake(&desk, id, None) } {
            Ok(()) => ids.push(id),
            // One that is busy is no reason to leave the others.
            Err(failure) => refused.push(failure),
        }
    }
    desk.schedule()?;
    refused.iter().skip(1).for_each(|failure| report::say(&failure.to_string()));
    if desk.json {
        report::json_line(&json!({"schema": 1, "resumed": ids}));
    } else if views.is_empty() {
        report::say("no session was stopped or crashed, and none waits");
    }
    for id in ids.iter().filter(|_| !desk.json) {
        let now = desk.view(id)?;
        // A supervisor that was just started holds the lock before it says anything.
        match now.state == State::Queued && !now.facts.locked {
            true => report::say(&format!("{id} waits for a free place")),
            false => report::say(&format!("{id} goes on: studio logs {id} -f")),
        }
    }
    refused.into_iter().next().map_or(Ok(0), Err)
}

/// Puts a session back into the queue, with something to say, and calls the scheduler.
pub fn wake(desk: &Desk, id: &Id, prompt: Option<String>) -> Result<()> {
    let busy = || {
        Failure::refused(format!("session `{id}` is at work"))
            .because("somebody holds its lock")
            .next(format!("studio logs {id} -f"))
            .next(format!("studio stop {id}"))
    };
    {
        let _lock = desk.lock_soon(id)?.ok_or_else(busy)?;
        // Its lock is free: a command that landed it or moved its worktree was killed.
        for said in engine::recover(&desk.repository)? {
            report::say(&said);
        }
        let view = desk.view(id)?;
        if view.state.is_over() {
            return Err(Desk::is_over(&view));
        }
        desk.repository.remember_checkout()?;
        let mut writer = desk.store.writer(id, desk.clock)?;
        let fail = || "cannot write the journal";
        writer.write(Entry::Queued { prompt }).or_fail(fail)?;
        base::files::step("resume.queued");
        writer.sync().or_fail(fail)?;
    }
    desk.schedule().map(|_| ())
}
