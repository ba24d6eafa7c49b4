//! Tests of `--budget`: enforced if prices are known, otherwise rejected before any request.

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::{Stage, of_type};
use crate::autonomous;
use crate::provider_support::WIRES;

const PRICE: &str = "price = { input = 1.0, output = 10.0 }\n";

fn stage(wire: &str, script: impl Into<Script>, more: &str) -> Stage {
    let mut stage = Stage::new(script);
    stage.env.set("G3_TEST_RETRY_MS", 10);
    stage.env.config(&format!("{}{more}", stage.model.config_toml(wire)));
    stage
}

#[test]
fn a_budget_without_a_known_price_is_rejected_in_every_mode_before_any_request() {
    for wire in WIRES {
        let stage = stage(wire, [], "");
        let key = if wire == "responses" { "openai" } else { wire };
        let ran = stage.g3(["--budget", "0.5", "hi"]);
        ran.exits(2).output_contains("the price of `scripted` on").output_contains("is unknown");
        ran.output_contains(&format!("[providers.{key}.scripted]")).output_contains("--max-tokens");
        assert!(stage.asked().is_empty() && stage.session_dirs().is_empty(), "{wire}");
    }
    let stage = stage("openai", [], "");
    stage.repo.write("requirements.md", "1. make one.txt\n");
    for mode in [["--autonomous"].as_slice(), &["--planning", "--yes"]] {
        let args = ["--budget", "0.5"].iter().chain(mode).copied();
        stage.g3(args).exits(2).output_contains("the price of `scripted`");
    }
    let ran = stage.g3(["--json", "--budget", "0.5", "hi"]);
    let events = ran.exits(2).json_lines();
    assert_eq!(of_type(&events, "error")[0]["kind"], "usage");
    assert!(stage.asked().is_empty());
}

#[test]
fn without_an_entry_a_price_by_model_name_is_requested() {
    let stage = Stage::new([]);
    stage.env.config("");
    let url = stage.model.openai_url();
    let job = stage.job(["--provider", "openai", "--model", "own", "--budget", "1", "hi"]);
    let ran = stage.env.run_command(job.env("OPENAI_BASE_URL", &url));
    ran.exits(2).output_contains("[[models]]").output_contains("`name = \"own\"`");
    stage.env.config("[[models]]\nname = \"own\"\nprice = { input = 0, output = 0 }\n");
    let job = stage.job(["--provider", "openai", "--model", "own", "--budget", "1", "hi"]);
    stage.env.run_command(job.env("OPENAI_BASE_URL", &url)).output_lacks("is unknown");
}

#[test]
fn an_exhausted_budget_ends_the_run() {
    for wire in WIRES {
        let call = || ScriptedReply::call("shell", json!({"command": "true"})).usage(4_000, 100);
        let stage = stage(wire, [call(), call(), call()], PRICE);
        let ran = stage.g3(["--budget", "0.006", "go on"]);
        ran.exits(3).output_contains("the limit of 0.006 US dollars is reached");
        assert_eq!(stage.asked().len(), 2, "{wire}");
    }
}

#[test]
fn a_fallback_without_a_known_price_is_not_used_within_a_budget() {
    let models = "[[models]]\nname = \"scripted\"\nprice = { input = 1.0, output = 10.0 }\n";
    let script = || {
        Script::by(|request| match request.body["model"].as_str() {
            Some("scripted") => ScriptedReply::status(529),
            _ => ScriptedReply::says("cheap words"),
        })
    };
    let text = format!("fallback_model = \"cheap\"\n{models}");
    let stage = stage("anthropic", script(), &text);
    let ran = stage.g3(["--budget", "5", "hi"]);
    ran.exits(1)
        .output_contains("its fallback cannot be used: the price of `cheap`")
        .output_contains("is unknown");
    assert!(stage.asked().iter().all(|asked| asked.body["model"] == "scripted"));
    assert_eq!(stage.g3(["hi"]).ok(), "cheap words");
}

#[test]
fn a_coach_without_a_known_price_is_rejected_before_the_player_starts() {
    let stage = autonomous::stage(autonomous::sides(vec![], vec![]));
    let own = stage.model.config_toml("anthropic");
    let coach = format!(
        "coach = \"openai.coach\"\n\n[providers.openai.coach]\nmodel = \"c\"\nbase_url = \"{}\"\n",
        stage.model.openai_url()
    );
    let own = own.replace("[providers.anthropic", &format!("{coach}\n[providers.anthropic"));
    stage.env.config(&format!("{own}{PRICE}"));
    stage
        .g3(["--autonomous", "--budget", "1"])
        .exits(2)
        .output_contains("the price of `c` on `openai.coach`");
    assert!(stage.asked().is_empty());
}

#[test]
fn a_reply_without_token_counts_only_ends_runs_with_a_budget() {
    let silent = || {
        let chunk = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "delta": {
            "tool_calls": [{"index": 0, "id": "a", "function": {
                "name": "shell", "arguments": "{\"command\": \"true\"}"}}]}}]});
        ScriptedReply::raw(format!("data: {chunk}\n\ndata: [DONE]\n\n"))
    };
    let stage = stage("openai", vec![silent(), silent(), ScriptedReply::says("done")], PRICE);
    stage.g3(["--budget", "5", "go"]).exits(3).output_contains("the cost of a reply is unknown");
    stage.g3(["go"]).ok();
}

#[test]
fn implausible_token_counts_are_ignored_with_a_notice() {
    for wire in WIRES {
        for (input, output) in [(u64::MAX, u64::MAX), (u64::MAX, 1), (1, u64::MAX)] {
            let call =
                ScriptedReply::call("shell", json!({"command": "true"})).usage(input, output);
            let stage = stage(wire, [call, ScriptedReply::says("done")], PRICE);
            let ran = stage.g3(["--json", "go"]);
            ran.ok();
            let events = ran.json_lines();
            let notices = of_type(&events, "notice");
            let told = |it: &&serde_json::Value| {
                it["text"].as_str().is_some_and(|text| text.contains("the counts are ignored"))
            };
            assert!(notices.iter().any(told), "{wire} {input} {output}: {notices:?}");
            let end = of_type(&events, "end")[0];
            assert_eq!((&end["usage"]["input"], &end["usage"]["output"]), (&json!(10), &json!(5)));
        }
    }
}

#[test]
fn requests_of_planning_itself_count_towards_the_budget() {
    let script = Script::by(|request| match request.assistant_messages() {
        0 => ScriptedReply::call("grep", json!({"pattern": "door"})).usage(4_000, 0),
        _ => ScriptedReply::call("requirements", json!({"text": "- R1: make one.txt\n"}))
            .usage(4_000, 0),
    });
    let mut stage = stage("anthropic", script, PRICE);
    stage.env.set("G3_TEST_RETRY_MS", 10);
    stage.repo.git(["config", "user.name", "Grace"]);
    stage.repo.git(["config", "user.email", "grace@example.org"]);
    stage.repo.write("g3-plan/new_requirements.md", "I want a door.\n");
    let ran = stage.g3(["--planning", "--yes", "--budget", "0.007"]);
    ran.exits(3).output_contains("the limit of 0.007 US dollars is reached");
    assert_eq!(stage.asked().len(), 2, "neither player nor coach is asked");
    let ran = stage.g3(["--planning", "--yes", "--budget", "0.007"]);
    ran.exits(3).output_contains("the limit of 0.007 US dollars is reached");
    assert_eq!(stage.asked().len(), 2, "what an earlier start asked counts as well");
}
