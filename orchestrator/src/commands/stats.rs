//! `studio stats`: how many sessions landed and what they cost, by agent, by model and over time.

use base::failure::Result;
use jiff::SignedDuration;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use studio_core::stats::Stats;

/// The command line of `stats`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Count only sessions created in the last DAYS days
    #[arg(long, value_name = "DAYS")]
    pub days: Option<u32>,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let (views, unreadable) = context.sessions()?;
    for (_, failure) in unreadable {
        report::say(&format!("{}: studio doctor", failure.sentence()));
    }
    let now = context.clock.now();
    let since = args
        .days
        .and_then(|days| now.checked_sub(SignedDuration::from_hours(24 * i64::from(days))).ok());
    let stats = Stats::of(&views, since, &context.clock.zone());
    if context.json {
        report::json_line(&stats.json());
    } else if stats.totals.sessions == 0 {
        report::say("no sessions to count; start one: studio run 'your task'");
    } else {
        report::out(&report::stats::page(&stats));
    }
    Ok(0)
}
