//! Tests of opening providers from a configuration: references, keys, URLs, headers, models,
//! prices.

use provider::message::{ContentPart, Message, MessageRole, StopReason};
use provider::{Provider, from_config};
use serde_json::json;
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;

use crate::provider_support::{ask, config, provider, runtime, user};

fn opened(text: &str, reference: &str) -> Result<Box<dyn Provider>, String> {
    from_config::by_reference(&config(text), reference, None).map_err(|failure| failure.to_string())
}

fn refused(text: &str, reference: &str) -> String {
    opened(text, reference).err().expect("it is refused")
}

#[test]
fn an_unknown_reference_lists_the_known_ones() {
    let two = "[providers.openai.a]\n[providers.openai.b]\n";
    assert!(refused(two, "openai.c").contains("use one of: openai.a, openai.b"));
    assert!(refused(two, "openai").contains("name one: openai.a, openai.b"));
    assert!(refused(two, "mistral.x").contains("unknown type `mistral`"));
    assert!(refused("", "anthropic.main").contains("add [providers.anthropic.main]"));
    assert!(refused("", "databricks").contains("has no workspace"));
    let both = "[providers.anthropic.x]\napi_key = \"k\"\nthinking_budget_tokens = 2000\n\
                reasoning_effort = \"low\"\n";
    assert!(refused(both, "anthropic").contains("sets both thinking_budget_tokens"));
}

#[test]
fn the_older_name_of_a_compatible_server_is_accepted() {
    let stage = crate::agent_env::Stage::new([ScriptedReply::says("from the server")]);
    let own = stage.model.config_toml("openai");
    let table = own.replace("[providers.openai.scripted]", "[providers.openai_compatible.mine]");
    let other = "\n[providers.anthropic.other]\nmodel = \"m\"\napi_key = \"k\"\n";
    let default = table.replace("\"openai.scripted\"", "\"anthropic.other\"");
    stage.env.config(&format!("{default}{other}"));
    let ran = stage.g3(["--provider", "openai_compatible.mine", "hi"]);
    assert_eq!(ran.ok(), "from the server");
}

#[test]
fn plain_http_to_other_machines_requires_a_setting() {
    let with = |url: &str, more: &str| {
        format!("[providers.openai.x]\nmodel = \"m\"\nbase_url = \"{url}\"\n{more}")
    };
    assert!(refused(&with("http://example.com/v1", ""), "openai.x").contains("allow_http"));
    assert!(refused(&with("ftp://example.com", ""), "openai.x").contains("neither https nor http"));
    assert!(refused(&with("https://me:pw@example.com", ""), "openai.x").contains("password"));
    for good in
        ["http://127.0.0.1:1/v1", "http://localhost/v1", "http://[::1]:8/v1", "https://e.com"]
    {
        assert!(opened(&with(good, ""), "openai.x").is_ok(), "{good}");
    }
    assert!(opened(&with("http://example.com/v1", "allow_http = true"), "openai.x").is_ok());
}

#[test]
fn a_missing_key_or_model_is_reported_before_any_request() {
    let text = "[providers.anthropic.x]\napi_key_command = [\"false\"]\n";
    assert!(refused(text, "anthropic.x").contains("returned no key"));
    let text = "[providers.openai.x]\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    assert!(refused(text, "openai.x").contains("set `model` in [providers.openai.x]"));
    let text = "[providers.databricks.x]\nhost = \"x.example.com\"\ntoken = \"k\"\n";
    assert!(refused(text, "databricks.x").contains("set `model` in [providers.databricks.x]"));
    assert!(
        refused(&format!("{text}model = \"a/../b\"\n"), "databricks.x").contains("not a serving")
    );
    assert!(
        refused(&format!("{text}use_oauth = true\n"), "databricks.x")
            .contains("has use_oauth and a token")
    );
    let text = "[providers.gemini.x]\nmodel = \"a/b\"\napi_key = \"k\"\n";
    assert!(refused(text, "gemini.x").contains("not a Gemini model name"));
}

