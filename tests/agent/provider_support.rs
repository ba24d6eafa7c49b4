//! Sends requests to a provider of the scripted server and records everything that is streamed.

use std::time::{Duration, Instant};

use base::config::Config;
use provider::fallback::FallbackModels;
use provider::message::{Message, MessageRole, Reply};
use provider::retry::{Backoff, RetryingProvider};
use provider::{ChatRequest, Delta, Provider, ProviderError, ToolDefinition, from_config};
use serde_json::json;
use testkit::model_server::ModelServer;

pub const WIRES: [&str; 5] = ["anthropic", "openai", "responses", "gemini", "databricks"];

/// The result of a request.
#[allow(dead_code)] // shown when a test fails
#[derive(Debug)]
pub struct RequestResult {
    pub result: Result<Reply, ProviderError>,
    pub text: String,
    pub reasoning: String,
    pub retries: Vec<(String, Duration)>,
    pub took: Duration,
}

impl RequestResult {
    pub fn reply(&self) -> &Reply {
        self.result.as_ref().expect("the provider replies")
    }

    pub fn error(&self) -> String {
        self.result.as_ref().expect_err("the provider refuses").failure().full_text()
    }
}

pub fn config(text: &str) -> Config {
    toml::from_str(text).expect("a configuration")
}

/// Creates a provider of the server with quick retries: a second is 20 ms.
pub fn provider(server: &ModelServer, wire: &str, more: &str) -> Box<dyn Provider> {
    let config = config(&format!("{}{more}", server.config_toml(wire)));
    let kind = if wire == "responses" { "openai" } else { wire };
    let inner = from_config::by_reference(&config, &format!("{kind}.scripted"), None);
    let pace = Backoff::fixed(Duration::from_millis(20));
    Box::new(RetryingProvider::new(FallbackModels::new(inner.expect("a provider"), None), 3, pace))
}

pub fn tools() -> Vec<ToolDefinition> {
    let tool = |name: &str| ToolDefinition {
        name: name.to_owned(),
        description: format!("The tool {name}."),
        parameters: json!({"type": "object", "properties": {"command": {"type": "string"}}}),
    };
    vec![tool("read_file"), tool("shell")]
}

pub fn ask(provider: &dyn Provider, messages: &[Message]) -> RequestResult {
    let runtime = runtime();
    runtime.block_on(ask_async(provider, messages))
}

pub async fn ask_async(provider: &dyn Provider, messages: &[Message]) -> RequestResult {
    let tools = tools();
    let request = ChatRequest {
        system: "You are terse.",
        messages,
        tools: &tools,
        max_output: 1000,
        session: "s-1",
    };
    let (mut text, mut reasoning, mut retries) = (String::new(), String::new(), Vec::new());
    let mut hear = |delta: Delta<'_>| match delta {
        Delta::Text(more) => text.push_str(more),
        Delta::Reasoning(more) => reasoning.push_str(more),
        Delta::Retry { reason: why, after, .. } => retries.push((why, after)),
        Delta::Notice(_) | Delta::Ping => {}
    };
    let begin = Instant::now();
    let result = provider.ask(&request, &mut hear).await;
    RequestResult { result, text, reasoning, retries, took: begin.elapsed() }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub fn user(text: &str) -> Vec<Message> {
    vec![Message::text(MessageRole::User, text)]
}

/// Sends one request to a new server with the given wire format.
pub fn ask_once(
    wire: &str,
    script: impl Into<testkit::model_server::script::Script>,
) -> (ModelServer, RequestResult) {
    let server = ModelServer::start(script);
    let asked = ask(provider(&server, wire, "").as_ref(), &user("go"));
    (server, asked)
}
