//! `studio send`: sends a message to a session's agent; resumes the session if necessary.

use std::time::{Duration, Instant};

use base::failure::{Failure, Result};
use base::id::Id;
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::resume;
use crate::report;
use studio_core::project::pause;
use studio_core::supervisor::control::{self, ControlRequest};

/// How long a supervisor may take to start listening, or to exit.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The command line of `send`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    #[arg(value_name = "ID")]
    pub id: String,
    /// Text of the message
    #[arg(
        value_name = "TEXT",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub text: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let view = context.find(Some(&args.id), |_| true)?;
    let text = args.text.join(" ");
    if text.trim().is_empty() {
        return Err(Failure::usage("the message is empty").hint("studio send ID 'what to do'"));
    }
    let id = &view.record.id;
    let live = deliver(&context, id, &text)?;
    match context.json {
        true => report::json_line(&json!({"schema": 1, "id": id, "sent": true})),
        false if live => report::say(&format!("{id} gets it at the end of its turn")),
        false => report::say(&format!("{id} resumed: studio logs {id} -f")),
    }
    Ok(0)
}

/// Returns whether a supervisor received the message; otherwise the session was resumed with it. A
/// supervisor that was just started does not listen yet, and one that is ending holds the lock a
/// little longer.
pub(crate) fn deliver(context: &CommandContext, id: &Id, text: &str) -> Result<bool> {
    let deadline = Instant::now() + TIMEOUT;
    context.reconnect(id)?;
    loop {
        let request = ControlRequest::Send { text: text.to_owned() };
        if context.store.is_locked(id)
            && control::send_request(&context.repository.common_dir, id, &request)?
        {
            return Ok(true);
        }
        match resume::requeue(context, id, Some(text.to_owned())) {
            Ok(()) => return Ok(false),
            Err(_) if context.store.is_locked(id) && Instant::now() < deadline => pause(),
            Err(failure) => return Err(failure),
        }
    }
}
