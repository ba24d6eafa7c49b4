//! The `[providers]` part of the configuration: who may be asked, and how.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::base_url::{BaseUrl, EnvironmentUrls};
use crate::secret::Secret;

/// The types of provider, as they stand before the dot of a reference `type.name`.
pub const TYPES: &[&str] = &["anthropic", "openai", "databricks", "gemini", "embedded"];

/// Every configured provider, and which one does what. References have the form `type.name`;
/// a bare `type` means its only entry, or the keys in the environment when there is none.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Providers {
    /// The provider that is asked unless another is named.
    pub default_provider: Option<String>,
    /// For planning mode.
    pub planner: Option<String>,
    /// For the coach of autonomous mode.
    pub coach: Option<String>,
    /// For the player of autonomous mode.
    pub player: Option<String>,
    /// For commit messages.
    pub commit: Option<String>,
    /// Goes on with a turn when a local model suggests it.
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
    /// Base URLs for entries without `base_url`; no file can set them.
    #[serde(skip)]
    pub environment: EnvironmentUrls,
}

impl Providers {
    /// Returns every configured provider as `type.name`, in order.
    pub fn references(&self) -> Vec<String> {
        let of = |kind: &str, names: Vec<&String>| -> Vec<String> {
            names.into_iter().map(|name| format!("{kind}.{name}")).collect()
        };
        [
            of("anthropic", self.anthropic.keys().collect()),
            of("openai", self.openai.keys().collect()),
            of("databricks", self.databricks.keys().collect()),
            of("gemini", self.gemini.keys().collect()),
            of("embedded", self.embedded.keys().collect()),
        ]
        .concat()
    }
}

impl Providers {
    /// Returns the base URL of an entry of this type: the configured one, else the one of the
    /// environment; `None` means the service's own.
    pub fn base_url<'a>(&'a self, kind: &str, configured: Option<&'a str>) -> Option<BaseUrl<'a>> {
        let configured = configured.map(|url| BaseUrl { url, variable: None });
        configured.or_else(|| self.environment.get(kind))
    }

    /// Returns the model that an entry names to fall back on.
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

/// The keys in the environment by which a provider is chosen when the configuration names none, in
/// order.
const KEYS: &[(&str, &[&str])] = &[
    ("anthropic", &["ANTHROPIC_API_KEY"]),
    ("openai", &["OPENAI_API_KEY"]),
    ("gemini", &["GEMINI_API_KEY"]),
    ("databricks", &["DATABRICKS_HOST", "DATABRICKS_TOKEN"]),
];

impl Providers {
    /// Returns the reference that is meant when none is given: the configured default, else the
    /// only configured provider, else the type of the first key in the environment, else `openai`
    /// where the environment gives its base URL, else `embedded`.
    pub fn chosen(&self) -> String {
        self.chosen_by(|name| std::env::var(name).is_ok_and(|value| !value.trim().is_empty()))
    }

    /// Returns the entry of the local model that a reference means; the first where it means none.
    pub fn local(&self, reference: &str) -> EmbeddedConfig {
        let named = reference.strip_prefix("embedded.").and_then(|name| self.embedded.get(name));
        named.or_else(|| self.embedded.values().next()).cloned().unwrap_or_default()
    }

