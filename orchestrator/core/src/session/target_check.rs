//! The result of checking a ready session's work, merged with the current tip of its target.

use base::failure::{OrFail, Result};
use base::files;
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::session::store::SessionStore;

/// The file of a session's result.
pub(crate) const FILE: &str = "target_check.json";

/// The result for one state of the work and one tip of the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetCheck {
    /// The commit with the work.
    pub work: String,
    /// The target branch.
    pub target: String,
    /// Its tip.
    pub tip: String,
    /// The outcome.
    pub outcome: TargetCheckOutcome,
}

/// Whether the work can land on that tip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum TargetCheckOutcome {
    /// All checks pass.
    Passed,
    /// The work conflicts with the target.
    Conflicts {
        /// The files.
        files: Vec<String>,
    },
    /// A check fails, or the work cannot be merged.
    Failed {
        /// One sentence.
        why: String,
    },
}

impl TargetCheck {
    /// Returns the result of a session; `None` if it is missing or unreadable.
    pub(crate) fn read(store: &SessionStore, id: &Id) -> Option<TargetCheck> {
        serde_json::from_slice(&files::read_bounded(&store.file(id, FILE), 1 << 20).ok()?).ok()
    }

    /// Stores the result of a session.
    pub(crate) fn store(&self, store: &SessionStore, id: &Id) -> Result<()> {
        let file = store.file(id, FILE);
        files::replace_json(&file, self).or_fail(|| format!("cannot write {}", file.display()))?;
        files::step("recheck.stored");
        Ok(())
    }

    /// Describes why the work cannot land; `None` if it can.
    pub fn obstacle(&self) -> Option<String> {
        let place = format!("merged with `{}` at {}", self.target, base::text::head(&self.tip, 12));
        match &self.outcome {
            TargetCheckOutcome::Passed => None,
            TargetCheckOutcome::Conflicts { files } => {
                Some(format!("{place}: conflict in {}", files.join(", ")))
            }
            TargetCheckOutcome::Failed { why } => Some(format!("{place}: {why}")),
        }
    }
}
