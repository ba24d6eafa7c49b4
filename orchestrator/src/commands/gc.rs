//! `studio gc`: deletes the trash of old operations; the only command that deletes anything.

use std::path::{Path, PathBuf};

use base::failure::Result;
use jiff::Timestamp;
use serde_json::json;

use crate::commands::desk::{Common, Desk};
use crate::git::operations::{Kind, Log};
use crate::git::refs::{self, RefChange};
use crate::git::trash;
use crate::report;

/// The command line of `gc`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Delete what is older than so many days
    #[arg(long, value_name = "DAYS", default_value_t = 7)]
    pub older: u32,
    /// Say what would be deleted, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Runs it.
pub fn run(common: &Common, args: &Args) -> Result<u8> {
    let desk = Desk::open(common)?;
    let log = Log::open(&desk.repository)?;
    let limit = i64::from(args.older) * 86_400;
    let mut deleted = Vec::new();
    for intent in log.intents().filter(|intent| log.outcome(&intent.id) == Some(true)) {
        let time = intent.time.parse::<Timestamp>().unwrap_or(desk.clock.now());
        if intent.kind == Kind::Undo || desk.clock.now().duration_since(time).as_secs() < limit {
            continue;
        }
        let mut places: Vec<PathBuf> =
            intent.moves.iter().map(|moving| moving.to.clone()).filter(|to| to.exists()).collect();
        places.push(trash::private_trash(&desk.repository, &intent.id));
        places.retain(|place| place.exists());
        let repo = desk.repository.open()?;
        let kept = refs::list(&repo, &trash::kept_prefix(&intent.id))?;
        if places.is_empty() && kept.is_empty() {
            continue;
        }
        deleted.push(intent.id.clone());
        if args.dry_run {
            continue;
        }
        base::files::step("gc.delete");
        places.iter().for_each(|place| remove(place));
        let changes: Vec<RefChange> =
            kept.into_iter().map(|(name, held)| RefChange::new(name, Some(held), None)).collect();
        refs::update_own(&desk.repository, &changes, "studio: gc")?;
    }
    if desk.json {
        report::json_line(&json!({"schema": 1, "deleted": deleted, "dry_run": args.dry_run}));
    } else if deleted.is_empty() {
        report::say("nothing is old enough to be deleted");
    }
    let verb = if args.dry_run { "would delete" } else { "deleted" };
    for id in deleted.iter().filter(|_| !desk.json) {
        report::out(&format!("{verb} what {id} kept; it can no longer be undone"));
    }
    Ok(0)
}

/// Deletes a directory of the trash, and its parent when that is empty then.
fn remove(place: &Path) {
    let _ = std::fs::remove_dir_all(place);
    if let Some(parent) = place.parent().filter(|parent| !parent.ends_with(".trash")) {
        let _ = std::fs::remove_dir(parent);
    }
}
