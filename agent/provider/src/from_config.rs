//! Opens a provider from the configuration.

pub mod databricks;

use std::sync::Arc;
use std::time::Duration;

use base::config::Config;
use base::config::base_url::BaseUrl;
use base::config::hosted_services::{ANTHROPIC_URL, GEMINI_URL, NO_KEY, OPENAI_URL};
use base::config::providers::{
    AnthropicConfig, GeminiConfig, OpenaiConfig, OpenaiWire as Format, TYPES,
};
use base::failure::Failure;

use crate::anthropic::{MIN_OUTPUT_BESIDE_REASONING, MessagesWire, ModelQuirks};
use crate::embedded;
use crate::gemini::GeminiWire;
use crate::hosted::{HostedProvider, WireFormat};
use crate::http::Endpoint;
use crate::http_error::Advice;
use crate::models::{self, ModelOverrides};
use crate::openai_chat::dialect::ChatService;
use crate::openai_chat::{ChatWire, OPENAI_HOST, ReasoningEffort};
use crate::openai_responses::ResponsesWire;
use crate::provider::{Provider, ProviderFacts};
use crate::text_calls::TextCalls;
use crate::text_calls::unparsed::UnparsedCalls;
use crate::{fallback, retry};

const MILLION: u32 = 1_000_000;

/// The provider selected by command-line flags.
#[derive(Clone, Debug, Default)]
pub struct ProviderChoice {
    /// `type.name` or a bare type. If absent, the configuration and the environment decide
    /// ([`base::config::providers::Providers::chosen`]).
    pub reference: Option<String>,
    /// Overrides the configured model.
    pub model: Option<String>,
    /// Overrides the configured fallback model.
    pub fallback: Option<String>,
    /// Whether a budget applies: models without a known price are rejected.
    pub budget: bool,
}

/// Opens a provider that retries failed requests and falls back to another model where configured.
pub fn open(config: &Config, choice: &ProviderChoice) -> Result<Box<dyn Provider>, Failure> {
    let reference = choice.reference.clone().unwrap_or_else(|| config.providers.chosen());
    if choice.fallback.is_some() && reference.split('.').next() == Some("embedded") {
        return Err(Failure::usage(format!("`{reference}` has no model to fall back on"))
            .because("it is a local model, which has no fallback"));
    }
    let primary = by_reference(config, &reference, choice.model.as_deref())?;
    check_price(choice, primary.facts())?;
    let open_fallback = open_fallback(config, choice, primary.facts());
    let models = fallback::FallbackModels::new(primary, open_fallback);
    let attempts = config.agent.max_retry_attempts;
    Ok(Box::new(retry::RetryingProvider::new(models, attempts, retry::Backoff::from_env())))
}

/// Checks that the chosen provider and those of other roles could be opened: that key, model and
/// address are configured. Sends no request and starts no local model.
pub fn check(
    config: &Config,
    choice: &ProviderChoice,
    roles: impl Iterator<Item = String>,
) -> Result<(), Failure> {
    let chosen = choice.reference.clone().unwrap_or_else(|| config.providers.chosen());
    for (index, reference) in std::iter::once(chosen).chain(roles).enumerate() {
        let model = choice.model.as_deref().filter(|_| index == 0);
        if reference.split('.').next() == Some("embedded") {
            base::model_host::find::HostQuery::of(&config.providers.local(&reference), model)?;
        } else {
            let choice = ProviderChoice { reference: Some(reference), ..choice.clone() };
            open(config, &ProviderChoice { model: model.map(str::to_owned), ..choice })?;
        }
    }
    Ok(())
}

/// Returns a function that opens the fallback model, if there is one.
fn open_fallback(
    config: &Config,
    choice: &ProviderChoice,
    facts: &ProviderFacts,
) -> Option<fallback::OpenProvider> {
    let reference = facts.provider.clone();
    let configured = config.providers.fallback_model(&reference);
    let model = choice.fallback.as_deref().or(configured).filter(|model| *model != facts.model)?;
    let (config, choice, model) = (config.clone(), choice.clone(), model.to_owned());
    Some(Arc::new(move || {
        let other = by_reference(&config, &reference, Some(&model))?;
        check_price(&choice, other.facts())?;
        Ok(other)
    }))
}

