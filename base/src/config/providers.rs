//! `[providers]`: the model providers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::base_url::{BaseUrl, EnvironmentUrls};
use crate::secret::Secret;

/// The provider types: the part before the dot in a reference `type.name`.
pub const TYPES: &[&str] = &["anthropic", "openai", "databricks", "gemini", "embedded"];

/// All configured providers and their roles. A reference has the form `type.name`; a bare `type`
/// refers to its only entry, or to the API key in the environment if there is no entry.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Providers {
    /// The default provider.
    pub default_provider: Option<String>,
    /// The provider for planning mode.
    pub planner: Option<String>,
    /// The provider for the coach of autonomous mode.
    pub coach: Option<String>,
    /// The provider for the player of autonomous mode.
    pub player: Option<String>,
    /// The provider for commit messages.
    pub commit: Option<String>,
    /// The provider that continues a turn when a local model escalates.
    pub escalation: Option<String>,
    /// Anthropic Messages, by name.
    pub anthropic: BTreeMap<String, AnthropicConfig>,
    /// OpenAI and compatible servers, by name (`openai_compatible.NAME` is the same).
    pub openai: BTreeMap<String, OpenaiConfig>,
    /// Databricks serving endpoints, by name.
    pub databricks: BTreeMap<String, DatabricksConfig>,
    /// Google Gemini, by name.
    pub gemini: BTreeMap<String, GeminiConfig>,
    /// Models on this machine, by name.
    pub embedded: BTreeMap<String, EmbeddedConfig>,
    /// Base URLs for entries without `base_url`; files cannot set them.
    #[serde(skip)]
    pub environment: EnvironmentUrls,
}

impl Providers {
    /// Returns every configured provider as `type.name`, in order.
    pub fn references(&self) -> Vec<String> {
        let references_of = |kind: &str, names: Vec<&String>| -> Vec<String> {
            names.into_iter().map(|name| format!("{kind}.{name}")).collect()
        };
        [
            references_of("anthropic", self.anthropic.keys().collect()),
            references_of("openai", self.openai.keys().collect()),
            references_of("databricks", self.databricks.keys().collect()),
            references_of("gemini", self.gemini.keys().collect()),
            references_of("embedded", self.embedded.keys().collect()),
        ]
        .concat()
    }
}

impl Providers {
    /// Returns the base URL of an entry of this type: the configured one, else the one of the
    /// environment; `None` for the service's own.
    pub fn base_url<'a>(&'a self, kind: &str, configured: Option<&'a str>) -> Option<BaseUrl<'a>> {
        let configured = configured.map(|url| BaseUrl { url, variable: None });
        configured.or_else(|| self.environment.get(kind))
    }

    /// Returns the fallback model of an entry.
    pub fn fallback_model(&self, reference: &str) -> Option<&str> {
        let (kind, name) = reference.split_once('.')?;
        let model = match kind {
            "anthropic" => &self.anthropic.get(name)?.fallback_model,
            "openai" => &self.openai.get(name)?.fallback_model,
            "databricks" => &self.databricks.get(name)?.fallback_model,
            "gemini" => &self.gemini.get(name)?.fallback_model,
            _ => return None,
        };
        model.as_deref()
    }
}

/// The API key variables that select a provider when none is configured, in order.
const KEYS: &[(&str, &[&str])] = &[
    ("anthropic", &["ANTHROPIC_API_KEY"]),
    ("openai", &["OPENAI_API_KEY"]),
    ("gemini", &["GEMINI_API_KEY"]),
    ("databricks", &["DATABRICKS_HOST", "DATABRICKS_TOKEN"]),
];

impl Providers {
    /// Returns the default reference: the configured default, else the only configured provider,
    /// else the type of the first API key in the environment, else `openai` if the environment sets
    /// its base URL, else `embedded`.
    pub fn chosen(&self) -> String {
        self.chosen_by(|name| std::env::var(name).is_ok_and(|value| !value.trim().is_empty()))
    }

    /// Returns the entry of the local model that a reference names; the first entry if it names
    /// none.
    pub fn local(&self, reference: &str) -> EmbeddedConfig {
        let configured =
            reference.strip_prefix("embedded.").and_then(|name| self.embedded.get(name));
        configured.or_else(|| self.embedded.values().next()).cloned().unwrap_or_default()
    }

    /// Like [`Providers::chosen`], with a function that returns whether a variable is set.
    fn chosen_by(&self, is_set: impl Fn(&str) -> bool) -> String {
        if let Some(reference) = &self.default_provider {
            return reference.clone();
        }
        if let [only] = self.references().as_slice() {
            return only.clone();
        }
        let first = KEYS.iter().find(|(_, keys)| keys.iter().all(|key| is_set(key)));
        // A self-hosted server often needs no key.
        let last = if self.environment.get("openai").is_some() { "openai" } else { "embedded" };
        first.map_or(last, |(kind, _)| kind).to_owned()
    }
}

