//! Tests of features of Anthropic's own service: cached prefixes, signed thinking, the long
//! context. Checked in the requests that the server received.

use serde_json::{Value, json};
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::{Stage, of_type};

fn stage(script: impl Into<Script>, more: &str) -> Stage {
    let stage = Stage::new(script);
    stage.env.config(&format!("{}{more}", stage.model.config_toml("anthropic")));
    stage
}

fn marks(body: &Value) -> usize {
    body.to_string().matches("\"cache_control\"").count()
}

/// Returns the positions of the cache markers in the conversation, counted from its end.
fn places(body: &Value) -> Vec<usize> {
    let messages = body["messages"].as_array().unwrap().iter().rev().enumerate();
    messages.filter(|(_, message)| marks(message) > 0).map(|(at, _)| at).collect()
}

#[test]
fn after_forty_results_there_are_four_cache_markers_at_the_end() {
    let call = |n: usize| ScriptedReply::call("shell", json!({"command": format!("echo {n}")}));
    let script =
        (0..40).map(call).chain([ScriptedReply::says("done"), ScriptedReply::says("more")]);
    let stage = stage(Script::new(script), "");
    stage.g3(["--json", "count"]).ok();
    stage.g3(["--json", "--resume"]).ok();
    let asked = stage.asked();
    assert_eq!(asked.len(), 42);
    for (turn, request) in asked.iter().enumerate() {
        let expected = if turn == 0 { 3 } else { 4 };
        assert_eq!(marks(&request.body), expected, "request {turn}");
        assert_eq!(places(&request.body)[0], 0, "request {turn}");
        assert!(places(&request.body).iter().all(|place| *place <= 2), "request {turn}");
    }
    let journal = std::fs::read_to_string(stage.session_dir().join("session.jsonl")).unwrap();
    assert!(!journal.contains("cache_control"), "marks are never stored");
}

#[test]
fn a_cached_prefix_has_the_configured_lifetime() {
    for (word, ttl) in
        [("ephemeral", Value::Null), ("5minute", json!("5m")), ("1hour", json!("1h"))]
    {
        let stage = stage(ScriptedReply::says("ok"), &format!("cache_config = \"{word}\"\n"));
        stage.g3(["--json", "go"]).ok();
        let body = &stage.asked()[0].body;
        assert_eq!(body["system"][0]["cache_control"]["type"], "ephemeral");
        assert_eq!(body["system"][0]["cache_control"]["ttl"], ttl, "{word}");
    }
}

#[test]
fn signed_thinking_is_sent_back_before_its_calls_and_fits_the_output_limit() {
    let first = ScriptedReply::new().thinks("hm").calls("shell", json!({"command": "true"}));
    let second = ScriptedReply::call("shell", json!({"command": "echo 2"}));
    let more = "thinking_budget_tokens = 40000\ntemperature = 0.5\n";
    let stage = stage([first, second, ScriptedReply::says("ok")], more);
    stage.g3(["--json", "--model", "claude-opus-4-6", "go"]).ok();
    let asked = stage.asked();
    for request in &asked {
        let body = &request.body;
        assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 40000}));
        assert!(body["max_tokens"].as_u64().unwrap() > 41024, "{}", body["max_tokens"]);
        assert_eq!(body["temperature"], Value::Null);
    }
    let block = &asked[2].body["messages"][1]["content"][0];
    assert_eq!(*block, json!({"type": "thinking", "thinking": "hm", "signature": "signature-1"}));
}

#[test]
fn a_turn_started_without_thinking_continues_without_it() {
    let call = ScriptedReply::call("shell", json!({"command": "true"}));
    let script = [call, ScriptedReply::says("ok"), ScriptedReply::says("again")];
    let stage = stage(script, "thinking_budget_tokens = 2000\n");
    stage.g3(["--json", "go"]).ok();
    stage.g3(["--json", "--resume"]).ok();
    let thinks: Vec<bool> =
        stage.asked().iter().map(|request| request.body["thinking"].is_object()).collect();
    assert_eq!(thinks, [true, false, true]);
}

#[test]
fn a_thinking_budget_without_space_for_an_answer_is_rejected() {
    let stage = stage([], "thinking_budget_tokens = 8000\nmax_tokens = 9000\n");
    let ran = stage.g3(["--json", "go"]);
    ran.exits(2).output_contains("thinking_budget_tokens").output_contains("max_tokens");
}

#[test]
fn the_long_context_sets_its_header_and_window() {
    let stage = stage(ScriptedReply::says("ok"), "enable_1m_context = true\n");
    let ran = stage.g3(["--json", "go"]);
    ran.ok();
    assert_eq!(of_type(&ran.json_lines(), "context")[0]["limit"], 1_000_000);
    assert_eq!(stage.asked()[0].header("anthropic-beta"), Some("context-1m-2025-08-07"));
}
