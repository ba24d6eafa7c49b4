//! The configuration: defaults, the user's file, the repository's file, environment and flags,
//! merged key by key, with the origin of every value.

pub mod agent;
pub mod api_key;
pub mod base_url;
pub mod filters;
pub mod hooks;
pub mod hosted_services;
pub mod keyless;
mod keys;
pub mod layers;
pub mod lsp;
pub mod mcp;
pub mod network;
pub mod places;
pub mod providers;
pub mod show;
pub mod studio;
pub mod trust;
mod untrusted;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::failure::{Failure, Result};
use agent::{
    AgentConfig, ComputerControlConfig, GateConfig, MemoryConfig, SandboxConfig, SkillsConfig,
    ToolsConfig, TraceConfig, WebdriverConfig,
};
use base_url::EnvironmentUrls;
use hooks::Hook;
use keyless::KeylessConfig;
use layers::RawSetting;
use lsp::LspServerConfig;
use mcp::McpServerConfig;
use providers::{ModelConfig, Providers, TYPES};
use studio::StudioConfig;

/// The whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The providers.
    pub providers: Providers,
    /// Properties of models that the user sets.
    pub models: Vec<ModelConfig>,
    /// The turn loop.
    pub agent: AgentConfig,
    /// studio: sessions, limits and landing.
    pub studio: StudioConfig,
    /// Individual tools.
    pub tools: ToolsConfig,
    /// Permission rules.
    pub gate: GateConfig,
    /// The diagnostic log.
    pub trace: TraceConfig,
    /// Skills.
    pub skills: SkillsConfig,
    /// The agent's memory.
    pub memory: MemoryConfig,
    /// Desktop control.
    pub computer_control: ComputerControlConfig,
    /// The browser.
    pub webdriver: WebdriverConfig,
    /// The sandbox.
    pub sandbox: SandboxConfig,
    /// MCP servers, by name.
    pub mcp: BTreeMap<String, McpServerConfig>,
    /// Language servers, by name.
    pub lsp: BTreeMap<String, LspServerConfig>,
    /// Hooks on session events.
    pub hooks: Vec<Hook>,
}

impl Config {
    /// Returns the sandbox of sessions. With desktop control or a browser with a window, programs
    /// may connect to the display.
    pub fn session_sandbox(&self) -> SandboxConfig {
        let has_window =
            self.webdriver.enabled && self.webdriver.browser == agent::BrowserKind::Chrome;
        match self.computer_control.enabled || has_window {
            true => self.sandbox.clone().with_display(),
            false => self.sandbox.clone(),
        }
    }
}

/// The sources of values. Later ones override earlier ones: user, repository, environment, flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigSources {
    /// The user's file; it need not exist. The trust store is beside it.
    pub user: Option<PathBuf>,
    /// The repository's file; it need not exist, and can only restrict unless it is trusted.
    pub repository: Option<PathBuf>,
    /// `--config FILE`: replaces both files and must exist.
    pub config_file: Option<PathBuf>,
    /// Environment variables; those named `G3_SECTION__KEY` and those that set base URLs are used.
    pub environment: Vec<(String, String)>,
    /// Flags as dotted key and value, e.g. `providers.default_provider`.
    pub flags: Vec<(String, String)>,
    /// The configuration that studio passes to g3 in a sandbox; it replaces the user's file, and
    /// its overrides apply last.
    pub keyless: Option<KeylessConfig>,
}

/// A configuration and its origins.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The values.
    pub config: Config,
    /// The origin of each value that is not a default, by dotted key.
    pub origins: BTreeMap<String, ValueOrigin>,
    /// Notices for the user: keys that were ignored, and why.
    pub notices: Vec<String>,
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The user's file, or the one given with `--config`.
    User(PathBuf),
    /// The repository's file.
    Repository(PathBuf),
    /// A variable, by name.
    Environment(String),
    /// A flag.
    Flag,
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueOrigin::User(path) | ValueOrigin::Repository(path) => {
                write!(f, "{}", path.display())
            }
            ValueOrigin::Environment(name) => write!(f, "environment {name}"),
            ValueOrigin::Flag => f.write_str("flag"),
        }
    }
}

/// Reads all sources and merges them key by key. Every error (exit code 2) names the file, the key,
/// and the expected value.
pub fn load(sources: &ConfigSources) -> Result<LoadedConfig> {
    let mut settings = Vec::new();
    let mut notices = Vec::new();
    let keyless = sources.keyless.as_ref().filter(|_| sources.config_file.is_none());
    if let Some(config_file) = &sources.config_file {
        let Some(bytes) = layers::read(config_file)? else {
            return Err(Failure::usage(format!("no such file: {}", config_file.display()))
                .because("it was given with --config"));
        };
        settings.extend(layers::from_file(&bytes, &ValueOrigin::User(config_file.clone()))?);
    } else {
        let user = sources.user.clone().unwrap_or_default();
        let bytes = match keyless {
            Some(keyless) => Some(keyless.file.clone().into_bytes()),
            None => layers::read(&user)?,
        };
        if let Some(bytes) = bytes {
            settings.extend(layers::from_file(&bytes, &ValueOrigin::User(user))?);
        }
        if !keyless.is_some_and(|keyless| keyless.ignores_repository) {
            let (repository, ignored) = read_repository(sources, &settings)?;
            settings.extend(repository);
            notices.extend(ignored);
        }
    }
    settings.extend(layers::from_environment(&sources.environment, &settings)?);
    settings.extend(layers::from_flags(&sources.flags)?);
    settings.extend(layers::from_overrides(keyless)?);
    let mut loaded = merge(settings, notices)?;
    loaded.config.providers.environment = EnvironmentUrls::of(&sources.environment);
    Ok(loaded)
}

