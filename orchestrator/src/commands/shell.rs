//! `studio shell`: runs the user's shell, or a command, in a session's worktree and sandbox.

use base::failure::{Failure, Result};
use base::lock::Lock;

use crate::commands::context::{CommandContext, CommonArgs};
use studio_core::exec::runner::{Purpose, SandboxedRunner};
use studio_core::project::Project;
use studio_core::session_view::SessionView;
use studio_git::worktree;

/// The command line of `shell`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    #[arg(value_name = "ID")]
    pub id: String,
    /// Command to run instead of a shell
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Runs the command and returns its exit code.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let (view, lock) = enter(&context, Some(&args.id))?;
    let record = &view.record;
    let command = match args.command.as_slice() {
        [] => vec![std::env::var("SHELL").unwrap_or_else(|_| "sh".to_owned())],
        command => command.to_vec(),
    };
    let runner = SandboxedRunner::of(&context.repository, record, &context.config, Purpose::Shell)?;
    let code = runner
        .enter(&command, &lock)
        .map_err(|e| Failure::failed(format!("cannot start `{}`", command[0])).because(e))?;
    Ok(u8::try_from(code).unwrap_or(1))
}

/// Returns a session with a worktree, which no command lands, discards or repairs as long as the
/// lock is held.
pub(crate) fn enter(context: &CommandContext, id: Option<&str>) -> Result<(SessionView, Lock)> {
    let initial = context.find(id, |state| !state.is_over())?;
    let lock = context.open_shell(&initial.record.id)?;
    // The session may have changed before the lock was taken.
    let view = context.view(&initial.record.id)?;
    if view.state.is_over() || !worktree::is_finished(&view.record.session_repo) {
        let id = &view.record.id;
        return Err(Failure::refused(format!("session `{id}` has no worktree"))
            .because(format!("it is {}", view.state.name()))
            .hint(format!("studio status {id}")));
    }
    Project::refuse_away(&view)?;
    if view.record.run_mode.place.is_some() {
        let id = &view.record.id;
        let busy = || Failure::refused(format!("session `{id}` is in use")).hint("try again");
        let _lock = context.lock_with_timeout(id)?.ok_or_else(busy)?;
        context.make_worktree_here(&view)?;
    }
    Ok((view, lock))
}
