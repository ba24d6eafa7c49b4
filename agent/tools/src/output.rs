//! What a call gives back: an output, or an error that the model reads.

use serde_json::Value;

use provider::message::{Image, SideUsage};

/// What a tool gives back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
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
    /// What to do next, for a model that needs to be told; not for people.
    pub next: Option<String>,
    /// Why a stronger model should continue.
    pub escalate: Option<String>,
    /// What it cost, when it asked a model.
    pub bill: Option<SideUsage>,
    /// What kind of failure, when it failed.
    pub error_kind: Option<ToolErrorKind>,
    /// Whether the call was refused before it did anything.
    pub not_run: bool,
    /// What it wrote, as a unified diff for people.
    pub diff: Option<String>,
}

/// What kind of failure a tool met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorKind {
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

/// Why an engine gave up, in a sentence for the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolError {
    /// What kind of failure.
    pub kind: ToolErrorKind,
    /// What happened, and what to try.
    pub text: String,
}

impl ToolError {
    /// A trouble of this kind.
    pub fn new(kind: ToolErrorKind, text: impl Into<String>) -> ToolError {
        ToolError { kind, text: text.into() }
    }

    /// A parameter is missing or makes no sense.
    pub fn invalid(text: impl Into<String>) -> ToolError {
        ToolError::new(ToolErrorKind::Validation, text)
    }

    /// It ran and failed.
    pub fn failed(text: impl Into<String>) -> ToolError {
        ToolError::new(ToolErrorKind::Failed, text)
    }

    /// A file could not be read or written.
    pub fn io(what: &str, error: &std::io::Error) -> ToolError {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ToolErrorKind::NotFound,
            std::io::ErrorKind::InvalidInput => ToolErrorKind::Validation,
            _ => ToolErrorKind::Failed,
        };
        ToolError::new(kind, format!("{what}: {error}"))
    }
}

impl From<ToolError> for ToolOutput {
    fn from(trouble: ToolError) -> ToolOutput {
        ToolOutput::failed(trouble.kind, trouble.text)
    }
}

impl ToolErrorKind {
    /// The word for it in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            ToolErrorKind::Validation => "validation",
            ToolErrorKind::Denied => "denied",
            ToolErrorKind::NotFound => "not_found",
            ToolErrorKind::Timeout => "timeout",
            ToolErrorKind::Cancelled => "cancelled",
            ToolErrorKind::UnknownTool => "unknown_tool",
            ToolErrorKind::Failed => "failed",
        }
    }
}

impl ToolOutput {
    /// It worked.
    pub fn done(text: impl Into<String>) -> ToolOutput {
        ToolOutput { ok: true, text: text.into(), ..ToolOutput::default() }
    }

    /// It failed.
    pub fn failed(kind: ToolErrorKind, text: impl Into<String>) -> ToolOutput {
        let error_kind = Some(kind);
        ToolOutput { ok: false, text: text.into(), error_kind, ..ToolOutput::default() }
    }

    /// It was refused before it did anything.
    pub fn not_run(kind: ToolErrorKind, text: impl Into<String>) -> ToolOutput {
        ToolOutput { not_run: true, ..ToolOutput::failed(kind, text) }
    }

    /// A parameter is missing or makes no sense.
    pub fn invalid(text: impl Into<String>) -> ToolOutput {
        ToolOutput::failed(ToolErrorKind::Validation, text)
    }

    /// Adds metadata.
    #[must_use]
    pub fn with(mut self, metadata: Value) -> ToolOutput {
        self.metadata = metadata;
        self
    }

    /// Adds a line for people.
    #[must_use]
    pub fn titled(mut self, title: impl Into<String>) -> ToolOutput {
        self.title = Some(title.into());
        self
    }
}