/// One entry of `[providers.anthropic.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnthropicConfig {
    /// The key; else `api_key_command`, else `ANTHROPIC_API_KEY`.
    pub api_key: Option<Secret>,
    /// A command that prints the key.
    pub api_key_command: Option<CommandLine>,
    /// The origin; `/v1/messages` is appended. Else `ANTHROPIC_BASE_URL`.
    pub base_url: Option<String>,
    /// The model's name.
    pub model: Option<String>,
    /// The fallback model for the rest of a turn in which `model` is overloaded.
    pub fallback_model: Option<String>,
    /// Maximum number of tokens in one reply.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// How long cached prefixes are kept.
    pub cache_config: Option<CacheConfig>,
    /// Whether to request the context window of a million tokens.
    pub enable_1m_context: bool,
    /// Maximum number of thinking tokens; for models that think as much as they need, any number.
    pub thinking_budget_tokens: Option<u32>,
    /// The effort of a model that thinks as much as it needs, as the service names it.
    pub reasoning_effort: Option<String>,
    /// The context window in tokens, for a model that g3 does not know.
    pub context_length: Option<u32>,
    /// Whether plain `http` is allowed to a host that is not loopback.
    pub allow_http: bool,
    /// The price of tokens.
    pub price: Option<Price>,
}

/// One entry of `[providers.openai.NAME]`: any server with a chat completions or responses API.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenaiConfig {
    /// The key; else `api_key_command`, else `OPENAI_API_KEY` where `base_url` is absent.
    pub api_key: Option<Secret>,
    /// A command that prints the key.
    pub api_key_command: Option<CommandLine>,
    /// Up to and including `/v1`. Else `OPENAI_BASE_URL`.
    pub base_url: Option<String>,
    /// The model's name.
    pub model: Option<String>,
    /// The fallback model for the rest of a turn in which `model` is overloaded.
    pub fallback_model: Option<String>,
    /// Maximum number of tokens in one reply.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// The reasoning effort, as the service names it; not sent when absent.
    pub reasoning_effort: Option<String>,
    /// The wire format; else `responses` for OpenAI's own service, and `chat` for other servers.
    pub wire: Option<OpenaiWire>,
    /// Whether the server supports native tool calls; if not, calls are sent as text.
    pub native_tools: Option<bool>,
    /// The context window in tokens, for a model that g3 does not know.
    pub context_length: Option<u32>,
    /// Whether plain `http` is allowed to a host that is not loopback.
    pub allow_http: bool,
    /// The price of tokens.
    pub price: Option<Price>,
}

/// One entry of `[providers.databricks.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatabricksConfig {
    /// The workspace, e.g. `https://x.cloud.databricks.com`; else `DATABRICKS_HOST`.
    pub host: Option<String>,
    /// A personal access token; else `DATABRICKS_TOKEN`.
    pub token: Option<Secret>,
    /// A command that prints the token.
    pub api_key_command: Option<CommandLine>,
    /// Signs in through the browser instead of a token.
    pub use_oauth: bool,
    /// The serving endpoint's name.
    pub model: Option<String>,
    /// The fallback model for the rest of a turn in which `model` is overloaded.
    pub fallback_model: Option<String>,
    /// Maximum number of tokens in one reply.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// The reasoning effort, as the service names it; not sent when absent.
    pub reasoning_effort: Option<String>,
    /// Maximum number of thinking tokens, for Anthropic models.
    pub thinking_budget_tokens: Option<u32>,
    /// The context window in tokens, for a model that g3 does not know.
    pub context_length: Option<u32>,
    /// Whether plain `http` is allowed to a host that is not loopback.
    pub allow_http: bool,
    /// The price of tokens.
    pub price: Option<Price>,
}

/// One entry of `[providers.gemini.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct GeminiConfig {
    /// The key; else `api_key_command`, else `GEMINI_API_KEY`.
    pub api_key: Option<Secret>,
    /// A command that prints the key.
    pub api_key_command: Option<CommandLine>,
    /// The origin; `/v1beta/models/…` is appended. Else `GEMINI_BASE_URL`.
    pub base_url: Option<String>,
    /// The model's name.
    pub model: Option<String>,
    /// The fallback model for the rest of a turn in which `model` is overloaded.
    pub fallback_model: Option<String>,
    /// Maximum number of tokens in one reply.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// The context window in tokens, for a model that g3 does not know.
    pub context_length: Option<u32>,
    /// Whether plain `http` is allowed to a host that is not loopback.
    pub allow_http: bool,
    /// The price of tokens.
    pub price: Option<Price>,
}

/// One entry of `[providers.embedded.NAME]`: a model that runs on this machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddedConfig {
    /// A name from the catalogue (`g3 model list`).
    pub model: Option<String>,
    /// A GGUF file, instead of a name.
    pub model_path: Option<PathBuf>,
    /// The model family, if the file's chat template does not reveal it.
    pub model_type: Option<String>,
    /// The context window in tokens, at most what the model was trained with.
    pub context_length: Option<u32>,
    /// Maximum number of tokens in one reply.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; 0 is greedy.
    pub temperature: Option<f64>,
    /// The number of layers to offload to the GPU.
    pub gpu_layers: Option<u32>,
    /// The number of compute threads.
    pub threads: Option<u32>,
}

