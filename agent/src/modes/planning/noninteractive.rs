//! `g3 plan`: runs one step of a plan, i.e. refines a feature request or splits requirements.

use std::path::Path;

use base::event::Usage;
use base::failure::{Failure, Result};
use planner::task::{self, TaskFileError};

use super::model_io::{ModelText, PlanListeners};
use super::{explore, prompts, refine, split};
use crate::modes::autonomous::requirements;
use crate::modes::interrupt::{self, Interrupts};
use agent_core::run::AgentSettings;

/// A step of a plan.
#[derive(Clone, Debug)]
pub(crate) enum PlanPart {
    /// Refines the feature request into a list of requirements.
    Refine,
    /// Splits the requirements into tasks, in addition to existing tasks (file name and TOML).
    Split(Option<(String, String)>),
}

/// Runs a step, and returns the list in Markdown or the new tasks in TOML.
pub(crate) async fn run(
    settings: &AgentSettings,
    part: &PlanPart,
    text: &str,
    listeners: PlanListeners,
) -> Result<String> {
    let report = explore::report(&settings.cwd);
    let (tool, asked) = match part {
        PlanPart::Refine if text.trim().is_empty() => {
            return Err(Failure::usage("stdin is empty: expected a feature request")
                .hint("g3 plan refine < feature.md"));
        }
        PlanPart::Refine => refine::refine(text, prompts::refine(text, &report, "")),
        PlanPart::Split(there) => {
            let there = there.as_ref().map(|(name, text)| (Path::new(name), text));
            let there = there.map(|(name, text)| {
                task::from_toml(text).map_err(|mistakes| refused(name, &mistakes))
            });
            split::split(requirements::of(text)?, there.transpose()?.unwrap_or_default(), &report)
        }
    };
    let interrupts = Interrupts::listen()?;
    match tool
        .ask(settings, asked, listeners, (interrupts.begin().cancel, &mut Usage::default()))
        .await?
    {
        ModelText::Text(text) => Ok(text),
        ModelText::Nothing(failure) => Err(failure),
        ModelText::Cancelled => Err(interrupt::failure()),
    }
}

fn refused(file: &Path, mistakes: &[TaskFileError]) -> Failure {
    let lines: Vec<String> =
        mistakes.iter().map(|it| format!("{}:{}: {}", file.display(), it.line, it.what)).collect();
    Failure::usage(format!("invalid task list {}", file.display())).because(lines.join("\n"))
}
