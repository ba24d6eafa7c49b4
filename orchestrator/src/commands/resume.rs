//! `studio resume`: continues a session that ended, crashed or was stopped.

use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::text::tail;
use serde_json::json;
use studio_core::place::{configured_place, unreached};
use studio_core::project::Project;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::run::LimitArgs;
use crate::commands::{all_repositories, interactive, send};
use crate::report;
use studio_core::schedule;
use studio_core::session::journal::JournalEntry;
use studio_core::session::record::RunLimits;
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;
use studio_core::supervisor::step::{ReachedLimit, exhausted_limit};
use studio_git::transaction;

/// Maximum number of bytes of a failed check's output that the agent gets.
const MAX_OUTPUT_BYTES: usize = 3000;

/// The command line of `resume`.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags of a command line")]
pub(crate) struct Args {
    /// Sessions to resume (default: the only one that can be resumed)
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Resume all crashed, stopped and queued sessions
    #[arg(long, group = "several", conflicts_with = "ids")]
    pub all: bool,
    /// Resume all crashed and queued sessions
    #[arg(long, group = "several", conflicts_with = "ids")]
    pub crashed: bool,
    /// In all repositories in which studio has sessions
    #[arg(long, short = 'A', requires = "several")]
    pub all_repositories: bool,
    /// Keep permission requests open for `studio answer` from now on
    #[arg(long)]
    pub ask: bool,
    /// Work with g3 yourself, on this terminal
    #[arg(short, long, conflicts_with_all = ["several", "ask"])]
    pub interactive: bool,
    /// Try at once, although the account of the agent is rate limited
    #[arg(long, conflicts_with = "interactive")]
    pub now: bool,
    /// Continue at this place (see `studio places`), or `here`
    #[arg(long, value_name = "PLACE", conflicts_with = "interactive")]
    pub on: Option<String>,
    /// Limits that replace those of the session
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// The input for a resumed session.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResumeInput {
    /// The prompt; a default one to continue when absent.
    pub prompt: Option<String>,
    /// Limits that replace the earlier ones.
    pub limits: RunLimits,
    /// Whether permission requests wait for the user from now on; unchanged when absent.
    pub attended: Option<bool>,
    /// The place where it continues, or `here`; unchanged when absent.
    pub place: Option<String>,
}

impl ResumeInput {
    /// Returns whether the settings of the session change.
    fn changes_settings(&self) -> bool {
        self.limits != RunLimits::default() || self.attended.is_some()
    }

    /// Returns whether the session needs no more than a call of the scheduler, if it waits.
    fn changes_nothing(&self) -> bool {
        !self.changes_settings() && self.place.is_none()
    }
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    if args.all_repositories {
        return run_everywhere(common, args);
    }
    let context = CommandContext::open(common)?;
    if args.interactive {
        let name = args.ids.first().map(String::as_str);
        if args.ids.len() > 1 {
            return Err(Failure::usage("--interactive takes one session"));
        }
        let view = context.find(name, |state| state.is_settled() && !state.is_over())?;
        return interactive::resume(&context, &view.record.id);
    }
    let views = selected(&context, args)?;
    if views.is_empty() && !context.json {
        report::say("no stopped, crashed or queued sessions");
    }
    let (ids, failure) = resume(&context, args, &views)?;
    if context.json {
        report::json_line(&json!({"schema": 1, "resumed": ids}));
    }
    failure.map_or(Ok(0), Err)
}

/// Resumes sessions of all repositories. A failure in one of them does not prevent the others.
fn run_everywhere(common: &CommonArgs, args: &Args) -> Result<u8> {
    let (mut resumed, mut failures) = (Vec::new(), Vec::new());
    for repository in all_repositories::open(common) {
        let resume_here = || -> Result<()> {
            let context = repository.context?;
            let views = selected(&context, args)?;
            if views.is_empty() {
                return Ok(());
            }
            if !context.json {
                report::say(&all_repositories::change_directory(&repository.directory));
            }
            let (ids, failure) = resume(&context, args, &views)?;
            resumed.push(json!({"directory": repository.directory, "resumed": ids}));
            failure.map_or(Ok(()), Err)
        };
        failures.extend(resume_here().err());
    }
    if common.json {
        report::json_line(&json!({"schema": 1, "repositories": resumed}));
    } else if resumed.is_empty() && failures.is_empty() {
        report::say("no stopped, crashed or queued sessions in any repository");
    }
    failures.iter().skip(1).for_each(|failure| report::say(&failure.to_string()));
    failures.into_iter().next().map_or(Ok(0), Err)
}

