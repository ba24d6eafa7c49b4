//! `studio doctor`: finds and repairs leftovers of crashes, moves and other programs.

use base::failure::Result;
use studio_core::doctor::{self, Repairs};

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;

/// The command line of `doctor`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Move worktrees out of the main checkout to the place of new worktrees
    #[arg(long)]
    pub move_worktrees: bool,
    /// Discard worktrees and branches that belong to no session; `undo` restores them
    #[arg(long)]
    pub discard_orphans: bool,
}

/// Runs the command: 0 if everything is fine or was repaired, 1 if the user must decide something.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let repairs =
        Repairs { move_worktrees: args.move_worktrees, discard_orphans: args.discard_orphans };
    let findings = doctor::examine(&context, repairs)?;
    if context.json {
        report::json_line(&findings.json());
    } else {
        report::out(&report::doctor::page(&findings));
    }
    Ok(u8::from(!findings.open.is_empty()))
}
