//! The sections of the configuration that g3 reads besides `[providers]`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::lsp::LspToolConfig;
use crate::config::network::NetworkPolicy;
use crate::config::studio::expand_tilde;
use crate::sandbox::SandboxRules;
use crate::secret::Secret;

/// `[agent]`: settings of the turn loop.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// The tool profile: `g3`, `egirl`, `tools-api`, `core` or `all`.
    pub profile: Option<String>,
    /// Maximum number of context tokens to use, for models that could read more.
    pub max_context_length: Option<u32>,
    /// Maximum number of tokens in one reply, for providers whose entry does not set it.
    pub fallback_default_max_tokens: u32,
    /// Whether hosted providers are asked for streamed replies.
    pub enable_streaming: bool,
    /// Seconds without a byte from the provider before a request fails.
    pub timeout_seconds: u64,
    /// Whether the context is compacted automatically at 80 %.
    pub auto_compact: bool,
    /// Maximum number of attempts of one request in interactive modes.
    pub max_retry_attempts: u32,
    /// Maximum number of attempts of one request in autonomous modes.
    pub autonomous_max_retry_attempts: u32,
    /// Percentage of the context below which no messages are thinned.
    pub thinning_floor_percent: u8,
    /// Maximum number of turns of one run; the mode's own limit when absent.
    pub max_turns: Option<u32>,
    /// Whether the model is reminded of a todo list that it has not finished.
    pub check_todo_staleness: bool,
    /// Whether the model is asked for notes after a turn in which it learned something; the mode
    /// decides when absent.
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

/// `[tools]`: settings of individual tools.
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
    /// Hosts (`name` or `name:port`) that are fetched without asking, even if their addresses are
    /// private.
    pub allow_hosts: Vec<String>,
}

/// `[tools.codesearch]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct CodesearchConfig {
    /// The URL of the search service.
    pub endpoint: Option<String>,
    /// The API key of the search service.
    pub api_key: Option<Secret>,
}

/// `[gate]`: permission rules, of which the first match wins, and the policy for command lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GateConfig {
    /// The rules, in order.
    pub rules: Vec<GateRule>,
    /// The policy for command lines.
    pub policy: CommandPolicy,
    /// Replaces the built-in list of commands that `core-exact` sends to the sandbox.
    pub forbidden: Option<Vec<String>>,
    /// Replaces the built-in list of paths that `core-exact` sends to the sandbox.
    pub restricted: Option<Vec<String>>,
    /// Replaces the built-in list of commands for which `core-exact` asks.
    pub destructive: Option<Vec<String>>,
}

/// The policy for command lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandPolicy {
    /// Judges by syntax and by the paths and hosts that a command reaches.
    #[default]
    Default,
    /// Additionally judges like the evaluator of the core tools.
    CoreExact,
}

/// One rule: a pattern for calls and an action. A call matches when every given field matches.
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
    /// The action for a matching call.
    pub action: GateAction,
}

/// The action for a matching call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateAction {
    /// Runs the call.
    Allow,
    /// Asks the user; denies the call in a non-interactive run.
    Ask,
    /// Runs the call in the stricter sandbox.
    Box,
    /// Denies the call.
    Deny,
}

/// `[trace]`: the diagnostic log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TraceConfig {
    /// The file that the log is appended to; `~/` is the home directory.
    pub file: Option<PathBuf>,
    /// The log level, in the format of `G3_LOG`.
    pub level: Option<String>,
}

/// `[skills]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SkillsConfig {
    /// Whether skills are offered.
    pub enabled: bool,
    /// Additional directories of skills; `~/` is the home directory.
    pub extra_paths: Vec<PathBuf>,
    /// Whether small models get the list of skills and the tool that loads one.
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
    /// Whether the memory tools are offered.
    pub enabled: bool,
    /// The embedder; when absent, the configured server, else the built-in one.
    pub embedder: Option<EmbedderKind>,
    /// The URL of an embeddings service, up to and including `/embeddings`.
    pub embeddings_endpoint: Option<String>,
    /// A provider of type openai whose server makes embeddings; an alternative to a URL.
    pub embeddings_provider: Option<String>,
    /// The model of the embeddings service, or the local model.
    pub model: Option<String>,
    /// The number of dimensions of the embeddings.
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

