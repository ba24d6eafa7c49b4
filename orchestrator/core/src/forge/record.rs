//! What studio knows about the request of a session: its place, what was pushed, and which comments
//! the agent got. Stored in the session's directory.

use std::collections::BTreeSet;

use base::failure::{OrFail, Result};
use base::id::Id;
use base::lock::Lock;
use serde::{Deserialize, Serialize};

use crate::forge::ForgeProject;
use crate::project::Project;

/// The file in the session's directory.
const FILE: &str = "request.json";

/// The request of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Where it is.
    pub project: ForgeProject,
    /// The name of the remote.
    pub remote: String,
    /// The branch on the remote, as a full ref.
    pub branch: String,
    /// The branch that it is to be merged into.
    pub target: String,
    /// The number, once it is open.
    pub number: Option<u64>,
    /// Its address.
    pub url: Option<String>,
    /// The commit that was pushed last.
    pub pushed: Option<String>,
    /// The tree of that commit.
    pub pushed_tree: Option<String>,
    /// Commits whose push began since: after a crash the remote may have one of them.
    #[serde(default)]
    pub pushing: BTreeSet<String>,
    /// The comments and failed checks that the agent got, by id.
    #[serde(default)]
    pub delivered: BTreeSet<String>,
    /// A turn that was about to be sent: after a crash the journal says whether it was.
    #[serde(default)]
    pub pending: Option<PendingTurn>,
}

/// A turn with comments and failed checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingTurn {
    /// A text that occurs in its prompt and nowhere else in the journal.
    pub mark: String,
    /// The prompt.
    pub prompt: String,
    /// The comments and checks in it, by id.
    pub ids: BTreeSet<String>,
}

/// Reads the request of a session; `None` if it has none.
pub fn read(project: &Project, id: &Id) -> Result<Option<RequestRecord>> {
    let file = project.store.file(id, FILE);
    match base::files::read(&file) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .or_fail(|| format!("cannot read {}", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).or_fail(|| format!("cannot read {}", file.display())),
    }
}

/// Replaces the record of a session.
pub(crate) fn write(project: &Project, id: &Id, record: &RequestRecord) -> Result<()> {
    let file = project.store.file(id, FILE);
    base::files::replace_json(&file, record).or_fail(|| format!("cannot write {}", file.display()))
}

/// Locks the request of a session, which two commands must not change at the same time.
pub fn lock(project: &Project, id: &Id) -> Result<Option<Lock>> {
    let file = project.store.file(id, "request.lock");
    Lock::try_take(&file).or_fail(|| format!("cannot lock {}", file.display()))
}
