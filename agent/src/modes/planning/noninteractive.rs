//! `g3 plan`: runs one step of a plan: refines a feature request, splits requirements, or compares
//! them with the code.

use std::path::Path;

use base::event::Usage;
use base::failure::{Failure, Result};
use planner::task::{self, Task, TaskFileError};

use super::converge::{self, ConvergenceBasis, KnownGap};
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
    /// Compares the requirements with the code, given existing tasks and known gaps.
    Converge(Option<(String, String)>, Vec<KnownGap>),
}

/// Runs a step, and returns the list in Markdown, the new tasks in TOML, or the verdicts and new
/// tasks in JSON.
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
            split::split(requirements::of(text)?, tasks(there.as_ref())?, &report)
        }
        PlanPart::Converge(there, gaps) => {
            let requirements = requirements::of(text)?;
            if let Some((id, _)) =
                gaps.iter().find(|(id, _)| requirements.iter().all(|it| it.id != *id))
            {
                return Err(Failure::usage(format!("no such requirement: `{id}`")));
            }
            let tasks = tasks(there.as_ref())?;
            let basis = ConvergenceBasis { requirements, tasks, gaps: gaps.clone() };
            converge::converge(basis, &report)
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

/// Parses the file with the existing tasks.
fn tasks(file: Option<&(String, String)>) -> Result<Vec<Task>> {
    let Some((name, text)) = file else { return Ok(Vec::new()) };
    task::from_toml(text).map_err(|mistakes| refused(Path::new(name), &mistakes))
}

fn refused(file: &Path, mistakes: &[TaskFileError]) -> Failure {
    let lines: Vec<String> =
        mistakes.iter().map(|it| format!("{}:{}: {}", file.display(), it.line, it.what)).collect();
    Failure::usage(format!("invalid task list {}", file.display())).because(lines.join("\n"))
}
