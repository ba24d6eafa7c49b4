//! One call on its way: found, decoded, judged by the gate, run.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::edit::text::unified;
use super::fs::held::Held;
use super::fs::open::Content;
use super::profile::named::{self, Found};
use super::profile::{Effect, Engine, Face, Style};
use super::undo::keep::{Keeper, Wish};
use super::{
    ErrorKind, Outcome, Profile, Workplace, args, desktop, engines, exec, lsp, result_limit, skill,
};
use crate::gate::{Access, Pass, Preview, Refused, Visitor, paths};

/// A call that is ready to run.
pub struct Call<'a> {
    /// The tool.
    pub face: &'static Face,
    /// Where and for whom it works.
    pub at: &'a Workplace,
    /// The file or directory it is about: absolute, symlinks resolved.
    pub place: PathBuf,
    args: Map<String, Value>,
    given: Map<String, Value>,
    notes: Vec<String>,
    held: Arc<Held>,
    keeper: Arc<Keeper>,
    /// What it writes, as a unified diff.
    diff: Arc<Mutex<Option<String>>>,
    /// Whether only the diff is wanted: nothing is written.
    is_preview: bool,
}

/// Why an engine gave up, in a sentence for the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What happened, and what to try.
    pub text: String,
}

impl Trouble {
    /// A trouble of this kind.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Trouble {
        Trouble { kind, text: text.into() }
    }

    /// A parameter is missing or makes no sense.
    pub fn invalid(text: impl Into<String>) -> Trouble {
        Trouble::new(ErrorKind::Validation, text)
    }

    /// It ran and failed.
    pub fn failed(text: impl Into<String>) -> Trouble {
        Trouble::new(ErrorKind::Failed, text)
    }

    /// A file could not be read or written.
    pub fn io(what: &str, error: &std::io::Error) -> Trouble {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::InvalidInput => ErrorKind::Validation,
            _ => ErrorKind::Failed,
        };
        Trouble::new(kind, format!("{what}: {error}"))
    }
}

impl From<Trouble> for Outcome {
    fn from(trouble: Trouble) -> Outcome {
        Outcome::failed(trouble.kind, trouble.text)
    }
}

/// Finds the tool and reads the arguments. The error is what the model reads.
pub fn prepare<'a>(
    profile: Profile,
    name: &str,
    given: &Value,
    at: &'a Workplace,
) -> Result<Call<'a>, Box<Outcome>> {
    let face = match named::find(profile, name, given) {
        Found::One(face) => face,
        found @ (Found::Several(_) | Found::None(_)) => {
            return Err(Box::new(args::not_found(profile, name, &found)));
        }
    };
    let refused = |why: String| Box::new(args::refused(face, &why));
    let decoded = args::decode(face, given).map_err(refused)?;
    let place = place(face, &decoded.map, at).map_err(|why| refused(why.to_string()))?;
    let args::Decoded { map: args, from: given, notes } = decoded;
    let (held, keeper, diff) = (Arc::default(), Arc::default(), Arc::default());
    Ok(Call { face, at, place, args, given, notes, held, keeper, diff, is_preview: false })
}

/// The one place that a call is about: its file, or the directory it works in.
fn place(face: &Face, args: &Map<String, Value>, at: &Workplace) -> std::io::Result<PathBuf> {
    if face.engine == Engine::Remember {
        return paths::follow(&at.memory.notes_file(&at.cwd));
    }
    let (key, start) = match face.engine.effect() {
        Effect::Runs => ("working_dir", exec::directory(face, at)),
        Effect::Looks if face.engine == Engine::Capture => ("path", desktop::capture::folder()),
        Effect::Writes | Effect::Acts | Effect::Looks => ("path", at.cwd.clone()),
    };
    let Some(raw) = args.get(key).and_then(Value::as_str) else { return paths::follow(&start) };
    let place = paths::resolve(&start, raw)?;
    if face.engine == Engine::Replace && !place.exists() {
        // What is edited must be there: a path may also be meant from the root.
        let from_root = paths::resolve(&at.root, raw)?;
        return Ok(if from_root.exists() { from_root } else { place });
    }
    Ok(place)
}

