//! From the configuration to a provider that can be asked.

use std::time::Duration;

use base::config::Config;
use base::config::agent::AgentConfig;
use base::config::providers::{
    AnthropicConfig, DatabricksConfig, GeminiConfig, OpenaiConfig, TYPES, Wire as Format,
};
use base::failure::Failure;

use super::Provider;
use super::anthropic::Messages;
use super::auth::Sources;
use super::embedded;
use super::fault::Advice;
use super::gemini::Gemini;
use super::hosted::{Hosted, Wire};
use super::http::Endpoint;
use super::models::{self, Said};
use super::openai_chat::{Chat, OPENAI_HOST, Service};
use super::openai_responses::Responses;
use super::text_calls::TextCalls;

const ANTHROPIC: &str = "https://api.anthropic.com";
const OPENAI: &str = "https://api.openai.com/v1";
const GEMINI: &str = "https://generativelanguage.googleapis.com";
const MILLION: u32 = 1_000_000;

/// Who is to be asked, and for what.
struct Wanted<'a> {
    reference: String,
    model: Option<&'a str>,
    agent: &'a AgentConfig,
}

/// Opens the provider that a reference names.
pub fn by_reference(
    config: &Config,
    reference: &str,
    model: Option<&str>,
) -> Result<Box<dyn Provider>, Failure> {
    let (kind, name) = match reference.split_once('.') {
        Some((kind, name)) => (kind, Some(name)),
        None => (reference, None),
    };
    let kind = if kind == "openai_compatible" { "openai" } else { kind };
    if !TYPES.contains(&kind) {
        return Err(Failure::usage(format!("`{reference}` names no provider"))
            .because(format!("there is no type `{kind}`"))
            .next(format!("use one of these types: {}", TYPES.join(", "))));
    }
    let references = config.providers.references();
    let mut of_kind = references.iter().filter_map(|text| text.split_once('.'));
    let names: Vec<&str> = of_kind.by_ref().filter(|(k, _)| *k == kind).map(|(_, n)| n).collect();
    let name = match (name, names.as_slice()) {
        (Some(name), names) if names.contains(&name) => Some(name),
        (Some(name), names) => return Err(unknown(kind, name, names)),
        (None, []) => None,
        (None, [only]) => Some(*only),
        (None, several) => {
            return Err(Failure::usage(format!("there are several providers of type `{kind}`"))
                .next(format!("name one: {kind}.{}", several.join(&format!(", {kind}.")))));
        }
    };
    let reference = name.map_or_else(|| kind.to_owned(), |name| format!("{kind}.{name}"));
    let wanted = Wanted { reference, model, agent: &config.agent };
    let name = name.unwrap_or_default();
    match kind {
        "anthropic" => {
            let entry = config.providers.anthropic.get(name).cloned().unwrap_or_default();
            Ok(Box::new(anthropic(&entry, &wanted)?))
        }
        "openai" => {
            let entry = config.providers.openai.get(name).cloned().unwrap_or_default();
            openai(&entry, &wanted)
        }
        "gemini" => {
            let entry = config.providers.gemini.get(name).cloned().unwrap_or_default();
            Ok(Box::new(gemini(&entry, &wanted)?))
        }
        "embedded" => {
            let entry = config.providers.embedded.get(name).cloned().unwrap_or_default();
            Ok(Box::new(embedded::open(&entry, &wanted.reference, wanted.model)?))
        }
        _ => {
            let entry = config.providers.databricks.get(name).cloned().unwrap_or_default();
            Ok(Box::new(databricks(&entry, &wanted)?))
        }
    }
}

fn unknown(kind: &str, name: &str, names: &[&str]) -> Failure {
    let failure = Failure::usage(format!("there is no provider `{kind}.{name}`"));
    if names.is_empty() {
        return failure.next(format!("add [providers.{kind}.{name}] to the configuration"));
    }
    failure.next(format!("use one of these: {kind}.{}", names.join(&format!(", {kind}."))))
}

