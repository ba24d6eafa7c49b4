//! Edits of a plan's texts that do not come from the user's editor: a text replaces only the one that
//! the user saw.

use base::config::trust::hash;
use base::failure::{Failure, Result};
use planner::task;
use schemars::JsonSchema;
use serde::Deserialize;

use super::files::{REQUIREMENTS, TASKS};
use super::open;
use super::status::{self, PlanReport};
use crate::commands::context::CommandContext;
use crate::commands::tasks;

/// A text of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlanText {
    /// The requirements, and the user's own text below them.
    Requirements,
    /// The tasks.
    Tasks,
}

impl PlanText {
    /// Returns the path of the file in the checkout.
    pub(crate) fn path(self) -> &'static str {
        match self {
            PlanText::Requirements => REQUIREMENTS,
            PlanText::Tasks => TASKS,
        }
    }

    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PlanText::Requirements => "requirements",
            PlanText::Tasks => "tasks",
        }
    }
}

/// Returns a text, and its digest; empty if the file does not exist.
pub(crate) fn read(context: &CommandContext, which: PlanText) -> Result<(String, String)> {
    let text = open::files(context)?.read(which.path())?.unwrap_or_default();
    let digest = hash(text.as_bytes());
    Ok((text, digest))
}

/// Replaces the text with this digest, and returns the plan.
pub(crate) fn save(
    context: &CommandContext,
    which: PlanText,
    digest: &str,
    text: &str,
) -> Result<PlanReport> {
    let files = open::files(context)?;
    let Some(requirements) = files.read(REQUIREMENTS)? else {
        return Err(Failure::not_found("no plan in this repository").hint("studio plan FILE"));
    };
    let old = files.read(which.path())?.unwrap_or_default();
    if hash(old.as_bytes()) != digest {
        return Err(Failure::conflict(format!("{} changed in between", which.path()))
            .because("another program or window has written it; your text was not saved")
            .hint("compare it with the current text, and save it again"));
    }
    match which {
        PlanText::Requirements => drop(files.requirements(text)?),
        PlanText::Tasks => match files.requirements(&requirements) {
            Ok(requirements) => drop(files.tasks(text, &requirements)?),
            // The other file is invalid: this one must be correct in itself.
            Err(_) => {
                drop(task::from_toml(text).map_err(|it| tasks::invalid_list(TASKS.as_ref(), &it))?)
            }
        },
    }
    files.replace(which.path(), &old, text)?;
    status::read(context)
}