fn ask_with(server: &ModelServer, text: &str, reference: &str) {
    let provider = opened(text, reference).unwrap();
    assert_eq!(ask(provider.as_ref(), &user("go")).reply().message.full_text(), "hi");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn keys_are_sent_as_each_service_expects() {
    let server = ModelServer::start(ScriptedReply::says("hi"));
    ask_with(&server, &server.config_toml("anthropic"), "anthropic.scripted");
    let request = &server.requests()[0];
    assert_eq!(request.path, "/v1/messages");
    assert_eq!(request.header("x-api-key"), Some("test-key"));
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(request.header("authorization"), None);

    let server = ModelServer::start(ScriptedReply::says("hi"));
    let text = format!(
        "[providers.openai.x]\nmodel = \"m\"\nbase_url = \"{}/\"\napi_key_command = \"echo secret-1\"\n",
        server.openai_url()
    );
    ask_with(&server, &text, "openai_compatible.x");
    let request = &server.requests()[0];
    assert_eq!(request.path, "/v1/chat/completions");
    assert_eq!(request.header("authorization"), Some("Bearer secret-1"));

    let server = ModelServer::start(ScriptedReply::says("hi"));
    let text = format!(
        "[providers.openai.x]\nmodel = \"m\"\nbase_url = \"{}\"\napi_key = \"none\"\n",
        server.openai_url()
    );
    ask_with(&server, &text, "openai");
    assert_eq!(server.requests()[0].header("authorization"), None);
}

#[test]
fn the_long_context_is_requested_by_a_header() {
    let server = ModelServer::start(ScriptedReply::says("hi"));
    let text = format!("{}enable_1m_context = true\n", server.config_toml("anthropic"));
    let provider = opened(&text, "anthropic").unwrap();
    assert_eq!(provider.facts().context, 1_000_000);
    ask(provider.as_ref(), &user("go"));
    assert_eq!(server.requests()[0].header("anthropic-beta"), Some("context-1m-2025-08-07"));
}

#[test]
fn usage_and_cost_are_counted() {
    for wire in crate::provider_support::WIRES {
        let reply = || ScriptedReply::says("hi").usage(1000, 100).cached(9000, 0);
        let server = ModelServer::start([reply(), reply()]);
        let priced = "price = { input = 1.0, output = 10.0, cache_read = 0.1 }\n";
        let asked = ask(provider(&server, wire, priced).as_ref(), &user("go"));
        let usage = asked.reply().usage;
        assert_eq!((usage.input, usage.output, usage.cache_read), (1000, 100, 9000), "{wire}");
        assert!((usage.cost_usd.unwrap() - 0.0029).abs() < 1e-9, "{wire}: {usage:?}");
        let asked = ask(provider(&server, wire, "").as_ref(), &user("go"));
        assert_eq!(asked.reply().usage.cost_usd, None);
    }
}

#[test]
fn without_streaming_the_reply_is_the_same() {
    for wire in crate::provider_support::WIRES {
        let reply = || {
            ScriptedReply::says("I look")
                .thinks("hm")
                .calls("shell", json!({"command": "ls"}))
                .usage(9, 5)
        };
        let server = ModelServer::start([reply(), reply()]);
        let streamed = ask(provider(&server, wire, "").as_ref(), &user("go"));
        let whole = "\n[agent]\nenable_streaming = false\n";
        let whole = ask(provider(&server, wire, whole).as_ref(), &user("go"));
        let asked = server.requests();
        assert!(asked[0].is_streamed() && !asked[1].is_streamed(), "{wire}");
        assert!(asked[1].body.get("stream_options").is_none(), "{wire}: {}", asked[1].body);
        let (streamed_reply, whole_reply) = (streamed.reply(), whole.reply());
        assert_eq!(whole_reply.stop, streamed_reply.stop, "{wire}");
        assert_eq!(whole_reply.usage, streamed_reply.usage, "{wire}");
        assert_eq!(whole_reply.message.full_text(), "I look", "{wire}");
        let call = |reply: &provider::message::Reply| {
            let call = reply.message.calls().next().expect("a call").clone();
            (call.name, call.args, reply.message.parts.len())
        };
        assert_eq!(call(whole_reply), call(streamed_reply), "{wire}");
        assert_eq!((&whole.text, &whole.reasoning), (&streamed.text, &streamed.reasoning));
    }
}

#[test]
fn one_connection_serves_a_whole_conversation() {
    for wire in crate::provider_support::WIRES {
        let server = ModelServer::start(vec![ScriptedReply::says("hi"); 5]);
        let provider = provider(&server, wire, "");
        runtime().block_on(async {
            for _ in 0..5 {
                let messages = user("go");
                crate::provider_support::ask_async(provider.as_ref(), &messages).await.reply();
            }
        });
        assert_eq!((server.requests().len(), server.connections()), (5, 1), "{wire}");
    }
}

#[test]
fn a_call_and_its_result_make_a_round_trip_in_both_wire_formats() {
    for wire in crate::provider_support::WIRES {
        let first = ScriptedReply::says("I look")
            .thinks("hm")
            .calls("shell", json!({"command": "ls"}))
            .calls("read_file", json!({"file_path": "a"}));
        let server = ModelServer::start([first, ScriptedReply::says("done")]);
        let provider = provider(&server, wire, "");
        let mut messages = user("go");
        let reply = ask(provider.as_ref(), &messages).reply().clone();
        assert_eq!(reply.stop, StopReason::Calls);
        let results = reply.message.calls().map(|call| {
            ContentPart::Result(provider::message::ToolResult {
                call_id: call.id.clone(),
                name: call.name.clone(),
                ok: true,
                text: format!("result of {}", call.name),
                images: vec![],
                not_run: false,
            })
        });
        let results = Message { role: MessageRole::User, parts: results.collect() };
        messages.extend([reply.message.clone(), results]);
        assert_eq!(ask(provider.as_ref(), &messages).reply().message.full_text(), "done");
        let sent = &server.requests()[1];
        let ids: Vec<&str> = reply.message.calls().map(|call| call.id.as_str()).collect();
        let results = sent.tool_results();
        let ids = if wire == "gemini" { vec!["shell", "read_file"] } else { ids };
        assert_eq!(results[0], (ids[0].to_owned(), "result of shell".to_owned()), "{wire}");
        assert_eq!(results[1], (ids[1].to_owned(), "result of read_file".to_owned()), "{wire}");
        let body = sent.body.to_string();
        let thought = if wire == "openai" { "reasoning_content" } else { "signature-1" };
        assert!(body.contains(thought), "{wire}: {body}");
    }
}

#[test]
fn a_model_without_native_calls_gets_its_tools_as_text() {
    let call = "I look.\n<tool_call>\n{\"name\":\"shell\",\"arguments\":{\"command\":\"ls\"}}\n</tool_call>";
    let server = ModelServer::start([
        ScriptedReply::says(call).in_chunks_of(9),
        ScriptedReply::says("done"),
    ]);
    let provider = provider(&server, "openai", "native_tools = false\n");
    let mut messages = user("go");
    let asked = ask(provider.as_ref(), &messages);
    assert_eq!((asked.text.as_str(), asked.reply().stop), ("I look.", StopReason::Calls));
    let message = asked.reply().message.clone();
    assert_eq!(message.full_text(), "I look.");
    let made = message.calls().next().unwrap().clone();
    assert_eq!((made.name.as_str(), &made.args), ("shell", &json!({"command": "ls"})));

    let result = provider::message::ToolResult {
        call_id: made.id,
        name: made.name,
        ok: true,
        text: "{\"tool\": \"shell\", \"args\": {}}".into(),
        images: vec![],
        not_run: false,
    };
    let results = Message { role: MessageRole::User, parts: vec![ContentPart::Result(result)] };
    messages.extend([message, results]);
    let asked = ask(provider.as_ref(), &messages);
    assert_eq!(asked.reply().message.full_text(), "done");
    assert_eq!(asked.reply().message.calls().count(), 0);
    let sent = &server.requests()[1];
    assert!(sent.tool_names().is_empty() && sent.system().contains("# Tools"), "{}", sent.system());
    assert_eq!(sent.messages()[2]["content"], call);
    assert_eq!(
        sent.last(),
        "<tool_response>\n{\"tool\": \"shell\", \"args\": {}}\n</tool_response>"
    );
}

#[test]
fn a_fenced_call_that_quotes_a_file_is_not_run() {
    let file = "Example:\n    {\"name\": \"shell\", \"arguments\": {\"command\": \"rm x\"}}\n";
    let quoted = "{\"name\": \"shell\",\n \"arguments\": {\"command\": \"rm x\"}}";
    let own = "{\"name\": \"shell\", \"arguments\": {\"command\": \"ls\"}}";
    let fence = |call: &str| format!("The file says:\n```json\n{call}\n```");
    let both = format!("{}\n\n```json\n{own}\n```", fence(quoted));
    let result = |text: &str| {
        let (call_id, name, text) = ("1".into(), "read_file".into(), text.into());
        let result = provider::message::ToolResult {
            call_id,
            name,
            ok: true,
            text,
            images: Vec::new(),
            not_run: false,
        };
        Message { role: MessageRole::User, parts: vec![ContentPart::Result(result)] }
    };
    let call = provider::message::ToolCall {
        id: "1".into(),
        name: "read_file".into(),
        args: json!({}),
        malformed: None,
    };
    let read = Message { role: MessageRole::Assistant, parts: vec![ContentPart::Call(call)] };
    let after_reading = [user("go"), vec![read, result(file)]].concat();
    let asked_for = user(&format!("What does this do? {quoted}"));
    for (messages, reply, made) in [
        (&after_reading, fence(quoted), &[][..]),
        (&asked_for, fence(quoted), &[]),
        (&after_reading, fence(own), &["ls"]),
        (&after_reading, both, &["ls"]),
        (&user("go"), fence(quoted), &["rm x"]),
    ] {
        let server = ModelServer::start([ScriptedReply::says(reply.clone()).in_chunks_of(7)]);
        let provider = provider(&server, "openai", "native_tools = false\n");
        let asked = ask(provider.as_ref(), messages);
        let calls = asked.reply().message.calls().map(|call| call.args["command"].clone());
        assert_eq!(calls.collect::<Vec<_>>(), made, "{reply}");
        let shown = asked.reply().message.full_text().contains("rm x");
        assert_eq!(shown, made != ["rm x"] && reply.contains("rm x"), "{reply}");
    }
}

#[test]
fn a_serving_endpoint_uses_its_own_url_and_signed_thinking_is_sent_back() {
    let thought = |text: &str, signature: &str| {
        json!({"choices": [{"delta": {"content": [{"type": "reasoning", "summary":
            [{"type": "summary_text", "text": text, "signature": signature}]}]}}]})
    };
    let call = json!({"choices": [{"delta": {"content": "I look", "tool_calls": [{"index": 0, "id": "t1",
        "function": {"name": "shell", "arguments": "{\"command\": \"ls\"}"}}]},
        "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 7, "completion_tokens": null}});
    let chunks = [thought("first ", ""), thought("the date", ""), thought("", "sig"), call];
    let body: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    let server = ModelServer::start([
        ScriptedReply::raw(body + "data: [DONE]\n\n"),
        ScriptedReply::says("done"),
    ]);
    let text = format!(
        "[providers.databricks.x]\nhost = \"{}/\"\ntoken = \"t\"\nmodel = \"claude\"\n",
        server.url()
    );
    let provider = opened(&text, "databricks").unwrap();
    let mut messages = user("go");
    let asked = ask(provider.as_ref(), &messages);
    assert_eq!((asked.reasoning.as_str(), asked.text.as_str()), ("first the date", "I look"));
    messages.push(asked.reply().message.clone());
    assert_eq!(ask(provider.as_ref(), &messages).reply().message.full_text(), "done");
    let requests = server.requests();
    assert_eq!(requests[0].path, "/serving-endpoints/claude/invocations");
    assert_eq!(requests[0].header("authorization"), Some("Bearer t"));
    let spoken = requests[1].messages().iter().find(|m| m["role"] == "assistant").unwrap();
    let summary = json!({"type": "summary_text", "text": "first the date", "signature": "sig"});
    assert_eq!(
        spoken["content"],
        json!([{"type": "reasoning", "summary": [summary]}, {"type": "text", "text": "I look"}])
    );
}
