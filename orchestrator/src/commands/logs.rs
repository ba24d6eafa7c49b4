//! `studio logs`: the journal of a session as people read it, also while it grows.

use std::time::Duration;

use base::failure::{OrFail, Result};
use serde_json::json;

use crate::commands::desk::{Common, Desk};
use crate::report;
use crate::report::journal;
use crate::session::journal::Tail;

/// How often a growing journal is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// The command line of `logs`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The session; without it, the only open one
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Go on until the session settles
    #[arg(short, long)]
    pub follow: bool,
    /// Print the raw output of the agent instead
    #[arg(long)]
    pub raw: bool,
}

/// Runs it.
pub fn run(common: &Common, args: &Args) -> Result<u8> {
    let desk = Desk::open(common)?;
    let view = desk.find(args.id.as_deref(), |state| !state.is_over())?;
    let id = &view.record.id;
    if args.raw {
        let raw = std::fs::read(desk.store.file(id, "agent.log")).unwrap_or_default();
        report::out(&base::text::printable_output(&String::from_utf8_lossy(&raw)));
        return Ok(0);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.or_fail(|| "cannot start the runtime")?.block_on(async {
        let mut tail = Tail::from_start(desk.store.file(id, "journal.jsonl"));
        let mut ticks = tokio::time::interval(LOOK);
        loop {
            ticks.tick().await;
            // Looked at before the journal, so that the last lines of a run are not missed.
            let settled = desk.view(id)?.state.is_settled();
            for line in tail.more().or_fail(|| format!("cannot read the journal of `{id}`"))? {
                match desk.json {
                    true => report::json_line(&json!(line)),
                    false => journal::text(&line).iter().for_each(|text| report::out(text)),
                }
            }
            if !args.follow || settled {
                return Ok(0);
            }
        }
    })
}
