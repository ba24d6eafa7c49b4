//! `studio explain`: prints the facts that determine a session's state.

use base::failure::Result;
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use crate::report::coach;
use studio_core::session::journal::SessionOutcome;
use studio_core::session::state::rate_limit_reason;
use studio_core::session::summary::{Disposition, Phase};
use studio_core::session_view::SessionView;
use studio_git::worktree;

/// The command line of `explain`.
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
    let worktree_exists = worktree::is_finished(&view.record.session_repo);
    let tip = context.repository.tip(&view.record.session_repo.branch)?;
    if context.json {
        let summary = &view.facts.summary;
        report::json_line(&json!({
            "schema": 1,
            "id": view.record.id,
            "state": view.state.name(),
            "why": view.reason(),
            "facts": {
                "locked": view.facts.locked,
                "journal": {
                    "phase": summary.phase, "turns": summary.turns, "updated_at": summary.updated_at,
                },
                "coach": studio_core::coach_json::json(summary),
                "operation": view.facts.disposition,
                "worktree": worktree_exists,
                "tip": tip,
            },
        }));
        return Ok(0);
    }
    report::out(&base::text::printable(&text(&view, worktree_exists, tip)));
    Ok(0)
}

fn text(view: &SessionView, worktree_exists: bool, tip: Option<String>) -> String {
    let summary = &view.facts.summary;
    let lock = match view.facts.locked {
        true => "held by a supervisor or a command",
        false => "free: no process works on it",
    };
    let phase = match &summary.phase {
        Phase::Queued => view.reason().unwrap_or_default(),
        Phase::Starting => "a supervisor took over".to_owned(),
        Phase::Working => format!("turn {} was started", summary.turns),
        Phase::Waiting { reason } => format!("waiting: {reason}"),
        Phase::Parked { until, why } => {
            format!("{}: {why}", rate_limit_reason(until))
        }
        Phase::Checking => "the checks were begun".to_owned(),
        Phase::Ended { outcome: SessionOutcome::Ready } => "the run ended well".to_owned(),
        Phase::Ended { outcome: SessionOutcome::Failed { why } } => {
            format!("the run failed: {why}")
        }
        Phase::Ended { outcome: SessionOutcome::Empty } => {
            "the run ended without changes".to_owned()
        }
        Phase::Ended { outcome: SessionOutcome::Stopped } => "the run was stopped".to_owned(),
    };
    let operation = match &view.facts.disposition {
        Disposition::Open => "none".to_owned(),
        Disposition::Landing => "a landing was started and has no outcome".to_owned(),
        Disposition::Accepted { operation, commit } => {
            format!("landed as {} by {operation}", commit.as_deref().unwrap_or("?"))
        }
        Disposition::Discarded { operation } => format!("discarded by {operation}"),
    };
    let worktree = match worktree_exists {
        true => view.record.session_repo.worktree.display().to_string(),
        false => "not made, or moved away".to_owned(),
    };
    let coach = coach::rows(summary);
    let coach = coach.iter().map(|(name, text)| format!("  {name:<10} {text}"));
    let facts = [
        format!("{} is {}", view.record.id, view.state.name()),
        format!("  because    {}", view.reason().unwrap_or_default()),
        format!("  lock       {lock}"),
        format!("  journal    {phase} ({})", summary.updated_at.as_deref().unwrap_or("empty")),
        format!("  operation  {operation}"),
        format!("  worktree   {worktree}"),
        format!(
            "  branch     {} at {}",
            view.record.session_repo.branch,
            tip.as_deref().unwrap_or("-")
        ),
    ];
    facts.into_iter().chain(coach).collect::<Vec<_>>().join("\n")
}
