//! `[studio]`: sessions, their checks, and agents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::filters::FilterSetting;
use crate::config::network::NetworkPolicy;
use crate::config::places::PlaceConfig;

/// The default of `[studio] worktree`: outside the main checkout, so that programs that search
/// parent directories for files do not find the main checkout's.
pub const DEFAULT_WORKTREE: &str = "{parent}/{repo}.worktrees/{id}";

/// `[studio]`: how sessions are created, limited and landed.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub struct StudioConfig {
    /// Commands that must pass before a session is ready and before it lands; `sh -c` lines.
    pub checks: ShellLines,
    /// Commands that prepare a new worktree; `sh -c` lines.
    pub setup: ShellLines,
    /// Template of the branch name; `{id}` is the session's id.
    pub branch: String,
    /// Template of the worktree's path. `{id}` is the session's id, `{parent}` the directory of the
    /// main checkout, `{repo}` the main checkout's name.
    pub worktree: String,
    /// Ignored directories that are kept between check runs; relative paths.
    pub check_caches: ShellLines,
    /// Ignored directories that new sessions get a copy of, from the main checkout or a passed check;
    /// relative paths. By lock file when absent, none if empty.
    pub caches: Option<ShellLines>,
    /// Which hosts checks can reach; the allow list when absent.
    pub check_network: Option<NetworkPolicy>,
    /// Which hosts setup commands can reach; the allow list when absent.
    pub setup_network: Option<NetworkPolicy>,
    /// Maximum number of concurrent sessions; derived from cores and memory when absent.
    pub jobs: Option<u32>,
    /// Whether ready sessions are checked again in the background when their target has moved.
    pub recheck: bool,
    /// The load average for each core above which no further session starts (4 when absent).
    pub max_load: Option<f64>,
    /// Number of worktrees that are prepared for later sessions; when absent, one in a repository
    /// with many files.
    pub pool: Option<u32>,
    /// Number of ports that each session has for itself; 10 when absent, none if 0.
    pub ports: Option<u16>,
    /// The limits of a session.
    pub limits: SessionLimits,
    /// Whether landed commits are signed as the user's git would.
    pub sign: bool,
    /// Whether `accept` asks before it lands changes of files that decide what the checks say.
    pub confirm_check_changes: bool,
    /// Whether files in which the work conflicts are merged by syntax, where that resolves all
    /// conflicts and checks confirm it.
    pub merge_by_syntax: bool,
    /// Whether the repository's hooks run, inside the sandbox.
    pub hooks: bool,
    /// The git filters that run, by name. Only the user's own configuration can name them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub filters: BTreeMap<String, FilterSetting>,
    /// The forge of the remote, `github` or `gitlab`, if its host does not tell.
    pub forge: Option<String>,
    /// What happens to work that adds a possible secret.
    pub secrets: SecretsSetting,
    /// Files that may contain what looks like a secret, as patterns of paths.
    pub secrets_allowed: Vec<String>,
    /// Whether agents are told, with their next turn, which sessions change the same lines.
    pub conflict_notes: bool,
    /// How the user is notified when a session settles or asks.
    pub notify: NotifySetting,
    /// Whether the dashboard rings the terminal's bell when a session settles or asks.
    pub bell: bool,
    /// Program and arguments of `studio open`; `{worktree}` is the session's worktree. The user's
    /// editor if empty.
    pub open: Vec<String>,
    /// The default agent; g3 when absent.
    pub agent: Option<String>,
    /// The agents, by name.
    pub agents: BTreeMap<String, AgentRow>,
    /// The place where sessions run by default; here when absent. Only the user's own configuration
    /// can choose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// The place where the checks of merged trees run; here when absent. Only the user's own
    /// configuration can choose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks_on: Option<String>,
    /// Other machines on which sessions run, by name. Only the user's own configuration can name
    /// them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub places: BTreeMap<String, PlaceConfig>,
}

