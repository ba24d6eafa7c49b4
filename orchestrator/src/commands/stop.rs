//! `studio stop`: ends sessions' runs; everything is kept and can be resumed.

use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use serde_json::json;

use crate::commands::desk::{Common, Desk};
use crate::report;
use crate::report::table;
use crate::report::view::View;
use crate::session::journal::{Entry, Outcome};
use crate::session::state::State;
use crate::supervise::control::{self, Request};

/// How long a run may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The command line of `stop`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Sessions to stop [default: the only one that is running]
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
}

/// Runs it.
pub fn run(common: &Common, args: &Args) -> Result<u8> {
    let desk = Desk::open(common)?;
    let can = |state: &State| state.is_active() || *state == State::Queued;
    let views = desk.find_all(&args.ids, can)?;
    if let Some(view) = views.iter().find(|view| !can(&view.state)) {
        let id = &view.record.id;
        let what = format!("session `{id}` is not running: it is {}", view.state.name());
        return Err(Failure::refused(what).next(format!("studio status {id}")));
    }
    for view in &views {
        ask(&desk, &view.record.id)?;
    }
    let mut stopped = Vec::new();
    for view in &views {
        let now = wait(&desk, &view.record.id)?;
        if !desk.json {
            report::say(&table::change(&now));
        }
        stopped.push(now);
    }
    desk.schedule()?;
    if desk.json {
        let sessions: Vec<_> = stopped.iter().map(View::json).collect();
        report::json_line(&json!({"schema": 1, "sessions": sessions}));
    }
    Ok(0)
}

/// Asks a session to stop, whatever it does; one that is not at work is left as it is.
pub fn ask(desk: &Desk, id: &Id) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if desk.view(id)?.state.is_settled()
            || control::ask(&desk.repository.common_dir, id, &Request::Stop)?
        {
            return Ok(());
        }
        // It waits in the queue, or was just started and does not listen yet.
        if let Some(_lock) = desk.store.lock(id)? {
            if desk.view(id)?.state == State::Queued {
                let mut writer = desk.store.writer(id, desk.clock)?;
                let exit = Entry::Exit { outcome: Outcome::Stopped, ms: None };
                writer.write(exit).or_fail(|| "cannot write the journal")?;
            }
            return Ok(());
        }
        pause();
    }
    Err(Failure::failed(format!("session `{id}` does not answer")).next("studio doctor"))
}

/// Waits until a session's run has ended and its lock is free.
pub fn wait(desk: &Desk, id: &Id) -> Result<View> {
    let until = Instant::now() + PATIENCE;
    loop {
        let now = desk.view(id)?;
        if !now.state.is_active() && !now.facts.locked {
            return Ok(now);
        }
        if Instant::now() > until {
            return Err(
                Failure::failed(format!("session `{id}` did not stop")).next("studio doctor")
            );
        }
        pause();
    }
}

/// A short wait between two looks at another process.
pub fn pause() {
    let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let _ = rustix::event::poll(&mut [], Some(&time));
}
