//! The configuration: defaults, the user's file, the repository's file, environment and flags,
//! merged key by key, with the origin of every value.

pub mod agent;
pub mod base_url;
pub mod hooks;
mod keys;
pub mod layers;
pub mod lsp;
pub mod mcp;
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
use layers::RawSetting;
use lsp::LspServerConfig;
use mcp::McpServerConfig;
use providers::{ModelConfig, Providers, TYPES};
use studio::StudioConfig;

/// Everything that can be configured.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Who may be asked, and how.
    pub providers: Providers,
    /// What the user knows about models.
    pub models: Vec<ModelConfig>,
    /// How the turn loop works.
    pub agent: AgentConfig,
    /// How studio makes, limits and lands sessions.
    pub studio: StudioConfig,
    /// What single tools need.
    pub tools: ToolsConfig,
    /// Rules that answer for the user.
    pub gate: GateConfig,
    /// What is written down of g3's own work.
    pub trace: TraceConfig,
    /// Where skills come from.
    pub skills: SkillsConfig,
    /// The agent's memory.
    pub memory: MemoryConfig,
    /// Screen, mouse and keyboard.
    pub computer_control: ComputerControlConfig,
    /// The browser.
    pub webdriver: WebdriverConfig,
    /// The box.
    pub sandbox: SandboxConfig,
    /// Servers whose tools the agent may use, by name.
    pub mcp: BTreeMap<String, McpServerConfig>,
    /// Language servers, by name.
    pub lsp: BTreeMap<String, LspServerConfig>,
    /// Commands that run when something happens in a session.
    pub hooks: Vec<Hook>,
}

/// Where values may come from. Later ones win: user, repository, environment, flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigSources {
    /// The user's own file; it need not exist. The trust store lies beside it.
    pub user: Option<PathBuf>,
    /// The repository's file; it need not exist, and narrows only unless it is trusted.
    pub repository: Option<PathBuf>,
    /// `--config FILE`: stands for both files and must exist.
    pub only: Option<PathBuf>,
    /// Variables; those named `G3_SECTION__KEY` count, and those that give base URLs.
    pub environment: Vec<(String, String)>,
    /// Flags as dotted key and value, e.g. `providers.default_provider`.
    pub flags: Vec<(String, String)>,
}

/// A configuration and where it came from.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The values.
    pub config: Config,
    /// Where each value that is no default came from, by dotted key.
    pub origins: BTreeMap<String, ValueOrigin>,
    /// What the user should know: keys that were ignored, and why.
    pub notices: Vec<String>,
}

/// Where a value came from.
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

/// Reads all sources and merges them key by key. Everything that is wrong is an error (exit
/// code 2) that names the file, the key, and what would be right.
pub fn load(sources: &ConfigSources) -> Result<LoadedConfig> {
    let mut settings = Vec::new();
    let mut notices = Vec::new();
    if let Some(only) = &sources.only {
        let Some(bytes) = layers::read(only)? else {
            return Err(Failure::usage(format!("no such file: {}", only.display()))
                .because("it was given with --config"));
        };
        settings.extend(layers::from_file(&bytes, &ValueOrigin::User(only.clone()))?);
    } else {
        if let Some(user) = &sources.user
            && let Some(bytes) = layers::read(user)?
        {
            settings.extend(layers::from_file(&bytes, &ValueOrigin::User(user.clone()))?);
        }
        let (repository, ignored) = of_repository(sources, &settings)?;
        settings.extend(repository);
        notices.extend(ignored);
    }
    settings.extend(layers::from_environment(&sources.environment, &settings)?);
    settings.extend(layers::from_flags(&sources.flags)?);
    let mut loaded = merged(settings, notices)?;
    loaded.config.providers.environment = EnvironmentUrls::of(&sources.environment);
    Ok(loaded)
}

/// Returns the settings of the repository's file: all when its content is trusted, else what
/// narrows.
fn of_repository(
    sources: &ConfigSources,
    user: &[RawSetting],
) -> Result<(Vec<RawSetting>, Vec<String>)> {
    let Some(file) = &sources.repository else { return Ok((Vec::new(), Vec::new())) };
    let Some(bytes) = layers::read(file)? else { return Ok((Vec::new(), Vec::new())) };
    let settings = layers::from_file(&bytes, &ValueOrigin::Repository(file.clone()))?;
    let store = sources.trust_store();
    if store.is_some_and(|store| trust::is_trusted(&store, file, &bytes)) {
        return Ok((settings, Vec::new()));
    }
    Ok(untrusted::narrowed(settings, user, file))
}

fn merged(settings: Vec<RawSetting>, notices: Vec<String>) -> Result<LoadedConfig> {
    check_prices(&settings)?;
    let mut table = Table::new();
    let mut origins = BTreeMap::new();
    for setting in settings {
        if !setting.value.is_table() {
            origins.insert(setting.key(), setting.origin.clone());
        }
        put(&mut table, &setting.path, setting.value);
    }
    let config: Config = table.try_into().map_err(|error: toml::de::Error| {
        Failure::usage("invalid configuration").because(error.message())
    })?;
    check_references(&config.providers, &origins)?;
    mcp::check(&config.mcp)?;
    Ok(LoadedConfig { config, origins, notices })
}

/// Half a price would make the other half cost nothing.
fn check_prices(settings: &[RawSetting]) -> Result<()> {
    let prices = settings.iter().filter(|s| s.path.get(3).is_some_and(|key| key == "price"));
    for price in prices {
        let price_of = &price.path[..4];
        for needed in ["input", "output"] {
            let has = |other: &RawSetting| {
                other.path.starts_with(price_of) && other.path.last().is_some_and(|k| k == needed)
            };
            if !settings.iter().any(has) {
                let key = price_of.join(".");
                return Err(Failure::usage(format!("`{key}` has no `{needed}`"))
                    .because(format!("{} sets only a part of the price", price.origin))
                    .hint(format!("add `{key}.{needed}`: US dollars per million tokens")));
            }
        }
    }
    Ok(())
}

/// Sets the value at a path; an empty table changes nothing that is there.
fn put(table: &mut Table, path: &[String], value: Value) {
    let Some((name, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        match (table.get_mut(name), value) {
            (Some(_), Value::Table(_)) => {}
            // A repository's hooks run after the user's, never instead of them.
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
        put(inner, rest, value);
    }
}

/// Every reference names a provider that is configured, or a bare type.
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

/// Returns a configured `type.name`, or a type alone (or with the name `default`), which needs no
/// entry.
fn is_reference(reference: &str, known: &[String]) -> bool {
    let kind = reference.strip_suffix(".default").unwrap_or(reference);
    TYPES.contains(&kind) || known.iter().any(|known| known == reference)
}
