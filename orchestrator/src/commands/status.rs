//! `studio status`: prints one session in full.

use base::failure::Result;
use base::id::Id;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use crate::report::table;
use studio_core::leases::Leases;
use studio_core::radar::SessionConflict;
use studio_core::seen;
use studio_core::session::collect;
use studio_core::standing;
use studio_git::import;

/// The command line of `status`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Session (default: the only open one)
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let view = context.find(args.id.as_deref(), |state| !state.is_over())?;
    let mut view = context.try_refresh(context.salvage(view));
    // While the agent works, its worktree is newer than the collected work.
    if view.state.is_active()
        && let Ok(Some((_, current))) = collect::current_changes(&context.repository, &view.record)
    {
        view.facts.summary.work = Some(current);
    } else if let Some(work) = view.work().filter(|_| !view.state.is_over()).cloned() {
        // If the repository changes at the same time, only this value is unknown.
        view.standing =
            collect::branch_standing(&context.repository, &view.record, &work).ok().flatten();
    }
    view.conflicts_with = conflicts_with(&context, &view.record.id);
    view.tampered = import::tampering_warning(&view.record.session_repo);
    match context.json {
        true => {
            let mut status = view.json();
            let leases = Leases::of_session(&context.repository, &view.record.id);
            status["leases"] = leases.json();
            report::json_line(&status);
        }
        false => {
            report::out(&table::page(&view));
            seen::mark(&context.repository, &view);
            if let Some(what) = &view.tampered {
                report::say(&format!("warning: {what}; plain git in its worktree would run it"));
            }
        }
    }
    Ok(0)
}

/// Returns the open sessions that change the same lines as this one, as of their last snapshots.
fn conflicts_with(context: &CommandContext, id: &Id) -> Option<Vec<SessionConflict>> {
    let mut views = context.views().ok()?;
    standing::compare_pairs(&context.repository, &mut views);
    views.into_iter().find(|view| view.record.id == *id)?.conflicts_with
}
