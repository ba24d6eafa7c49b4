//! `studio check`: runs a session's checks again, without its agent.

use std::time::Duration;

use base::failure::{Failure, OrFail, Result};
use serde_json::json;
use studio_core::project::Project;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use crate::report::progress::ProgressStep;
use studio_core::check;
use studio_core::exec::runner::{Purpose, SandboxedRunner};
use studio_core::interrupt::Interrupt;
use studio_core::landing::merge_checks;
use studio_core::session::collect;
use studio_core::session::journal::{CheckResult, JournalEntry, SessionOutcome, WorkSummary};
use studio_core::session::state::SessionState;
use studio_core::session::summary::Phase;
use studio_core::session_view::{SessionView, checks_json};
use studio_core::timeline;
use studio_core::tree_checks;

/// The command line of `check`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Session (default: the only open one)
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Run this command instead of the session's checks, without changing its state (repeatable)
    #[arg(long = "check", value_name = "LINE")]
    pub checks: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let interrupt = Interrupt::listen()?;
    let context = CommandContext::open(common)?.with_interrupt(interrupt);
    let view = context.find(args.id.as_deref(), |state| state.is_settled() && !state.is_over())?;
    let id = &view.record.id;
    let _lock = context.lock_with_timeout(id)?.ok_or_else(|| in_use(&view))?;
    let view = context.view(id)?;
    ensure_checkable(&view)?;
    let collected = collect::collect(&context.repository, &view.record, &Default::default())?;
    if !collected.work.is_changed() {
        return Err(Failure::refused(format!("session `{id}` has nothing to check"))
            .because("its worktree is the same as its base")
            .hint(format!("studio send {id} 'what to do'")));
    }
    let checks = if args.checks.is_empty() { &view.record.checks } else { &args.checks };
    let results = run_checks(&context, &view, checks, &collected.work)?;
    if args.checks.is_empty() {
        record_results(&context, &view, collected.work, &results)?;
    }
    let updated = context.view(id)?;
    print_results(&context, &updated, &results);
    Ok(u8::from(results.iter().any(|result| !result.ok)))
}

fn in_use(view: &SessionView) -> Failure {
    let id = &view.record.id;
    Failure::refused(format!("session `{id}` is {}", view.state.name()))
        .because("its agent is running, or another command uses it")
        .hint(format!("studio logs {id} -f"))
        .hint(format!("studio stop {id}"))
}

fn ensure_checkable(view: &SessionView) -> Result<()> {
    let id = &view.record.id;
    if view.state.is_over() {
        return Err(Project::already_ended(view));
    }
    if !view.state.is_settled() {
        return Err(in_use(view));
    }
    if !view.facts.summary.has_worktree {
        return Err(Failure::refused(format!("session `{id}` has no worktree yet"))
            .hint(format!("studio resume {id}")));
    }
    Ok(())
}

/// Runs the checks in the session's worktree and sandbox. The first one that fails also runs on the
/// base branch.
fn run_checks(
    context: &CommandContext,
    view: &SessionView,
    checks: &[String],
    work: &WorkSummary,
) -> Result<Vec<CheckResult>> {
    let record = &view.record;
    context.make_worktree_here(view)?;
    let runner =
        SandboxedRunner::of(&context.repository, record, &context.config, Purpose::Checks)?;
    let timeout = Duration::from_secs(tree_checks::check_seconds(context));
    let runtime = base::runtime::current_thread();
    let runtime = runtime.or_fail(|| "cannot start the runtime")?;
    let mut results = Vec::new();
    for line in checks {
        let _step = ProgressStep::begin(context.json, &record.id, &format!("checking `{line}`"));
        let outcome = runtime.block_on(async {
            let outcome = context
                .interrupt
                .or(check::run(&runner, std::slice::from_ref(line), timeout))
                .await;
            if outcome.is_err() {
                runner.wait_all().await;
            }
            outcome
        });
        results.extend(outcome?);
    }
    // Files that cannot be recorded count as the session's work, and nothing is lost.
    let _ = collect::note_leftovers(&context.repository, record, work);
    if let Some(failed) = results.iter_mut().find(|result| !result.ok) {
        let what = format!("checking `{}` on the base branch", failed.command);
        let _step = ProgressStep::begin(context.json, &record.id, &what);
        failed.fails_on = merge_checks::fails_on_base(context, record, &failed.command)?;
    }
    Ok(results)
}

/// Records the results and the session's new state.
fn record_results(
    context: &CommandContext,
    view: &SessionView,
    work: WorkSummary,
    results: &[CheckResult],
) -> Result<()> {
    let failed = results.iter().find(|result| !result.ok);
    let summary = &view.facts.summary;
    // A run that was stopped, crashed or failed for another reason does not become successful.
    let ended_well = matches!(
        summary.phase,
        Phase::Ended { outcome: SessionOutcome::Ready | SessionOutcome::Empty }
    ) || summary.failed_check().is_some();
    let outcome = match failed {
        None => SessionOutcome::Ready,
        Some(failed) => SessionOutcome::Failed {
            why: format!("check `{}` failed with exit code {}", failed.command, failed.exit),
        },
    };
    let mut entries =
        vec![JournalEntry::Work(work), JournalEntry::Checked { results: results.to_vec() }];
    entries.extend(ended_well.then_some(JournalEntry::Exit { outcome, ms: Some(0) }));
    let mut writer = context.store.writer(&view.record.id, context.clock)?;
    for entry in entries {
        writer.write(entry).or_fail(|| "cannot write the journal")?;
    }
    writer.sync().or_fail(|| "cannot write the journal")
}

fn print_results(context: &CommandContext, view: &SessionView, results: &[CheckResult]) {
    let id = &view.record.id;
    let (state, reason) = (view.state.name(), view.reason().unwrap_or_default());
    if context.json {
        report::json_line(&json!({
            "schema": 1, "id": id, "state": state, "why": reason, "checks": checks_json(results),
        }));
        return;
    }
    for result in results {
        report::out(&base::text::printable_output(&timeline::check_text(result)));
    }
    report::out(&base::text::printable(&format!("{id} is {state}: {reason}")));
    if matches!(
        view.state,
        SessionState::Stopped | SessionState::Crashed | SessionState::Failed { .. }
    ) && results.iter().all(|result| result.ok)
    {
        report::say(&format!("land it as it is: studio accept --force {id}"));
    }
}