/// Returns the settings of the repository's file: all if its content is trusted, otherwise those
/// that only restrict.
fn read_repository(
    sources: &ConfigSources,
    user: &[RawSetting],
) -> Result<(Vec<RawSetting>, Vec<String>)> {
    let Some(file) = &sources.repository else { return Ok((Vec::new(), Vec::new())) };
    let Some(bytes) = layers::read(file)? else { return Ok((Vec::new(), Vec::new())) };
    let settings = layers::from_file(&bytes, &ValueOrigin::Repository(file.clone()))?;
    let (settings, mut notices) = untrusted::remove_users_own(settings, file);
    let store = sources.trust_store();
    if store.is_some_and(|store| trust::is_trusted(&store, file, &bytes)) {
        return Ok((settings, notices));
    }
    let (settings, ignored) = untrusted::filter(settings, user, file);
    notices.extend(ignored);
    Ok((settings, notices))
}

fn merge(settings: Vec<RawSetting>, notices: Vec<String>) -> Result<LoadedConfig> {
    check_prices(&settings)?;
    let mut table = Table::new();
    let mut origins = BTreeMap::new();
    for setting in settings {
        if !setting.value.is_table() {
            origins.insert(setting.key(), setting.origin.clone());
        }
        insert_at(&mut table, &setting.path, setting.value);
    }
    let config: Config = table.try_into().map_err(|error: toml::de::Error| {
        Failure::usage("invalid configuration").because(error.message())
    })?;
    check_references(&config.providers, &origins)?;
    mcp::check(&config.mcp)?;
    Ok(LoadedConfig { config, origins, notices })
}

/// Rejects a price with only one of `input` and `output`: the other half would cost nothing.
fn check_prices(settings: &[RawSetting]) -> Result<()> {
    let prices = settings.iter().filter(|s| s.path.get(3).is_some_and(|key| key == "price"));
    for price in prices {
        let price_of = &price.path[..4];
        for required in ["input", "output"] {
            let is_set = |other: &RawSetting| {
                other.path.starts_with(price_of) && other.path.last().is_some_and(|k| k == required)
            };
            if !settings.iter().any(is_set) {
                let key = price_of.join(".");
                return Err(Failure::usage(format!("`{key}` has no `{required}`"))
                    .because(format!("{} sets only a part of the price", price.origin))
                    .hint(format!("add `{key}.{required}`: US dollars per million tokens")));
            }
        }
    }
    Ok(())
}

/// Sets the value at a path; an empty table does not change existing values.
fn insert_at(table: &mut Table, path: &[String], value: Value) {
    let Some((name, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        match (table.get_mut(name), value) {
            (Some(_), Value::Table(_)) => {}
            // A repository's hooks run after the user's and never replace them.
            (Some(Value::Array(hooks)), Value::Array(more)) if path == ["hooks"] => {
                hooks.extend(more);
            }
            (Some(_) | None, value) => {
                table.insert(name.clone(), value);
            }
        }
        return;
    }
    let inner = table.entry(name.clone()).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(inner) = inner {
        insert_at(inner, rest, value);
    }
}

/// Checks that every reference names a configured provider or a bare type.
fn check_references(providers: &Providers, origins: &BTreeMap<String, ValueOrigin>) -> Result<()> {
    let known = providers.references();
    let references = [
        ("default_provider", &providers.default_provider),
        ("planner", &providers.planner),
        ("coach", &providers.coach),
        ("player", &providers.player),
        ("commit", &providers.commit),
        ("escalation", &providers.escalation),
    ];
    for (key, reference) in references {
        let Some(reference) = reference else { continue };
        if is_reference(reference, &known) {
            continue;
        }
        let key = format!("providers.{key}");
        let origin = origins.get(&key).map(|origin| format!("set in `{key}` ({origin})"));
        let failure = Failure::usage(format!("no such provider: `{reference}`"))
            .because(origin.unwrap_or(key));
        return Err(match known.as_slice() {
            [] => failure.hint("configure one: [providers.TYPE.NAME] in ~/.config/g3/config.toml"),
            known => failure.hint(format!("use one of: {}", known.join(", "))),
        });
    }
    Ok(())
}

/// Returns whether a reference is a configured `type.name`, or a bare type (or `type.default`),
/// which needs no entry.
fn is_reference(reference: &str, known: &[String]) -> bool {
    let kind = reference.strip_suffix(".default").unwrap_or(reference);
    TYPES.contains(&kind) || known.iter().any(|known| known == reference)
}
