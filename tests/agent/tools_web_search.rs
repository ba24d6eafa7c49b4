//! Tests of `codesearch` and `websearch` with a service on loopback.

use serde_json::{Value, json};
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::tools_support::Bench;
use crate::web_support::{Site, answer};

/// Creates a bench whose search service is a site.
fn searching(more: &str) -> (Bench, Site) {
    let (bench, site) = (Bench::new("tools-api"), Site::new());
    bench.env.config(&format!("[tools.codesearch]\nendpoint = \"{}\"\n{more}", site.url("/mcp")));
    (bench, site)
}

fn events(value: &Value) -> String {
    format!("event: message\ndata: [DONE]\n\ndata: nonsense\n\ndata: {value}\n\n")
}

#[test]
fn codesearch_queries_its_service_and_reads_events_or_json() {
    let (bench, site) = searching("api_key = \"key-of-mine\"\n");
    let found = json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "use axum;"}]}});
    site.page("/mcp", "text/event-stream", events(&found));
    for (given, sent) in
        [(json!(null), 5000), (json!(7), 1000), (json!(90_000), 50_000), (json!("6000"), 6000)]
    {
        let args = json!({ "query": " axum state ", "tokens_num": given });
        assert_eq!(bench.call("codesearch", args).works(), "use axum;");
        let asked = site.asked().pop().unwrap();
        let body: Value = serde_json::from_str(&asked.body).unwrap();
        assert_eq!(body["method"], "tools/call");
        assert_eq!(body["params"]["name"], "get_code_context_exa");
        assert_eq!(body["params"]["arguments"], json!({"query": "axum state", "tokensNum": sent}));
        assert_eq!(asked.headers["x-api-key"], "key-of-mine");
        assert!(asked.headers["accept"].contains("text/event-stream"));
    }
    bench.call("codesearch", json!({"query": "x", "tokensNum": 2000})).works();
    assert!(site.asked().pop().unwrap().body.contains("\"tokensNum\":2000"));
    site.page("/mcp", "application/json", found.to_string());
    assert_eq!(bench.call("codesearch", json!({"query": "x"})).works(), "use axum;");
    site.page("/mcp", "application/json", "{}");
    bench.call("codesearch", json!({"query": "x"})).says("No results found").works();
    bench.call("codesearch", json!({"query": " "})).says("`query` is empty").fails("validation");
}

#[test]
fn websearch_passes_its_parameters_on() {
    let (bench, site) = searching("");
    let found = json!({"result": {"content": [{"type": "text", "text": "https://a.example"}]}});
    site.page("/mcp", "text/event-stream", events(&found));
    bench.call("websearch", json!({"query": "plums"})).says("https://a.example").works();
    bench
        .call("websearch", json!({"query": "plums", "num_results": 99, "livecrawl": "preferred", "search_type": "deep", "context_max_characters": 20_000}))
        .works();
    bench.call("websearch", json!({"query": "x", "livecrawl": "never"})).fails("validation");
    let sent: Vec<Value> =
        site.asked().iter().map(|asked| serde_json::from_str(&asked.body).unwrap()).collect();
    assert_eq!(sent[0]["params"]["name"], "web_search_exa");
    assert_eq!(
        sent[0]["params"]["arguments"],
        json!({"query": "plums", "numResults": 8, "livecrawl": "fallback", "type": "auto", "contextMaxCharacters": 10_000})
    );
    assert_eq!(
        sent[1]["params"]["arguments"],
        json!({"query": "plums", "numResults": 20, "livecrawl": "preferred", "type": "deep", "contextMaxCharacters": 20_000})
    );
    assert!(!site.asked()[0].headers.contains_key("x-api-key"));
}

#[test]
fn a_failed_search_has_a_hint_and_hides_the_key() {
    let (bench, site) = searching("api_key = \"key-of-mine\"\n");
    let call = || bench.call("codesearch", json!({"query": "x"}));
    let error = json!({"jsonrpc": "2.0", "error": {"code": -32000, "message": "key-of-mine has no credit"}});
    site.page("/mcp", "application/json", error.to_string());
    let said = call();
    said.says("has no credit").fails("failed");
    assert!(!said.text.contains("key-of-mine"), "{said:?}");
    site.has("/mcp", answer("401 Unauthorized", &[], "who is key-of-mine?"));
    let said = call();
    said.says("answers 401").says("[tools.codesearch]").says("EXA_API_KEY").fails("failed");
    assert!(!said.text.contains("key-of-mine"), "{said:?}");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    bench.env.config(&format!("[tools.codesearch]\nendpoint = \"http://{free}/\"\n"));
    call().says("cannot be asked").says("`endpoint`").fails("failed");
    bench.env.config("[tools.codesearch]\nendpoint = \"http://search.example/\"\n");
    call().says("plain http").says("[tools.codesearch]").fails("failed");
}

#[test]
fn the_key_of_the_environment_is_sent_to_no_other_service() {
    let (mut bench, site) = searching("");
    bench.env.set("EXA_API_KEY", "key-of-env");
    let found = json!({"result": {"content": [{"type": "text", "text": "x"}]}});
    site.page("/mcp", "application/json", found.to_string());
    bench.call("codesearch", json!({"query": "x"})).works();
    assert!(!site.asked()[0].headers.contains_key("x-api-key"));
}

#[test]
fn a_scripted_agent_searches() {
    let site = Site::new();
    let found = json!({"result": {"content": [{"type": "text", "text": "answer of the service"}]}});
    site.page("/mcp", "text/event-stream", events(&found));
    let stage = Stage::new([
        ScriptedReply::call("codesearch", json!({ "query": "how" })),
        ScriptedReply::call("websearch", json!({ "query": "where" })),
        ScriptedReply::says("done"),
    ]);
    let model = stage.model.config_toml("anthropic");
    stage
        .env
        .config(&format!("{model}\n[tools.codesearch]\nendpoint = \"{}\"\n", site.url("/mcp")));
    stage.g3(["look it up"]).ok();
    let tools: Vec<Value> =
        site.asked().iter().map(|asked| serde_json::from_str(&asked.body).unwrap()).collect();
    assert_eq!(tools[0]["params"]["name"], "get_code_context_exa");
    assert_eq!(tools[1]["params"]["name"], "web_search_exa");
    assert!(stage.asked()[2].tool_results().last().unwrap().1.contains("answer of the service"));
}
