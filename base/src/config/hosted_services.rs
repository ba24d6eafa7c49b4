//! The hosted services of the configuration: for each entry its URL, the sources of its key, and
//! the configuration keys that set them.

use crate::config::Config;
use crate::config::api_key::KeySources;
use crate::config::providers::{
    AnthropicConfig, DatabricksConfig, GeminiConfig, OpenaiConfig, Providers,
};

/// The base URL of Anthropic.
pub const ANTHROPIC_URL: &str = "https://api.anthropic.com";
/// The base URL of OpenAI.
pub const OPENAI_URL: &str = "https://api.openai.com/v1";
/// The base URL of Gemini.
pub const GEMINI_URL: &str = "https://generativelanguage.googleapis.com";
/// The URL of the search service.
pub const CODESEARCH_URL: &str = "https://mcp.exa.ai/mcp";
/// The value of a key for a server that needs none.
pub const NO_KEY: &str = "none";

/// A service that an entry of the configuration names.
#[derive(Clone, Debug)]
pub struct HostedService {
    /// Its type: that of a provider, or `codesearch`.
    pub kind: &'static str,
    /// Its base URL; `None` for a Databricks workspace without an address.
    pub base_url: Option<String>,
    /// Whether plain `http` is allowed to a host that is not loopback.
    pub allow_http: bool,
    /// The sources of its key.
    pub key: KeySources,
    /// The path of the configuration key that sets its base URL.
    pub url_path: Vec<String>,
    /// The path of the configuration key that sets its key.
    pub key_path: Vec<String>,
}

impl Config {
    /// Returns all hosted services that can have a key. A Databricks workspace with a login has
    /// none.
    pub fn hosted_services(&self) -> Vec<HostedService> {
        let providers = &self.providers;
        let anthropic = providers.anthropic.iter().map(|(name, entry)| {
            let url = base_url(providers, "anthropic", entry.base_url.as_deref(), ANTHROPIC_URL);
            provider("anthropic", name, url, entry.allow_http, |it| entry.key_sources(it))
        });
        let openai = providers.openai.iter().map(|(name, entry)| {
            let url = base_url(providers, "openai", entry.base_url.as_deref(), OPENAI_URL);
            provider("openai", name, url, entry.allow_http, |it| entry.key_sources(it))
        });
        let gemini = providers.gemini.iter().map(|(name, entry)| {
            let url = base_url(providers, "gemini", entry.base_url.as_deref(), GEMINI_URL);
            provider("gemini", name, url, entry.allow_http, |it| entry.key_sources(it))
        });
        let databricks = providers.databricks.iter().filter(|(_, entry)| !entry.use_oauth);
        let databricks = databricks.map(|(name, entry)| {
            let url = entry.workspace_url();
            provider("databricks", name, url, entry.allow_http, |it| entry.key_sources(it))
        });
        let codesearch = &self.tools.codesearch;
        let codesearch = codesearch.api_key.as_ref().map(|key| HostedService {
            kind: "codesearch",
            base_url: codesearch.endpoint.clone().or_else(|| Some(CODESEARCH_URL.to_owned())),
            allow_http: false,
            key: KeySources {
                provider: "tools.codesearch".to_owned(),
                configured: Some(key.clone()),
                command: None,
                variable: None,
            },
            url_path: path(&["tools", "codesearch", "endpoint"]),
            key_path: path(&["tools", "codesearch", "api_key"]),
        });
        anthropic.chain(openai).chain(gemini).chain(databricks).chain(codesearch).collect()
    }
}

fn base_url(
    providers: &Providers,
    kind: &str,
    configured: Option<&str>,
    default_url: &str,
) -> Option<String> {
    let url = providers.base_url(kind, configured).map_or(default_url, |base| base.url);
    Some(url.to_owned())
}

fn provider(
    kind: &'static str,
    name: &str,
    base_url: Option<String>,
    allow_http: bool,
    key_sources: impl Fn(&str) -> KeySources,
) -> HostedService {
    let (url, key) = if kind == "databricks" { ("host", "token") } else { ("base_url", "api_key") };
    HostedService {
        kind,
        base_url,
        allow_http,
        key: key_sources(&format!("{kind}.{name}")),
        url_path: path(&["providers", kind, name, url]),
        key_path: path(&["providers", kind, name, key]),
    }
}

fn path(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

impl AnthropicConfig {
    /// Returns the sources of the key of the provider with this reference.
    pub fn key_sources(&self, reference: &str) -> KeySources {
        KeySources {
            provider: reference.to_owned(),
            configured: self.api_key.clone(),
            command: self.api_key_command.clone(),
            variable: Some("ANTHROPIC_API_KEY"),
        }
    }
}

impl OpenaiConfig {
    /// Returns the sources of the key of the provider with this reference. The key in the
    /// environment is not for a server of the configuration.
    pub fn key_sources(&self, reference: &str) -> KeySources {
        KeySources {
            provider: reference.to_owned(),
            configured: self.api_key.clone(),
            command: self.api_key_command.clone(),
            variable: self.base_url.is_none().then_some("OPENAI_API_KEY"),
        }
    }
}

impl GeminiConfig {
    /// Returns the sources of the key of the provider with this reference.
    pub fn key_sources(&self, reference: &str) -> KeySources {
        KeySources {
            provider: reference.to_owned(),
            configured: self.api_key.clone(),
            command: self.api_key_command.clone(),
            variable: Some("GEMINI_API_KEY"),
        }
    }
}

impl DatabricksConfig {
    /// Returns the sources of the token of the provider with this reference.
    pub fn key_sources(&self, reference: &str) -> KeySources {
        KeySources {
            provider: reference.to_owned(),
            configured: self.token.clone(),
            command: self.api_key_command.clone(),
            variable: Some("DATABRICKS_TOKEN"),
        }
    }

    /// Returns the origin of the workspace, without a trailing slash: the configured one, else the
    /// one of the environment.
    pub fn workspace_url(&self) -> Option<String> {
        let host = self.host.clone().or_else(|| std::env::var("DATABRICKS_HOST").ok())?;
        workspace_url(&host)
    }
}

/// Returns the origin of a Databricks workspace, without a trailing slash. Its scheme may be
/// omitted.
pub fn workspace_url(host: &str) -> Option<String> {
    let host = Some(host.trim().trim_end_matches('/')).filter(|host| !host.is_empty())?;
    Some(if host.contains("://") { host.to_owned() } else { format!("https://{host}") })
}