/// Fails if a budget applies and the price is unknown.
fn check_price(choice: &ProviderChoice, facts: &ProviderFacts) -> Result<(), Failure> {
    if !choice.budget || facts.priced {
        return Ok(());
    }
    let ProviderFacts { provider, model, .. } = facts;
    let price = "price = { input = …, output = … }";
    let failure = Failure::usage(format!("the price of `{model}` on `{provider}` is unknown"))
        .because("a budget cannot be kept without it");
    let failure = match provider.contains('.') {
        true => failure.hint(format!("set `{price}` in [providers.{provider}]")),
        false => failure.hint(format!("add [[models]] with `name = \"{model}\"` and `{price}`")),
    };
    Err(failure
        .hint("prices are US dollars for a million tokens")
        .hint("or limit tokens instead of money: --max-tokens N"))
}

/// A provider to open, and for what.
struct ProviderRequest<'a> {
    reference: String,
    model: Option<&'a str>,
    config: &'a Config,
}

/// Opens the provider of a reference.
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
            .hint(format!("use one of the types: {}", TYPES.join(", "))));
    }
    let (reference, name) = resolve_name(config, kind, name)?;
    let request = ProviderRequest { reference, model, config };
    match kind {
        "anthropic" => {
            let entry = config.providers.anthropic.get(&name).cloned().unwrap_or_default();
            Ok(Box::new(anthropic(&entry, &request)?))
        }
        "openai" => {
            let entry = config.providers.openai.get(&name).cloned().unwrap_or_default();
            openai(&entry, &request)
        }
        "gemini" => {
            let entry = config.providers.gemini.get(&name).cloned().unwrap_or_default();
            Ok(Box::new(gemini(&entry, &request)?))
        }
        "embedded" => {
            let entry = config.providers.embedded.get(&name).cloned().unwrap_or_default();
            Ok(Box::new(embedded::open(&entry, &request.reference, request.model)?))
        }
        _ => {
            let entry = config.providers.databricks.get(&name).cloned().unwrap_or_default();
            Ok(Box::new(databricks::open(&entry, &request)?))
        }
    }
}

/// Returns the full reference and the name of an entry: the one that is named, otherwise the only
/// one, otherwise none.
fn resolve_name(
    config: &Config,
    kind: &str,
    name: Option<&str>,
) -> Result<(String, String), Failure> {
    let references = config.providers.references();
    let split_references = references.iter().filter_map(|text| text.split_once('.'));
    let names: Vec<&str> = split_references.filter(|(k, _)| *k == kind).map(|(_, n)| n).collect();
    let name = match (name, names.as_slice()) {
        (Some(name), names) if names.contains(&name) => name,
        (Some(name), names) => return Err(unknown_name(kind, name, names)),
        (None, []) => return Ok((kind.to_owned(), String::new())),
        (None, [only]) => only,
        (None, many) => {
            return Err(Failure::usage(format!("there are several providers of type `{kind}`"))
                .hint(format!("name one: {kind}.{}", many.join(&format!(", {kind}.")))));
        }
    };
    Ok((format!("{kind}.{name}"), name.to_owned()))
}

fn unknown_name(kind: &str, name: &str, names: &[&str]) -> Failure {
    let failure = Failure::usage(format!("no such provider: `{kind}.{name}`"));
    if names.is_empty() {
        return failure.hint(format!("add [providers.{kind}.{name}] to the configuration"));
    }
    failure.hint(format!("use one of: {kind}.{}", names.join(&format!(", {kind}."))))
}

