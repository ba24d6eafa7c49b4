//! A call of a tool: its arguments, its path, and the files that it writes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::args;
use super::context::ToolContext;
use super::exec::directory;
use super::fs::editor_buffers::EditorBuffers;
use super::fs::open::FileContent;
use super::kind::{Effect, ToolKind};
use super::output::{ToolError, ToolErrorKind, ToolOutput};
use super::profile::lookup::{self, NamedTool};
use super::profile::{Profile, ProfileTool};
use super::text_diff::unified;
use super::tool::{CallScope, PathRule, Tool, ToolFuture, ToolSpec};
use super::undo::record::{PlannedWrite, WriteRecorder};
use gate::{Permit, paths};

/// A decoded call that is ready to run.
pub struct Invocation<'a> {
    /// The profile tool: name, parameters and defaults.
    pub profile_tool: &'static ProfileTool,
    /// The context of the call.
    pub context: &'a ToolContext,
    /// The file or directory of the call: absolute, with symbolic links resolved.
    pub path: PathBuf,
    /// The permission granted by the gate.
    pub permit: Permit,
    tool: &'static dyn Tool,
    scope: OnceLock<CallScope>,
    args: Map<String, Value>,
    used_names: Map<String, Value>,
    notes: Vec<String>,
    buffers: Arc<EditorBuffers>,
    recorder: Arc<WriteRecorder>,
    /// The changes that it made, as a unified diff.
    diff: Arc<Mutex<Option<String>>>,
    /// Whether only the diff is wanted and nothing is written.
    is_preview: bool,
}

/// Finds the tool and decodes the arguments. The error is the result for the model.
pub fn prepare<'a>(
    profile: Profile,
    name: &str,
    args: &Value,
    context: &'a ToolContext,
) -> Result<Invocation<'a>, Box<ToolOutput>> {
    let profile_tool = match lookup::find(profile, name, args) {
        NamedTool::One(profile_tool) => profile_tool,
        found @ (NamedTool::Several(_) | NamedTool::None(_)) => {
            return Err(Box::new(args::not_found(profile, name, &found)));
        }
    };
    let invalid = |reason: String| Box::new(args::invalid_call(profile_tool, &reason));
    let decoded = args::decode(profile_tool, args).map_err(invalid)?;
    let Some(tool) = context.registry.tool(profile_tool.kind) else {
        return Err(Box::new(args::not_found(profile, name, &NamedTool::None(None))));
    };
    let path = resolve_path((tool.spec().path, profile_tool), &decoded.map, context)
        .map_err(|error| invalid(error.to_string()))?;
    let args::DecodedArgs { map: args, used_names, notes } = decoded;
    Ok(Invocation {
        profile_tool,
        context,
        path,
        permit: Permit::Unconfined,
        tool,
        scope: OnceLock::new(),
        args,
        used_names,
        notes,
        buffers: Arc::default(),
        recorder: Arc::default(),
        diff: Arc::default(),
        is_preview: false,
    })
}

/// Resolves the path of a call: its file, or its working directory.
fn resolve_path(
    (rule, profile_tool): (PathRule, &ProfileTool),
    args: &Map<String, Value>,
    context: &ToolContext,
) -> std::io::Result<PathBuf> {
    let (key, start) = match rule {
        PathRule::Fixed(path) => return paths::follow(&path(context)),
        PathRule::WorkingDirectory => {
            let last_directory = directory::is_persistent(profile_tool)
                .then(|| directory::load(&context.session_dir, &context.root));
            ("working_dir", last_directory.flatten().unwrap_or_else(|| context.cwd.clone()))
        }
        PathRule::RelativeTo(start) => ("path", start()),
        PathRule::Argument | PathRule::ExistingFile => ("path", context.cwd.clone()),
    };
    let Some(raw) = args.get(key).and_then(Value::as_str) else { return paths::follow(&start) };
    let path = paths::resolve(&start, raw)?;
    match rule {
        PathRule::ExistingFile if !path.exists() => {
            let from_root = paths::resolve(&context.root, raw)?;
            Ok(if from_root.exists() { from_root } else { path })
        }
        PathRule::Argument
        | PathRule::ExistingFile
        | PathRule::RelativeTo(_)
        | PathRule::WorkingDirectory
        | PathRule::Fixed(_) => Ok(path),
    }
}

