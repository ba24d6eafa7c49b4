//! `studio discard`: discards sessions; `undo` restores them.

use base::failure::{Failure, Result};
use base::lock::Lock;
use serde_json::json;
use studio_core::project::Project;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::{confirm, stop};
use crate::report;
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;
use studio_git::{discard, import, submodules, transaction};

/// The command line of `discard`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Sessions to discard
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Stop running sessions without asking
    #[arg(short, long)]
    pub yes: bool,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    for note in transaction::recover(&context.repository)? {
        report::say(&note);
    }
    require_ids(&context, &args.ids)?;
    let views = context.find_all(&args.ids, |_| true)?;
    for view in &views {
        ensure_open(view)?;
        context.lock_shell(&view.record.id)?;
        let is_running = view.state.is_active() || view.state == SessionState::Queued;
        if is_running && !args.yes && !confirm_stop(view)? {
            return Err(Failure::refused("nothing was discarded"));
        }
    }
    let own_work = |view: &SessionView| {
        let paths = submodules::with_own_work(&context.repository, &view.record.session_repo);
        paths.into_iter().map(|path| path.display().to_string())
    };
    let kept: Vec<String> = views.iter().flat_map(own_work).collect();
    let operation = discard_all(&context, &views)?;
    let ids: Vec<_> = views.iter().map(|view| view.record.id.clone()).collect();
    if context.json {
        report::json_line(&json!({"schema": 1, "operation": operation, "discarded": ids}));
        return Ok(0);
    }
    for id in &ids {
        report::out(&format!("{id} discarded"));
    }
    if !kept.is_empty() {
        report::say(&format!(
            "work in submodules that is not committed is in the trash: {}",
            base::text::printable(&kept.join(" "))
        ));
    }
    report::say(&format!("undo: studio undo {operation}"));
    Ok(0)
}

/// Discards sessions, including running ones; returns the operation that can be undone.
pub(crate) fn discard_all(context: &CommandContext, views: &[SessionView]) -> Result<String> {
    let locks = prepare(context, views)?;
    let session_repos: Vec<_> = views.iter().map(|view| view.record.session_repo.clone()).collect();
    let operation = discard::discard(&context.repository, &session_repos, &context.clock.stamp())?;
    drop(locks);
    context.schedule()?;
    Ok(operation)
}

/// Stops sessions that run, takes their locks, and collects their work, so that they can be
/// discarded.
pub(crate) fn prepare(context: &CommandContext, views: &[SessionView]) -> Result<Vec<Lock>> {
    for view in views.iter().filter(|view| !view.state.is_settled()) {
        stop::request_stop(context, &view.record.id)?;
        stop::wait_until_stopped(context, &view.record.id)?;
    }
    let mut locks = Vec::new();
    for view in views {
        let id = &view.record.id;
        let lock = context.lock_with_timeout(id)?.ok_or_else(|| {
            Failure::refused(format!("session `{id}` is in use"))
                .because("another command is using it")
                .hint("try again")
        })?;
        ensure_open(&context.view(id)?)?;
        locks.extend([lock, context.lock_shell(id)?]);
        // Commits are imported if possible; the worktree goes to the trash unchanged.
        let _ = import::import(&context.repository, &view.record.session_repo);
    }
    Ok(locks)
}

fn ensure_open(view: &SessionView) -> Result<()> {
    match view.state.is_over() {
        true => Err(Project::already_ended(view)),
        false => Ok(()),
    }
}

/// Refuses a call without ids, and names the sessions that could be meant.
fn require_ids(context: &CommandContext, ids: &[String]) -> Result<()> {
    if !ids.is_empty() {
        return Ok(());
    }
    let mut open = context.open_views()?;
    open.retain(|view| !view.state.is_over());
    let names: Vec<&str> = open.iter().map(|view| view.record.id.as_str()).collect();
    let failure = Failure::usage("no session given");
    Err(match names.first() {
        Some(first) => failure.because(names.join(", ")).hint(format!("studio discard {first}")),
        None => failure.because("no open session").hint("studio list --all"),
    })
}

/// Asks for confirmation on a terminal; refuses in a non-interactive run.
fn confirm_stop(view: &SessionView) -> Result<bool> {
    let id = &view.record.id;
    let state = view.state.name();
    confirm::ask(&format!("{id} is {state}: stop it and discard it?")).ok_or_else(|| {
        Failure::refused(format!("session `{id}` is {state}"))
            .because("its agent is running")
            .hint(format!("studio discard --yes {id}"))
    })
}
