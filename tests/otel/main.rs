//! Tests of spans sent to a collector: the real binary, built with the feature `otel`, and a
//! collector on loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

#[path = "../agent/agent_env.rs"]
#[allow(dead_code, reason = "shared with the other tests of g3")]
mod agent_env;

use std::net::TcpListener;

use serde_json::{Value, json};
use testkit::env::CommandRun;
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use agent_env::Stage;

/// Creates a collector that accepts everything.
fn collector() -> ModelServer {
    ModelServer::start(Script::by(|_| ScriptedReply::status(200).body("application/json", "{}")))
}

fn scene() -> Stage {
    Stage::new([
        ScriptedReply::call("shell", json!({"command": "echo out-put"}))
            .usage(70, 7)
            .cached(20, 10),
        ScriptedReply::says("wo-rds").usage(100, 5),
    ])
}

fn run(stage: &Stage, variables: &[(&str, &str)]) -> CommandRun {
    let job = stage.job(["pro-mpt"]);
    stage.env.run_command(variables.iter().fold(job, |job, (name, value)| job.env(name, value)))
}

/// Returns the attributes of an object by name.
fn attributes(of: &Value) -> serde_json::Map<String, Value> {
    let value = |it: &Value| it["value"].as_object().unwrap().values().next().unwrap().clone();
    let all = of["attributes"].as_array().unwrap().iter();
    all.map(|it| (it["key"].as_str().unwrap().to_owned(), value(it))).collect()
}

/// Returns an integer, which this format encodes as a string.
fn whole(value: &Value) -> i64 {
    value.as_str().map_or_else(|| value.as_i64().unwrap(), |text| text.parse().unwrap())
}

#[test]
fn spans_are_sent_as_json_with_names_of_the_conventions() {
    let (stage, collector) = (scene(), collector());
    let ran = run(
        &stage,
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=plum"),
            ("OTEL_SERVICE_NAME", "my-agent"),
        ],
    );
    assert_eq!((ran.ok(), ran.err.contains("warning")), ("wo-rds", false), "{ran}");
    let sent = collector.requests();
    assert!(!sent.is_empty());
    assert!(sent.iter().all(|it| it.path == "/v1/traces" && it.header("x-tenant") == Some("plum")));
    let mut spans = Vec::new();
    for request in &sent {
        let resource = &request.body["resourceSpans"][0];
        assert_eq!(attributes(&resource["resource"])["service.name"], "my-agent");
        for scope in resource["scopeSpans"].as_array().unwrap() {
            spans.extend(scope["spans"].as_array().unwrap().iter().cloned());
        }
    }
    let named =
        |name: &str| -> Vec<&Value> { spans.iter().filter(|it| it["name"] == name).collect() };
    let (turn, chats, calls) =
        (named("invoke_agent g3"), named("chat scripted"), named("execute_tool shell"));
    assert_eq!((turn.len(), chats.len(), calls.len()), (1, 2, 1), "{spans:?}");
    for inner in chats.iter().chain(&calls) {
        assert_eq!(inner["parentSpanId"], turn[0]["spanId"]);
        assert_eq!(inner["traceId"], turn[0]["traceId"]);
    }
    assert_eq!(whole(&chats[0]["kind"]), 3, "a client");
    let first = attributes(chats[0]);
    assert_eq!(first["gen_ai.operation.name"], "chat");
    assert_eq!(first["gen_ai.provider.name"], "anthropic");
    assert_eq!(first["gen_ai.request.model"], "scripted");
    assert_eq!(whole(&first["gen_ai.usage.input_tokens"]), 100);
    assert_eq!(whole(&first["gen_ai.usage.output_tokens"]), 7);
    assert_eq!(whole(&first["gen_ai.usage.cache_read.input_tokens"]), 20);
    assert_eq!(attributes(calls[0])["gen_ai.tool.name"], "shell");
    assert!(attributes(turn[0]).contains_key("gen_ai.conversation.id"));
    let all = sent.iter().map(|it| it.body.to_string()).collect::<String>();
    for words in ["pro-mpt", "out-put", "wo-rds", "test-key"] {
        assert!(!all.contains(words), "`{words}` was exported: {all}");
    }
}

#[test]
fn protobuf_is_the_default_format() {
    let (stage, collector) = (scene(), collector());
    run(&stage, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())]).ok();
    let sent = collector.requests();
    assert!(sent.iter().all(|it| it.header("content-type") == Some("application/x-protobuf")));
    let raw: Vec<u8> = sent.iter().flat_map(|it| it.raw.clone()).collect();
    let text = String::from_utf8_lossy(&raw);
    assert!(text.contains("gen_ai.request.model") && text.contains("execute_tool shell"));
    assert!(!text.contains("pro-mpt") && !text.contains("out-put"));
}

#[test]
fn a_missing_collector_is_reported_at_the_end() {
    let stage = scene();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = run(&stage, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{free}"))]);
    assert_eq!(ran.ok(), "wo-rds");
    assert_eq!(ran.err.matches("the exported trace is not complete").count(), 1, "{ran}");
    assert!(ran.err.trim_end().lines().last().unwrap().contains("not complete"), "{ran}");
}

#[test]
fn an_unresponsive_collector_delays_g3_by_at_most_two_seconds() {
    let (quiet, stage) = (ModelServer::start(Script::by(|_| ScriptedReply::stall())), scene());
    let ran = run(&stage, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &quiet.url())]);
    assert_eq!(ran.ok(), "wo-rds");
    assert!(ran.err.contains("it was not sent within 2 s"), "{ran}");
}

#[test]
fn nothing_is_sent_when_disabled_and_an_invalid_url_is_an_error() {
    let (stage, collector) = (scene(), collector());
    let url = collector.url();
    run(&stage, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url), ("OTEL_SDK_DISABLED", "true")]).ok();
    assert!(collector.requests().is_empty());
    let bad = run(&stage, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "no address at all")]);
    bad.exits(2).output_contains("the trace cannot be exported");
    let grpc =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    run(&stage, &grpc).exits(2).output_contains("by `grpc`").output_contains("http/json");
    assert_eq!(stage.asked().len(), 2, "the model was not asked again");
}
