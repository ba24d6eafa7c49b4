//! One part of a plan by itself, as `g3 plan` asks for it: refining a wish, splitting requirements.

use std::path::Path;

use base::event::Usage;
use base::failure::{Failure, Result};
use planner::task::{self, TaskFileError};

use super::model_io::{ModelText, PlanListeners};
use super::{explore, prompts, refine, split};
use crate::modes::autonomous::requirements;
use crate::modes::interrupt::{self, Interrupts};
use agent_core::run::AgentSettings;

/// A part of a plan.
#[derive(Clone, Debug)]
pub(crate) enum PlanPart {
    /// The wish becomes a list of requirements.
    Refine,
    /// The requirements become tasks; these tasks (TOML, with the file's name) are there already.
    Split(Option<(String, String)>),
}

/// Carries a part out; gives the list in Markdown, or the new tasks in TOML.
pub(crate) async fn run(
    settings: &AgentSettings,
    part: &PlanPart,
    text: &str,
    heard: PlanListeners,
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
        .ask(settings, asked, heard, (interrupts.begin().cancel, &mut Usage::default()))
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
