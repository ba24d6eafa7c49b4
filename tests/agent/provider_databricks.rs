//! Tests of Databricks serving endpoints: their differences from other chat completions services.

use provider::message::{Message, MessageRole};
use provider::{ChatRequest, Provider, ToolDefinition, from_config};
use serde_json::{Value, json};
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;

use crate::provider_support::{config, runtime, user};

fn provider(server: &ModelServer, more: &str) -> Result<Box<dyn Provider>, String> {
    let host = server.url();
    let text = format!("[providers.databricks.x]\nhost = \"{host}\"\ntoken = \"t\"\n{more}");
    from_config::by_reference(&config(&text), "databricks.x", None).map_err(|why| why.to_string())
}

fn tools() -> Vec<ToolDefinition> {
    let tool = |name: &str, properties: Value| ToolDefinition {
        name: name.to_owned(),
        description: "A tool.".to_owned(),
        parameters: json!({"type": "object", "properties": properties}),
    };
    vec![tool("shell", json!({"command": {"type": "string"}})), tool("todo_read", json!({}))]
}

/// Sends one request and returns the last body that was sent.
fn sent(server: &ModelServer, provider: &dyn Provider, messages: &[Message]) -> Value {
    let tools = tools();
    let request = ChatRequest {
        system: "Be terse.",
        messages,
        tools: &tools,
        max_output: 8000,
        session: "s-1",
    };
    runtime().block_on(provider.ask(&request, &mut |_| {})).expect("a reply");
    server.requests().last().unwrap().body.clone()
}

#[test]
fn an_anthropic_model_behind_chat_gets_its_own_parameters() {
    let server = ModelServer::start(vec![ScriptedReply::says("ok"); 6]);
    let more = "model = \"databricks-claude-sonnet-4-5\"\nthinking_budget_tokens = 2000\n\
                temperature = 0.2\n";
    let provider = provider(&server, more).unwrap();
    let mut messages = Vec::new();
    for turn in 0..6 {
        messages.extend(user(&format!("question {turn}")));
        let body = sent(&server, provider.as_ref(), &messages);
        let marks = body.to_string().matches("cache_control").count();
        assert_eq!(marks, 2 + (turn + 1).min(2), "{body}");
        let last = body["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["content"][0]["cache_control"], json!({"type": "ephemeral"}));
        assert_eq!(body["messages"][0]["content"][0]["text"], "Be terse.");
        assert_eq!(body["tools"][1]["function"]["cache_control"]["type"], "ephemeral");
        assert_eq!(body["tools"][1]["function"]["parameters"], json!({"type": "object"}));
        assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 2000}));
        assert_eq!(
            (&body["temperature"], &body["reasoning_effort"], &body["prompt_cache_key"]),
            (&Value::Null, &Value::Null, &Value::Null)
        );
        messages.push(Message::text(MessageRole::Assistant, "answer"));
    }
}

#[test]
fn other_models_get_an_effort_and_no_cache_markers() {
    let server = ModelServer::start(ScriptedReply::says("ok"));
    let more = "model = \"databricks-gpt-oss-120b\"\nreasoning_effort = \"low\"\n";
    let body = sent(&server, provider(&server, more).unwrap().as_ref(), &user("go"));
    assert_eq!((&body["reasoning_effort"], &body["thinking"]), (&json!("low"), &Value::Null));
    assert!(!body.to_string().contains("cache_control"), "{body}");
    assert_eq!(body["tools"][1]["function"]["parameters"], json!({"type": "object"}));

    let more = "model = \"databricks-claude-haiku-4-5\"\nreasoning_effort = \"low\"\n";
    let refused = provider(&server, more).err().unwrap();
    assert!(refused.contains("set `thinking_budget_tokens` instead"), "{refused}");
}

#[test]
fn rejected_cache_markers_are_omitted_from_then_on() {
    let no = json!({"error_code": "BAD_REQUEST", "message": "cache_control: unknown field"});
    let refusal = ScriptedReply::status(400).body("application/json", no.to_string());
    let server =
        ModelServer::start([refusal, ScriptedReply::says("ok"), ScriptedReply::says("ok")]);
    let provider = provider(&server, "model = \"my-claude\"\n").unwrap();
    for _ in 0..2 {
        let body = sent(&server, provider.as_ref(), &user("go"));
        assert!(!body.to_string().contains("cache_control"), "{body}");
    }
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn incomplete_usage_in_every_chunk_is_counted_once() {
    let server =
        ModelServer::start(ScriptedReply::says("hi").thinks("hm").usage(1000, 100).cached(900, 50));
    let provider = provider(&server, "model = \"claude\"\n").unwrap();
    let messages = user("go");
    let asked = crate::provider_support::ask(provider.as_ref(), &messages);
    let usage = asked.reply().usage;
    assert_eq!((usage.input, usage.output), (1000, 100));
    assert_eq!((usage.cache_read, usage.cache_write), (900, 50));
}