    /// As [`Providers::chosen`], told which variables are set to something.
    fn chosen_by(&self, is_set: impl Fn(&str) -> bool) -> String {
        if let Some(reference) = &self.default_provider {
            return reference.clone();
        }
        if let [only] = self.references().as_slice() {
            return only.clone();
        }
        let first = KEYS.iter().find(|(_, keys)| keys.iter().all(|key| is_set(key)));
        // A server of one's own often wants no key.
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
    /// The model that is asked for the rest of a turn in which `model` is busy.
    pub fallback_model: Option<String>,
    /// Tokens of one reply, at most.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// How long cached prefixes live.
    pub cache_config: Option<CacheConfig>,
    /// Asks for the context window of a million tokens.
    pub enable_1m_context: bool,
    /// Tokens that the model may think, at most.
    pub thinking_budget_tokens: Option<u32>,
    /// Tokens that the model can read, when it is not a model that we know.
    pub context_length: Option<u32>,
    /// Permits plain `http` to a host that is not loopback.
    pub allow_http: bool,
    /// What tokens cost.
    pub price: Option<Price>,
}

/// One entry of `[providers.openai.NAME]`: any server that speaks chat completions or responses.
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
    /// The model that is asked for the rest of a turn in which `model` is busy.
    pub fallback_model: Option<String>,
    /// Tokens of one reply, at most.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// How much the model thinks, in the words of its service; not sent when absent.
    pub reasoning_effort: Option<String>,
    /// Which of the two wire formats.
    pub wire: OpenaiWire,
    /// `false` for servers without native tool calls: they get text calls.
    pub native_tools: Option<bool>,
    /// Tokens that the model can read, when it is not a model that we know.
    pub context_length: Option<u32>,
    /// Permits plain `http` to a host that is not loopback.
    pub allow_http: bool,
    /// What tokens cost.
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
    /// The model that is asked for the rest of a turn in which `model` is busy.
    pub fallback_model: Option<String>,
    /// Tokens of one reply, at most.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// How much the model thinks, in the words of its service; not sent when absent.
    pub reasoning_effort: Option<String>,
    /// Tokens that a model of Anthropic may think, at most.
    pub thinking_budget_tokens: Option<u32>,
    /// Tokens that the model can read, when it is not a model that we know.
    pub context_length: Option<u32>,
    /// Permits plain `http` to a host that is not loopback.
    pub allow_http: bool,
    /// What tokens cost.
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
    /// The model that is asked for the rest of a turn in which `model` is busy.
    pub fallback_model: Option<String>,
    /// Tokens of one reply, at most.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// Tokens that the model can read, when it is not a model that we know.
    pub context_length: Option<u32>,
    /// Permits plain `http` to a host that is not loopback.
    pub allow_http: bool,
    /// What tokens cost.
    pub price: Option<Price>,
}

/// One entry of `[providers.embedded.NAME]`: a model that runs on this machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddedConfig {
    /// A name of the catalogue (`g3 model list`).
    pub model: Option<String>,
    /// A GGUF file, instead of a name.
    pub model_path: Option<PathBuf>,
    /// The family, when the file's own template does not say it.
    pub model_type: Option<String>,
    /// Tokens of context, at most what the model was trained with.
    pub context_length: Option<u32>,
    /// Tokens of one reply, at most.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; 0 is greedy.
    pub temperature: Option<f64>,
    /// How many layers go to the accelerator.
    pub gpu_layers: Option<u32>,
    /// How many threads compute.
    pub threads: Option<u32>,
}

/// The wire format of an OpenAI-compatible server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenaiWire {
    /// `/chat/completions`.
    #[default]
    Chat,
    /// `/responses`.
    Responses,
}

/// How long a cached prefix lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum CacheConfig {
    /// The provider's default (five minutes).
    #[default]
    #[serde(rename = "ephemeral")]
    Ephemeral,
    /// Five minutes, said out loud.
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
    /// Sent and not cached.
    pub input: f64,
    /// Written by the model.
    pub output: f64,
    /// Read from the provider's cache; `input` when absent.
    #[serde(default)]
    pub cache_read: Option<f64>,
    /// Written to the provider's cache; `input` when absent.
    #[serde(default)]
    pub cache_write: Option<f64>,
}

impl Price {
    /// Returns whether every number can be a price.
    fn is_sound(&self) -> bool {
        let all = [Some(self.input), Some(self.output), self.cache_read, self.cache_write];
        all.into_iter().flatten().all(|dollars| dollars.is_finite() && dollars >= 0.0)
    }
}

/// One entry of `[[models]]`: what the user knows about models, on top of what g3 knows.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// The beginning of the models' names.
    pub name: String,
    /// Tokens of input and output together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u32>,
    /// Tokens of one reply, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u32>,
    /// What tokens cost; absent is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

impl ModelConfig {
    /// Returns whether the entry says something that can be.
    pub(crate) fn is_sound(&self) -> bool {
        let some = |tokens: Option<u32>| tokens.is_none_or(|tokens| tokens > 0);
        !self.name.trim().is_empty()
            && some(self.context)
            && some(self.max_output)
            && self.price.is_none_or(|price| price.is_sound())
    }
}

/// A command of the user's, as a list of arguments or as one line for `sh -c`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum CommandLine {
    /// Program and arguments.
    Argv(Vec<String>),
    /// One line for the shell.
    Line(String),
}

impl CommandLine {
    /// Program and arguments to start.
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
    fn configuration_comes_first_then_the_first_key_then_this_machine() {
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
