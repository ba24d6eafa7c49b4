//! The result of a call: an output, or an error that the model reads.

use serde_json::Value;

use provider::message::{Image, SideUsage};

/// The output of a tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// Whether the tool succeeded.
    pub ok: bool,
    /// The text for the model.
    pub text: String,
    /// A one-line title for people.
    pub title: Option<String>,
    /// Structured data for programs.
    pub metadata: Value,
    /// Attached images.
    pub images: Vec<Image>,
    /// The suggested next step, for a small model; not shown to people.
    pub hint: Option<String>,
    /// Why a stronger model should continue.
    pub escalate: Option<String>,
    /// The cost of model requests that it made.
    pub side_usage: Option<SideUsage>,
    /// The kind of failure, if it failed.
    pub error_kind: Option<ToolErrorKind>,
    /// Whether the call was rejected before it ran.
    pub not_run: bool,
    /// The changes that it made, as a unified diff for people.
    pub diff: Option<String>,
}

/// The kind of a tool failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorKind {
    /// A parameter is missing or invalid; exit code 2 of `tool exec`.
    Validation,
    /// The gate denied the call.
    Denied,
    /// No such file.
    NotFound,
    /// The call timed out.
    Timeout,
    /// The user cancelled.
    Cancelled,
    /// There is no such tool.
    UnknownTool,
    /// The tool ran and failed.
    Failed,
}

/// An error of a tool, as a sentence for the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolError {
    /// The kind of failure.
    pub kind: ToolErrorKind,
    /// The message, with a hint.
    pub text: String,
}

impl ToolError {
    /// Creates an error of this kind.
    pub fn new(kind: ToolErrorKind, text: impl Into<String>) -> ToolError {
        ToolError { kind, text: text.into() }
    }

    /// Creates an error for a missing or invalid parameter.
    pub fn invalid(text: impl Into<String>) -> ToolError {
        ToolError::new(ToolErrorKind::Validation, text)
    }

    /// Creates an error for a failed tool.
    pub fn failed(text: impl Into<String>) -> ToolError {
        ToolError::new(ToolErrorKind::Failed, text)
    }

    /// Creates an error for a file that cannot be read or written.
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
    fn from(error: ToolError) -> ToolOutput {
        ToolOutput::failed(error.kind, error.text)
    }
}

impl ToolErrorKind {
    /// Returns the identifier used in JSON.
    pub(crate) fn id(self) -> &'static str {
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
    /// Creates a successful output.
    pub fn success(text: impl Into<String>) -> ToolOutput {
        ToolOutput { ok: true, text: text.into(), ..ToolOutput::default() }
    }

    /// Creates a failed output.
    pub fn failed(kind: ToolErrorKind, text: impl Into<String>) -> ToolOutput {
        let error_kind = Some(kind);
        ToolOutput { ok: false, text: text.into(), error_kind, ..ToolOutput::default() }
    }

    /// Creates the output of a call that was rejected before it ran.
    pub fn not_run(kind: ToolErrorKind, text: impl Into<String>) -> ToolOutput {
        ToolOutput { not_run: true, ..ToolOutput::failed(kind, text) }
    }

    /// Creates a failed output for a missing or invalid parameter.
    pub fn invalid(text: impl Into<String>) -> ToolOutput {
        ToolOutput::failed(ToolErrorKind::Validation, text)
    }

    /// Sets the metadata.
    #[must_use]
    pub fn with(mut self, metadata: Value) -> ToolOutput {
        self.metadata = metadata;
        self
    }

    /// Sets the title.
    #[must_use]
    pub fn titled(mut self, title: impl Into<String>) -> ToolOutput {
        self.title = Some(title.into());
        self
    }
}
