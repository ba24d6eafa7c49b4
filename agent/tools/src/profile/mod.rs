//! The table of tools: the tools of every profile, read from embedded data files.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::kind::ToolKind;
use provider::ToolDefinition;

pub mod docs_page;
pub mod lookup;

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

/// The format of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStyle {
    /// Plain text.
    G3,
    /// The format of egirl's tools.
    Egirl,
    /// The format of the Tools API.
    ToolsApi,
    /// A JSON object with a `status`.
    Core,
}

/// A tool of a profile: a tool kind under a name, with parameters and defaults.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub struct ProfileTool {
    /// The name that the model uses.
    pub name: String,
    /// The kind of the tool.
    #[serde(rename = "engine")]
    pub kind: ToolKind,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema object of its parameters.
    pub parameters: Value,
    /// Additional parameters that are accepted but not shown.
    #[serde(rename = "also", default)]
    pub hidden_parameters: Map<String, Value>,
    /// Parameter -> the tool's own name for it, where they differ.
    #[serde(default)]
    pub keys: Map<String, Value>,
    /// Values of the tool's parameters that the profile sets if the call does not.
    #[serde(default)]
    pub defaults: Map<String, Value>,
    /// The feature that enables it; `always` by default.
    #[serde(default = "always")]
    pub enabled_by: String,
    /// The format of the outcome; that of the profile.
    #[serde(skip, default = "plain_style")]
    pub style: OutputStyle,
    /// Whether the g3 profile includes it from another profile.
    #[serde(skip)]
    pub borrowed: bool,
}

/// The `enabled_by` value of tools that are always enabled.
pub(crate) const ALWAYS: &str = "always";

fn always() -> String {
    ALWAYS.to_owned()
}

fn plain_style() -> OutputStyle {
    OutputStyle::G3
}

static G3: LazyLock<Vec<ProfileTool>> = LazyLock::new(|| {
    let borrow = |(profile, name): (Profile, &str)| {
        let mut tool = tools(profile).into_iter().find(|tool| tool.name == name)?.clone();
        tool.defaults.retain(|key, _| !STRICT.contains(&key.as_str()));
        Some(ProfileTool { style: OutputStyle::G3, borrowed: true, ..tool })
    };
    let g3_tools = parse_table(include_str!("g3.json"), OutputStyle::G3);
    g3_tools.into_iter().chain(BORROWED.into_iter().filter_map(borrow)).collect()
});
static EGIRL: LazyLock<Vec<ProfileTool>> =
    LazyLock::new(|| parse_table(include_str!("egirl.json"), OutputStyle::Egirl));
static TOOLS_API: LazyLock<Vec<ProfileTool>> =
    LazyLock::new(|| parse_table(include_str!("tools_api.json"), OutputStyle::ToolsApi));
static CORE: LazyLock<Vec<ProfileTool>> =
    LazyLock::new(|| parse_table(include_str!("core.json"), OutputStyle::Core));

/// The tools that the g3 profile includes from other profiles, so that it has a name for each
/// capability.
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

/// Defaults that apply only in the original profile, as its documentation requires.
const STRICT: [&str; 2] = ["bare", "skip_missing"];

/// The tools of a small model: the four that every task needs. The edit tool tolerates wrong
/// whitespace; small models cannot write the line counts of a diff.
const SMALL_MODEL_TOOLS: [(Profile, &str); 4] = [
    (Profile::G3, "shell"),
    (Profile::G3, "read_file"),
    (Profile::G3, "write_file"),
    (Profile::ToolsApi, "edit"),
];

fn parse_table(text: &'static str, style: OutputStyle) -> Vec<ProfileTool> {
    let mut tools: Vec<ProfileTool> =
        serde_json::from_str(text).expect("the table is compiled in, and a test reads it");
    for tool in &mut tools {
        tool.style = style;
    }
    tools
}

/// Returns the tools of a profile, in the order in which the model sees them. `all` has each name
/// once.
pub fn tools(profile: Profile) -> Vec<&'static ProfileTool> {
    match profile {
        Profile::G3 => G3.iter().collect(),
        Profile::Egirl => EGIRL.iter().collect(),
        Profile::ToolsApi => TOOLS_API.iter().collect(),
        Profile::Core => CORE.iter().collect(),
        Profile::All => {
            let mut all: Vec<&'static ProfileTool> = Vec::new();
            for tool in Profile::EACH.into_iter().flat_map(tools) {
                if !all.iter().any(|known| known.name == tool.name) {
                    all.push(tool);
                }
            }
            all
        }
    }
}

/// Returns the tool that a feature enables, in any profile.
pub fn of_switch(switch: &str) -> Option<&'static ProfileTool> {
    tools(Profile::All).into_iter().find(|tool| tool.enabled_by == switch)
}

/// Returns the tools of a profile for a small model.
pub(crate) fn for_small_model(profile: Profile) -> Vec<&'static ProfileTool> {
    if profile != Profile::G3 {
        return tools(profile);
    }
    let find_tool = |(profile, name): (Profile, &str)| {
        tools(profile).into_iter().find(|tool| tool.name == name)
    };
    SMALL_MODEL_TOOLS.into_iter().filter_map(find_tool).collect()
}

impl Profile {
    /// All profiles, in the order in which names are looked up.
    pub(crate) const EACH: [Profile; 4] =
        [Profile::G3, Profile::Core, Profile::ToolsApi, Profile::Egirl];

    /// Returns the name used in flags and configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Profile::G3 => "g3",
            Profile::Egirl => "egirl",
            Profile::ToolsApi => "tools-api",
            Profile::Core => "core",
            Profile::All => "all",
        }
    }

    /// Returns the profile of this name.
    pub fn parse(name: &str) -> Option<Profile> {
        let all = [Profile::All];
        Profile::EACH.into_iter().chain(all).find(|profile| profile.name() == name)
    }
}

impl ProfileTool {
    /// Returns the definition for the model.
    pub fn spec(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
        }
    }

    /// Returns the schema of a parameter, shown or not.
    pub(crate) fn parameter(&self, key: &str) -> Option<&Value> {
        self.parameters["properties"].get(key).or_else(|| self.hidden_parameters.get(key))
    }

    /// Returns the required parameters.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        self.parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    /// Returns the tool's own name of a parameter.
    pub(crate) fn internal_name<'a>(&'a self, key: &'a str) -> &'a str {
        self.keys.get(key).and_then(Value::as_str).unwrap_or(key)
    }

    /// Returns the shown parameter for a tool's own name.
    pub fn parameter_name<'a>(&'a self, name: &'a str) -> &'a str {
        let properties = self.parameters["properties"].as_object();
        let mut keys = properties.into_iter().flat_map(|map| map.keys());
        keys.find(|key| self.internal_name(key) == name).map_or(name, String::as_str)
    }

    /// Whether all arguments are shown parameters and all required parameters are present.
    pub(super) fn accepts(&self, args: &Value) -> bool {
        let Some(args) = args.as_object() else { return false };
        args.keys().all(|key| self.parameters["properties"].get(key).is_some())
            && self.required().all(|key| args.contains_key(key))
    }
}
