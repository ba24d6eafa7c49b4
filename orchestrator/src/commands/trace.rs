//! `studio trace`: reports which commit landed each requirement, with its checks, verdicts and
//! cost.

use base::failure::{Failure, Result};
use serde_json::{Value, json};

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::requirement_filter::RequirementFilter;
use crate::report;
use crate::report::requirements::{ServedRequirement, WorkCost};
use crate::report::trace;

/// The command line.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Which requirements.
    #[command(flatten)]
    pub scope: RequirementFilter,
    /// Print a report in Markdown
    #[arg(long)]
    pub markdown: bool,
}

/// Runs the command. The exit code is 1 unless every requirement is landed and verified.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    refuse_both(common, args.markdown)?;
    let context = CommandContext::open(common)?;
    let found = args.scope.read(common, &context)?;
    let all = found.served();
    let open = all.iter().filter(|it| it.row.gap().is_some()).count();
    if context.json {
        report::json_line(&json!({
            "schema": 1,
            "requirements": all.iter().map(ServedRequirement::json).collect::<Vec<Value>>(),
            "totals": WorkCost::of(&trace::sessions(&all)),
        }));
    } else if args.markdown {
        report::out(&trace::report(&all));
    } else if args.scope.id.is_some() {
        all.iter().for_each(|it| report::out(&trace::page(it)));
    } else {
        report::out(&trace::summary(&all));
        if open > 0 {
            report::say(&format!(
                "{open} of {} requirements have not landed with a passing check",
                all.len()
            ));
        }
    }
    Ok(u8::from(open > 0))
}

/// Refuses two output formats at once.
pub(crate) fn refuse_both(common: &CommonArgs, markdown: bool) -> Result<()> {
    match markdown && common.json {
        true => Err(Failure::usage("--markdown cannot be used with --json")),
        false => Ok(()),
    }
}
