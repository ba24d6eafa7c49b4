//! `studio undo`: takes an operation back.

use base::failure::Result;
use serde_json::json;

use crate::commands::desk::{Common, Desk};
use crate::git::operations::Kind;
use crate::git::{trash, worktree};
use crate::report;

/// The command line of `undo`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Operation to undo [default: the last one that can be undone]
    #[arg(value_name = "OP")]
    pub operation: Option<String>,
}

/// Runs it.
pub fn run(common: &Common, args: &Args) -> Result<u8> {
    let desk = Desk::open(common)?;
    let time = desk.clock.stamp();
    let undone = trash::undo(&desk.repository, args.operation.as_deref(), &time)?;
    if desk.json {
        report::json_line(&json!({
            "schema": 1, "operation": undone.operation, "undone": undone.undone,
        }));
        return Ok(0);
    }
    let what = match undone.kind {
        Kind::Accept => "is no longer landed",
        Kind::Discard => "is restored",
        Kind::Undo | Kind::Relocate => "is restored",
    };
    for place in &undone.sessions {
        report::out(&format!("{} {what}: studio status {}", place.id, place.id));
        if worktree::is_finished(place) && !place.worktree.exists() {
            let id = &place.id;
            report::say(&format!(
                "note: its worktree was deleted; its commits and its latest snapshot are \
                 safe: studio resume {id} recreates it"
            ));
        }
    }
    Ok(0)
}
