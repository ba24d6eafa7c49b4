//! The parts of the configuration that g3 reads besides its providers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::lsp::LspToolConfig;
use crate::secret::Secret;

/// `[agent]`: how the turn loop works.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// The tool profile: `g3`, `egirl`, `tools-api`, `core` or `all`.
    pub profile: Option<String>,
    /// Tokens of context used at most, where the model could read more.
    pub max_context_length: Option<u32>,
    /// Tokens of one reply when the provider's entry does not say it.
    pub fallback_default_max_tokens: u32,
    /// Asks hosted providers for streamed replies; otherwise each comes as a whole.
    pub enable_streaming: bool,
    /// Seconds without a byte from the provider before the request counts as lost.
    pub timeout_seconds: u64,
    /// Compacts the context by itself at 80 %.
    pub auto_compact: bool,
    /// Tries of one request in the modes where a person waits.
    pub max_retry_attempts: u32,
    /// Tries of one request in autonomous modes.
    pub autonomous_max_retry_attempts: u32,
    /// Percent of the context below which nothing is thinned.
    pub thinning_floor_percent: u8,
    /// Turns of one run; absent means the mode's own limit.
    pub max_turns: Option<u32>,
    /// Reminds the model of a todo list that it left behind.
    pub check_todo_staleness: bool,
    /// Asks for notes after a turn that found something out; absent means that the mode decides.
    pub auto_memory: Option<bool>,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            profile: None,
            max_context_length: None,
            fallback_default_max_tokens: 32_000,
            enable_streaming: true,
            timeout_seconds: 120,
            auto_compact: true,
            max_retry_attempts: 3,
            autonomous_max_retry_attempts: 6,
            thinning_floor_percent: 50,
            max_turns: None,
            check_todo_staleness: true,
            auto_memory: None,
        }
    }
}

/// `[tools]`: what single tools need.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolsConfig {
    /// `[tools.webfetch]`.
    pub webfetch: WebfetchConfig,
    /// `[tools.codesearch]`.
    pub codesearch: CodesearchConfig,
    /// `[tools.lsp]`.
    pub lsp: LspToolConfig,
}

/// `[tools.webfetch]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebfetchConfig {
    /// Hosts (`name` or `name:port`) that are fetched unasked, also where their addresses are private.
    pub allow_hosts: Vec<String>,
}

/// `[tools.codesearch]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CodesearchConfig {
    /// The address of the search service.
    pub endpoint: Option<String>,
    /// Its key.
    pub api_key: Option<Secret>,
}

/// `[gate]`: rules that answer for the user, first match wins, and who judges before them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GateConfig {
    /// The rules, in order.
    pub rules: Vec<GateRule>,
    /// How command lines are judged.
    pub policy: CommandPolicy,
    /// What `core-exact` sends to the sandbox, instead of its own list.
    pub forbidden: Option<Vec<String>>,
    /// Paths that `core-exact` sends to the sandbox, instead of its own list.
    pub restricted: Option<Vec<String>>,
    /// What `core-exact` asks about, instead of its own list.
    pub destructive: Option<Vec<String>>,
}

/// How command lines are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandPolicy {
    /// By their syntax, and by where they reach.
    #[default]
    Default,
    /// As the evaluator of the core tools as well.
    CoreExact,
}

/// One rule: which calls, and what becomes of them. A call matches when every given part does.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GateRule {
    /// A glob over tool names; all tools when absent.
    #[serde(default)]
    pub tool: Option<String>,
    /// A glob over the command line of a shell call.
    #[serde(default)]
    pub command: Option<String>,
    /// A glob over the absolute paths that a call touches; `~/` is the home directory.
    #[serde(default)]
    pub path: Option<String>,
    /// A glob over the host that a call reaches.
    #[serde(default)]
    pub host: Option<String>,
    /// What becomes of the call.
    pub action: GateAction,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateAction {
    /// It runs.
    Allow,
    /// The user is asked; with nobody to ask it is denied.
    Ask,
    /// It runs in the tighter box.
    Box,
    /// It does not run.
    Deny,
}

/// `[trace]`: what g3 does, written down for whoever looks into it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TraceConfig {
    /// Where it is appended; `~/` is the home directory.
    pub file: Option<PathBuf>,
    /// How much of it, in the form of `G3_LOG`.
    pub level: Option<String>,
}