/// Resumes these sessions and says so; returns their ids, and the first failure.
fn resume<'v>(
    context: &CommandContext,
    args: &Args,
    views: &'v [SessionView],
) -> Result<(Vec<&'v Id>, Option<Failure>)> {
    if args.now {
        for view in views {
            schedule::try_rate_limit(&context.config, &view.record)?;
        }
    }
    // A queued session only needs a call of the scheduler, and a parked one not even that.
    let (mut ids, mut failures): (Vec<&Id>, Vec<Failure>) = (Vec::new(), Vec::new());
    for view in views {
        let id = &view.record.id;
        let input = ResumeInput {
            prompt: None,
            limits: args.limits.limits(),
            attended: args.ask.then_some(true),
            place: args.on.clone(),
        };
        if view.is_stalled() {
            // The stuck turn is cancelled, and the agent continues.
            match send::deliver(context, id, base::text::CONTINUE_PROMPT) {
                Ok(_) => ids.push(id),
                Err(failure) => failures.push(failure),
            }
            continue;
        }
        let is_waiting = view.state == SessionState::Queued || view.is_parked();
        let unchanged = is_waiting && input.changes_nothing();
        match if unchanged { Ok(()) } else { requeue_with(context, id, input) } {
            Ok(()) => ids.push(id),
            // A busy session does not prevent resuming the others.
            Err(failure) => failures.push(failure),
        }
    }
    context.schedule()?;
    failures.iter().skip(1).for_each(|failure| report::say(&failure.to_string()));
    for id in ids.iter().filter(|_| !context.json) {
        let updated = context.view(id)?;
        // A supervisor that was just started holds the lock before its first entry.
        let is_queued = updated.state == SessionState::Queued && !updated.facts.locked;
        match is_queued || (updated.is_parked() && !args.now) {
            true => report::say(&format!("{id}: {}", updated.reason().unwrap_or_default())),
            false => report::say(&format!("{id} resumed: studio logs {id} -f")),
        }
    }
    Ok((ids, failures.into_iter().next()))
}

/// Returns the sessions to resume.
fn selected(context: &CommandContext, args: &Args) -> Result<Vec<SessionView>> {
    let is_resumable = |state: &SessionState| {
        matches!(
            state,
            SessionState::Crashed
                | SessionState::Stopped
                | SessionState::Failed { .. }
                | SessionState::Empty
        )
    };
    Ok(match args.all || args.crashed {
        true => {
            let mut views = context.open_views()?;
            let is_pending = |state: &SessionState| match state {
                SessionState::Crashed | SessionState::Queued => true,
                SessionState::Stopped => args.all,
                _ => false,
            };
            views.retain(|view| is_pending(&view.state) || (args.now && view.is_parked()));
            views
        }
        false => {
            let is_waiting = |state: &SessionState| {
                args.now && matches!(state, SessionState::Queued | SessionState::Waiting { .. })
            };
            context.find_all(&args.ids, |state| is_resumable(state) || is_waiting(state))?
        }
    })
}

/// Queues a session with an optional prompt and calls the scheduler.
pub(crate) fn requeue(context: &CommandContext, id: &Id, prompt: Option<String>) -> Result<()> {
    requeue_with(context, id, ResumeInput { prompt, ..ResumeInput::default() })
}

/// Like [`requeue`], with new settings. Refuses a session that has reached a limit, because it
/// would end immediately.
pub(crate) fn requeue_with(context: &CommandContext, id: &Id, input: ResumeInput) -> Result<()> {
    queue(context, id, input)?;
    context.schedule().map(|_| ())
}

/// Makes the next call of the scheduler start or continue a session.
fn queue(context: &CommandContext, id: &Id, input: ResumeInput) -> Result<()> {
    let busy = || {
        Failure::refused(format!("session `{id}` is at work"))
            .because("another process holds its lock")
            .hint(format!("studio logs {id} -f"))
            .hint(format!("studio stop {id}"))
    };
    // A session whose run ended at a place is taken back first.
    context.reconnect(id)?;
    let _lock = context.lock_with_timeout(id)?.ok_or_else(busy)?;
    // Its lock is free: a command that landed it or moved its worktree was killed.
    for note in transaction::recover(&context.repository)? {
        report::say(&note);
    }
    let view = context.view(id)?;
    if view.state.is_over() {
        return Err(Project::already_ended(&view));
    }
    Project::refuse_away(&view)?;
    let summary = &view.facts.summary;
    let limits = input.limits.or(summary.limits).or(view.record.limits);
    if let Some(ReachedLimit { limit: what, flag }) = exhausted_limit(&limits, summary) {
        return Err(Failure::refused(format!("session `{id}` has reached its limit of {what}"))
            .because("limits apply to all runs of a session together")
            .hint(format!("studio resume {id} {flag}")));
    }
    context.repository.remember_checkout()?;
    match &input.place {
        Some(name) => configured_place::choose(context, id, name)?,
        None if input.changes_settings() => unreached::refuse_settings(&context.store, id)?,
        None if unreached::take_up(&context.store, &view.record, input.prompt.as_deref())? => {
            return Ok(());
        }
        None => {}
    }
    unreached::forget(&context.store, id)?;
    let mut writer = context.store.writer(id, context.clock)?;
    let fail = || "cannot write the journal";
    if input.changes_settings() {
        let ResumeInput { limits, attended, .. } = input;
        writer.write(JournalEntry::Settings { limits, attended }).or_fail(fail)?;
    }
    if view.state != SessionState::Queued || input.prompt.is_some() {
        writer.write(JournalEntry::Queued { prompt: input.prompt }).or_fail(fail)?;
    }
    base::files::step("resume.queued");
    writer.sync().or_fail(fail)
}

/// Returns the prompt for the agent of a failed session.
pub(crate) fn retry_prompt(view: &SessionView) -> String {
    let mut text = format!("It is not done yet: {}.", view.reason().unwrap_or_default());
    let checks = view.facts.summary.checks.iter().flatten();
    for check in checks.filter(|check| !check.ok && !check.tail.trim().is_empty()) {
        let output_tail = tail(check.tail.trim_end(), MAX_OUTPUT_BYTES);
        text.push_str(&format!("\n\n`{}` wrote:\n{output_tail}", check.command));
    }
    text + "\n\nSet that right."
}
