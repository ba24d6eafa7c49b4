//! `studio stop`: stops sessions; everything is kept and can be resumed.

use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use crate::report::table;
use studio_core::project::{Project, pause};
use studio_core::session::journal::{JournalEntry, SessionOutcome};
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;
use studio_core::supervisor::control::{self, ControlRequest};

/// Timeout of the end of a run.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a supervisor that was just started may take to listen.
const GRACE: Duration = Duration::from_secs(2);

/// The command line of `stop`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Sessions to stop (default: the only active one)
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let is_stoppable = |state: &SessionState| state.is_active() || *state == SessionState::Queued;
    let views = context.find_all(&args.ids, is_stoppable)?;
    if let Some(view) = views.iter().find(|view| !is_stoppable(&view.state)) {
        let id = &view.record.id;
        let what = format!("session `{id}` is not running: it is {}", view.state.name());
        return Err(Failure::refused(what).hint(format!("studio status {id}")));
    }
    for view in &views {
        request_stop(&context, &view.record.id)?;
    }
    let mut stopped = Vec::new();
    for view in &views {
        let stopped_view = wait_until_stopped(&context, &view.record.id)?;
        if !context.json {
            report::say(&table::change(&stopped_view));
        }
        stopped.push(stopped_view);
    }
    context.schedule()?;
    if context.json {
        let sessions: Vec<_> = stopped.iter().map(SessionView::json).collect();
        report::json_line(&json!({"schema": 1, "sessions": sessions}));
    }
    Ok(0)
}

/// Asks a session to stop, whatever it is doing; a settled one is unchanged.
pub(crate) fn request_stop(context: &CommandContext, id: &Id) -> Result<()> {
    let start = Instant::now();
    let deadline = start + TIMEOUT;
    context.reconnect(id)?;
    while Instant::now() < deadline {
        if context.view(id)?.state.is_settled()
            || control::send_request(&context.repository.common_dir, id, &ControlRequest::Stop)?
        {
            return Ok(());
        }
        // It is queued, or was just started and does not listen yet.
        if let Some(_lock) = context.store.lock(id)? {
            if context.view(id)?.state == SessionState::Queued {
                let mut writer = context.store.writer(id, context.clock)?;
                let exit = JournalEntry::Exit { outcome: SessionOutcome::Stopped, ms: None };
                writer.write(exit).or_fail(|| "cannot write the journal")?;
            }
            return Project::refuse_away(&context.view(id)?);
        }
        if start.elapsed() > GRACE {
            // The user works in it: `studio cli` has no supervisor that could be asked.
            context.store.lock_shell(id)?;
        }
        pause();
    }
    Err(Failure::failed(format!("session `{id}` does not answer")).hint("studio doctor"))
}

/// Waits until a session's run has ended and its lock is free.
pub(crate) fn wait_until_stopped(context: &CommandContext, id: &Id) -> Result<SessionView> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let view = context.view(id)?;
        if !view.state.is_active() && !view.facts.locked {
            return Ok(view);
        }
        if Instant::now() > deadline {
            return Err(
                Failure::failed(format!("session `{id}` did not stop")).hint("studio doctor")
            );
        }
        pause();
    }
}
