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
    pub face: &'static ProfileTool,
    /// The context of the call.
    pub at: &'a ToolContext,
    /// The file or directory of the call: absolute, with symbolic links resolved.
    pub place: PathBuf,
    /// The permission granted by the gate.
    pub pass: Permit,
    tool: &'static dyn Tool,
    scope: OnceLock<CallScope>,
    args: Map<String, Value>,
    given: Map<String, Value>,
    notes: Vec<String>,
    held: Arc<EditorBuffers>,
    keeper: Arc<WriteRecorder>,
    /// The changes that it made, as a unified diff.
    diff: Arc<Mutex<Option<String>>>,
    /// Whether only the diff is wanted and nothing is written.
    is_preview: bool,
}

/// Finds the tool and decodes the arguments. The error is the result for the model.
pub fn prepare<'a>(
    profile: Profile,
    name: &str,
    given: &Value,
    at: &'a ToolContext,
) -> Result<Invocation<'a>, Box<ToolOutput>> {
    let face = match lookup::find(profile, name, given) {
        NamedTool::One(face) => face,
        found @ (NamedTool::Several(_) | NamedTool::None(_)) => {
            return Err(Box::new(args::not_found(profile, name, &found)));
        }
    };
    let refused = |why: String| Box::new(args::refused(face, &why));
    let decoded = args::decode(face, given).map_err(refused)?;
    let Some(tool) = at.registry.tool(face.engine) else {
        return Err(Box::new(args::not_found(profile, name, &NamedTool::None(None))));
    };
    let place = place((tool.spec().path, face), &decoded.map, at)
        .map_err(|why| refused(why.to_string()))?;
    let args::DecodedArgs { map: args, from: given, notes } = decoded;
    Ok(Invocation {
        face,
        at,
        place,
        pass: Permit::Unconfined,
        tool,
        scope: OnceLock::new(),
        args,
        given,
        notes,
        held: Arc::default(),
        keeper: Arc::default(),
        diff: Arc::default(),
        is_preview: false,
    })
}

