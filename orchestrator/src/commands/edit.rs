//! `studio edit`: changes the checks of a session.

use base::failure::{Failure, OrFail, Result};
use serde_json::json;
use studio_core::project::Project;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use studio_core::session::journal::JournalEntry;
use studio_core::session::state::SessionState;

/// The command line of `edit`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Session (default: the only open one)
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Replace the checks with this command (repeatable)
    #[arg(long = "check", value_name = "LINE", conflicts_with = "no_checks")]
    pub checks: Vec<String>,
    /// Add this command to the checks (repeatable)
    #[arg(long = "add-check", value_name = "LINE", conflicts_with = "no_checks")]
    pub added: Vec<String>,
    /// Remove all checks of the session (configured checks still run when it lands)
    #[arg(long)]
    pub no_checks: bool,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    if args.checks.is_empty() && args.added.is_empty() && !args.no_checks {
        return Err(Failure::usage("nothing to change")
            .hint("studio edit ID --check 'cargo test'")
            .hint("studio edit ID --no-checks"));
    }
    if args.checks.iter().chain(&args.added).any(|line| line.trim().is_empty()) {
        return Err(Failure::usage("a check is empty").hint("studio edit ID --no-checks"));
    }
    let view = context.find(args.id.as_deref(), |state| !state.is_over())?;
    let id = &view.record.id;
    let lock = context.lock_with_timeout(id)?;
    let view = context.view(id)?;
    if view.state.is_over() {
        return Err(Project::already_ended(&view));
    }
    if lock.is_none() || view.state.is_active() {
        return Err(Failure::refused(format!("session `{id}` is {}", view.state.name()))
            .because("its checks cannot be changed while its agent is running")
            .hint(format!("studio stop {id}")));
    }
    let keep_existing = args.checks.is_empty() && !args.no_checks;
    let mut commands = if keep_existing { view.record.checks.clone() } else { args.checks.clone() };
    for line in &args.added {
        if !commands.contains(line) {
            commands.push(line.clone());
        }
    }
    let mut writer = context.store.writer(id, context.clock)?;
    let entry = JournalEntry::Checks { commands: commands.clone() };
    writer.write(entry).and_then(|()| writer.sync()).or_fail(|| "cannot write the journal")?;
    drop(lock);
    let updated = context.view(id)?;
    if context.json {
        let state = updated.state.name();
        report::json_line(&json!({"schema": 1, "id": id, "state": state, "checks": commands}));
        return Ok(0);
    }
    match commands.is_empty() {
        true => report::out(&format!("{id} has no checks")),
        false => {
            for line in &commands {
                report::out(&base::text::printable(&format!("{id}: check `{line}`")));
            }
        }
    }
    if updated.state.is_settled() && updated.state != SessionState::Ready {
        report::say(&format!("run them: studio check {id}"));
    }
    Ok(0)
}
