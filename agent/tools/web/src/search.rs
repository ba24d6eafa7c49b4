//! `codesearch` and `websearch`: ask a search service over JSON-RPC.

use std::time::Duration;

use base::config::api_key::from_environment;
use base::config::hosted_services::CODESEARCH_URL;
use base::secret::Secret;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{reply, truncate};
use gate::Access;
use provider::http::Endpoint;
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};
use tools::web::guarded_client;

#[derive(Deserialize)]
struct CodeArgs {
    query: String,
    tokens_num: Option<i64>,
}

#[derive(Deserialize)]
struct PageArgs {
    query: String,
    num_results: Option<i64>,
    livecrawl: Option<Crawl>,
    search_type: Option<Kind>,
    context_max_characters: Option<i64>,
}

/// When the service fetches a page again.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Crawl {
    /// Only if it has not stored the page.
    #[default]
    Fallback,
    /// Whenever possible.
    Preferred,
}

/// How thoroughly the service searches.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// As the service decides.
    #[default]
    Auto,
    /// Quickly.
    Fast,
    /// Thoroughly.
    Deep,
}

/// The environment variable with its key.
const VARIABLE: &str = "EXA_API_KEY";
/// Timeout of an answer.
const TIME: Duration = Duration::from_secs(30);
/// Maximum size of an answer in bytes.
const MOST_BYTES: usize = 5 << 20;
/// Number of tokens of an answer: default, minimum, maximum.
const TOKENS: (i64, i64, i64) = (5_000, 1_000, 50_000);
/// Number of pages of an answer: default, minimum, maximum.
const PAGES: (i64, i64, i64) = (8, 1, 20);
/// Number of characters of an answer about pages: default, minimum, maximum.
const CHARACTERS: (i64, i64, i64) = (10_000, 1_000, 50_000);
/// Characters per token; a token rarely has more.
const CHARACTERS_OF_TOKEN: usize = 5;

/// Returns the access to the service's host; it needs no question if the user configured the
/// service.
fn reaches(call: &Invocation<'_>) -> Vec<Access> {
    let config = &call.context.services.web.codesearch;
    let free = config.endpoint.is_some() || config.api_key.is_some();
    let url = Url::parse(address(call));
    url.map(|url| Access::Fetch { host: guarded_client::host(&url), allowed: free })
        .into_iter()
        .collect()
}

/// The `codesearch` tool: searches the web for code and documentation.
pub(crate) struct CodeSearchTool;

impl Tool for CodeSearchTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("web.code", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::with_access(reaches(call))
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(code(call))
    }
}

/// Searches for code and documentation.
async fn code(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let CodeArgs { query, tokens_num } = call.decode()?;
    let tokens = within(tokens_num, TOKENS);
    let args = json!({ "query": asked(call, &query)?, "tokensNum": tokens });
    let most = usize::try_from(tokens).unwrap_or(0) * CHARACTERS_OF_TOKEN;
    ask(call, "get_code_context_exa", args, most.max(truncate::MOST)).await
}

/// The `websearch` tool.
pub(crate) struct WebSearchTool;

impl Tool for WebSearchTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("web.search", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::with_access(reaches(call))
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(pages(call))
    }
}

/// Searches for pages.
async fn pages(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let args: PageArgs = call.decode()?;
    let args = json!({
        "query": asked(call, &args.query)?,
        "numResults": within(args.num_results, PAGES),
        "livecrawl": args.livecrawl.unwrap_or_default(),
        "type": args.search_type.unwrap_or_default(),
        "contextMaxCharacters": within(args.context_max_characters, CHARACTERS),
    });
    ask(call, "web_search_exa", args, truncate::MOST).await
}

fn within(value: Option<i64>, (usual, least, most): (i64, i64, i64)) -> i64 {
    value.unwrap_or(usual).clamp(least, most)
}

fn asked<'a>(call: &Invocation<'_>, query: &'a str) -> Result<&'a str, ToolError> {
    match query.trim() {
        "" => Err(ToolError::invalid(format!("{}: `query` is empty", call.profile_tool.name))),
        query => Ok(query),
    }
}

