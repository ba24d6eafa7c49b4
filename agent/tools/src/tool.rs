//! What a tool is: its facts, what a call of it reaches, and the work itself.

use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;

use super::call::Invocation;
use super::context::ToolContext;
use super::kind::{Effect, ToolKind};
use super::output::{ToolError, ToolOutput};
use gate::Access;

/// What a call comes to.
pub type ToolFuture<'a> = BoxFuture<'a, Result<ToolOutput, ToolError>>;

/// A capability of the agent. Profiles give it names, parameters and defaults.
pub trait Tool: Send + Sync {
    /// Its kind, its effect, and how its calls are prepared.
    fn spec(&self) -> ToolSpec;

    /// What a call reaches, known before it runs. Nothing outside of the session by default.
    fn scope(&self, _: &Invocation<'_>) -> CallScope {
        CallScope::default()
    }

    /// Runs a call that the gate has let pass.
    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a>;
}

/// The facts of a tool, the same for every call.
#[derive(Clone, Copy, Debug)]
pub struct ToolSpec {
    /// The name by which profiles refer to it.
    pub kind: ToolKind,
    /// What a call does to the world.
    pub effect: Effect,
    /// Which path a call is about.
    pub path: PathRule,
    /// Whether the gate may show what a call would write.
    pub has_preview: bool,
    /// How a call could be undone, for the history.
    pub undo_hint: &'static str,
}

impl ToolSpec {
    /// The facts of a tool, as they follow from its effect.
    pub const fn new(kind: &'static str, effect: Effect) -> ToolSpec {
        let (path, undo_hint) = match effect {
            Effect::Runs => (PathRule::WorkingDirectory, "check_command"),
            Effect::Writes => (PathRule::Argument, "check_command"),
            Effect::Acts => (PathRule::Argument, "ctrl_z"),
            Effect::Looks => (PathRule::Argument, "no_op"),
        };
        ToolSpec { kind: ToolKind::new(kind), effect, path, has_preview: false, undo_hint }
    }

    /// The same with another rule for its path.
    #[must_use]
    pub const fn with_path(self, path: PathRule) -> ToolSpec {
        ToolSpec { path, ..self }
    }

    /// The same for a tool whose writes can be shown before they are made.
    #[must_use]
    pub const fn with_preview(self) -> ToolSpec {
        ToolSpec { has_preview: true, ..self }
    }

    /// The same with another hint in the history.
    #[must_use]
    pub const fn with_undo_hint(self, undo_hint: &'static str) -> ToolSpec {
        ToolSpec { undo_hint, ..self }
    }
}

/// Which path a call is about.
#[derive(Clone, Copy, Debug)]
pub enum PathRule {
    /// The argument `path`, relative to the working directory.
    Argument,
    /// The argument `path` of a file that exists, relative to the working directory or the root.
    ExistingFile,
    /// The argument `path`, relative to this directory.
    RelativeTo(fn() -> PathBuf),
    /// The argument `working_dir`, relative to the directory where commands start.
    WorkingDirectory,
    /// Always this one.
    Fixed(fn(&ToolContext) -> PathBuf),
}

/// What a call reaches.
#[derive(Debug, Default)]
pub struct CallScope {
    /// What the gate judges.
    pub access: Vec<Access>,
    /// Keys of what is touched: calls with a common key keep their order.
    pub keys: Vec<String>,
    /// Files that an editor may have open.
    pub files: Vec<PathBuf>,
}

impl CallScope {
    /// Calls that keep their order and reach nothing outside of the session.
    pub fn keyed(key: &str) -> CallScope {
        CallScope { keys: vec![key.to_owned()], ..CallScope::default() }
    }

    /// A call that reaches these and touches nothing.
    pub fn reaching(access: Vec<Access>) -> CallScope {
        CallScope { access, ..CallScope::default() }
    }

    /// A call that reads these files, which an editor may have open.
    pub fn reading(files: Vec<PathBuf>) -> CallScope {
        let access = files.iter().cloned().map(Access::Read).collect();
        CallScope { access, keys: file_keys(&files), files }
    }

    /// A call that writes these files; one that names none touches `path`.
    pub fn writing(files: Vec<PathBuf>, path: &Path) -> CallScope {
        let access = files.iter().cloned().map(Access::Write).collect();
        let keys = if files.is_empty() { path_keys(path) } else { file_keys(&files) };
        CallScope { access, keys, files }
    }
}

/// The keys of calls that touch these files.
fn file_keys(files: &[PathBuf]) -> Vec<String> {
    files.iter().flat_map(|file| path_keys(file)).collect()
}

/// The key of calls that touch this path.
fn path_keys(path: &Path) -> Vec<String> {
    vec![path.to_string_lossy().into_owned()]
}
