//! Opens a serving endpoint of Databricks, with a token or a login.

use base::config::Config;
use base::config::api_key::ApiKey;
use base::config::base_url::BaseUrl;
use base::config::providers::DatabricksConfig;
use base::failure::{Failure, Result};

use super::{ProviderRequest, check_output_limit, resolve_name};
use crate::hosted::HostedProvider;
use crate::http;
use crate::models::ModelOverrides;
use crate::oauth::{DatabricksWorkspace, OauthLogin};
use crate::openai_chat::dialect::ChatService;
use crate::openai_chat::{ChatWire, ReasoningEffort};

/// Opens the provider of a configuration entry.
pub(super) fn open(
    entry: &DatabricksConfig,
    request: &ProviderRequest<'_>,
) -> Result<HostedProvider> {
    if entry.use_oauth && (entry.token.is_some() || entry.api_key_command.is_some()) {
        return Err(Failure::usage(format!("`{}` has use_oauth and a token", request.reference))
            .hint("omit one of them"));
    }
    let host = host(entry, &request.reference)?;
    let key = if entry.use_oauth { None } else { Some(token(entry, request)?) };
    let model = request.model("databricks", entry.model.as_deref())?;
    if !model.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Err(Failure::usage(format!("`{model}` is not a serving endpoint name"))
            .hint("name one like databricks-claude-sonnet-4-5"));
    }
    let path = format!("/serving-endpoints/{model}/invocations");
    let base = BaseUrl { url: &host, variable: None };
    let mut endpoint = request.endpoint(base, &path, entry.allow_http)?;
    let (origin, login) = match key {
        Some(key) => {
            endpoint = endpoint.key("authorization", "Bearer ", key.secret)?;
            (key.origin, None)
        }
        None => {
            let workspace = new_workspace(&request.reference, host, entry);
            (format!("the login of `{}`", workspace.command()), Some(OauthLogin::of(workspace)?))
        }
    };
    let (context, max_output) = (entry.context_length, entry.max_tokens);
    let thinking = entry.thinking_budget_tokens;
    let overrides = ModelOverrides { context, max_output, price: entry.price, thinking };
    let (service, effort) = reasoning_effort(entry, &model, &request.reference)?;
    let wire = ChatWire {
        service,
        temperature: entry.temperature,
        thought: effort,
        ..ChatWire::default()
    };
    let hosted = request.hosted((endpoint, false), Box::new(wire), overrides, (model, origin));
    check_output_limit(HostedProvider { login, ..hosted }, thinking)
}

/// Whether the endpoint serves an Anthropic model, and its reasoning setting. A custom endpoint
/// name does not tell; a thinking budget does, since only Anthropic models accept one.
fn reasoning_effort(
    entry: &DatabricksConfig,
    model: &str,
    reference: &str,
) -> Result<(ChatService, Option<ReasoningEffort>)> {
    let is_claude = model.to_ascii_lowercase().contains("claude");
    match (&entry.reasoning_effort, entry.thinking_budget_tokens) {
        (None, None) if is_claude => Ok((ChatService::DatabricksClaude, None)),
        (None, None) => Ok((ChatService::Databricks, None)),
        (None, Some(budget)) => {
            Ok((ChatService::DatabricksClaude, Some(ReasoningEffort::Budget(budget))))
        }
        (Some(word), None) if !is_claude => {
            Ok((ChatService::Databricks, Some(ReasoningEffort::Effort(word.clone()))))
        }
        (Some(_), _) => Err(Failure::usage(format!("`{reference}` sets reasoning_effort"))
            .because("models of Anthropic think by tokens")
            .hint("set `thinking_budget_tokens` instead")),
    }
}

/// Returns the workspace that a login is for, and whether its provider uses a login. `name` selects
/// one of several entries.
pub fn workspace(config: &Config, name: Option<&str>) -> Result<(DatabricksWorkspace, bool)> {
    let (reference, name) = resolve_name(config, "databricks", name)?;
    let entry = config.providers.databricks.get(&name).cloned().unwrap_or_default();
    let host = host(&entry, &reference)?;
    http::address(&host, "", entry.allow_http)?;
    Ok((new_workspace(&reference, host, &entry), entry.use_oauth))
}

fn new_workspace(reference: &str, host: String, entry: &DatabricksConfig) -> DatabricksWorkspace {
    DatabricksWorkspace { reference: reference.to_owned(), host, allow_http: entry.allow_http }
}

/// Returns the origin of the workspace, without a trailing slash.
fn host(entry: &DatabricksConfig, reference: &str) -> Result<String> {
    entry.workspace_url().ok_or_else(|| {
        Failure::usage(format!("`{reference}` has no workspace"))
            .hint("set `host` to its address, or DATABRICKS_HOST")
    })
}

fn token(entry: &DatabricksConfig, request: &ProviderRequest<'_>) -> Result<ApiKey> {
    entry
        .key_sources(&request.reference)
        .required()
        .map_err(|failure| failure.hint("or sign in: `use_oauth = true`, then g3 login databricks"))
}