impl Call<'_> {
    /// Asks the gate, then does it. A panic inside a tool is a failure of the tool.
    pub async fn run(&self) -> Outcome {
        let cancelled = || Outcome::failed(ErrorKind::Cancelled, "cancelled by the user");
        if let Some(why) = skill::refusal(self) {
            return self.finish(Outcome::failed(ErrorKind::Denied, why));
        }
        // A gate that breaks down lets nothing through.
        let admitted = AssertUnwindSafe(self.at.cancel.run_until_cancelled(self.admit()));
        let pass = match admitted.catch_unwind().await {
            Ok(Some(Ok(pass))) => pass,
            Ok(Some(Err(refused))) => {
                let kind = if refused.late { ErrorKind::Timeout } else { ErrorKind::Denied };
                return self.finish(Outcome::failed(kind, refused.why));
            }
            Ok(None) => return self.finish(cancelled()),
            Err(panic) => {
                let why = words_of(panic.as_ref());
                let text = format!("not run: the gate could not judge this call: {why}");
                return self.finish(Outcome::not_run(ErrorKind::Failed, text));
            }
        };
        let work = AssertUnwindSafe(self.through_outside(pass)).catch_unwind();
        let outcome = match work.await {
            Ok(Ok(outcome)) => {
                let diff = self.take_diff().filter(|_| outcome.ok);
                let diff = diff.map(|diff| at_most(diff, DIFF_BYTES));
                Outcome { diff, ..lsp::after::heard(self, outcome).await }
            }
            Ok(Err(trouble)) => trouble.into(),
            Err(panic) => {
                let why = words_of(panic.as_ref());
                let text = format!("Tool execution error: `{}` broke down: {why}", self.face.name);
                Outcome::failed(ErrorKind::Failed, text)
            }
        };
        self.finish(outcome)
    }

    /// Does it, with the files as somebody outside holds them.
    async fn through_outside(&self, pass: Pass) -> Result<Outcome, Trouble> {
        let row = self.row();
        let Some(outside) = &self.at.outside else { return (row.run)(self, pass).await };
        let files = (row.files)(self);
        for file in &files {
            self.held.ask(outside.as_ref(), file).await;
        }
        let outcome = (row.run)(self, pass).await?;
        for file in &files {
            let handed = self.held.hand_over(outside.as_ref(), file).await;
            handed
                .map_err(|why| Trouble::io(&format!("cannot write {}", self.shown(file)), &why))?;
        }
        Ok(outcome)
    }

    /// Does work that reads and writes files on a thread that may wait, so that a large or slow
    /// file delays no other call. A panic there is one of the call.
    pub async fn blocking(
        &self,
        work: fn(&Call<'_>) -> Result<Outcome, Trouble>,
    ) -> Result<Outcome, Trouble> {
        // A preview is polled once: it cannot wait for another thread, and it writes nothing.
        if self.is_preview {
            return work(self);
        }
        let (face, at, place) = (self.face, self.at.clone(), self.place.clone());
        let (args, given, notes) = (self.args.clone(), self.given.clone(), self.notes.clone());
        let (held, keeper) = (self.held.clone(), self.keeper.clone());
        let (diff, is_preview) = (self.diff.clone(), self.is_preview);
        let done = tokio::task::spawn_blocking(move || {
            let at = &at;
            work(&Call { face, at, place, args, given, notes, held, keeper, diff, is_preview })
        });
        match done.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => Err(Trouble::new(ErrorKind::Cancelled, "cancelled by the user")),
        }
    }

    /// What the table says of its engine.
    pub fn row(&self) -> engines::Row {
        engines::row(self.face.engine)
    }

    /// The content of a file that this call is about.
    pub fn load(&self, file: &Path) -> std::io::Result<Content> {
        self.held.load(file)
    }

    /// Makes the directories of a file that is to be written.
    pub fn make_room(&self, file: &Path) -> std::io::Result<()> {
        if self.is_preview { Ok(()) } else { self.keeper.make_room(file) }
    }

    /// Keeps what these files are before they are written; tells whether that is new.
    pub fn keep(&self, wishes: &[Wish<'_>]) -> std::io::Result<bool> {
        let mut diff = self.diff.lock().unwrap_or_else(PoisonError::into_inner);
        if diff.is_none() {
            *diff = Some(wishes.iter().map(|wish| self.unified(wish)).collect());
        }
        if self.is_preview {
            return Err(std::io::Error::other("this is a preview"));
        }
        self.keeper.keep(&self.at.session_dir, &self.face.name, wishes)
    }

    fn unified(&self, (path, after): &Wish<'_>) -> String {
        let before = self.load(path).ok();
        let before = before.as_ref().map(|content| content.bytes.as_slice());
        if before == *after {
            return String::new();
        }
        unified(&self.shown(path), before, *after)
    }

    fn take_diff(&self) -> Option<String> {
        let mut diff = self.diff.lock().unwrap_or_else(PoisonError::into_inner);
        diff.take().filter(|diff| !diff.is_empty())
    }

    /// What it would write, as a unified diff; `None` where that cannot be told.
    fn preview(&self) -> Option<String> {
        match self.face.engine {
            Engine::Write | Engine::Replace | Engine::Diff | Engine::Multi | Engine::Patch => {}
            _ => return None,
        }
        let at = Workplace { plain: false, ..self.at.clone() };
        let call = Call {
            face: self.face,
            at: &at,
            place: self.place.clone(),
            args: self.args.clone(),
            given: self.given.clone(),
            notes: Vec::new(),
            held: Arc::default(),
            keeper: Arc::default(),
            diff: Arc::default(),
            is_preview: true,
        };
        // It ends with its first write, which a preview refuses.
        let _ = (self.row().run)(&call, Pass::Free).now_or_never();
        call.take_diff()
    }

    /// Removes a file that this call is about.
    pub fn remove(&self, file: &Path) -> std::io::Result<()> {
        let alone = self.keep(&[(file, None)])?;
        std::fs::remove_file(file).inspect_err(|_| {
            if alone {
                self.forget_kept();
            }
        })
    }

    /// Nothing of what was kept is needed: all files are as they were.
    pub fn forget_kept(&self) {
        self.keeper.forget();
    }

    /// Replaces a file that this call is about.
    pub fn store(&self, file: &Path, text: &str) -> std::io::Result<()> {
        let alone = self.keep(&[(file, Some(text.as_bytes()))])?;
        self.held.store(file, text).inspect_err(|_| {
            if alone {
                self.forget_kept();
            }
        })
    }

    /// Takes back what was stored of a file.
    pub fn put_back(&self, file: &Path, bytes: &[u8]) -> std::io::Result<()> {
        self.held.put_back(file, bytes)
    }

    async fn admit(&self) -> Result<Pass, Refused> {
        let mut pass = Pass::Free;
        let preview = || self.preview();
        for access in self.reaches() {
            let writes = matches!(access, Access::Write(_));
            let visitor = Visitor {
                tool: &self.face.name,
                root: &self.at.root,
                session_dir: &self.at.session_dir,
                access: &access,
                preview: writes.then_some(Preview(&preview)),
            };
            // The strictest of them holds for all.
            pass = pass.max(self.at.gate.admit(&visitor).await?);
        }
        Ok(pass)
    }

    /// What it wants to reach.
    pub fn reaches(&self) -> Vec<Access> {
        (self.row().reaches)(self)
    }

    /// See [`super::touches`].
    pub fn touches(&self) -> Vec<String> {
        (self.row().touches)(self)
    }

    /// What the model knows afterwards that it may not have known: a file, what a command says.
    pub fn finds_out(&self) -> Option<String> {
        match self.face.engine.effect() {
            Effect::Runs => Some(format!("$ {}", self.text("command"))),
            Effect::Looks if self.face.engine == Engine::Read => {
                Some(self.place.to_string_lossy().into_owned())
            }
            Effect::Looks | Effect::Acts | Effect::Writes => None,
        }
    }

    /// A text argument; empty when it is not given.
    pub fn text(&self, key: &str) -> &str {
        self.args.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// The parameter by which the engine's argument was given; empty when it was not.
    pub fn given_as(&self, key: &str) -> &str {
        self.given.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// The arguments as the engine's own type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Trouble> {
        serde_json::from_value(Value::Object(self.args.clone()))
            .map_err(|why| Trouble::invalid(format!("{}: {why}", self.face.name)))
    }

    /// The place as the model may name it.
    pub fn shown_place(&self) -> String {
        self.shown(&self.place)
    }

    /// A path as the model may name it: relative to the working directory where it is inside.
    pub fn shown(&self, path: &Path) -> String {
        let cwd = paths::follow(&self.at.cwd).unwrap_or_else(|_| self.at.cwd.clone());
        let below = path.strip_prefix(&cwd).ok().filter(|path| !path.as_os_str().is_empty());
        below.unwrap_or(path).display().to_string()
    }

    /// Where a file was looked for, for a message that it is not there.
    pub fn tried_places(&self, place: &Path) -> String {
        let mut tried = vec![place.to_owned()];
        let raw = self.text("path");
        tried.extend(paths::resolve(&self.at.root, raw).ok().filter(|path| path != place));
        tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Words the outcome for the profile and adds what was passed over.
    fn finish(&self, mut outcome: Outcome) -> Outcome {
        if self.face.style == Style::Core {
            match outcome.metadata {
                Value::Object(_) | Value::Array(_) => {
                    result_limit::shorten_fields(&mut outcome, self.at);
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                    result_limit::shorten(&mut outcome, self.at);
                }
            }
            return self.finish_core(outcome);
        }
        result_limit::shorten(&mut outcome, self.at);
        for note in &self.notes {
            outcome.text.push_str(&format!("\n[note: {note}]"));
        }
        outcome
    }

    /// The core tools answer with a JSON object that has a `status`.
    fn finish_core(&self, mut outcome: Outcome) -> Outcome {
        if !outcome.metadata.is_object() && !outcome.metadata.is_array() {
            let status = match outcome.error_kind {
                None => "success",
                Some(ErrorKind::Denied) => "rejected",
                Some(ErrorKind::Cancelled) => "cancelled",
                Some(ErrorKind::Timeout) => "timeout",
                Some(
                    ErrorKind::Validation
                    | ErrorKind::NotFound
                    | ErrorKind::UnknownTool
                    | ErrorKind::Failed,
                ) => "error",
            };
            outcome.metadata = json!({ "status": status, "description": outcome.text });
        }
        if let Some(object) = outcome.metadata.as_object_mut()
            && !self.notes.is_empty()
        {
            object.insert("ignored".to_owned(), json!(self.notes));
        }
        outcome.text = match outcome.metadata.as_object() {
            // Pictures are for people who look on.
            Some(object) if object.contains_key("image_b64") => {
                let mut object = object.clone();
                object.remove("image_b64");
                Value::Object(object).to_string()
            }
            Some(_) | None => outcome.metadata.to_string(),
        };
        outcome
    }
}

/// Bytes of a diff that are told.
const DIFF_BYTES: usize = 32 << 10;

/// A diff cut at the end of a line, with a word that it was.
fn at_most(diff: String, most: usize) -> String {
    if diff.len() <= most {
        return diff;
    }
    let head = base::text::head(&diff, most);
    let head = head.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let more = diff.lines().count() - head.lines().count();
    format!("{head}\n[{} left out]\n", base::text::count(more, "line"))
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}
