//! Something the model may do. A failure is text for the model, never an `Err`.
//!
//! One engine per capability ([`profile::Engine`]), several faces: a profile is a table of names,
//! parameters and defaults, kept as data in `profile/*.json`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use base::config::agent::ToolsConfig;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::gate::Gate;
use crate::memory::Memory;
use crate::message::{Bill, Image};
use crate::provider::ToolSpec;
use crate::skills::Shelf;
use outside::Outside;
use profile::{Face, named};
use task::Subagents;

pub mod args;
pub mod browser;
pub mod call;
pub mod coverage;
pub mod desktop;
pub mod edit;
pub mod engines;
pub mod escalate;
pub mod exec;
pub mod fs;
pub mod history;
pub mod image;
pub mod lsp;
pub mod mcp;
pub mod memory;
pub mod outside;
pub mod plan;
pub mod profile;
pub mod program;
pub mod rehydrate;
pub mod research;
pub mod result_limit;
pub mod search;
pub mod skill;
pub mod task;
pub mod todo;
pub mod traced;
pub mod undo;
pub mod wait;
pub mod web;

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
    /// What to do next, for a model that needs to be told; not for people.
    pub next: Option<String>,
    /// Why a stronger model should continue.
    pub escalate: Option<String>,
    /// What it cost, when it asked a model.
    pub bill: Option<Bill>,
    /// What kind of failure, when it failed.
    pub error_kind: Option<ErrorKind>,
    /// What it wrote, as a unified diff for people.
    pub diff: Option<String>,
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
    /// State of this session: todo, long outputs, logs (`sessions/<id>` of the workspace's state).
    pub session_dir: PathBuf,
    /// Hears output while a tool runs.
    pub hear: Arc<dyn Fn(&str) + Send + Sync>,
    /// Set when the user cancels.
    pub cancel: CancellationToken,
    /// Plain short results for small models.
    pub plain: bool,
    /// Bytes of a result that the model reads at most.
    pub result_limit: usize,
    /// Judges every call before it runs.
    pub gate: Arc<Gate>,
    /// Who holds files and terminals besides the machine, e.g. an editor.
    pub outside: Option<Arc<dyn Outside>>,
    /// The MCP servers of the session.
    pub mcp: Option<Arc<mcp::Hub>>,
    /// The skills that can be loaded, and those that were.
    pub skills: Arc<Shelf>,
    /// What outlives the session.
    pub memory: Arc<Memory>,
    /// Who else can be asked.
    pub others: Others,
}

/// Who else can be asked: agents that work, servers that know code, the web as the user allows it.
#[derive(Clone, Default)]
pub struct Others {
    /// Our own provider, as `type.name`, and model, for those that shall ask the same.
    pub asks: Option<(String, String)>,
    /// Those that work within this session.
    pub subagents: Option<Arc<dyn Subagents>>,
    /// Which hosts may be fetched though they are private, and who searches the web.
    pub web: Arc<ToolsConfig>,
    /// The language servers of the session.
    pub lsp: Arc<lsp::hub::Hub>,
    /// The browser of the session.
    pub browser: Arc<browser::hub::Hub>,
    /// The screen, mouse and keyboard.
    pub desk: Arc<desktop::Desk>,
    /// What the user opens for the box of commands, and whether there is one.
    pub sandbox: Arc<base::config::agent::Sandbox>,
    /// The box that the last command ran in.
    pub recent_box: Arc<exec::boxed::RecentBox>,
}

/// A set of tool names as an ecosystem knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// All tools, one name per capability.
    #[default]
    G3,
    /// The names of egirl.
    Egirl,
    /// The names of the Tools API.
    ToolsApi,
    /// The names of the core tools.
    Core,
    /// All names.
    All,
}

/// What is switched on; decides what is offered to a model, not what runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// The model is small: it gets few tools.
    pub small: bool,
    /// Finished turns are moved into files: `--acd`.
    pub acd: bool,
    /// The model plans and the user approves.
    pub plan: bool,
    /// What the configuration switches on, as in [`profile::Face::enabled_by`].
    pub configured: [Option<&'static str>; 4],
}

impl Switches {
    /// What `enabled_by` says of the tools that are on now.
    fn on(self) -> impl Iterator<Item = &'static str> {
        let acd = self.acd.then_some("--acd");
        acd.into_iter().chain(self.plan.then_some("plan mode"))
    }

    /// Whether the configuration switches a tool on. A model that plans on the screen has some of
    /// its tools to itself.
    fn configured(self, face: &Face) -> bool {
        let on = |switch: &str| self.configured.contains(&Some(switch));
        let by = face.enabled_by.as_str();
        on(by) || by == SCREEN && on(PLANNED) && !face.engine.is_planned()
    }
}

/// What switches the tool `skill` on.
pub const SKILLS: &str = "skills.enabled";
/// What switches the tools of the user's memories on.
pub const MEMORY: &str = "memory.enabled";
/// What switches the tools of the screen on.
pub const SCREEN: &str = "computer_control.enabled";
/// What switches a model on that plans on the screen.
pub const PLANNED: &str = "computer_control.computer_use_provider";

