//! `studio undo`: undoes an operation.

use base::failure::Result;
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use studio_core::landing::hunk_selection;
use studio_git::oplog::OperationKind;
use studio_git::{undo, worktree};

/// The command line of `undo`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Operation to undo [default: the last one that can be undone]
    #[arg(value_name = "OP")]
    pub operation: Option<String>,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let time = context.clock.stamp();
    let undone = undo::undo(&context.repository, args.operation.as_deref(), &time)?;
    if undone.kind == OperationKind::AcceptHunks {
        for session_repo in &undone.sessions {
            if let Some(_lock) = context.store.lock(&session_repo.id)? {
                let record = context.view(&session_repo.id)?.record;
                hunk_selection::record_work(&context, &record);
            }
        }
    }
    if context.json {
        report::json_line(&json!({
            "schema": 1, "operation": undone.operation, "undone": undone.undone,
        }));
        return Ok(0);
    }
    let what = match undone.kind {
        OperationKind::Accept => "is no longer landed",
        OperationKind::AcceptHunks => "has its hunks back",
        OperationKind::Discard => "is restored",
        OperationKind::Try => "is removed from your checkout",
        OperationKind::Undo | OperationKind::Relocate => "is as it was",
    };
    for session_repo in &undone.sessions {
        report::out(&format!("{} {what}: studio status {}", session_repo.id, session_repo.id));
        if worktree::is_finished(session_repo) && !session_repo.worktree.exists() {
            let id = &session_repo.id;
            report::say(&format!(
                "note: its worktree was deleted; its commits and its newest snapshot are \
                 there: studio resume {id} recreates it"
            ));
        }
    }
    Ok(0)
}
