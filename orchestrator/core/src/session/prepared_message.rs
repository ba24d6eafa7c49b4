//! The commit message that was written for a session before its landing.

use base::files;
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::session::store::SessionStore;

/// The file of a session's message.
pub(crate) const FILE: &str = "message.json";

/// A commit message that a model wrote for the work of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedMessage {
    /// The commit with the work.
    pub work: String,
    /// The change that it describes ([`studio_git::diff::change_id`]).
    pub change: String,
    /// Subject and body, without trailers.
    pub text: String,
}

impl PreparedMessage {
    /// Returns the message of a session; `None` if it is missing or unreadable.
    pub(crate) fn read(store: &SessionStore, id: &Id) -> Option<PreparedMessage> {
        serde_json::from_slice(&files::read_bounded(&store.file(id, FILE), 1 << 20).ok()?).ok()
    }

    /// Stores the message of a session. If it cannot be stored, a landing writes another one.
    pub(crate) fn store(&self, store: &SessionStore, id: &Id) {
        let _ = files::replace_json(&store.file(id, FILE), self);
        files::step("message.stored");
    }

    /// Returns the subject.
    pub fn subject(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}