fn address<'a>(call: &'a Invocation<'_>) -> &'a str {
    call.context.services.web.codesearch.endpoint.as_deref().unwrap_or(CODESEARCH_URL)
}

async fn ask(
    call: &Invocation<'_>,
    tool: &str,
    args: Value,
    most: usize,
) -> Result<ToolOutput, ToolError> {
    let endpoint = endpoint(call)?;
    let body = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": { "name": tool, "arguments": args },
    });
    let work = tokio::time::timeout(TIME, exchange(&endpoint, &body));
    let done = match call.context.cancel.run_until_cancelled(work).await {
        Some(Ok(done)) => done?,
        Some(Err(_)) => {
            let text = format!("{} has no answer after {} s", endpoint.host(), TIME.as_secs());
            return Err(ToolError::new(ToolErrorKind::Timeout, text));
        }
        None => return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user")),
    };
    let query = args["query"].clone();
    let text = done.unwrap_or_else(|| {
        "No results found. Other words, or the name of the library, may help.".to_owned()
    });
    let text = truncate::truncate(call, &text, most, "search");
    Ok(ToolOutput::success(text).with(json!({ "query": query, "service": endpoint.host() })))
}

/// Returns the service as configured.
fn endpoint(call: &Invocation<'_>) -> Result<Endpoint, ToolError> {
    let config = &call.context.services.web.codesearch;
    let wrong = |failure: base::failure::Failure| {
        let reason = format!("{}: {}", call.profile_tool.name, failure.sentence());
        ToolError::failed(format!("{reason}. `endpoint` in [tools.codesearch] names the service"))
    };
    // A key in the environment is meant for the default service.
    let configured = config.api_key.clone();
    let key: Option<Secret> = match &config.endpoint {
        Some(_) => configured,
        None => configured.or_else(|| from_environment(VARIABLE)),
    };
    let endpoint = Endpoint::new(address(call), "", false).map_err(wrong)?;
    let endpoint =
        endpoint.header("accept", "application/json, text/event-stream").idle_timeout(TIME);
    match key {
        Some(key) => endpoint.key("x-api-key", "", key).map_err(wrong),
        None => Ok(endpoint),
    }
}

/// Sends a request and reads until the answer is complete; `None` if there is none.
async fn exchange(endpoint: &Endpoint, body: &Value) -> Result<Option<String>, ToolError> {
    let host = endpoint.host();
    let hint = "`endpoint` and `api_key` in [tools.codesearch] of the user's configuration (or the \
                variable EXA_API_KEY) say which service is asked, and with which key";
    let sent = endpoint.post(body.to_string().into_bytes(), None).await;
    let mut response = sent.map_err(|error| {
        let message = endpoint.redact_key(&error.failure().sentence());
        ToolError::failed(format!("the search service cannot be asked: {message}. {hint}"))
    })?;
    let status = response.status();
    if !(200..300).contains(&status) {
        let message = String::from_utf8_lossy(&response.head(2_000).await).into_owned();
        let message = endpoint.redact_key(&base::text::printable(&message));
        let message = base::text::head(message.trim(), 500);
        return Err(ToolError::failed(format!("{host} answers {status}: {message}. {hint}")));
    }
    let failed = |message: String| {
        let message = endpoint.redact_key(&base::text::printable(&message));
        ToolError::failed(format!("{host} says: {message}"))
    };
    let mut answer = reply::SearchReply::default();
    let broke = |error| ToolError::failed(format!("the answer of {host} broke off: {error}"));
    while let Some(bytes) = response.next(None).await.map_err(broke)? {
        if let Some(done) = answer.take(&bytes) {
            return done.map(Some).map_err(failed);
        }
        if answer.length() > MOST_BYTES {
            return Err(ToolError::failed(format!(
                "{host} sends more than 5 MiB without an answer"
            )));
        }
    }
    answer.end().transpose().map_err(failed)
}
