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
        let kept = undo::list(&state).or_fail(|| "cannot read what tools wrote")?;
        let rows = kept.iter().rev();
        return print(&match args.json {
            true => format!("{}\n", Value::Array(rows.map(row).collect())),
            false => rows.map(line).collect(),
        });
    }
    let Some(taken) = restore::undo_last(&state)? else {
        let what = "nothing to undo";
        return Err(Failure::failed(what)
            .because(format!("no records in {}", state.display()))
            .hint("name another session with --session, another directory with --cwd"));
    };
    print(&if args.json { format!("{}\n", report(&taken)) } else { summary(&taken) })
}

fn row(kept: &Backup) -> Value {
    let record = &kept.record;
    let file = |file: &undo::WrittenFile| json!({ "path": file.path, "change": change(file) });
    json!({
        "id": kept.number,
        "time": record.time,
        "tool": record.tool,
        "files": record.files.iter().map(file).collect::<Vec<_>>(),
    })
}

fn line(kept: &Backup) -> String {
    let record = &kept.record;
    let file = |file: &undo::WrittenFile| format!("{} {}", change(file), file.path);
    let files: Vec<String> = record.files.iter().map(file).collect();
    format!("{:4}  {}  {}: {}\n", kept.number, record.time, record.tool, files.join(", "))
}

fn change(file: &undo::WrittenFile) -> &'static str {
    match (&file.before, &file.after) {
        (None, _) => "created",
        (Some(_), Some(_)) => "changed",
        (Some(_), None) => "deleted",
    }
}

fn word(became: RestoreOutcome) -> &'static str {
    match became {
        RestoreOutcome::Restored => "restored",
        RestoreOutcome::Removed => "removed",
        RestoreOutcome::Unchanged => "unchanged",
    }
}

fn report(taken: &UndoneWrite) -> Value {
    let file = |(path, became): &(PathBuf, RestoreOutcome)| json!({ "path": path.to_string_lossy(), "became": word(*became) });
    json!({
        "id": taken.backup.number,
        "time": taken.backup.record.time,
        "tool": taken.backup.record.tool,
        "was_made": taken.had_effect(),
        "files": taken.files.iter().map(file).collect::<Vec<_>>(),
    })
}

fn summary(taken: &UndoneWrite) -> String {
    let tool = &taken.backup.record.tool;
    if !taken.had_effect() {
        let names: Vec<String> =
            taken.files.iter().map(|(path, _)| path.display().to_string()).collect();
        return format!(
            "nothing written by `{tool}` is left; its record was closed: {}\n",
            names.join(", ")
        );
    }
    let line = |(path, became): &(PathBuf, RestoreOutcome)| {
        format!("{}  {}\n", word(*became), path.display())
    };
    format!("undid `{tool}`\n{}", taken.files.iter().map(line).collect::<String>())
}