/// `[skills]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SkillsConfig {
    /// Whether skills are offered.
    pub enabled: bool,
    /// Further directories of skills; `~/` is the home directory.
    pub extra_paths: Vec<PathBuf>,
    /// Whether small models get the list of skills and the tool to load one.
    pub small_models: bool,
}

impl Default for SkillsConfig {
    fn default() -> Self {
        Self { enabled: true, extra_paths: Vec::new(), small_models: false }
    }
}

/// `[memory]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// Whether memory tools are offered.
    pub enabled: bool,
    /// Who makes vectors; absent means the server that is named, else the built-in one.
    pub embedder: Option<EmbedderKind>,
    /// The address of an embeddings service, up to and including `/embeddings`.
    pub embeddings_endpoint: Option<String>,
    /// A provider of type openai whose server makes embeddings, instead of an address.
    pub embeddings_provider: Option<String>,
    /// Its model, or the local one.
    pub model: Option<String>,
    /// The length of its vectors.
    pub dimensions: Option<u32>,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            embedder: None,
            embeddings_endpoint: None,
            embeddings_provider: None,
            model: None,
            dimensions: None,
        }
    }
}

/// Who makes the vectors by which memories are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmbedderKind {
    /// The one that needs nothing and knows spelling.
    BuiltIn,
    /// A server that speaks `/embeddings`.
    Server,
    /// The model on this machine.
    Local,
}

/// `[computer_control]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ComputerControlConfig {
    /// Whether desktop tools are offered.
    pub enabled: bool,
    /// Whether each action asks.
    pub require_confirmation: bool,
    /// How fast actions may follow each other; 0 is no limit.
    pub max_actions_per_second: u32,
    /// Whether aborted: the pointer is in a corner of the screen.
    pub fail_safe: bool,
    /// `g3-desktop`, when it lies neither beside g3 nor on `PATH`.
    pub program: Option<PathBuf>,
    /// Who says what there is on the screen, in the order in which they are asked.
    pub observe: Vec<Observer>,
    /// A provider whose model looks at pictures of the screen.
    pub vision_provider: Option<String>,
    /// The address of an OmniParser server, without `/parse/`.
    pub omniparser_url: Option<String>,
    /// A provider whose model plans on the screen by itself.
    pub computer_use_provider: Option<String>,
}

/// Who can say what there is on the screen. A picture is always the last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observer {
    /// The model of `vision_provider`.
    Vision,
    /// The server at `omniparser_url`.
    Omniparser,
    /// What programs say of their controls.
    Accessibility,
    /// The words in the picture.
    Ocr,
}

impl Default for ComputerControlConfig {
    fn default() -> Self {
        use Observer::{Accessibility, Ocr, Omniparser, Vision};
        Self {
            enabled: false,
            require_confirmation: false,
            max_actions_per_second: 5,
            fail_safe: true,
            program: None,
            observe: vec![Vision, Omniparser, Accessibility, Ocr],
            vision_provider: None,
            omniparser_url: None,
            computer_use_provider: None,
        }
    }
}

/// `[webdriver]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebdriverConfig {
    /// Whether browser tools are offered.
    pub enabled: bool,
    /// Which browser.
    pub browser: BrowserKind,
    /// The port of Safari's driver.
    pub safari_port: u16,
    /// The port of Chromium's driver; 0 is any that is free.
    pub chrome_port: u16,
    /// Chromium itself, when it is not in the usual places.
    pub chrome_binary: Option<PathBuf>,
    /// Its driver, when it is not in the usual places.
    pub chromedriver_binary: Option<PathBuf>,
}

impl Default for WebdriverConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            browser: BrowserKind::ChromeHeadless,
            safari_port: 4444,
            chrome_port: 0,
            chrome_binary: None,
            chromedriver_binary: None,
        }
    }
}

/// The browsers that can be driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BrowserKind {
    /// Chromium without a window.
    ChromeHeadless,
    /// Chromium with a window.
    Chrome,
    /// Safari (macOS).
    Safari,
}

/// `[sandbox]`: the box around agents, checks and tool children.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxConfig {
    /// Whether there is a box at all.
    pub enabled: bool,
    /// Goes on with what the kernel can do where it cannot do everything.
    pub best_effort: bool,
    /// Further paths that may be read; `~/` is the home directory.
    pub read: Vec<PathBuf>,
    /// Further paths that may be written; `~/` is the home directory.
    pub write: Vec<PathBuf>,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self { enabled: true, best_effort: true, read: Vec::new(), write: Vec::new() }
    }
}
