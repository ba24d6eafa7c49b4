//! Tests of the fallback model, which answers while the primary one is overloaded.

use serde_json::{Value, json};
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::{Stage, of_type};
use crate::provider_support::WIRES;

/// Creates a stage whose model is `scripted`, with `other` as fallback.
fn stage(wire: &str, script: impl Into<Script>, more: &str) -> Stage {
    let mut stage = Stage::new(script);
    stage.env.set("G3_TEST_RETRY_MS", 10);
    let fallback = "fallback_model = \"other\"\n";
    stage.env.config(&format!("{}{fallback}{more}", stage.model.config_toml(wire)));
    stage
}

/// Returns the model of each request: from the body, or from the URL for Gemini and Databricks.
fn asked(stage: &Stage) -> Vec<&'static str> {
    let requests = stage.asked().into_iter();
    let is_other = requests.map(|r| r.body["model"] == "other" || r.path.contains("/other"));
    is_other.map(|other| if other { "other" } else { "own" }).collect()
}

fn notices(events: &[Value]) -> Vec<String> {
    let all = of_type(events, "notice").into_iter();
    all.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

fn text(events: &[Value]) -> String {
    of_type(events, "text").iter().filter_map(|event| event["text"].as_str()).collect()
}

#[test]
fn an_overloaded_model_is_replaced_for_the_rest_of_the_turn() {
    for wire in WIRES {
        for busy in [
            ScriptedReply::status(529),
            ScriptedReply::status(503).retry_after(30),
            ScriptedReply::says("I l").error_event("overloaded_error", "Overloaded"),
        ] {
            let call = ScriptedReply::says("I look.").calls("shell", json!({"command": "true"}));
            let script = [busy, call, ScriptedReply::says(" Done."), ScriptedReply::says("Back.")];
            let stage = stage(wire, script, "");
            let ran = stage.g3(["--json", "go"]);
            ran.ok();
            let events = ran.json_lines();
            assert_eq!(asked(&stage), ["own", "other", "other"], "{wire}");
            assert!(of_type(&events, "retry").is_empty(), "nobody waits: {events:?}");
            assert!(text(&events).ends_with("I look. Done."), "{wire}: {}", text(&events));
            let [notice] = notices(&events).try_into().unwrap();
            assert!(notice.contains("scripted is busy; other answers"), "{notice}");
            stage.g3(["--json", "--resume"]).ok();
            assert_eq!(asked(&stage)[3], "own", "the next turn begins with the own model");
        }
    }
}

#[test]
fn a_rate_limit_waits_and_keeps_the_model() {
    for wire in WIRES {
        for fault in
            [ScriptedReply::status(429), ScriptedReply::status(500), ScriptedReply::reset()]
        {
            let stage = stage(wire, [fault, ScriptedReply::says("hi")], "");
            stage.g3(["--json", "go"]).ok();
            assert_eq!(asked(&stage), ["own", "own"], "{wire}");
        }
    }
}

#[test]
fn a_failing_fallback_reverts_once() {
    let script = [
        ScriptedReply::status(529),
        ScriptedReply::status(404),
        ScriptedReply::status(529),
        ScriptedReply::says("hi"),
    ];
    let stage = stage("anthropic", script, "");
    let ran = stage.g3(["--json", "go"]);
    ran.ok();
    assert_eq!(asked(&stage), ["own", "other", "own", "own"]);
    let events = ran.json_lines();
    assert_eq!(notices(&events).len(), 2, "{events:?}");
    assert!(notices(&events)[1].contains("other cannot answer either"));
    assert_eq!(of_type(&events, "retry").len(), 1, "then it waits as ever");
}

#[test]
fn each_reply_is_priced_by_its_model() {
    let priced = "\n[[models]]\nname = \"scripted\"\nprice = { input = 1, output = 1 }\n\
                  [[models]]\nname = \"other\"\nprice = { input = 7, output = 7 }\n";
    let call = ScriptedReply::call("shell", json!({"command": "true"})).usage(1_000_000, 0);
    let script = [call, ScriptedReply::status(529), ScriptedReply::says("hi").usage(1_000_000, 0)];
    let stage = stage("openai", script, priced);
    let ran = stage.g3(["--json", "go"]);
    let events = ran.json_lines();
    let costs: Vec<&Value> = of_type(&events, "usage").iter().map(|e| &e["cost_usd"]).collect();
    assert_eq!(costs, [&json!(1.0), &json!(7.0)]);
    assert_eq!(events.last().unwrap()["usage"]["cost_usd"], 8.0);
}

#[test]
fn the_flag_overrides_the_configuration_and_is_rejected_for_a_local_model() {
    let stage = stage("anthropic", [ScriptedReply::status(529), ScriptedReply::says("hi")], "");
    let ran = stage.g3(["--json", "--fallback-model", "third", "go"]);
    ran.ok();
    assert_eq!(stage.asked()[1].body["model"], "third");

    let ran = stage.g3(["--provider", "embedded", "--fallback-model", "x", "go"]);
    ran.exits(2).output_contains("has no model to fall back on");
}

#[test]
fn a_fallback_during_a_summary_is_reported() {
    let call = ScriptedReply::call("shell", json!({"command": "true"})).usage(9_000, 20);
    let summary = ScriptedReply::says("SUMMARY: nothing was done").usage(500, 20);
    let script =
        [call, ScriptedReply::status(529), summary, ScriptedReply::says("Done.").usage(500, 5)];
    let stage = stage("anthropic", script, "context_length = 10000\n");

    let ran = stage.g3(["--json", "go"]);

    ran.ok();
    assert_eq!(asked(&stage), ["own", "own", "other", "other"]);
    let events = ran.json_lines();
    let [notice] = notices(&events).try_into().unwrap();
    assert!(notice.contains("scripted is busy; other answers"), "{notice}");
    assert_eq!(text(&events), "Done.", "a summary is not the model's answer");
    let place = |kind: &str| events.iter().position(|event| event["type"] == kind).unwrap();
    assert!(place("notice") < place("compacted"), "it is told when it happens: {events:?}");
}

#[test]
fn complete_uses_the_fallback_and_reports_it_on_stderr() {
    for wire in WIRES {
        let stage = stage(wire, [ScriptedReply::status(503), ScriptedReply::says("four")], "");
        let ran = stage.g3_with_input(["complete"], "two and two?");
        ran.ok();
        assert_eq!(asked(&stage), ["own", "other"], "{wire}");
        assert_eq!(ran.out, "four\n", "{wire}");
        assert!(ran.err.contains("scripted is busy; other answers"), "{wire}: {}", ran.err);
    }
    let stage = stage("anthropic", [ScriptedReply::status(429), ScriptedReply::says("four")], "");
    let ran = stage.g3_with_input(["complete"], "two and two?");
    assert_eq!(ran.out, "four\n");
    assert!(ran.err.starts_with("retry in "), "{}", ran.err);
}