/// The wire format of an OpenAI-compatible server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenaiWire {
    /// `/chat/completions`.
    Chat,
    /// `/responses`.
    Responses,
}

/// How long cached prefixes are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum CacheConfig {
    /// The provider's default (five minutes).
    #[default]
    #[serde(rename = "ephemeral")]
    Ephemeral,
    /// Five minutes, set explicitly.
    #[serde(rename = "5minute")]
    FiveMinutes,
    /// One hour.
    #[serde(rename = "1hour")]
    OneHour,
}

/// US dollars per million tokens of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Input tokens that are not cached.
    pub input: f64,
    /// Output tokens.
    pub output: f64,
    /// Tokens read from the provider's cache; same as `input` when absent.
    #[serde(default)]
    pub cache_read: Option<f64>,
    /// Tokens written to the provider's cache; same as `input` when absent.
    #[serde(default)]
    pub cache_write: Option<f64>,
    /// The price of all tokens of a request with a long prompt, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_prompt: Option<LongPromptPrice>,
}

/// US dollars per million tokens of a request whose prompt is longer than `above` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LongPromptPrice {
    /// The number of tokens, cached ones included, above which these prices apply.
    pub above: u64,
    /// Input tokens that are not cached.
    pub input: f64,
    /// Output tokens.
    pub output: f64,
    /// Tokens read from the provider's cache; same as `input` when absent.
    #[serde(default)]
    pub cache_read: Option<f64>,
    /// Tokens written to the provider's cache; same as `input` when absent.
    #[serde(default)]
    pub cache_write: Option<f64>,
}

impl Price {
    /// Returns the price of a request whose prompt has this number of tokens.
    #[must_use]
    pub fn for_prompt(self, tokens: u64) -> Price {
        match self.long_prompt.filter(|long| tokens > long.above) {
            Some(LongPromptPrice { input, output, cache_read, cache_write, .. }) => {
                Price { input, output, cache_read, cache_write, long_prompt: None }
            }
            None => self,
        }
    }

    /// Returns whether all prices are finite and not negative.
    fn is_valid(&self) -> bool {
        [*self, self.for_prompt(u64::MAX)].iter().all(|price| {
            let all = [Some(price.input), Some(price.output), price.cache_read, price.cache_write];
            all.into_iter().flatten().all(|dollars| dollars.is_finite() && dollars >= 0.0)
        })
    }
}

/// One entry of `[[models]]`: properties of models, in addition to those that g3 knows.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// The prefix of the models' names.
    pub name: String,
    /// The context window, in tokens of input and output together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u32>,
    /// Maximum number of tokens in one reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u32>,
    /// The price of tokens; unknown when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

impl ModelConfig {
    /// Returns whether the entry's values are valid.
    pub(crate) fn is_valid(&self) -> bool {
        let is_positive = |tokens: Option<u32>| tokens.is_none_or(|tokens| tokens > 0);
        !self.name.trim().is_empty()
            && is_positive(self.context)
            && is_positive(self.max_output)
            && self.price.is_none_or(|price| price.is_valid())
    }
}

/// A user's command, as a list of arguments or as one line for `sh -c`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum CommandLine {
    /// Program and arguments.
    Argv(Vec<String>),
    /// One line for the shell.
    Line(String),
}

impl CommandLine {
    /// Returns the program and arguments to start.
    pub fn argv(&self) -> Vec<String> {
        match self {
            CommandLine::Argv(argv) => argv.clone(),
            CommandLine::Line(line) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
        }
    }
}

#[cfg(test)]
mod tests {
    fn chosen(config: &str, keys: &[&str]) -> String {
        let config: crate::config::Config = toml::from_str(config).unwrap();
        config.providers.chosen_by(|name| keys.contains(&name))
    }

    #[test]
    fn the_default_is_the_configured_provider_then_the_first_key_then_the_local_model() {
        let two = "[providers.openai.a]\n[providers.openai.b]\n";
        let keys = ["OPENAI_API_KEY", "GEMINI_API_KEY"];
        let default = "[providers]\ndefault_provider = \"openai.b\"\n";
        assert_eq!(chosen(&format!("{default}{two}"), &keys), "openai.b");
        assert_eq!(chosen("[providers.openai.a]\n", &["ANTHROPIC_API_KEY"]), "openai.a");
        assert_eq!(chosen(two, &keys), "openai");
        assert_eq!(chosen("", &["OPENAI_API_KEY", "ANTHROPIC_API_KEY"]), "anthropic");
        assert_eq!(chosen("", &["GEMINI_API_KEY"]), "gemini");
        assert_eq!(chosen("", &["DATABRICKS_HOST", "DATABRICKS_TOKEN"]), "databricks");
        for half in ["DATABRICKS_HOST", "DATABRICKS_TOKEN"] {
            assert_eq!(chosen("", &[half]), "embedded");
        }
    }
}