fn anthropic(
    entry: &AnthropicConfig,
    request: &ProviderRequest<'_>,
) -> Result<HostedProvider, Failure> {
    let key = entry.key_sources(&request.reference);
    let key = key.required()?;
    let base = request.base("anthropic", entry.base_url.as_deref(), ANTHROPIC_URL);
    let mut endpoint = request
        .endpoint(base, "/v1/messages", entry.allow_http)?
        .header("anthropic-version", "2023-06-01")
        .key("x-api-key", "", key.secret)?;
    if entry.enable_1m_context {
        endpoint = endpoint.header("anthropic-beta", "context-1m-2025-08-07");
    }
    let context = entry.context_length.or(entry.enable_1m_context.then_some(MILLION));
    let (max_output, thinking) = (entry.max_tokens, entry.thinking_budget_tokens);
    let effort = entry.reasoning_effort.clone();
    if thinking.is_some() && effort.is_some() {
        let reference = &request.reference;
        return Err(Failure::usage(format!(
            "`{reference}` sets both thinking_budget_tokens and reasoning_effort"
        ))
        .hint("set thinking_budget_tokens for models before Opus 4.6, else reasoning_effort"));
    }
    let overrides = ModelOverrides { context, max_output, price: entry.price, thinking };
    let wire = MessagesWire {
        cache: entry.cache_config.unwrap_or_default(),
        temperature: entry.temperature,
        thinking,
        effort,
        quirks: ModelQuirks::default(),
    };
    let model = request.model("anthropic", entry.model.as_deref())?;
    let is_maker = endpoint.host() == "api.anthropic.com";
    let hosted =
        request.hosted((endpoint, is_maker), Box::new(wire), overrides, (model, key.origin));
    check_output_limit(hosted, thinking)
}

/// Rejects a thinking budget that leaves no tokens for the answer: it would never be used.
fn check_output_limit(
    hosted: HostedProvider,
    thinking: Option<u32>,
) -> Result<HostedProvider, Failure> {
    let min = thinking.map_or(0, |budget| u64::from(budget) + MIN_OUTPUT_BESIDE_REASONING);
    let max = hosted.facts.max_output;
    if thinking.is_none() || max > min {
        return Ok(hosted);
    }
    let reference = &hosted.facts.provider;
    Err(Failure::usage(format!("the thinking_budget_tokens of `{reference}` leave no room"))
        .because(format!("a reply of `{}` has {max} tokens at most", hosted.facts.model))
        .hint(format!("set max_tokens over {min}, or a smaller budget")))
}

fn openai(
    entry: &OpenaiConfig,
    request: &ProviderRequest<'_>,
) -> Result<Box<dyn Provider>, Failure> {
    let key = entry.key_sources(&request.reference);
    // A self-hosted server often needs no key.
    let base = request.base("openai", entry.base_url.as_deref(), OPENAI_URL);
    let key = if base.url == OPENAI_URL { Some(key.required()?) } else { key.optional()? };
    let is_openai = request.endpoint(base, "", entry.allow_http)?.host() == OPENAI_HOST;
    // OpenAI's newer models accept tools over the Responses API only.
    let default_format = if is_openai { Format::Responses } else { Format::Chat };
    let format = entry.wire.unwrap_or(default_format);
    let endpoint_path = match format {
        Format::Chat => "/chat/completions",
        Format::Responses => "/responses",
    };
    let mut endpoint = request.endpoint(base, endpoint_path, entry.allow_http)?;
    let origin = key.as_ref().map_or("it has none", |key| &key.origin).to_owned();
    if let Some(key) = key.filter(|key| key.secret.reveal() != NO_KEY) {
        endpoint = endpoint.key("authorization", "Bearer ", key.secret)?;
    }
    let (context, max_output) = (entry.context_length, entry.max_tokens);
    let overrides = ModelOverrides { context, max_output, price: entry.price, thinking: None };
    let wire: Box<dyn WireFormat> = match format {
        Format::Chat => {
            let service = if is_openai { ChatService::Openai } else { ChatService::Other };
            let thought = entry.reasoning_effort.clone().map(ReasoningEffort::Effort);
            Box::new(ChatWire {
                service,
                temperature: entry.temperature,
                thought,
                ..ChatWire::default()
            })
        }
        Format::Responses => {
            let effort = entry.reasoning_effort.clone();
            Box::new(ResponsesWire::new(entry.temperature).thinking(effort))
        }
    };
    let kind = if is_openai { "openai" } else { "a server without a default" };
    let model = request.model(kind, entry.model.as_deref())?;
    let hosted = request.hosted((endpoint, is_openai), wire, overrides, (model, origin));
    let hosted: Box<dyn Provider> = Box::new(hosted);
    Ok(match entry.native_tools {
        Some(false) => Box::new(TextCalls::new(hosted)),
        None if !is_openai && format == Format::Chat => Box::new(UnparsedCalls::new(hosted)),
        Some(true) | None => hosted,
    })
}