impl Default for StudioConfig {
    fn default() -> Self {
        Self {
            checks: ShellLines::default(),
            setup: ShellLines::default(),
            branch: "studio/{id}".to_owned(),
            worktree: DEFAULT_WORKTREE.to_owned(),
            check_caches: ShellLines::default(),
            caches: None,
            check_network: None,
            setup_network: None,
            jobs: None,
            recheck: true,
            max_load: None,
            pool: None,
            ports: None,
            limits: SessionLimits::default(),
            sign: false,
            confirm_check_changes: false,
            merge_by_syntax: false,
            hooks: false,
            filters: BTreeMap::new(),
            forge: None,
            secrets: SecretsSetting::default(),
            secrets_allowed: Vec::new(),
            conflict_notes: true,
            notify: NotifySetting::default(),
            bell: true,
            open: Vec::new(),
            agent: None,
            agents: BTreeMap::new(),
            on: None,
            checks_on: None,
            places: BTreeMap::new(),
        }
    }
}

/// What happens to work that adds a possible secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretsSetting {
    /// It lands only if the user allows it for this landing.
    #[default]
    Refuse,
    /// It lands, with a note.
    Warn,
}

/// How the user is notified.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "expected \"bell\", \"desktop\", a list of these, or a program with its arguments"
)]
pub enum NotifySetting {
    /// A built-in way.
    One(NotificationChannel),
    /// Several built-in ways; an empty list is none.
    Several(Vec<NotificationChannel>),
    /// Program and arguments.
    Command(Vec<String>),
}

/// A built-in way to notify the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NotificationChannel {
    /// The bell of the terminal that shows the sessions.
    Bell,
    /// The desktop.
    Desktop,
}

impl Default for NotifySetting {
    fn default() -> Self {
        NotifySetting::Several(Vec::new())
    }
}

impl NotifySetting {
    /// Returns whether a built-in way is on.
    pub fn contains(&self, channel: NotificationChannel) -> bool {
        match self {
            NotifySetting::One(one) => *one == channel,
            NotifySetting::Several(several) => several.contains(&channel),
            NotifySetting::Command(_) => false,
        }
    }

    /// Returns the user's program and its arguments; empty if there are none.
    pub fn command(&self) -> &[String] {
        match self {
            NotifySetting::Command(command) => command,
            NotifySetting::One(_) | NotifySetting::Several(_) => &[],
        }
    }
}

/// Shell lines, written as one string or as a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum ShellLines {
    /// One line; an empty one counts as no line.
    One(String),
    /// Several lines, in order.
    Many(Vec<String>),
}

impl Default for ShellLines {
    fn default() -> Self {
        ShellLines::Many(Vec::new())
    }
}

impl ShellLines {
    /// Returns the lines, in order.
    pub fn list(&self) -> Vec<String> {
        match self {
            ShellLines::One(line) if line.trim().is_empty() => Vec::new(),
            ShellLines::One(line) => vec![line.clone()],
            ShellLines::Many(lines) => lines.clone(),
        }
    }
}

/// The limits of a session; absent means unlimited unless a default is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionLimits {
    /// Wall time of the agent, in seconds.
    pub timeout_seconds: Option<u64>,
    /// Number of turns of the agent.
    pub max_turns: Option<u32>,
    /// Number of tokens, input and output.
    pub max_tokens: Option<u64>,
    /// Cost in US dollars.
    pub budget_usd: Option<f64>,
    /// Cost in US dollars of all sessions of a run together.
    pub total_budget_usd: Option<f64>,
    /// Cost in US dollars that a run with a total budget reserves for a session without a budget of
    /// its own (1 when absent).
    pub expected_cost_usd: Option<f64>,
    /// Bytes of the agent's output that are kept (64 MiB when absent).
    pub output_bytes: Option<u64>,
    /// Bytes of free disk space that must remain (512 MiB when absent).
    pub disk_floor_bytes: Option<u64>,
    /// Seconds without an event after which a working session counts as stuck (600 when absent); a
    /// running tool call may take six times as long. 0 switches it off.
    pub stall_seconds: Option<u64>,
    /// Timeout of one check or setup command, in seconds (3,600 when absent).
    pub check_seconds: Option<u64>,
    /// Bytes of memory of all processes of a session or check together (half of the machine's
    /// memory when absent).
    pub memory_bytes: Option<u64>,
    /// Bytes of memory that must be free before a session starts (512 MiB when absent).
    pub expected_memory_bytes: Option<u64>,
    /// Number of processes and threads of a session or check together (4,096, or 256 for each core
    /// if that is more, when absent).
    pub processes: Option<u64>,
    /// Bytes that the worktree, temporary files and build caches of a session may use on disk (100
    /// GiB when absent).
    pub disk_bytes: Option<u64>,
}

