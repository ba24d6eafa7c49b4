//! From the configuration to a provider that can be asked.

pub mod databricks;

use std::time::Duration;

use base::config::Config;
use base::config::base_url::BaseUrl;
use base::config::providers::{AnthropicConfig, GeminiConfig, OpenaiConfig, TYPES, Wire as Format};
use base::failure::Failure;

use super::Provider;
use super::anthropic::{BESIDE_THOUGHT, Messages};
use super::auth::Sources;
use super::embedded;
use super::fault::Advice;
use super::gemini::Gemini;
use super::hosted::{Hosted, Wire};
use super::http::Endpoint;
use super::models::{self, Said};
use super::openai_chat::dialect::Service;
use super::openai_chat::{Chat, OPENAI_HOST, Thought};
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
    config: &'a Config,
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
        return Err(Failure::usage(format!("no such provider: `{reference}`"))
            .because(format!("unknown type `{kind}`"))
            .next(format!("use one of the types: {}", TYPES.join(", "))));
    }
    let (reference, name) = named(config, kind, name)?;
    let wanted = Wanted { reference, model, config };
    match kind {
        "anthropic" => {
            let entry = config.providers.anthropic.get(&name).cloned().unwrap_or_default();
            Ok(Box::new(anthropic(&entry, &wanted)?))
        }
        "openai" => {
            let entry = config.providers.openai.get(&name).cloned().unwrap_or_default();
            openai(&entry, &wanted)
        }
        "gemini" => {
            let entry = config.providers.gemini.get(&name).cloned().unwrap_or_default();
            Ok(Box::new(gemini(&entry, &wanted)?))
        }
        "embedded" => {
            let entry = config.providers.embedded.get(&name).cloned().unwrap_or_default();
            Ok(Box::new(embedded::open(&entry, &wanted.reference, wanted.model)?))
        }
        _ => {
            let entry = config.providers.databricks.get(&name).cloned().unwrap_or_default();
            Ok(Box::new(databricks::open(&entry, &wanted)?))
        }
    }
}

/// The whole reference and the name of an entry: the one that is named, or the only one, or none.
fn named(config: &Config, kind: &str, name: Option<&str>) -> Result<(String, String), Failure> {
    let references = config.providers.references();
    let of_kind = references.iter().filter_map(|text| text.split_once('.'));
    let names: Vec<&str> = of_kind.filter(|(k, _)| *k == kind).map(|(_, n)| n).collect();
    let name = match (name, names.as_slice()) {
        (Some(name), names) if names.contains(&name) => name,
        (Some(name), names) => return Err(unknown(kind, name, names)),
        (None, []) => return Ok((kind.to_owned(), String::new())),
        (None, [only]) => only,
        (None, several) => {
            return Err(Failure::usage(format!("there are several providers of type `{kind}`"))
                .next(format!("name one: {kind}.{}", several.join(&format!(", {kind}.")))));
        }
    };
    Ok((format!("{kind}.{name}"), name.to_owned()))
}

fn unknown(kind: &str, name: &str, names: &[&str]) -> Failure {
    let failure = Failure::usage(format!("no such provider: `{kind}.{name}`"));
    if names.is_empty() {
        return failure.next(format!("add [providers.{kind}.{name}] to the configuration"));
    }
    failure.next(format!("use one of: {kind}.{}", names.join(&format!(", {kind}."))))
}

fn anthropic(entry: &AnthropicConfig, wanted: &Wanted<'_>) -> Result<Hosted, Failure> {
    let key = Sources {
        provider: &wanted.reference,
        given: entry.api_key.as_ref(),
        command: entry.api_key_command.as_ref(),
        variable: Some("ANTHROPIC_API_KEY"),
    };
    let key = key.need()?;
    let base = wanted.base("anthropic", entry.base_url.as_deref(), ANTHROPIC);
    let mut endpoint = wanted
        .endpoint(base, "/v1/messages", entry.allow_http)?
        .header("anthropic-version", "2023-06-01")
        .key("x-api-key", "", key.secret)?;
    if entry.enable_1m_context {
        endpoint = endpoint.header("anthropic-beta", "context-1m-2025-08-07");
    }
    let context = entry.context_length.or(entry.enable_1m_context.then_some(MILLION));
    let (max_output, thinking) = (entry.max_tokens, entry.thinking_budget_tokens);
    let said = Said { context, max_output, price: entry.price, thinking };
    let wire = Messages {
        cache: entry.cache_config.unwrap_or_default(),
        temperature: entry.temperature,
        thinking,
    };
    let model = wanted.model("anthropic", entry.model.as_deref())?;
    let is_maker = endpoint.host() == "api.anthropic.com";
    let hosted = wanted.hosted((endpoint, is_maker), Box::new(wire), said, (model, key.origin));
    room_to_answer(hosted, thinking)
}

