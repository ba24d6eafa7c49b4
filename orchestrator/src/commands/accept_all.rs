//! `studio accept --all`: lands all ready sessions in a queue.

use base::failure::{Failure, FailureKind, Result};

use crate::commands::accept;
use crate::commands::context::CommandContext;
use crate::commands::resolve;
use crate::report;
use crate::report::progress;
use studio_core::landing::queue::{Queue, QueueEvent};
use studio_core::landing::{LandingOptions, Rejection};
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;

/// Runs the command. Agents get at most `turns` turns to resolve conflicts.
pub(super) fn run(context: &CommandContext, options: &LandingOptions, turns: u32) -> Result<u8> {
    let queue = Queue::open(context, options.dry_run)?;
    let all = context.views()?;
    let views = all.iter().filter(|view| view.state == SessionState::Ready).cloned();
    let ready: Vec<SessionView> = views.collect();
    if ready.is_empty() && !context.json {
        report::say("no ready sessions");
    }
    let (mut ids, mut landed, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    let mut failure = None;
    for view in ready {
        match refuse_other_attempts(&all, &view) {
            Ok(()) => ids.push(view.record.id),
            Err(failure) => {
                if !context.json {
                    report::say(&failure.to_string());
                }
                refused.push((view.record.id, failure.into()));
            }
        }
    }
    for turn in 0..=turns {
        if ids.is_empty() {
            break;
        }
        let is_for_agent = |rejection: &Rejection| {
            turn < turns
                && rejection.failure.kind == FailureKind::Conflict
                && rejection.agent_prompt.is_some()
        };
        let outcome = queue.run(context, &ids, options, &mut |event| {
            if !context.json {
                progress::suspend(|| print(event, is_for_agent));
            }
        });
        landed.extend(outcome.landed);
        failure = outcome.failure;
        if failure.is_some() {
            // No agent gets a turn.
            let unresolved = outcome.refused.iter().filter(|(_, it)| is_for_agent(it));
            if !context.json {
                unresolved.for_each(|(_, it)| report::say(&it.failure.to_string()));
            }
            refused.extend(outcome.refused);
            break;
        }
        let (conflicts, others): (Vec<_>, Vec<_>) =
            outcome.refused.into_iter().partition(|(_, rejection)| is_for_agent(rejection));
        refused.extend(others);
        let resolved = resolve::resolve_together(context, conflicts);
        if !context.json {
            resolved.refused.iter().for_each(|(_, it)| report::say(&it.failure.to_string()));
        }
        refused.extend(resolved.refused);
        failure = resolved.failure;
        ids = if resolved.is_interrupted { Vec::new() } else { resolved.ready };
        if failure.is_some() {
            break;
        }
    }
    accept::finish(context, &landed, &refused, failure)
}

/// Refuses an attempt at a task of which another attempt has landed or is ready too: which one is the
/// best is the user's choice.
fn refuse_other_attempts(all: &[SessionView], view: &SessionView) -> Result<()> {
    let competes = |other: &&SessionView| {
        view.record.is_other_attempt(&other.record)
            && matches!(other.state, SessionState::Ready | SessionState::Accepted)
    };
    let Some(other) = all.iter().find(competes) else { return Ok(()) };
    let (id, other_id) = (&view.record.id, &other.record.id);
    let has_landed = other.state == SessionState::Accepted;
    let verb = if has_landed { "has landed" } else { "is ready too" };
    Err(Failure::refused(format!("session `{id}` is one of several attempts at its task"))
        .because(format!("`{other_id}` {verb}"))
        .hint(format!("studio compare {id}"))
        .hint(format!("studio accept {id} --drop-others")))
}

fn print(event: QueueEvent<'_>, is_for_agent: impl Fn(&Rejection) -> bool) {
    match event {
        QueueEvent::Landed(landed) => accept::print_landed(landed, true),
        QueueEvent::Refused(id, rejection) if is_for_agent(rejection) => {
            let files = rejection.files.paths.join(", ");
            report::say(&format!("{id}: conflict in {files}: its agent gets a turn to resolve it"));
        }
        QueueEvent::Refused(_, rejection) => report::say(&rejection.failure.to_string()),
    }
}
