//! The tool interface: specification, access scope and execution.

use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;

use super::call::Invocation;
use super::context::ToolContext;
use super::kind::{Effect, ToolKind};
use super::output::{ToolError, ToolOutput};
use gate::Access;

/// The future of a call.
pub type ToolFuture<'a> = BoxFuture<'a, Result<ToolOutput, ToolError>>;

/// A capability of the agent. Profiles give it names, parameters and defaults.
pub trait Tool: Send + Sync {
    /// Returns its kind, its effect, and how its calls are prepared.
    fn spec(&self) -> ToolSpec;

    /// Returns what a call accesses, determined before it runs. By default nothing outside of the
    /// session.
    fn scope(&self, _: &Invocation<'_>) -> CallScope {
        CallScope::default()
    }

    /// Runs a call that the gate has permitted.
    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a>;
}

/// The specification of a tool, the same for every call.
#[derive(Clone, Copy, Debug)]
pub struct ToolSpec {
    /// The name used in profiles.
    pub kind: ToolKind,
    /// The effect of a call.
    pub effect: Effect,
    /// The path of a call.
    pub path: PathRule,
    /// Whether the gate may show a preview of the changes.
    pub has_preview: bool,
    /// How to undo a call, for the history.
    pub undo_hint: &'static str,
}

impl ToolSpec {
    /// Creates a specification with the defaults of its effect.
    pub const fn new(kind: &'static str, effect: Effect) -> ToolSpec {
        let (path, undo_hint) = match effect {
            Effect::Runs => (PathRule::WorkingDirectory, "check_command"),
            Effect::Writes => (PathRule::Argument, "check_command"),
            Effect::Acts => (PathRule::Argument, "ctrl_z"),
            Effect::Looks => (PathRule::Argument, "no_op"),
        };
        ToolSpec { kind: ToolKind::new(kind), effect, path, has_preview: false, undo_hint }
    }

    /// Sets the path rule.
    #[must_use]
    pub const fn with_path(self, path: PathRule) -> ToolSpec {
        ToolSpec { path, ..self }
    }

    /// Enables previews of the changes.
    #[must_use]
    pub const fn with_preview(self) -> ToolSpec {
        ToolSpec { has_preview: true, ..self }
    }

    /// Sets the undo hint.
    #[must_use]
    pub const fn with_undo_hint(self, undo_hint: &'static str) -> ToolSpec {
        ToolSpec { undo_hint, ..self }
    }
}

/// Which path a call refers to.
#[derive(Clone, Copy, Debug)]
pub enum PathRule {
    /// The argument `path`, relative to the working directory.
    Argument,
    /// The argument `path` of an existing file, relative to the working directory or the root.
    ExistingFile,
    /// The argument `path`, relative to this directory.
    RelativeTo(fn() -> PathBuf),
    /// The argument `working_dir`, relative to the directory in which commands start.
    WorkingDirectory,
    /// A fixed path.
    Fixed(fn(&ToolContext) -> PathBuf),
}

/// What a call accesses.
#[derive(Debug, Default)]
pub struct CallScope {
    /// The accesses that the gate checks.
    pub access: Vec<Access>,
    /// Keys of the resources: calls with a common key run in order.
    pub keys: Vec<String>,
    /// Files that an editor may have open.
    pub files: Vec<PathBuf>,
}

impl CallScope {
    /// Creates the scope of calls that run in order and access nothing outside of the session.
    pub fn keyed(key: &str) -> CallScope {
        CallScope { keys: vec![key.to_owned()], ..CallScope::default() }
    }

    /// Creates the scope of a call with these accesses and without keys.
    pub fn with_access(access: Vec<Access>) -> CallScope {
        CallScope { access, ..CallScope::default() }
    }

    /// Creates the scope of a call that reads these files, which an editor may have open.
    pub fn reading(files: Vec<PathBuf>) -> CallScope {
        let access = files.iter().cloned().map(Access::Read).collect();
        CallScope { access, keys: file_keys(&files), files }
    }

    /// Creates the scope of a call that writes these files; if there are none, its key is `path`.
    pub fn writing(files: Vec<PathBuf>, path: &Path) -> CallScope {
        let access = files.iter().cloned().map(Access::Write).collect();
        let keys = if files.is_empty() { path_keys(path) } else { file_keys(&files) };
        CallScope { access, keys, files }
    }
}

/// Returns the keys of calls that use these files.
fn file_keys(files: &[PathBuf]) -> Vec<String> {
    files.iter().flat_map(|file| path_keys(file)).collect()
}

/// Returns the key of calls that use this path.
fn path_keys(path: &Path) -> Vec<String> {
    vec![path.to_string_lossy().into_owned()]
}
