//! `studio compare`: several attempts at one task beside each other, ranked by evidence.

use base::failure::{Failure, Result};
use base::id::Id;
use studio_core::attempts::{self, judge};
use studio_core::interrupt::Interrupt;
use studio_core::session_view::SessionView;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;

/// The command line of `compare`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// One of the attempts, or the sessions to compare (default: the only group of attempts)
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Let a model judge attempts that the tests do not tell apart; it sees patches without names
    #[arg(long)]
    pub judge: bool,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let interrupt = Interrupt::listen()?;
    let context = CommandContext::open(common)?.with_interrupt(interrupt);
    let views = match args.ids.as_slice() {
        [] => only_group(&context)?,
        [id] => attempts::group_of(&context, &context.find(Some(id), |_| true)?)?,
        ids => context.find_all(ids, |_| true)?,
    };
    let views: Vec<SessionView> = views.into_iter().map(|view| context.salvage(view)).collect();
    let mut comparison = attempts::compare(&context, views)?;
    if args.judge {
        judge::decide_ties(&context, &mut comparison)?;
    }
    if context.json {
        report::json_line(&comparison.json());
        return Ok(0);
    }
    report::out(&report::compare::page(&comparison));
    let best = comparison.ranking.first().map(|index| &comparison.attempts[*index]);
    if let Some(best) = best.filter(|attempt| attempt.commit.is_some()) {
        report::say(&format!("land the best one: studio accept {}", best.id()));
    }
    if !args.judge && !comparison.ties().is_empty() {
        report::say("some are equal in tests and similar in size: studio compare --judge");
    }
    Ok(0)
}

/// Returns the attempts of the only group with open sessions.
fn only_group(context: &CommandContext) -> Result<Vec<SessionView>> {
    let views = context.views()?;
    let mut groups: Vec<Id> = views
        .iter()
        .filter(|view| !view.state.is_over())
        .filter_map(|view| view.record.group.clone())
        .collect();
    groups.sort();
    groups.dedup();
    match groups.as_slice() {
        [group] => {
            Ok(views.into_iter().filter(|it| it.record.group.as_ref() == Some(group)).collect())
        }
        [] => Err(Failure::not_found("no task has several attempts")
            .hint("studio run --attempts 3 'your task'")
            .hint("studio compare ID OTHER    compares two sessions")),
        [first, ..] => {
            let names: Vec<&str> = groups.iter().map(Id::as_str).collect();
            Err(Failure::usage("several tasks have several attempts")
                .because(names.join(", "))
                .hint(format!("studio compare {first}")))
        }
    }
}