/// The tools to offer to a model, in a fixed order.
pub fn offered(profile: Profile, switches: Switches) -> Vec<ToolSpec> {
    let mut faces = if switches.small { profile::few(profile) } else { profile::faces(profile) };
    faces.retain(|face| face.enabled_by == profile::ALWAYS);
    let configured = |face: &&Face| switches.configured(face);
    faces.extend(profile::faces(profile).into_iter().filter(configured));
    faces.extend(switches.on().filter_map(profile::switched));
    let mut specs: Vec<ToolSpec> = faces.into_iter().map(profile::Face::spec).collect();
    if switches.small {
        // Small models lose their way in quotes within quotes, so JSON may stand there as it is.
        for spec in &mut specs {
            if let Some(content) = spec.parameters.pointer_mut("/properties/content/type") {
                *content = serde_json::json!(["string", "object", "array"]);
            }
        }
    }
    specs
}

/// Runs one call: decodes the arguments, asks the gate, runs the engine. Never fails otherwise
/// than by an [`Outcome`] that says so.
pub async fn run(profile: Profile, name: &str, args: &Value, at: &Workplace) -> Outcome {
    if let Some(hub) = at.mcp.as_ref().filter(|hub| hub.owns(name)) {
        let mut outcome = hub.run(name, args, at).await;
        result_limit::shorten(&mut outcome, at);
        return outcome;
    }
    let started = Instant::now();
    let (outcome, engine) = match call::prepare(profile, name, args, at) {
        Ok(call) => {
            let outcome = call.run().await;
            at.memory.learnt.saw(call.finds_out().filter(|_| outcome.ok));
            (outcome, Some(call.face.engine))
        }
        Err(refused) => (*refused, None),
    };
    if let Some(engine) = engine {
        history::record(at, engine, name, args, &outcome, started.elapsed());
    }
    outcome
}

/// What does the work of a call; `None` where no tool is meant.
pub fn engine(profile: Profile, name: &str, args: &Value) -> Option<profile::Engine> {
    match named::find(profile, name, args) {
        named::Found::One(face) => Some(face.engine),
        named::Found::Several(_) | named::Found::None(_) => None,
    }
}

/// What a call would find out, by a name that tells it from others: a file, a command.
pub fn finds_out(profile: Profile, name: &str, args: &Value, at: &Workplace) -> Option<String> {
    call::prepare(profile, name, args, at).ok()?.finds_out()
}

/// The result of a call whose arguments were not a JSON object: it says so and shows what the
/// tool expects. `sent` is the text as the model wrote it.
pub fn malformed(profile: Profile, name: &str, sent: &str) -> Outcome {
    args::malformed(profile, name, sent)
}

/// Keys of what a call touches (files, shell sessions): calls with a common key keep their order.
pub fn touches(profile: Profile, name: &str, args: &Value, at: &Workplace) -> Vec<String> {
    call::prepare(profile, name, args, at).map(|call| call.touches()).unwrap_or_default()
}

impl ErrorKind {
    /// The word for it in JSON.
    pub fn word(self) -> &'static str {
        match self {
            ErrorKind::Validation => "validation",
            ErrorKind::Denied => "denied",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::UnknownTool => "unknown_tool",
            ErrorKind::Failed => "failed",
        }
    }
}

impl Profile {
    /// Every profile, in the order in which a name is looked for.
    pub const EACH: [Profile; 4] = [Profile::G3, Profile::Core, Profile::ToolsApi, Profile::Egirl];

    /// Its name in flags and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Profile::G3 => "g3",
            Profile::Egirl => "egirl",
            Profile::ToolsApi => "tools-api",
            Profile::Core => "core",
            Profile::All => "all",
        }
    }

    /// The profile of this name.
    pub fn parse(name: &str) -> Option<Profile> {
        let all = [Profile::All];
        Profile::EACH.into_iter().chain(all).find(|profile| profile.name() == name)
    }
}

impl Workplace {
    /// A workplace in a directory that hears nothing, with the default gate and nobody to ask.
    pub fn quiet(cwd: impl Into<PathBuf>, session_dir: impl Into<PathBuf>) -> Workplace {
        let cwd = cwd.into();
        Workplace {
            root: cwd.clone(),
            cwd,
            session_dir: session_dir.into(),
            hear: Arc::new(|_| ()),
            cancel: CancellationToken::new(),
            plain: false,
            result_limit: result_limit::MOST,
            gate: Arc::new(Gate::default()),
            outside: None,
            mcp: None,
            skills: Arc::default(),
            memory: Arc::default(),
            others: Others::default(),
        }
    }
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

    /// A parameter is missing or makes no sense.
    pub fn invalid(text: impl Into<String>) -> Outcome {
        Outcome::failed(ErrorKind::Validation, text)
    }

    /// Adds metadata.
    #[must_use]
    pub fn with(mut self, metadata: Value) -> Outcome {
        self.metadata = metadata;
        self
    }

    /// Adds a line for people.
    #[must_use]
    pub fn titled(mut self, title: impl Into<String>) -> Outcome {
        self.title = Some(title.into());
        self
    }
}

#[cfg(test)]
mod tests;
