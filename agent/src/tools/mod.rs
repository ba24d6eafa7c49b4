//! Something the model may do. A failure is text for the model, never an `Err`.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::message::Image;

/// What a tool gives back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Whether it did what was asked.
    pub ok: bool,
    /// What the model reads.
    pub text: String,
    /// A line for people.
    pub title: Option<String>,
    /// Numbers and names for programs.
    pub metadata: Value,
    /// Pictures.
    pub images: Vec<Image>,
    /// Why a stronger model should go on.
    pub escalate: Option<String>,
    /// What kind of failure, when it failed.
    pub error_kind: Option<ErrorKind>,
}

/// What kind of failure a tool met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A parameter is missing or makes no sense; exit code 2 of `tool exec`.
    Validation,
    /// The gate said no.
    Denied,
    /// No such file.
    NotFound,
    /// It took too long.
    Timeout,
    /// The user cancelled.
    Cancelled,
    /// There is no such tool.
    UnknownTool,
    /// It ran and failed.
    Failed,
}

/// Where and for whom a tool works. Cheap to clone: one per call.
#[derive(Clone)]
pub struct Workplace {
    /// Relative paths start here; the shell runs here.
    pub cwd: PathBuf,
    /// Writes stay below this directory unless the gate allows more.
    pub root: PathBuf,
    /// State of this session: todo, long outputs, logs (`.g3/sessions/<sid>`).
    pub session_dir: PathBuf,
    /// Hears output while a tool runs.
    pub hear: Arc<dyn Fn(&str) + Send + Sync>,
    /// Set when the user cancels.
    pub cancel: CancellationToken,
    /// Plain short results for small models.
    pub plain: bool,
}

impl Outcome {
    /// It worked.
    pub fn done(text: impl Into<String>) -> Outcome {
        Outcome { ok: true, text: text.into(), ..Outcome::default() }
    }

    /// It failed.
    pub fn failed(kind: ErrorKind, text: impl Into<String>) -> Outcome {
        let error_kind = Some(kind);
        Outcome { ok: false, text: text.into(), error_kind, ..Outcome::default() }
    }

    /// Adds metadata.
    #[must_use]
    pub fn with(mut self, metadata: Value) -> Outcome {
        self.metadata = metadata;
        self
    }
}
