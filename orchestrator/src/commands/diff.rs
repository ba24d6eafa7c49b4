//! `studio diff`: what a session changed, uncommitted work included.

use base::failure::{Failure, Result};
use serde_json::json;

use crate::commands::desk::{Common, Desk};
use crate::git::snapshot;
use crate::report;
use crate::report::table;
use crate::session::home;

/// The command line of `diff`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The session; without it, the only open one
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// One line per file
    #[arg(long)]
    pub stat: bool,
}

/// Runs it.
pub fn run(common: &Common, args: &Args) -> Result<u8> {
    let desk = Desk::open(common)?;
    let view = desk.find(args.id.as_deref(), |state| !state.is_over())?;
    let id = &view.record.id;
    // A supervisor at work imports by itself: two imports at once would be in each other's way.
    let work = match desk.store.lock(id)? {
        Some(_lock) if !view.state.is_over() && view.facts.story.has_worktree => {
            let limits = snapshot::Limits::default();
            Some(home::bring(&desk.repository, &view.record, &limits)?.work)
        }
        Some(_) | None => view.work().cloned(),
    };
    let Some(work) = work else {
        return Err(Failure::refused(format!("session `{id}` holds nothing yet"))
            .next(format!("studio logs {id} -f")));
    };
    if desk.json {
        let patch = home::diff(&desk.repository, &view.record, &work)?;
        report::json_line(&json!({"schema": 1, "id": id, "patch": patch}));
        return Ok(0);
    }
    for note in &work.notes {
        report::say(&format!("note: {note}"));
    }
    let text = match args.stat {
        true => home::stat(&desk.repository, &view.record, &work, table::width().into())?,
        false => home::diff(&desk.repository, &view.record, &work)?,
    };
    report::out(base::text::printable(&text).trim_end_matches('\n'));
    Ok(0)
}