fn anthropic(entry: &AnthropicConfig, wanted: &Wanted<'_>) -> Result<Hosted, Failure> {
    let key = Sources {
        provider: &wanted.reference,
        given: entry.api_key.as_ref(),
        command: entry.api_key_command.as_ref(),
        variable: Some("ANTHROPIC_API_KEY"),
    };
    let key = key.need()?;
    let base = entry.base_url.as_deref().unwrap_or(ANTHROPIC);
    let mut endpoint = wanted
        .endpoint(base, "/v1/messages", entry.allow_http)?
        .header("anthropic-version", "2023-06-01")
        .key("x-api-key", "", key.secret)?;
    if entry.enable_1m_context {
        endpoint = endpoint.header("anthropic-beta", "context-1m-2025-08-07");
    }
    let context = entry.context_length.or(entry.enable_1m_context.then_some(MILLION));
    let said = Said { context, max_output: entry.max_tokens, price: entry.price };
    let wire = Messages {
        cache: entry.cache_config.unwrap_or_default(),
        temperature: entry.temperature,
        thinking: entry.thinking_budget_tokens,
    };
    let model = wanted.model("anthropic", entry.model.as_deref())?;
    let is_maker = endpoint.host() == "api.anthropic.com";
    Ok(wanted.hosted((endpoint, is_maker), Box::new(wire), said, (model, key.origin)))
}

fn openai(entry: &OpenaiConfig, wanted: &Wanted<'_>) -> Result<Box<dyn Provider>, Failure> {
    let key = Sources {
        provider: &wanted.reference,
        given: entry.api_key.as_ref(),
        command: entry.api_key_command.as_ref(),
        variable: entry.base_url.is_none().then_some("OPENAI_API_KEY"),
    };
    // A server of one's own often wants no key.
    let key = if entry.base_url.is_some() { key.find()? } else { Some(key.need()?) };
    let base = entry.base_url.as_deref().unwrap_or(OPENAI);
    let path = match entry.wire {
        Format::Chat => "/chat/completions",
        Format::Responses => "/responses",
    };
    let mut endpoint = wanted.endpoint(base, path, entry.allow_http)?;
    let origin = key.as_ref().map_or("it has none", |key| &key.origin).to_owned();
    if let Some(key) = key.filter(|key| key.secret.reveal() != "none") {
        endpoint = endpoint.key("authorization", "Bearer ", key.secret)?;
    }
    let said =
        Said { context: entry.context_length, max_output: entry.max_tokens, price: entry.price };
    let is_openai = endpoint.host() == OPENAI_HOST;
    let wire: Box<dyn Wire> = match entry.wire {
        Format::Chat => {
            let service = if is_openai { Service::Openai } else { Service::Other };
            Box::new(Chat { service, temperature: entry.temperature, ..Chat::default() })
        }
        Format::Responses => Box::new(Responses::new(entry.temperature)),
    };
    let kind = if is_openai { "openai" } else { "a server without a default" };
    let model = wanted.model(kind, entry.model.as_deref())?;
    let hosted = wanted.hosted((endpoint, is_openai), wire, said, (model, origin));
    let hosted: Box<dyn Provider> = Box::new(hosted);
    let is_native = entry.native_tools.unwrap_or(true);
    Ok(if is_native { hosted } else { Box::new(TextCalls::new(hosted)) })
}