/// The embedder that memory search uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmbedderKind {
    /// The built-in embedder: no model, compares spelling.
    BuiltIn,
    /// A server with an `/embeddings` endpoint.
    Server,
    /// The model on this machine.
    Local,
}

/// `[computer_control]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ComputerControlConfig {
    /// Whether the desktop tools are offered.
    pub enabled: bool,
    /// Whether each action asks for confirmation.
    pub require_confirmation: bool,
    /// Maximum number of actions per second; 0 for no limit.
    pub max_actions_per_second: u32,
    /// Whether moving the pointer into a corner of the screen aborts.
    pub fail_safe: bool,
    /// The path of `g3-desktop`, if it is neither beside g3 nor on `PATH`.
    pub program: Option<PathBuf>,
    /// The sources of information about the screen, in the order in which they are tried.
    pub observe: Vec<Observer>,
    /// The provider of a vision model for screenshots.
    pub vision_provider: Option<String>,
    /// The URL of an OmniParser server, without `/parse/`.
    pub omniparser_url: Option<String>,
    /// The provider of a computer-use model.
    pub computer_use_provider: Option<String>,
}

/// A source of information about the screen. A screenshot is always the last resort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observer {
    /// The vision model of `vision_provider`.
    Vision,
    /// The server at `omniparser_url`.
    Omniparser,
    /// The controls that programs report to the accessibility service.
    Accessibility,
    /// The text that OCR finds in a screenshot.
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
    /// Whether the browser tools are offered.
    pub enabled: bool,
    /// The browser.
    pub browser: BrowserKind,
    /// The port of safaridriver.
    pub safari_port: u16,
    /// The port of chromedriver; 0 for any free port.
    pub chrome_port: u16,
    /// The path of Chromium, if it is not in a standard location.
    pub chrome_binary: Option<PathBuf>,
    /// The path of chromedriver, if it is not in a standard location.
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

/// A supported browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BrowserKind {
    /// Chromium in headless mode.
    ChromeHeadless,
    /// Chromium with a window.
    Chrome,
    /// Safari (macOS).
    Safari,
}

/// `[sandbox]`: the sandbox around agents, checks and tool processes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxConfig {
    /// Whether the sandbox is used.
    pub enabled: bool,
    /// Whether to continue with a partial sandbox where the kernel does not support all of it.
    pub best_effort: bool,
    /// Additional readable paths; `~/` is the home directory.
    pub read: Vec<PathBuf>,
    /// Additional writable paths; `~/` is the home directory.
    pub write: Vec<PathBuf>,
    /// Sockets of services that programs may connect to; `~/` is the home directory.
    pub sockets: Vec<PathBuf>,
    /// Whether programs can use the GPUs of this machine.
    pub gpu: bool,
    /// Which hosts the processes in the sandbox can reach; each kind of process has its own default
    /// when absent.
    pub network: Option<NetworkPolicy>,
    /// Hosts that the allow list contains besides the built-in ones: `name`, `*.name`, `name:port`.
    pub hosts: Vec<String>,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        let (network, hosts) = (None, Vec::new());
        Self {
            enabled: true,
            best_effort: true,
            read: Vec::new(),
            write: Vec::new(),
            sockets: Vec::new(),
            gpu: false,
            network,
            hosts,
        }
    }
}

impl SandboxConfig {
    /// Adds what it opens to the rules of a sandbox; `~/` in its paths is `home`.
    pub fn open(&self, rules: &mut SandboxRules, home: &Path) {
        let expanded = |paths: &[PathBuf]| -> Vec<PathBuf> {
            paths.iter().map(|path| expand_tilde(path, home)).collect()
        };
        rules.read.extend(expanded(&self.read));
        rules.write.extend(expanded(&self.write));
        rules.sockets.extend(expanded(&self.sockets));
        if self.gpu {
            rules.open_gpus();
        }
    }

    /// Adds the sockets of the display, for a session that may use the screen.
    #[must_use]
    pub fn with_display(mut self) -> SandboxConfig {
        self.sockets.push("/tmp/.X11-unix".into());
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        if let (Some(runtime), Some(display)) =
            (variable("XDG_RUNTIME_DIR"), variable("WAYLAND_DISPLAY"))
        {
            self.sockets.push(runtime.join(display));
        }
        self
    }
}
