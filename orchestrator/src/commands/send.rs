//! `studio send`: says something to a session's agent, now or by waking it up.

use base::failure::{Failure, Result};
use serde_json::json;

use crate::commands::desk::{Common, Desk};
use crate::commands::resume;
use crate::report;
use crate::supervise::control::{self, Request};

/// The command line of `send`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The session
    #[arg(value_name = "ID")]
    pub id: String,
    /// What to say
    #[arg(
        value_name = "TEXT",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub text: Vec<String>,
}

/// Runs it.
pub fn run(common: &Common, args: &Args) -> Result<u8> {
    let desk = Desk::open(common)?;
    let view = desk.find(Some(&args.id), |_| true)?;
    let text = args.text.join(" ");
    if text.trim().is_empty() {
        return Err(Failure::usage("there is nothing to say").next("studio send ID 'what to do'"));
    }
    let id = &view.record.id;
    let request = Request::Send { text: text.clone() };
    let live = view.state.is_active() && control::ask(&desk.store.dir(id), request)?;
    if !live {
        resume::wake(&desk, id, Some(text))?;
    }
    match desk.json {
        true => report::json_line(&json!({"schema": 1, "id": id, "sent": true})),
        false if live => report::say(&format!("{id} hears it at the end of its turn")),
        false => report::say(&format!("{id} works again: studio logs {id} -f")),
    }
    Ok(0)
}