fn gemini(entry: &GeminiConfig, request: &ProviderRequest<'_>) -> Result<HostedProvider, Failure> {
    let key = entry.key_sources(&request.reference);
    let key = key.required()?;
    let model = request.model("gemini", entry.model.as_deref())?;
    let model = model.strip_prefix("models/").unwrap_or(&model).to_owned();
    if model.contains(['/', '?', '#', ':']) || model.contains(char::is_whitespace) {
        return Err(Failure::usage(format!("`{model}` is not a Gemini model name"))
            .hint("name one like gemini-3.5-flash"));
    }
    let method = if request.config.agent.enable_streaming {
        "streamGenerateContent?alt=sse"
    } else {
        "generateContent"
    };
    let base = request.base("gemini", entry.base_url.as_deref(), GEMINI_URL);
    let path = format!("/v1beta/models/{model}:{method}");
    let endpoint = request.endpoint(base, &path, entry.allow_http)?;
    let endpoint = endpoint.key("x-goog-api-key", "", key.secret)?;
    let is_maker = endpoint.host() == "generativelanguage.googleapis.com";
    let (context, max_output) = (entry.context_length, entry.max_tokens);
    let overrides = ModelOverrides { context, max_output, price: entry.price, thinking: None };
    let wire = Box::new(GeminiWire::new(entry.temperature));
    Ok(request.hosted((endpoint, is_maker), wire, overrides, (model, key.origin)))
}

impl ProviderRequest<'_> {
    /// Returns the configured base URL, else the one from the environment, else the service's own.
    fn base<'b>(
        &'b self,
        kind: &str,
        configured: Option<&'b str>,
        default_url: &'b str,
    ) -> BaseUrl<'b> {
        let configured_url = self.config.providers.base_url(kind, configured);
        configured_url.unwrap_or(BaseUrl { url: default_url, variable: None })
    }

    fn endpoint(
        &self,
        base: BaseUrl<'_>,
        path: &str,
        allow_http: bool,
    ) -> Result<Endpoint, Failure> {
        let idle_timeout = Duration::from_secs(self.config.agent.timeout_seconds);
        let endpoint = Endpoint::new(base.url, path, allow_http);
        let endpoint = endpoint.map_err(|failure| match base.variable {
            Some(name) => Failure { what: format!("{} ({name})", failure.what), ..failure },
            None => failure,
        });
        Ok(endpoint?.idle_timeout(idle_timeout))
    }

    fn model(&self, kind: &str, configured: Option<&str>) -> Result<String, Failure> {
        let name = self.model.or(configured).map(str::to_owned);
        name.or_else(|| models::default_model(kind)).ok_or_else(|| {
            Failure::usage(format!("`{}` names no model", self.reference))
                .hint(format!("set `model` in [providers.{}], or give --model", self.reference))
        })
    }

    fn hosted(
        &self,
        (endpoint, is_maker): (Endpoint, bool),
        wire: Box<dyn WireFormat>,
        overrides: ModelOverrides,
        (model, key): (String, String),
    ) -> HostedProvider {
        let known = models::known(&model, &self.config.models, is_maker);
        let agent = &self.config.agent;
        let (facts, price) = models::facts(&self.reference, &model, overrides, agent, known);
        let advice = Advice { provider: self.reference.clone(), model, key };
        let streamed = self.config.agent.enable_streaming;
        HostedProvider { endpoint, login: None, wire, facts, price, advice, streamed }
    }
}
