//! Error records of failed runs: `.g3/errors/error_<time>_<session>.json`, for later diagnosis.
//! They contain no keys and no conversation, which is in the session's journal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::event::Usage;
use base::failure::Failure;
use base::redact::Redactor;
use serde::Serialize;

/// Maximum number of records that are kept.
const MAX_RECORDS: usize = 50;
/// Maximum number of bytes kept of the task and of each reason.
const MAX_TEXT: usize = 5_000;

/// An error record.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ErrorRecord {
    /// RFC 3339.
    pub time: String,
    /// The session's id.
    pub session: String,
    /// `type.name`.
    pub provider: String,
    /// The model's name as sent.
    pub model: String,
    /// The user's last request.
    pub task: String,
    /// Number of model requests in this session.
    pub turns: u32,
    /// Tokens and cost of this session.
    pub usage: Usage,
    /// Tokens used in the model's context.
    pub context_used: u64,
    /// Size of the context in tokens.
    pub context_limit: u64,
    /// The error.
    pub what: String,
    /// The cause, if known.
    pub why: Option<String>,
    /// Hints.
    #[serde(rename = "try")]
    pub next: Vec<String>,
}

impl ErrorRecord {
    /// Adds a failure and the resume commands. Secrets from the environment are redacted.
    #[must_use]
    pub(crate) fn with_failure(mut self, failure: &Failure, resume: &[String]) -> ErrorRecord {
        let redactor = Redactor::from_env();
        let clean = |text: &str| redactor.clean(base::text::head(text, MAX_TEXT));
        self.task = clean(&self.task);
        self.what = clean(&failure.what);
        self.why = failure.reason().as_deref().map(clean);
        self.next = failure.hints.iter().chain(resume).map(|next| clean(next)).collect();
        self
    }

    /// Writes the record to the state directory of a working directory and returns its path.
    /// Deletes the oldest records.
    pub(crate) fn store(&self, cwd: &Path) -> io::Result<PathBuf> {
        let dir = super::workspace(cwd).join("errors");
        fs::create_dir_all(&dir)?;
        let time = self.time.replace(':', "-");
        let file = dir.join(format!("error_{time}_{}.json", self.session));
        base::files::replace_json(&file, self)?;
        let mut all: Vec<PathBuf> =
            fs::read_dir(&dir)?.flatten().map(|entry| entry.path()).collect();
        all.sort();
        for old in &all[..all.len().saturating_sub(MAX_RECORDS)] {
            let _ = fs::remove_file(old);
        }
        Ok(file)
    }
}
