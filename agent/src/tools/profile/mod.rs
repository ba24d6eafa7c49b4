//! The table of tools: every profile's faces, read from data files that are compiled in.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::browser::verb::Verb;
use super::{Profile, engines};
use crate::provider::ToolSpec;

pub mod named;
pub mod page;

/// A capability. Every tool of every profile is one of these with other names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum ToolKind {
    /// Runs a command line.
    #[serde(rename = "exec.run")]
    Run,
    /// Starts a process that lives on.
    #[serde(rename = "exec.background")]
    Background,
    /// Tells and ends what was started so.
    #[serde(rename = "exec.control")]
    Control,
    /// Reads a file.
    #[serde(rename = "fs.read")]
    Read,
    /// Shows pictures to the model.
    #[serde(rename = "image.read")]
    Picture,
    /// Measures which lines the tests of a Rust workspace run.
    #[serde(rename = "code.coverage")]
    Coverage,
    /// Writes a file.
    #[serde(rename = "fs.write")]
    Write,
    /// Replaces a text in a file.
    #[serde(rename = "edit.replace")]
    Replace,
    /// Applies a unified diff to a file.
    #[serde(rename = "edit.diff")]
    Diff,
    /// Replaces several texts, in one file or in many.
    #[serde(rename = "edit.multi")]
    Multi,
    /// Applies a patch to many files.
    #[serde(rename = "edit.patch")]
    Patch,
    /// Searches the contents of files.
    #[serde(rename = "search.text")]
    Grep,
    /// Finds files by name.
    #[serde(rename = "search.files")]
    Glob,
    /// Asks a language server.
    #[serde(rename = "lsp")]
    Lsp,
    /// Searches the syntax of files.
    #[serde(rename = "search.ast")]
    Syntax,
    /// Tells the list of what is to be done.
    #[serde(rename = "todo.read")]
    TodoRead,
    /// Replaces that list by text.
    #[serde(rename = "todo.write")]
    TodoWrite,
    /// Replaces that list by items.
    #[serde(rename = "todo.items")]
    TodoItems,
    /// Waits.
    #[serde(rename = "util.wait")]
    Wait,
    /// Tells what was done.
    #[serde(rename = "history")]
    History,
    /// Proposes a plan to the user.
    #[serde(rename = "plan.propose")]
    ProposePlan,
    /// Brings a turn back that was set aside.
    #[serde(rename = "context.rehydrate")]
    Rehydrate,
    /// Suggests that a stronger model goes on.
    #[serde(rename = "help.escalate")]
    Escalate,
    /// Loads a skill.
    #[serde(rename = "skill")]
    Skill,
    /// Lets another agent look something up.
    #[serde(rename = "web.research")]
    Research,
    /// Lets another agent do a part of the work.
    #[serde(rename = "agent.task")]
    Task,
    /// Notes something about the workspace.
    #[serde(rename = "memory.notes")]
    Remember,
    /// Searches the user's memories.
    #[serde(rename = "memory.search")]
    MemorySearch,
    /// Tells one of them.
    #[serde(rename = "memory.get")]
    MemoryGet,
    /// Stores one.
    #[serde(rename = "memory.set")]
    MemorySet,
    /// Fetches a page of the web.
    #[serde(rename = "web.fetch")]
    Fetch,
    /// Searches the web for code and documentation.
    #[serde(rename = "web.code")]
    CodeSearch,
    /// Searches the web.
    #[serde(rename = "web.search")]
    WebSearch,
    /// Takes a picture of the screen.
    #[serde(rename = "screen.capture")]
    Capture,
    /// Says what there is on the screen.
    #[serde(rename = "screen.observe")]
    Observe,
    /// Clicks on a point of the screen.
    #[serde(rename = "input.click")]
    Click,
    /// Types text where the focus is.
    #[serde(rename = "input.type")]
    TypeText,
    /// Mouse and keyboard, as the model sees the screen.
    #[serde(rename = "input.gui")]
    Gui,
    /// Finds a control by its text, role or attributes.
    #[serde(rename = "a11y.find")]
    FindControl,
    /// Tells the controls of a window.
    #[serde(rename = "a11y.query")]
    Controls,
    /// Acts on a control by its name.
    #[serde(rename = "a11y.act")]
    ActOn,
    /// Lists the open windows.
    #[serde(rename = "window.list")]
    Windows,
    /// Maximizes the active window.
    #[serde(rename = "window.maximize")]
    Maximize,
    /// Lets a model act on the screen by itself.
    #[serde(rename = "cu.plan")]
    ComputerUse,
    /// Does one thing with a browser.
    #[serde(untagged)]
    Browser(Verb),
}