fn databricks(entry: &DatabricksConfig, wanted: &Wanted<'_>) -> Result<Hosted, Failure> {
    if entry.use_oauth {
        return Err(Failure::usage(format!("`{}` asks for use_oauth", wanted.reference))
            .because("this version signs in with a token only")
            .next("set `token` or `api_key_command`, or DATABRICKS_TOKEN"));
    }
    let host = entry.host.clone().or_else(|| std::env::var("DATABRICKS_HOST").ok());
    let host = host.filter(|host| !host.trim().is_empty()).ok_or_else(|| {
        Failure::usage(format!("`{}` names no workspace", wanted.reference))
            .next("set `host` to its address, or DATABRICKS_HOST")
    })?;
    let host = host.trim().trim_end_matches('/');
    let base = if host.contains("://") { host.to_owned() } else { format!("https://{host}") };
    let key = Sources {
        provider: &wanted.reference,
        given: entry.token.as_ref(),
        command: entry.api_key_command.as_ref(),
        variable: Some("DATABRICKS_TOKEN"),
    };
    let key = key.need()?;
    let model = wanted.model("databricks", entry.model.as_deref())?;
    if !model.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Err(Failure::usage(format!("`{model}` is no name of a serving endpoint"))
            .next("name one like databricks-claude-sonnet-4-5"));
    }
    let path = format!("/serving-endpoints/{model}/invocations");
    let endpoint = wanted.endpoint(&base, &path, entry.allow_http)?;
    let endpoint = endpoint.key("authorization", "Bearer ", key.secret)?;
    let said =
        Said { context: entry.context_length, max_output: entry.max_tokens, price: entry.price };
    let wire =
        Chat { service: Service::Databricks, temperature: entry.temperature, ..Chat::default() };
    Ok(wanted.hosted((endpoint, false), Box::new(wire), said, (model, key.origin)))
}

fn gemini(entry: &GeminiConfig, wanted: &Wanted<'_>) -> Result<Hosted, Failure> {
    let key = Sources {
        provider: &wanted.reference,
        given: entry.api_key.as_ref(),
        command: entry.api_key_command.as_ref(),
        variable: Some("GEMINI_API_KEY"),
    };
    let key = key.need()?;
    let model = wanted.model("gemini", entry.model.as_deref())?;
    let model = model.strip_prefix("models/").unwrap_or(&model).to_owned();
    if model.contains(['/', '?', '#', ':']) || model.contains(char::is_whitespace) {
        return Err(Failure::usage(format!("`{model}` is no name of a Gemini model"))
            .next("name one like gemini-2.5-pro"));
    }
    let how = if wanted.agent.enable_streaming {
        "streamGenerateContent?alt=sse"
    } else {
        "generateContent"
    };
    let base = entry.base_url.as_deref().unwrap_or(GEMINI);
    let path = format!("/v1beta/models/{model}:{how}");
    let endpoint = wanted.endpoint(base, &path, entry.allow_http)?;
    let endpoint = endpoint.key("x-goog-api-key", "", key.secret)?;
    let is_maker = endpoint.host() == "generativelanguage.googleapis.com";
    let said =
        Said { context: entry.context_length, max_output: entry.max_tokens, price: entry.price };
    let wire = Box::new(Gemini::new(entry.temperature));
    Ok(wanted.hosted((endpoint, is_maker), wire, said, (model, key.origin)))
}

impl Wanted<'_> {
    fn endpoint(&self, base: &str, path: &str, allow_http: bool) -> Result<Endpoint, Failure> {
        let patience = Duration::from_secs(self.agent.timeout_seconds);
        Ok(Endpoint::new(base, path, allow_http)?.idle(patience))
    }

    fn model(&self, kind: &str, configured: Option<&str>) -> Result<String, Failure> {
        let named = self.model.or(configured).map(str::to_owned);
        named.or_else(|| models::default_model(kind)).ok_or_else(|| {
            Failure::usage(format!("`{}` names no model", self.reference))
                .next(format!("set `model` in [providers.{}], or give --model", self.reference))
        })
    }

    fn hosted(
        &self,
        (endpoint, is_maker): (Endpoint, bool),
        wire: Box<dyn Wire>,
        said: Said,
        (model, key): (String, String),
    ) -> Hosted {
        let (facts, price) = models::facts(&self.reference, &model, said, self.agent, is_maker);
        let advice = Advice { provider: self.reference.clone(), model, key };
        let streamed = self.agent.enable_streaming;
        Hosted { endpoint, wire, facts, price, advice, streamed }
    }
}