/// A budget for thought that leaves no room for an answer would never be used.
fn room_to_answer(hosted: Hosted, thinking: Option<u32>) -> Result<Hosted, Failure> {
    let least = thinking.map_or(0, |budget| u64::from(budget) + BESIDE_THOUGHT);
    let most = hosted.facts.max_output;
    if thinking.is_none() || most > least {
        return Ok(hosted);
    }
    let reference = &hosted.facts.provider;
    Err(Failure::usage(format!("the thinking_budget_tokens of `{reference}` leave no room"))
        .because(format!("a reply of `{}` has {most} tokens at most", hosted.facts.model))
        .next(format!("set max_tokens over {least}, or a smaller budget")))
}

fn openai(entry: &OpenaiConfig, wanted: &Wanted<'_>) -> Result<Box<dyn Provider>, Failure> {
    let key = Sources {
        provider: &wanted.reference,
        given: entry.api_key.as_ref(),
        command: entry.api_key_command.as_ref(),
        variable: entry.base_url.is_none().then_some("OPENAI_API_KEY"),
    };
    // A server of one's own often wants no key.
    let base = wanted.base("openai", entry.base_url.as_deref(), OPENAI);
    let key = if base.url == OPENAI { Some(key.need()?) } else { key.find()? };
    let path = match entry.wire {
        Format::Chat => "/chat/completions",
        Format::Responses => "/responses",
    };
    let mut endpoint = wanted.endpoint(base, path, entry.allow_http)?;
    let origin = key.as_ref().map_or("it has none", |key| &key.origin).to_owned();
    if let Some(key) = key.filter(|key| key.secret.reveal() != "none") {
        endpoint = endpoint.key("authorization", "Bearer ", key.secret)?;
    }
    let (context, max_output) = (entry.context_length, entry.max_tokens);
    let said = Said { context, max_output, price: entry.price, thinking: None };
    let is_openai = endpoint.host() == OPENAI_HOST;
    let wire: Box<dyn Wire> = match entry.wire {
        Format::Chat => {
            let service = if is_openai { Service::Openai } else { Service::Other };
            let thought = entry.reasoning_effort.clone().map(Thought::Effort);
            Box::new(Chat { service, temperature: entry.temperature, thought, ..Chat::default() })
        }
        Format::Responses => {
            let effort = entry.reasoning_effort.clone();
            Box::new(Responses::new(entry.temperature).thinking(effort))
        }
    };
    let kind = if is_openai { "openai" } else { "a server without a default" };
    let model = wanted.model(kind, entry.model.as_deref())?;
    let hosted = wanted.hosted((endpoint, is_openai), wire, said, (model, origin));
    let hosted: Box<dyn Provider> = Box::new(hosted);
    let is_native = entry.native_tools.unwrap_or(true);
    Ok(if is_native { hosted } else { Box::new(TextCalls::new(hosted)) })
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
        return Err(Failure::usage(format!("`{model}` is not a Gemini model name"))
            .next("name one like gemini-2.5-pro"));
    }
    let how = if wanted.config.agent.enable_streaming {
        "streamGenerateContent?alt=sse"
    } else {
        "generateContent"
    };
    let base = wanted.base("gemini", entry.base_url.as_deref(), GEMINI);
    let path = format!("/v1beta/models/{model}:{how}");
    let endpoint = wanted.endpoint(base, &path, entry.allow_http)?;
    let endpoint = endpoint.key("x-goog-api-key", "", key.secret)?;
    let is_maker = endpoint.host() == "generativelanguage.googleapis.com";
    let (context, max_output) = (entry.context_length, entry.max_tokens);
    let said = Said { context, max_output, price: entry.price, thinking: None };
    let wire = Box::new(Gemini::new(entry.temperature));
    Ok(wanted.hosted((endpoint, is_maker), wire, said, (model, key.origin)))
}

impl Wanted<'_> {
    /// The configured base URL, else the one of the environment, else the service's own.
    fn base<'b>(&'b self, kind: &str, configured: Option<&'b str>, own: &'b str) -> BaseUrl<'b> {
        let found = self.config.providers.base_url(kind, configured);
        found.unwrap_or(BaseUrl { url: own, variable: None })
    }

    fn endpoint(
        &self,
        base: BaseUrl<'_>,
        path: &str,
        allow_http: bool,
    ) -> Result<Endpoint, Failure> {
        let patience = Duration::from_secs(self.config.agent.timeout_seconds);
        let endpoint = Endpoint::new(base.url, path, allow_http);
        let endpoint = endpoint.map_err(|failure| match base.variable {
            Some(name) => Failure { what: format!("{} ({name})", failure.what), ..failure },
            None => failure,
        });
        Ok(endpoint?.idle(patience))
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
        let known = models::known(&model, &self.config.models, is_maker);
        let agent = &self.config.agent;
        let (facts, price) = models::facts(&self.reference, &model, said, agent, known);
        let advice = Advice { provider: self.reference.clone(), model, key };
        let streamed = self.config.agent.enable_streaming;
        Hosted { endpoint, login: None, wire, facts, price, advice, streamed }
    }
}
