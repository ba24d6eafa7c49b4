//! The configuration: defaults, the user's file, the repository's file, environment and flags,
//! merged key by key, with the origin of every value.

pub mod agent;
pub mod providers;
pub mod studio;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;

use agent::{AgentConfig, ComputerControl, Gate, Memory, Sandbox, Skills, ToolsConfig, Webdriver};
use providers::Providers;
use studio::Studio;

/// Everything that can be configured.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Who may be asked, and how.
    pub providers: Providers,
    /// How the turn loop works.
    pub agent: AgentConfig,
    /// How studio makes, limits and lands sessions.
    pub studio: Studio,
    /// What single tools need.
    pub tools: ToolsConfig,
    /// Rules that answer for the user.
    pub gate: Gate,
    /// Where skills come from.
    pub skills: Skills,
    /// The agent's memory.
    pub memory: Memory,
    /// Screen, mouse and keyboard.
    pub computer_control: ComputerControl,
    /// The browser.
    pub webdriver: Webdriver,
    /// The box.
    pub sandbox: Sandbox,
}

/// Where values may come from. Later ones win: user, repository, environment, flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The user's own file; it need not exist. The trust store lies beside it.
    pub user: Option<PathBuf>,
    /// The repository's file; it need not exist, and narrows only unless it is trusted.
    pub repository: Option<PathBuf>,
    /// `--config FILE`: stands for both files and must exist.
    pub only: Option<PathBuf>,
    /// Variables; those named `G3_SECTION__KEY` count.
    pub environment: Vec<(String, String)>,
    /// Flags as dotted key and value, e.g. `providers.default_provider`.
    pub flags: Vec<(String, String)>,
}

/// A configuration and where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// Where each value that is no default came from, by dotted key.
    pub origins: BTreeMap<String, Origin>,
    /// What the user should know: keys that were ignored, and why.
    pub notices: Vec<String>,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The user's file, or the one given with `--config`.
    User(PathBuf),
    /// The repository's file.
    Repository(PathBuf),
    /// A variable, by name.
    Environment(String),
    /// A flag.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::User(path) | Origin::Repository(path) => write!(f, "{}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag => f.write_str("flag"),
        }
    }
}