/// What a call does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Starts processes.
    Runs,
    /// Writes a file.
    Writes,
    /// Moves the mouse, types, changes windows.
    Acts,
    /// Nothing outside of the session.
    Looks,
}

impl ToolKind {
    /// What it does to the world.
    pub fn effect(self) -> Effect {
        engines::row(self).effect
    }

    /// Whether a model that plans on the screen does this instead of ours.
    pub fn is_planned(self) -> bool {
        matches!(self, ToolKind::Observe | ToolKind::Gui | ToolKind::Controls | ToolKind::ActOn)
    }

    /// What kind of work it does, in a word; engines that only differ in their form share it.
    pub fn kind(self) -> String {
        let name = serde_json::to_value(self).unwrap_or_default();
        let name = name.as_str().unwrap_or_default();
        let shared = ["exec", "edit", "todo", "memory", "browser"]
            .into_iter()
            .find(|group| name.strip_prefix(group).is_some_and(|rest| rest.starts_with('.')));
        shared.unwrap_or(name).to_owned()
    }
}

/// How an outcome is worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Plain text.
    G3,
    /// As egirl's tools say it.
    Egirl,
    /// As the Tools API says it.
    ToolsApi,
    /// A JSON object with a `status`.
    Core,
}

/// One tool of one profile: an engine under a name, with its parameters and defaults.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileTool {
    /// The name that the model uses.
    pub name: String,
    /// What does the work.
    pub engine: ToolKind,
    /// What the model reads about it.
    pub description: String,
    /// The JSON Schema object of its parameters.
    pub parameters: Value,
    /// Further parameters that are understood and not shown.
    #[serde(default)]
    pub also: Map<String, Value>,
    /// Parameter -> the engine's name for it, where they differ.
    #[serde(default)]
    pub keys: Map<String, Value>,
    /// The engine's parameters that this face sets when the call does not.
    #[serde(default)]
    pub defaults: Map<String, Value>,
    /// What switches it on; `always` unless said.
    #[serde(default = "always")]
    pub enabled_by: String,
    /// How the outcome is worded; that of the profile.
    #[serde(skip, default = "plain_style")]
    pub style: Style,
    /// Whether the full suite has it from another profile.
    #[serde(skip)]
    pub borrowed: bool,
}

/// The switch of tools that are always on.
pub const ALWAYS: &str = "always";

fn always() -> String {
    ALWAYS.to_owned()
}

fn plain_style() -> Style {
    Style::G3
}

static G3: LazyLock<Vec<ProfileTool>> = LazyLock::new(|| {
    let lent = |(profile, name): (Profile, &str)| {
        let mut face = faces(profile).into_iter().find(|face| face.name == name)?.clone();
        face.defaults.retain(|key, _| !STRICT.contains(&key.as_str()));
        Some(ProfileTool { style: Style::G3, borrowed: true, ..face })
    };
    let own = table(include_str!("g3.json"), Style::G3);
    own.into_iter().chain(BORROWED.into_iter().filter_map(lent)).collect()
});
static EGIRL: LazyLock<Vec<ProfileTool>> =
    LazyLock::new(|| table(include_str!("egirl.json"), Style::Egirl));
static TOOLS_API: LazyLock<Vec<ProfileTool>> =
    LazyLock::new(|| table(include_str!("tools_api.json"), Style::ToolsApi));
static CORE: LazyLock<Vec<ProfileTool>> =
    LazyLock::new(|| table(include_str!("core.json"), Style::Core));

