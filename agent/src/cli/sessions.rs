//! `g3 sessions`: the sessions of a directory.

use std::path::PathBuf;

use base::failure::{OrFail, Result};
use clap::{Args, Subcommand};

use super::Common;
use super::settings::directory;
use crate::session::{self, snapshot::Snapshot};
use crate::ui;

/// `g3 sessions …`.
#[derive(Debug, Args)]
pub struct SessionsArgs {
    #[command(subcommand)]
    command: SessionsCommand,
    /// The directory
    #[arg(short = 'w', long, value_name = "DIR", global = true)]
    workspace: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// List the sessions, the latest first
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show one session
    Show {
        /// Its id or the beginning of it; the latest without
        id: Option<String>,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Runs `g3 sessions …`; gives the exit code.
pub fn run(args: &SessionsArgs) -> Result<u8> {
    let common = Common { workspace: args.workspace.clone(), ..Common::default() };
    let cwd = directory(&common)?;
    let dir = session::sessions_dir(&cwd);
    let picture = |id: &base::id::Id| Snapshot::read(&dir.join(id.as_str()), id.as_str());
    let text = match &args.command {
        SessionsCommand::List { json } => {
            let all: Vec<Snapshot> = session::list(&cwd)?.iter().map(picture).collect();
            if *json { pretty(&all)? } else { all.iter().map(line).collect() }
        }
        SessionsCommand::Show { id, json } => {
            let seen = picture(&session::find(&cwd, id.as_deref())?);
            if *json { pretty(&seen)? } else { in_full(&seen) }
        }
    };
    ui::print(&text).map(|()| 0)
}

fn pretty(value: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value).or_fail(|| "cannot write JSON")?;
    Ok(format!("{text}\n"))
}

fn line(seen: &Snapshot) -> String {
    let task = base::text::printable(&seen.task.replace('\n', " "));
    format!(
        "{:30}  {:9}  {:24}  {:>3} turns  {}\n",
        seen.id,
        seen.status,
        seen.updated_at,
        seen.turns,
        ui::cut_to(&task, 60)
    )
}

fn in_full(seen: &Snapshot) -> String {
    let usage = seen.usage;
    format!(
        "session  {}\nstatus   {}\ncreated  {}\nupdated  {}\nmodel    {} on {}\nturns    {}\n\
         tokens   {} in, {} from cache, {} out\ntask     {}\n\n{}\n",
        seen.id,
        seen.status,
        seen.created_at,
        seen.updated_at,
        seen.model,
        seen.provider,
        seen.turns,
        ui::tokens(usage.input + usage.cache_write),
        ui::tokens(usage.cache_read),
        ui::tokens(usage.output),
        base::text::printable(&seen.task),
        base::text::printable(&seen.last_words)
    )
}
