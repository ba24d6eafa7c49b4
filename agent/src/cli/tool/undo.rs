//! `g3 tool undo`: undoes the last write of a tool.

use std::path::PathBuf;

use base::failure::{Failure, OrFail, Result};
use clap::Args;
use serde_json::{Value, json};

use super::{directory, print, state_dir};
use tools::undo::restore::{self, RestoreOutcome, UndoneWrite};
use tools::undo::{self, Backup};

/// `g3 tool undo`.
#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Working directory of the tool
    #[arg(long)]
    cwd: Option<PathBuf>,
    /// Session whose writes are undone [default: that of `g3 tool exec`]
    #[arg(long)]
    session: Option<String>,
    /// List the writes that can be undone, newest first
    #[arg(long)]
    list: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Undoes the last write, or lists all that can be undone.
pub(crate) fn run(args: &UndoArgs) -> Result<()> {
    let state = state_dir(&directory(args.cwd.as_deref())?, args.session.as_deref())?;
    if args.list {
        let backups = undo::list(&state).or_fail(|| "cannot read what tools wrote")?;
        let rows = backups.iter().rev();
        return print(&match args.json {
            true => format!("{}\n", Value::Array(rows.map(row).collect())),
            false => rows.map(line).collect(),
        });
    }
    let Some(undone) = restore::last(&state)? else {
        let what = "nothing to undo";
        return Err(Failure::failed(what)
            .because(format!("no records in {}", state.display()))
            .hint("name another session with --session, another directory with --cwd"));
    };
    print(&if args.json { format!("{}\n", report(&undone)) } else { summary(&undone) })
}

fn row(backup: &Backup) -> Value {
    let record = &backup.record;
    let file = |file: &undo::WrittenFile| json!({ "path": file.path, "change": change(file) });
    json!({
        "id": backup.number,
        "time": record.time,
        "tool": record.tool,
        "files": record.files.iter().map(file).collect::<Vec<_>>(),
    })
}

fn line(backup: &Backup) -> String {
    let record = &backup.record;
    let file = |file: &undo::WrittenFile| format!("{} {}", change(file), file.path);
    let files: Vec<String> = record.files.iter().map(file).collect();
    format!("{:4}  {}  {}: {}\n", backup.number, record.time, record.tool, files.join(", "))
}

fn change(file: &undo::WrittenFile) -> &'static str {
    match (&file.before, &file.after) {
        (None, _) => "created",
        (Some(_), Some(_)) => "changed",
        (Some(_), None) => "deleted",
    }
}

fn outcome_text(outcome: RestoreOutcome) -> &'static str {
    match outcome {
        RestoreOutcome::Restored => "restored",
        RestoreOutcome::Removed => "removed",
        RestoreOutcome::Unchanged => "unchanged",
    }
}

fn report(undone: &UndoneWrite) -> Value {
    let file = |(path, outcome): &(PathBuf, RestoreOutcome)| json!({ "path": path.to_string_lossy(), "became": outcome_text(*outcome) });
    json!({
        "id": undone.kept.number,
        "time": undone.kept.record.time,
        "tool": undone.kept.record.tool,
        "was_made": undone.was_made(),
        "files": undone.files.iter().map(file).collect::<Vec<_>>(),
    })
}

fn summary(undone: &UndoneWrite) -> String {
    let tool = &undone.kept.record.tool;
    if !undone.was_made() {
        let names: Vec<String> =
            undone.files.iter().map(|(path, _)| path.display().to_string()).collect();
        return format!(
            "nothing written by `{tool}` is left; its record was closed: {}\n",
            names.join(", ")
        );
    }
    let line = |(path, outcome): &(PathBuf, RestoreOutcome)| {
        format!("{}  {}\n", outcome_text(*outcome), path.display())
    };
    format!("undid `{tool}`\n{}", undone.files.iter().map(line).collect::<String>())
}
