//! The `[studio]` part of the configuration: sessions, their checks, and the agents that work.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Where worktrees are unless `[studio] worktree` says otherwise: outside of the main checkout, so
/// that programs which look for files in the directories above do not find its files.
pub const DEFAULT_WORKTREE: &str = "{parent}/{repo}.worktrees/{id}";

/// How studio makes, limits and lands sessions.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StudioConfig {
    /// Commands that must pass before a session is ready and before it lands; `sh -c` lines.
    pub checks: ShellLines,
    /// Commands that prepare a fresh worktree; `sh -c` lines.
    pub setup: ShellLines,
    /// Template of the branch name; `{id}` is the session's id.
    pub branch: String,
    /// Template of the worktree's path. `{id}` is the session's id, `{parent}` the directory that
    /// holds the main checkout, `{repo}` the main checkout's name.
    pub worktree: String,
    /// Directories that check worktrees keep from one check to the next although git ignores them;
    /// relative paths.
    pub check_caches: ShellLines,
    /// How many sessions work at once; by cores and memory when absent.
    pub jobs: Option<u32>,
    /// What one session may use.
    pub limits: SessionLimits,
    /// Signs landed commits as the user's git does.
    pub sign: bool,
    /// Runs the user's own repository hooks inside the box.
    pub hooks: bool,
    /// The agent that works unless another is named; g3 when absent.
    pub agent: Option<String>,
    /// Programs that can be agents, by name.
    pub agents: BTreeMap<String, AgentRow>,
}

impl Default for StudioConfig {
    fn default() -> Self {
        Self {
            checks: ShellLines::default(),
            setup: ShellLines::default(),
            branch: "studio/{id}".to_owned(),
            worktree: DEFAULT_WORKTREE.to_owned(),
            check_caches: ShellLines::default(),
            jobs: None,
            limits: SessionLimits::default(),
            sign: false,
            hooks: false,
            agent: None,
            agents: BTreeMap::new(),
        }
    }
}

/// Shell lines, written as one string or as a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum ShellLines {
    /// One line; an empty one is none.
    One(String),
    /// Several, in order.
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

/// What one session may use; absent means without limit, except where a default is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionLimits {
    /// Seconds of wall time of the agent.
    pub timeout_seconds: Option<u64>,
    /// Turns of the agent.
    pub max_turns: Option<u32>,
    /// Tokens, sent and written.
    pub max_tokens: Option<u64>,
    /// US dollars.
    pub budget_usd: Option<f64>,
    /// Bytes of output of the agent that are kept (64 MiB when absent).
    pub output_bytes: Option<u64>,
    /// Bytes that must stay free on the disk (512 MiB when absent).
    pub disk_floor_bytes: Option<u64>,
    /// Seconds that one check or setup command may take (3,600 when absent).
    pub check_seconds: Option<u64>,
}

/// How studio speaks with an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentProtocol {
    /// Agent Client Protocol on stdio.
    #[default]
    Acp,
    /// A command with `{prompt}` in its arguments or on its stdin, and its exit code.
    Command,
}

/// One row of the agents table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentRow {
    /// How studio speaks with it.
    pub protocol: AgentProtocol,
    /// Program and arguments; `{prompt}` stands for the task where the protocol is `command`.
    pub command: Vec<String>,
    /// Paths that it may read although they are kept from others; `~/` is the home directory.
    pub read: Vec<PathBuf>,
    /// Paths that it may write besides the session's own; `~/` is the home directory.
    pub write: Vec<PathBuf>,
    /// Variables that it gets, secrets among them.
    pub env: Vec<String>,
    /// Whether it sends g3's own events over ACP (`_g3/event`): turns, costs, rounds. Those of
    /// other agents are ignored. Absent, it is so where the program is called `g3`.
    pub events: Option<bool>,
}

impl AgentRow {
    /// Returns whether its own events count.
    pub fn sends_events(&self) -> bool {
        let program = self.command.first().map(Path::new).and_then(Path::file_name);
        self.events.unwrap_or_else(|| program.is_some_and(|name| name == "g3"))
    }
}

/// Returns a path with its leading `~/` replaced by the home directory.
pub fn expanded(path: &Path, home: &Path) -> PathBuf {
    path.strip_prefix("~").map_or_else(|_| path.to_owned(), |rest| home.join(rest))
}
