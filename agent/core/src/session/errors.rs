//! What is left of a run that failed: `.g3/errors/error_<time>_<session>.json`, for whoever looks
//! into it later. Without keys, and without the conversation: the session's journal has that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::event::Usage;
use base::failure::Failure;
use base::sandbox::redact::Redactor;
use serde::Serialize;

/// How many records are kept.
const KEPT: usize = 50;
/// Bytes of the task and of each reason that are kept.
const LONGEST: usize = 5_000;

/// What a record says.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ErrorRecord {
    /// RFC 3339.
    pub time: String,
    /// The session's id.
    pub session: String,
    /// `type.name`.
    pub provider: String,
    /// As sent.
    pub model: String,
    /// What the user asked last.
    pub task: String,
    /// Questions to the model in this session.
    pub turns: u32,
    /// Tokens and money of this session.
    pub usage: Usage,
    /// Tokens in the model's context.
    pub context_used: u64,
    /// Tokens that it has.
    pub context_limit: u64,
    /// What happened.
    pub what: String,
    /// Why, as far as it is known.
    pub why: Option<String>,
    /// What to try.
    #[serde(rename = "try")]
    pub next: Vec<String>,
}

impl ErrorRecord {
    /// Takes in a failure, and how the session goes on; secrets of the environment are left out.
    #[must_use]
    pub(crate) fn of(mut self, failure: &Failure, resume: &[String]) -> ErrorRecord {
        let redactor = Redactor::from_env();
        let clean = |text: &str| redactor.clean(base::text::head(text, LONGEST));
        self.task = clean(&self.task);
        self.what = clean(&failure.what);
        self.why = failure.reason().as_deref().map(clean);
        self.next = failure.hints.iter().chain(resume).map(|next| clean(next)).collect();
        self
    }

    /// Writes it into the state of a working directory; gives the file. The oldest records go.
    pub(crate) fn keep(&self, cwd: &Path) -> io::Result<PathBuf> {
        let folder = super::workspace(cwd).join("errors");
        fs::create_dir_all(&folder)?;
        let time = self.time.replace(':', "-");
        let file = folder.join(format!("error_{time}_{}.json", self.session));
        base::files::replace_json(&file, self)?;
        let mut all: Vec<PathBuf> =
            fs::read_dir(&folder)?.flatten().map(|entry| entry.path()).collect();
        all.sort();
        for old in &all[..all.len().saturating_sub(KEPT)] {
            let _ = fs::remove_file(old);
        }
        Ok(file)
    }
}
