//! Why queued sessions do not start: written by each step of the scheduler, read by every view.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::files;
use base::id::Id;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::session::summary::QueueReason;

/// The reasons of the last step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct QueueReasons {
    /// The reason of each session that waits for something besides its dependencies.
    pub waiting: BTreeMap<Id, QueueReason>,
}

/// Returns the file, in the directory of studio's data about a repository.
pub(crate) fn path(root: &Path) -> PathBuf {
    root.join("queue.json")
}

impl QueueReasons {
    /// Reads the reasons of the last step; none if there was none. It is only a cache.
    pub(crate) fn read(root: &Path) -> QueueReasons {
        let text = std::fs::read(path(root)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Writes the reasons, if they have changed. A view without them says less.
    pub(crate) fn write(&self, root: &Path) {
        if QueueReasons::read(root) != *self {
            let _ = files::replace_json(&path(root), self);
        }
    }

    /// Returns the earliest time at which a session may start.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        self.waiting.values().filter_map(|reason| reason.until.as_ref()?.parse().ok()).min()
    }

    /// Returns whether a session waits for time to pass, or for room on the machine: then nothing
    /// calls the scheduler, unless a session is running.
    pub(crate) fn needs_waker(&self) -> bool {
        self.waiting.values().any(|reason| reason.changes_by_itself)
    }
}
