//! Whether the user has looked at a session since it settled.

use std::path::PathBuf;

use base::id::Id;
use serde::{Deserialize, Serialize};
use studio_git::repo::Repository;

use crate::session_view::SessionView;

/// The file in the session's directory.
const FILE_NAME: &str = "seen.json";

/// The run that the user has looked at.
#[derive(PartialEq, Serialize, Deserialize)]
struct Seen {
    settled_at: String,
    turns: u32,
}

impl Seen {
    fn of(view: &SessionView) -> Seen {
        Seen { settled_at: settled_at(view), turns: view.facts.summary.turns }
    }
}

/// Returns when the session settled, RFC 3339 in UTC; for a crashed one the time of its last entry.
pub(crate) fn settled_at(view: &SessionView) -> String {
    let summary = &view.facts.summary;
    summary.ended_at.as_ref().or(summary.updated_at.as_ref()).cloned().unwrap_or_default()
}

/// Records that the user has looked at a settled session. If that cannot be written, it stays new.
pub fn mark(repository: &Repository, view: &SessionView) {
    if view.state.is_settled() && !view.state.is_over() && !is_seen(repository, view) {
        let path = path(repository, &view.record.id);
        let _ = base::files::replace_json(&path, &Seen::of(view));
    }
}

/// Returns whether the user has looked at the session since it settled.
pub(crate) fn is_seen(repository: &Repository, view: &SessionView) -> bool {
    let path = path(repository, &view.record.id);
    let seen = std::fs::read(path).ok().and_then(|text| serde_json::from_slice::<Seen>(&text).ok());
    seen.is_some_and(|seen| seen == Seen::of(view))
}

/// Returns the file that records it.
pub(crate) fn path(repository: &Repository, id: &Id) -> PathBuf {
    repository.session_dir(id).join(FILE_NAME)
}