/// Resolves the path of a call: its file, or its working directory.
fn place(
    (rule, face): (PathRule, &ProfileTool),
    args: &Map<String, Value>,
    at: &ToolContext,
) -> std::io::Result<PathBuf> {
    let (key, start) = match rule {
        PathRule::Fixed(path) => return paths::follow(&path(at)),
        PathRule::WorkingDirectory => {
            let kept = directory::is_kept(face).then(|| directory::kept(&at.session_dir, &at.root));
            ("working_dir", kept.flatten().unwrap_or_else(|| at.cwd.clone()))
        }
        PathRule::RelativeTo(start) => ("path", start()),
        PathRule::Argument | PathRule::ExistingFile => ("path", at.cwd.clone()),
    };
    let Some(raw) = args.get(key).and_then(Value::as_str) else { return paths::follow(&start) };
    let place = paths::resolve(&start, raw)?;
    match rule {
        PathRule::ExistingFile if !place.exists() => {
            let from_root = paths::resolve(&at.root, raw)?;
            Ok(if from_root.exists() { from_root } else { place })
        }
        PathRule::Argument
        | PathRule::ExistingFile
        | PathRule::RelativeTo(_)
        | PathRule::WorkingDirectory
        | PathRule::Fixed(_) => Ok(place),
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
    pub(crate) fn held(&self) -> &EditorBuffers {
        &self.held
    }

    /// Runs blocking file operations on a separate thread, so that a large or slow file does not
    /// delay other calls. A panic there fails the call.
    pub async fn blocking(
        &self,
        work: fn(&Invocation<'_>) -> Result<ToolOutput, ToolError>,
    ) -> Result<ToolOutput, ToolError> {
        // A preview is polled once, so it cannot wait for another thread; it writes nothing.
        if self.is_preview {
            return work(self);
        }
        let (at, copy) = (self.at.clone(), self.copied());
        let done = tokio::task::spawn_blocking(move || work(&copy.at(&at)));
        match done.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user")),
        }
    }

    /// Reads a file of this call.
    pub fn load(&self, file: &Path) -> std::io::Result<FileContent> {
        self.held.load(file)
    }

    /// Creates the parent directories of a file to be written.
    pub fn make_room(&self, file: &Path) -> std::io::Result<()> {
        if self.is_preview { Ok(()) } else { self.keeper.make_room(file) }
    }

    /// Records the current content of these files before they are written. Returns whether this
    /// created the record.
    pub fn keep(&self, wishes: &[PlannedWrite<'_>]) -> std::io::Result<bool> {
        let mut diff = base::sync::lock(&self.diff);
        if diff.is_none() {
            *diff = Some(wishes.iter().map(|wish| self.unified(wish)).collect());
        }
        if self.is_preview {
            return Err(std::io::Error::other("this is a preview"));
        }
        self.keeper.keep(&self.at.session_dir, &self.face.name, wishes)
    }

    fn unified(&self, (path, after): &PlannedWrite<'_>) -> String {
        let before = self.load(path).ok();
        let before = before.as_ref().map(|content| content.bytes.as_slice());
        if before == *after {
            return String::new();
        }
        unified(&self.shown(path), before, *after)
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
        let at = ToolContext { plain: false, ..self.at.clone() };
        let (held, keeper, diff) = (Arc::default(), Arc::default(), Arc::default());
        let copy = Copied { held, keeper, diff, notes: Vec::new(), ..self.copied() };
        let call = Invocation { is_preview: true, ..copy.at(&at) };
        // It ends at its first write, which a preview rejects.
        let _ = call.start().now_or_never();
        call.take_diff()
    }

    /// Removes a file of this call.
    pub fn remove(&self, file: &Path) -> std::io::Result<()> {
        let alone = self.keep(&[(file, None)])?;
        std::fs::remove_file(file).inspect_err(|_| {
            if alone {
                self.forget_kept();
            }
        })
    }

    /// Drops the record, since all files have their original content.
    pub fn forget_kept(&self) {
        self.keeper.forget();
    }

    /// Replaces a file of this call.
    pub fn store(&self, file: &Path, text: &str) -> std::io::Result<()> {
        let alone = self.keep(&[(file, Some(text.as_bytes()))])?;
        self.held.store(file, text).inspect_err(|_| {
            if alone {
                self.forget_kept();
            }
        })
    }

    /// Restores the original content of a file.
    pub fn put_back(&self, file: &Path, bytes: &[u8]) -> std::io::Result<()> {
        self.held.put_back(file, bytes)
    }

    /// Returns what the model learns from the call: a file, the output of a command.
    pub(crate) fn finds_out(&self) -> Option<String> {
        match self.spec() {
            ToolSpec { effect: Effect::Runs, .. } => Some(format!("$ {}", self.text("command"))),
            ToolSpec { kind: ToolKind::READ, .. } => {
                Some(self.place.to_string_lossy().into_owned())
            }
            ToolSpec { .. } => None,
        }
    }

    /// Returns a text argument; empty if absent.
    pub fn text(&self, key: &str) -> &str {
        self.args.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the parameter name by which an argument was given; empty if absent.
    pub fn given_as(&self, key: &str) -> &str {
        self.given.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Decodes the arguments into the tool's own type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        serde_json::from_value(Value::Object(self.args.clone()))
            .map_err(|why| ToolError::invalid(format!("{}: {why}", self.face.name)))
    }

    /// Returns the path of the call as shown to the model.
    pub fn shown_place(&self) -> String {
        self.shown(&self.place)
    }

    /// Returns a path as shown to the model: relative to the working directory if inside.
    pub fn shown(&self, path: &Path) -> String {
        let cwd = paths::follow(&self.at.cwd).unwrap_or_else(|_| self.at.cwd.clone());
        let below = path.strip_prefix(&cwd).ok().filter(|path| !path.as_os_str().is_empty());
        below.unwrap_or(path).display().to_string()
    }

    /// Returns the paths that were tried, for a message that a file does not exist.
    pub fn tried_places(&self, place: &Path) -> String {
        let mut tried = vec![place.to_owned()];
        let raw = self.text("path");
        tried.extend(paths::resolve(&self.at.root, raw).ok().filter(|path| path != place));
        tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// A call without its context, to be sent to another thread.
struct Copied {
    face: &'static ProfileTool,
    place: PathBuf,
    pass: Permit,
    tool: &'static dyn Tool,
    args: Map<String, Value>,
    given: Map<String, Value>,
    notes: Vec<String>,
    held: Arc<EditorBuffers>,
    keeper: Arc<WriteRecorder>,
    diff: Arc<Mutex<Option<String>>>,
    is_preview: bool,
}

impl Invocation<'_> {
    fn copied(&self) -> Copied {
        Copied {
            face: self.face,
            place: self.place.clone(),
            pass: self.pass,
            tool: self.tool,
            args: self.args.clone(),
            given: self.given.clone(),
            notes: self.notes.clone(),
            held: self.held.clone(),
            keeper: self.keeper.clone(),
            diff: self.diff.clone(),
            is_preview: self.is_preview,
        }
    }
}

impl Copied {
    fn at(self, at: &ToolContext) -> Invocation<'_> {
        let Copied { face, place, pass, tool, args, given, notes, .. } = self;
        let Copied { held, keeper, diff, is_preview, .. } = self;
        let scope = OnceLock::new();
        Invocation {
            face,
            at,
            place,
            pass,
            tool,
            scope,
            args,
            given,
            notes,
            held,
            keeper,
            diff,
            is_preview,
        }
    }
}
