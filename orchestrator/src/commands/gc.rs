//! `studio gc`: deletes the trash of old operations; the only command that deletes anything.

use base::failure::Result;
use serde_json::json;

use crate::commands::desk::{Common, Desk};
use crate::git::gc::{self, Keep};
use crate::report;

/// The command line of `gc`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Delete what is older than so many days; younger trash goes only past 10 GB
    #[arg(long, value_name = "DAYS", default_value_t = 7)]
    pub older: u32,
    /// Say what would be deleted, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Runs it.
pub fn run(common: &Common, args: &Args) -> Result<u8> {
    let desk = Desk::open(common)?;
    let keep = Keep { days: i64::from(args.older), ..Keep::default() };
    let now = desk.clock.now();
    let freed = match args.dry_run {
        true => gc::planned(&desk.repository, keep, now)?,
        false => gc::empty(&desk.repository, keep, now)?,
    };
    let deleted = &freed.operations;
    if desk.json {
        let (dry_run, bytes) = (args.dry_run, freed.bytes);
        report::json_line(
            &json!({"schema": 1, "deleted": deleted, "bytes": bytes, "dry_run": dry_run}),
        );
    } else if deleted.is_empty() {
        report::say("nothing is old enough to be deleted");
    }
    let verb = if args.dry_run { "would delete" } else { "deleted" };
    for id in deleted.iter().filter(|_| !desk.json) {
        report::out(&format!("{verb} what {id} kept; it can no longer be undone"));
    }
    Ok(0)
}