impl Invocation<'_> {
    /// Returns the specification of its tool.
    pub fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    /// Returns what the call accesses.
    pub fn scope(&self) -> &CallScope {
        self.scope.get_or_init(|| self.tool.scope(self))
    }

    /// Runs the tool.
    pub(crate) fn start(&self) -> ToolFuture<'_> {
        self.tool.call(self)
    }

    /// Returns the notes about ignored arguments.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the editor buffers of its files.
    pub(crate) fn editor_buffers(&self) -> &EditorBuffers {
        &self.buffers
    }

    /// Runs blocking file operations on a separate thread, so that a large or slow file does not
    /// delay other calls. A panic there fails the call.
    pub async fn blocking(
        &self,
        operation: fn(&Invocation<'_>) -> Result<ToolOutput, ToolError>,
    ) -> Result<ToolOutput, ToolError> {
        // A preview is polled once, so it cannot wait for another thread; it writes nothing.
        if self.is_preview {
            return operation(self);
        }
        let (context, copy) = (self.context.clone(), self.detach());
        let result = tokio::task::spawn_blocking(move || operation(&copy.attach(&context)));
        match result.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(result) => result,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user")),
        }
    }

    /// Reads a file of this call.
    pub fn load(&self, file: &Path) -> std::io::Result<FileContent> {
        self.buffers.load(file)
    }

    /// Creates the parent directories of a file to be written.
    pub fn create_parents(&self, file: &Path) -> std::io::Result<()> {
        if self.is_preview { Ok(()) } else { self.recorder.create_parents(file) }
    }

    /// Records the current content of these files before they are written. Returns whether this
    /// created the record.
    pub fn record(&self, writes: &[PlannedWrite<'_>]) -> std::io::Result<bool> {
        let mut diff = base::sync::lock(&self.diff);
        if diff.is_none() {
            *diff = Some(writes.iter().map(|write| self.unified(write)).collect());
        }
        if self.is_preview {
            return Err(std::io::Error::other("this is a preview"));
        }
        self.recorder.record(&self.context.session_dir, &self.profile_tool.name, writes)
    }

    fn unified(&self, (path, after): &PlannedWrite<'_>) -> String {
        let before = self.load(path).ok();
        let before = before.as_ref().map(|content| content.bytes.as_slice());
        if before == *after {
            return String::new();
        }
        unified(&self.display_path(path), before, *after)
    }

    /// Takes the unified diff of the changes for people. Returns it only once.
    pub(crate) fn take_diff(&self) -> Option<String> {
        let mut diff = base::sync::lock(&self.diff);
        diff.take().filter(|diff| !diff.is_empty())
    }

    /// Returns the changes that it would make, as a unified diff, or `None` if that cannot be
    /// determined.
    pub(crate) fn preview(&self) -> Option<String> {
        if !self.spec().has_preview {
            return None;
        }
        let context = ToolContext { plain: false, ..self.context.clone() };
        let (buffers, recorder, diff) = (Arc::default(), Arc::default(), Arc::default());
        let copy = Copied { buffers, recorder, diff, notes: Vec::new(), ..self.detach() };
        let call = Invocation { is_preview: true, ..copy.attach(&context) };
        // It ends at its first write, which a preview rejects.
        let _ = call.start().now_or_never();
        call.take_diff()
    }

    /// Removes a file of this call.
    pub fn remove(&self, file: &Path) -> std::io::Result<()> {
        let is_new_record = self.record(&[(file, None)])?;
        std::fs::remove_file(file).inspect_err(|_| {
            if is_new_record {
                self.discard_record();
            }
        })
    }

    /// Drops the record, since all files have their original content.
    pub fn discard_record(&self) {
        self.recorder.discard();
    }

    /// Replaces a file of this call.
    pub fn store(&self, file: &Path, text: &str) -> std::io::Result<()> {
        let is_new_record = self.record(&[(file, Some(text.as_bytes()))])?;
        self.buffers.store(file, text).inspect_err(|_| {
            if is_new_record {
                self.discard_record();
            }
        })
    }

    /// Restores the original content of a file.
    pub fn restore(&self, file: &Path, bytes: &[u8]) -> std::io::Result<()> {
        self.buffers.restore(file, bytes)
    }

    /// Returns what the model learns from the call: a file, the output of a command.
    pub(crate) fn discovery(&self) -> Option<String> {
        match self.spec() {
            ToolSpec { effect: Effect::Runs, .. } => Some(format!("$ {}", self.text("command"))),
            ToolSpec { kind: ToolKind::READ, .. } => Some(self.path.to_string_lossy().into_owned()),
            ToolSpec { .. } => None,
        }
    }

    /// Returns a text argument; empty if absent.
    pub fn text(&self, key: &str) -> &str {
        self.args.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the parameter name by which an argument was given; empty if absent.
    pub fn used_name(&self, key: &str) -> &str {
        self.used_names.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Decodes the arguments into the tool's own type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        serde_json::from_value(Value::Object(self.args.clone()))
            .map_err(|error| ToolError::invalid(format!("{}: {error}", self.profile_tool.name)))
    }

    /// Returns the path of the call as shown to the model.
    pub fn display_own_path(&self) -> String {
        self.display_path(&self.path)
    }

    /// Returns a path as shown to the model: relative to the working directory if inside.
    pub fn display_path(&self, path: &Path) -> String {
        let cwd = paths::follow(&self.context.cwd).unwrap_or_else(|_| self.context.cwd.clone());
        let relative = path.strip_prefix(&cwd).ok().filter(|path| !path.as_os_str().is_empty());
        relative.unwrap_or(path).display().to_string()
    }

    /// Returns the paths that were tried, for a message that a file does not exist.
    pub fn tried_paths(&self, path: &Path) -> String {
        let mut tried = vec![path.to_owned()];
        let raw = self.text("path");
        tried.extend(paths::resolve(&self.context.root, raw).ok().filter(|other| other != path));
        tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// A call without its context, to be sent to another thread.
struct Copied {
    profile_tool: &'static ProfileTool,
    path: PathBuf,
    permit: Permit,
    tool: &'static dyn Tool,
    args: Map<String, Value>,
    used_names: Map<String, Value>,
    notes: Vec<String>,
    buffers: Arc<EditorBuffers>,
    recorder: Arc<WriteRecorder>,
    diff: Arc<Mutex<Option<String>>>,
    is_preview: bool,
}

impl Invocation<'_> {
    fn detach(&self) -> Copied {
        Copied {
            profile_tool: self.profile_tool,
            path: self.path.clone(),
            permit: self.permit,
            tool: self.tool,
            args: self.args.clone(),
            used_names: self.used_names.clone(),
            notes: self.notes.clone(),
            buffers: self.buffers.clone(),
            recorder: self.recorder.clone(),
            diff: self.diff.clone(),
            is_preview: self.is_preview,
        }
    }
}

impl Copied {
    fn attach(self, context: &ToolContext) -> Invocation<'_> {
        let Copied { profile_tool, path, permit, tool, args, used_names, notes, .. } = self;
        let Copied { buffers, recorder, diff, is_preview, .. } = self;
        let scope = OnceLock::new();
        Invocation {
            profile_tool,
            context,
            path,
            permit,
            tool,
            scope,
            args,
            used_names,
            notes,
            buffers,
            recorder,
            diff,
            is_preview,
        }
    }
}
