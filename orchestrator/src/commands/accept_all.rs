//! `studio accept --all`: lands all ready sessions in a queue.

use base::failure::{FailureKind, Result};
use base::id::Id;

use crate::commands::accept;
use crate::commands::context::CommandContext;
use crate::commands::resolve;
use crate::report;
use crate::report::progress;
use studio_core::landing::queue::{Queue, QueueEvent};
use studio_core::landing::{LandingOptions, Rejection};
use studio_core::session::state::SessionState;

/// Runs the command. Agents get at most `turns` turns to resolve conflicts.
pub(super) fn run(context: &CommandContext, options: &LandingOptions, turns: u32) -> Result<u8> {
    let queue = Queue::open(context)?;
    let views = context.views()?.into_iter().filter(|view| view.state == SessionState::Ready);
    let mut ids: Vec<Id> = views.map(|view| view.record.id).collect();
    if ids.is_empty() && !context.json {
        report::say("no ready sessions");
    }
    let (mut landed, mut refused) = (Vec::new(), Vec::new());
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
        })?;
        landed.extend(outcome.landed);
        let (conflicts, others): (Vec<_>, Vec<_>) =
            outcome.refused.into_iter().partition(|(_, rejection)| is_for_agent(rejection));
        refused.extend(others);
        let resolved = resolve::resolve_together(context, conflicts)?;
        if !context.json {
            resolved.refused.iter().for_each(|(_, it)| report::say(&it.failure.to_string()));
        }
        refused.extend(resolved.refused);
        ids = if resolved.is_interrupted { Vec::new() } else { resolved.ready };
    }
    accept::finish(context, &landed, &refused)
}

fn print(event: QueueEvent<'_>, is_for_agent: impl Fn(&Rejection) -> bool) {
    match event {
        QueueEvent::Landed(landed) => accept::print_landed(landed, true),
        QueueEvent::Refused(id, rejection) if is_for_agent(rejection) => {
            let files = rejection.files.join(", ");
            report::say(&format!("{id}: conflict in {files}: its agent gets a turn to resolve it"));
        }
        QueueEvent::Refused(_, rejection) => report::say(&rejection.failure.to_string()),
    }
}
