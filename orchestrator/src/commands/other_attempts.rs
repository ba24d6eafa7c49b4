//! The other attempts at the task of a session that lands: they are discarded in the same operation
//! if the user wants that.

use base::failure::Result;
use base::lock::Lock;
use studio_core::session_view::SessionView;

use crate::commands::accept::Args;
use crate::commands::context::CommandContext;
use crate::commands::{confirm, discard};
use crate::report;

/// Returns the other attempts to discard: with `--drop-others`, or after a confirmation on a
/// terminal; none otherwise.
pub(crate) fn to_drop(
    context: &CommandContext,
    args: &Args,
    view: &SessionView,
) -> Result<Vec<SessionView>> {
    let is_partial = args.dry_run || args.keep_others || !args.hunks.is_empty();
    let Some(group) = view.record.group.as_ref().filter(|_| !is_partial) else {
        return Ok(Vec::new());
    };
    let is_named = |other: &SessionView| {
        args.ids.iter().any(|name| other.record.id.as_str().starts_with(name.as_str()))
    };
    let mut others = context.open_views()?;
    others.retain(|other| {
        other.record.group.as_ref() == Some(group)
            && other.record.id != view.record.id
            && !other.state.is_over()
            && !is_named(other)
    });
    if others.is_empty() || args.drop_others {
        return Ok(others);
    }
    let ids: Vec<&str> = others.iter().map(|other| other.record.id.as_str()).collect();
    let ids = ids.join(" ");
    let question = format!("discard the other attempts ({ids})? `studio undo` restores them");
    match context.json {
        false if confirm::ask(&question) == Some(true) => Ok(others),
        true | false => {
            if !context.json {
                report::say(&format!("the other attempts stay open: studio discard {ids}"));
            }
            Ok(Vec::new())
        }
    }
}

/// Stops the attempts that run, and returns the locks under which all of them are discarded.
pub(crate) fn prepare(context: &CommandContext, others: &[SessionView]) -> Result<Vec<Lock>> {
    match others.is_empty() {
        true => Ok(Vec::new()),
        false => discard::prepare(context, others),
    }
}
