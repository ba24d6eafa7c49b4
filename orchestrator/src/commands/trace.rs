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
    check_output_flags(common, args.markdown)?;
    let context = CommandContext::open(common)?;
    let selection = args.scope.read(common, &context)?;
    let requirements = selection.served();
    let open_count = requirements.iter().filter(|it| it.row.gap().is_some()).count();
    if context.json {
        report::json_line(&json!({
            "schema": 1,
            "requirements": requirements.iter().map(ServedRequirement::json).collect::<Vec<Value>>(),
            "totals": WorkCost::of(&trace::sessions(&requirements)),
        }));
    } else if args.markdown {
        report::out(&trace::report(&requirements));
    } else if args.scope.id.is_some() {
        requirements.iter().for_each(|it| report::out(&trace::page(it)));
    } else {
        report::out(&trace::summary(&requirements));
        if open_count > 0 {
            report::say(&format!(
                "{open_count} of {} requirements have not landed with a passing check",
                requirements.len()
            ));
        }
    }
    Ok(u8::from(open_count > 0))
}

/// Refuses two output formats at once.
pub(crate) fn check_output_flags(common: &CommonArgs, markdown: bool) -> Result<()> {
    match markdown && common.json {
        true => Err(Failure::usage("--markdown cannot be used with --json")),
        false => Ok(()),
    }
}