/// What the full suite has from other profiles, so that it has a name for each capability.
const BORROWED: [(Profile, &str); 14] = [
    (Profile::ToolsApi, "multiedit"),
    (Profile::ToolsApi, "patch"),
    (Profile::ToolsApi, "lsp"),
    (Profile::ToolsApi, "webfetch"),
    (Profile::ToolsApi, "codesearch"),
    (Profile::ToolsApi, "websearch"),
    (Profile::Core, "wait"),
    (Profile::Core, "get_action_history"),
    (Profile::Core, "execute_gui"),
    (Profile::Core, "observe_screen"),
    (Profile::Core, "get_ui_context"),
    (Profile::Core, "execute_accessible"),
    (Profile::Core, "maximize_active_window"),
    (Profile::Core, "execute_computer_use"),
];

/// Defaults that only the profile wants which a tool comes from, since its documents say so.
const STRICT: [&str; 2] = ["bare", "skip_missing"];

/// What a small model gets: the four things without which no task can be done, and an edit that
/// forgives wrong whitespace instead of a diff, which small models cannot count.
const FEW: [(Profile, &str); 4] = [
    (Profile::G3, "shell"),
    (Profile::G3, "read_file"),
    (Profile::G3, "write_file"),
    (Profile::ToolsApi, "edit"),
];

fn table(text: &str, style: Style) -> Vec<ProfileTool> {
    let mut faces: Vec<ProfileTool> =
        serde_json::from_str(text).expect("the table is compiled in, and a test reads it");
    for face in &mut faces {
        face.style = style;
    }
    faces
}

/// The tools of a profile, in the order in which the model sees them. `all` has each name once.
pub fn faces(profile: Profile) -> Vec<&'static ProfileTool> {
    match profile {
        Profile::G3 => G3.iter().collect(),
        Profile::Egirl => EGIRL.iter().collect(),
        Profile::ToolsApi => TOOLS_API.iter().collect(),
        Profile::Core => CORE.iter().collect(),
        Profile::All => {
            let mut all: Vec<&'static ProfileTool> = Vec::new();
            for face in Profile::EACH.into_iter().flat_map(faces) {
                if !all.iter().any(|known| known.name == face.name) {
                    all.push(face);
                }
            }
            all
        }
    }
}

/// The tool that a switch turns on in every profile.
pub fn switched(switch: &str) -> Option<&'static ProfileTool> {
    faces(Profile::All).into_iter().find(|face| face.enabled_by == switch)
}

/// The few tools of a profile that a small model gets.
pub fn few(profile: Profile) -> Vec<&'static ProfileTool> {
    if profile != Profile::G3 {
        return faces(profile);
    }
    let named = |(profile, name): (Profile, &str)| {
        faces(profile).into_iter().find(|face| face.name == name)
    };
    FEW.into_iter().filter_map(named).collect()
}

impl ProfileTool {
    /// The tool as a model sees it.
    pub fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
        }
    }

    /// The schema of one parameter, shown or not.
    pub fn parameter(&self, key: &str) -> Option<&Value> {
        self.parameters["properties"].get(key).or_else(|| self.also.get(key))
    }

    /// The parameters that a call must give.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        self.parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    /// The engine's name of a parameter.
    pub fn engine_key<'a>(&'a self, key: &'a str) -> &'a str {
        self.keys.get(key).and_then(Value::as_str).unwrap_or(key)
    }

    /// The parameter that a caller sees for an engine's name.
    pub fn shown_key<'a>(&'a self, name: &'a str) -> &'a str {
        let properties = self.parameters["properties"].as_object();
        let mut keys = properties.into_iter().flat_map(|map| map.keys());
        keys.find(|key| self.engine_key(key) == name).map_or(name, String::as_str)
    }

    /// Whether these arguments are all shown parameters and none that is required is missing.
    pub(super) fn fits(&self, args: &Value) -> bool {
        let Some(args) = args.as_object() else { return false };
        args.keys().all(|key| self.parameters["properties"].get(key).is_some())
            && self.required().all(|key| args.contains_key(key))
    }
}