/// The protocol between studio and an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentProtocol {
    /// Agent Client Protocol on stdio.
    #[default]
    Acp,
    /// A command with `{prompt}` in its arguments or the prompt on stdin; its exit code is the
    /// result.
    Command,
}

/// The format of the output of an agent with the protocol `command`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentOutput {
    /// Any text; its end is the agent's last message.
    #[default]
    Text,
    /// `claude -p --output-format stream-json --verbose`.
    ClaudeJson,
    /// `codex exec --json`.
    CodexJson,
    /// `cursor-agent -p --output-format stream-json`.
    CursorJson,
    /// `gemini --output-format stream-json`.
    GeminiJson,
    /// `opencode run --format json`.
    OpencodeJson,
    /// `qwen --output-format stream-json`.
    QwenJson,
}

impl AgentOutput {
    /// Returns whether it contains the number of model replies.
    pub fn has_turns(self) -> bool {
        matches!(self, AgentOutput::ClaudeJson | AgentOutput::OpencodeJson | AgentOutput::QwenJson)
    }

    /// Returns whether it contains the number of tokens.
    pub fn has_tokens(self) -> bool {
        !matches!(self, AgentOutput::Text | AgentOutput::CursorJson)
    }

    /// Returns whether it contains the cost.
    pub fn has_cost(self) -> bool {
        matches!(self, AgentOutput::ClaudeJson | AgentOutput::OpencodeJson)
    }
}

/// One entry of the agents table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentRow {
    /// The protocol.
    pub protocol: AgentProtocol,
    /// Program and arguments; with the protocol `command`, `{prompt}` is replaced by the task.
    pub command: Vec<String>,
    /// Program and arguments that continue a conversation, with the protocol `command`:
    /// `{conversation}` is replaced by its id. Empty if the program cannot continue one.
    pub resume: Vec<String>,
    /// The format of its output, with the protocol `command`.
    pub output: AgentOutput,
    /// Readable paths that are closed to other agents; `~/` is the home directory.
    pub read: Vec<PathBuf>,
    /// Writable paths besides the session's own; `~/` is the home directory.
    pub write: Vec<PathBuf>,
    /// Environment variables of the agent: `NAME` passes the user's value, including a secret, and
    /// `NAME=VALUE` sets one.
    pub env: Vec<String>,
    /// Whether the agent sends g3's events over ACP (`_g3/event`): turns, costs, rounds. They are
    /// ignored from other agents. When absent, true if the program is named `g3`.
    pub events: Option<bool>,
    /// Which hosts the agent can reach. When absent: the allow list for agents that studio knows
    /// and for those with `hosts`, else all.
    pub network: Option<NetworkPolicy>,
    /// Hosts that the agent needs, for its allow list: `name`, `*.name`, `name:port`.
    pub hosts: Vec<String>,
    /// The model services whose keys stay outside of the sandbox: `anthropic`, `openai`, `gemini`,
    /// `databricks`, and `providers` for those of g3's configuration. The agent gets a placeholder
    /// and a base URL of studio's proxy, which adds the key.
    pub proxy_keys: Vec<String>,
    /// Options of its sessions over ACP, by their ids: `model`, `mode` and others that it has.
    pub options: BTreeMap<String, String>,
    /// The arguments that set its model, with the protocol `command`: `{model}` is replaced. Empty
    /// if they are unknown.
    #[serde(skip)]
    pub model_arguments: Vec<String>,
}

impl AgentRow {
    /// Returns whether the keys of g3's configuration stay outside of the sandbox. The agent gets a
    /// configuration without them in place of the user's file.
    pub fn proxies_configured_services(&self) -> bool {
        self.proxy_keys.iter().any(|name| name == "providers")
    }

    /// Returns whether the agent's own events are used.
    pub fn sends_events(&self) -> bool {
        let program = self.command.first().map(Path::new).and_then(Path::file_name);
        self.events.unwrap_or_else(|| program.is_some_and(|name| name == "g3"))
    }
}

/// Replaces a leading `~/` by the home directory.
pub fn expand_tilde(path: &Path, home: &Path) -> PathBuf {
    path.strip_prefix("~").map_or_else(|_| path.to_owned(), |rest| home.join(rest))
}
