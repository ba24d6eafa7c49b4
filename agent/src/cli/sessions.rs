//! `g3 sessions`: lists, shows, exports, forks, deletes and imports the sessions of a directory, and
//! sends messages to a running one.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use clap::{Args, Subcommand};

use super::GlobalArgs;
use super::settings::directory;
use crate::ui;
use agent_core::session::{
    self, export,
    snapshot::{ModelUsage, SessionSnapshot},
};
use base::text::cut_columns;

/// `g3 sessions …`.
#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    command: SessionsCommand,
    /// The directory
    #[arg(short = 'w', long, value_name = "DIR", global = true)]
    workspace: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// List the sessions, latest first
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show one session
    Show {
        /// Session id, or the start of it [default: the latest]
        id: Option<String>,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Export a session as a document
    Export {
        /// Session id, or the start of it [default: the latest]
        id: Option<String>,
        /// Markdown, JSON, or the journal itself
        #[arg(long, value_enum, default_value_t)]
        format: Format,
        /// Write to this file instead of stdout (it must not exist)
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Copy a session into a new one and print its id
    Fork {
        /// Session id, or the start of it [default: the latest]
        id: Option<String>,
        /// Leave out this user turn and all later ones (the first is 1)
        #[arg(long, value_name = "TURN")]
        before: Option<usize>,
    },
    /// Delete a session: its conversation, checkpoints and undo records
    Delete {
        /// Session id, or the start of it
        id: String,
    },
    /// Import sessions of earlier g3 versions from .g3/sessions of this directory
    Import,
    /// Send a message to a running session (read before its next model request)
    Send {
        /// Session id, or the start of it
        id: String,
        /// Text of the message
        text: String,
    },
}

/// The format of an export.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Format {
    #[default]
    Markdown,
    Json,
    Journal,
}

/// Runs `g3 sessions …` and returns the exit code.
pub(crate) fn run(args: &SessionsArgs) -> Result<u8> {
    let common = GlobalArgs { workspace: args.workspace.clone(), ..GlobalArgs::default() };
    let cwd = directory(&common)?;
    let dir = session::sessions_dir(&cwd);
    let snapshot = |id: &base::id::Id| SessionSnapshot::read(&dir.join(id.as_str()), id.as_str());
    let text = match &args.command {
        SessionsCommand::List { json } => {
            let snapshots: Vec<SessionSnapshot> =
                session::list(&cwd)?.iter().map(snapshot).collect();
            if *json { pretty(&snapshots)? } else { snapshots.iter().map(line).collect() }
        }
        SessionsCommand::Show { id, json } => {
            let snapshot = snapshot(&session::find(&cwd, id.as_deref())?);
            if *json { pretty(&snapshot)? } else { details(&snapshot) }
        }
        SessionsCommand::Export { id, format, output } => {
            let id = session::find(&cwd, id.as_deref())?;
            let text = export_text(&snapshot(&id), &dir.join(id.as_str()), *format)?;
            let Some(file) = output else { return ui::print(&text).map(|()| 0) };
            write_new(file, &text)?;
            return Ok(0);
        }
        SessionsCommand::Fork { id, before } => {
            let source = dir.join(session::find(&cwd, id.as_deref())?.as_str());
            format!("{}\n", session::fork::fork(&cwd, &source, *before)?.id)
        }
        SessionsCommand::Delete { id } => {
            let id = session::find(&cwd, Some(id))?;
            session::delete(&cwd, &id)?;
            format!("deleted {id}\n")
        }
        SessionsCommand::Import => {
            session::import::import(&cwd)?.iter().map(|id| format!("{id}\n")).collect()
        }
        SessionsCommand::Send { id, text } => {
            let id = session::find(&cwd, Some(id))?;
            session::inbox::post(&dir.join(id.as_str()), text)?;
            return Ok(0);
        }
    };
    ui::print(&text).map(|()| 0)
}

fn export_text(snapshot: &SessionSnapshot, dir: &Path, format: Format) -> Result<String> {
    let path = dir.join("session.jsonl");
    let cannot = || format!("cannot read {}", path.display());
    let entries = || base::files::read_journal(&path).or_fail(cannot);
    match format {
        Format::Markdown => Ok(export::markdown(snapshot, entries()?)),
        Format::Json => pretty(&export::object(snapshot, entries()?)),
        Format::Journal => std::fs::read_to_string(&path).or_fail(cannot),
    }
}

fn write_new(file: &Path, text: &str) -> Result<()> {
    let output = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let mut output = output.map_err(|error| {
        Failure::usage(format!("cannot write {}", file.display()))
            .because(error)
            .hint("name a file that does not exist")
    })?;
    output.write_all(text.as_bytes()).or_fail(|| format!("cannot write {}", file.display()))
}

fn pretty(value: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value).or_fail(|| "cannot write JSON")?;
    Ok(format!("{text}\n"))
}

fn line(snapshot: &SessionSnapshot) -> String {
    let task = base::text::printable(&snapshot.task.replace('\n', " "));
    format!(
        "{:30}  {:12}  {:24}  {:>3} turns  {}\n",
        snapshot.id,
        snapshot.status,
        snapshot.updated_at,
        snapshot.turns,
        cut_columns(&task, 60)
    )
}

fn details(snapshot: &SessionSnapshot) -> String {
    let usage = snapshot.usage;
    let ledger: String =
        snapshot.by_model.iter().map(|(model, line)| model_line(model, line)).collect();
    format!(
        "session  {}\nstatus   {}\ncreated  {}\nupdated  {}\nmodel    {} on {}\nturns    {}\n\
         tokens   {} in, {} from cache, {} out\n{ledger}task     {}\n\n{}\n",
        snapshot.id,
        snapshot.status,
        snapshot.created_at,
        snapshot.updated_at,
        snapshot.model,
        snapshot.provider,
        snapshot.turns,
        ui::tokens(usage.input.saturating_add(usage.cache_write)),
        ui::tokens(usage.cache_read),
        ui::tokens(usage.output),
        base::text::printable(&snapshot.task),
        base::text::printable(&snapshot.last_words)
    )
}

/// Formats the usage and cost of one model as a line.
fn model_line(model: &str, line: &ModelUsage) -> String {
    format!("         {model}: {}\n", ui::bill(line.calls, line.usage))
}
