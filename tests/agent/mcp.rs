//! Tests of MCP server tools with the real binary: offers, calls, permissions and failures.

use base::process::{self, exit_code};
use rustix::process::{Pid, Signal};
use serde_json::json;
use testkit::env::until;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::of_type;
use crate::mcp_support::{call, configure, ends, know, result, stage};

const ALLOW: &str = "calls = \"allow\"";

#[test]
fn unknown_tools_are_searched_and_known_ones_offered_by_name() {
    let script = [
        ScriptedReply::call("mcp_search", json!({"query": "what it is told"})),
        call("echo", json!({"text": "plum"})),
        ScriptedReply::says("done"),
        ScriptedReply::call("mcp__kit__echo", json!({"text": "pear"})),
        ScriptedReply::says("done again"),
    ];
    let stage = stage(script, [], ALLOW);
    stage.g3(["first"]).ok();
    let asked = stage.asked();
    let names = asked[0].tool_names();
    assert!(names.contains(&"mcp_search".into()) && names.contains(&"mcp_call".into()));
    assert!(!names.iter().any(|name| name.starts_with("mcp__")), "{names:?}");
    for request in &asked {
        assert_eq!(request.body["tools"], asked[0].body["tools"], "the prefix is stable");
    }
    let found = result(&stage, 1);
    assert!(found.contains("tool: echo") && found.contains("\"text\""), "{found}");
    assert_eq!(result(&stage, 2), "plum");

    stage.g3(["second"]).ok();
    let names = stage.asked()[3].tool_names();
    assert!(names.contains(&"mcp__kit__echo".into()), "{names:?}");
    assert!(names.contains(&"mcp__kit__dotted_name".into()), "{names:?}");
    assert!(!names.contains(&"mcp_search".into()), "{names:?}");
    assert_eq!(result(&stage, 4), "pear");
}

#[test]
fn arguments_of_a_found_tool_may_be_a_string_and_nothing_else_is_taken_for_none() {
    let script = [
        call("echo", json!("{\"text\": \"fig\"}")),
        call("echo", json!("text: fig")),
        call("echo", json!(["fig"])),
        ScriptedReply::says("done"),
    ];
    let stage = stage(script, [], ALLOW);
    stage.g3(["try"]).ok();
    assert_eq!(result(&stage, 1), "fig");
    for request in [2, 3] {
        assert_eq!(
            result(&stage, request),
            "mcp_call: `args` must be a JSON object; nothing was run"
        );
    }
}

#[test]
fn a_slow_server_delays_nothing_and_changes_no_request() {
    let script = [
        ScriptedReply::call("write_file", json!({"file_path": "go", "content": ""})),
        call("echo", json!({"text": "at last"})),
        ScriptedReply::says("done"),
        ScriptedReply::says("hello"),
    ];
    let stage = stage(script, ["--wait", "go"], ALLOW);
    stage.g3(["start it"]).ok();
    let asked = stage.asked();
    assert_eq!(result(&stage, 2), "at last");
    for request in &asked[1..] {
        assert_eq!(request.body["tools"], asked[0].body["tools"]);
    }
    std::fs::remove_file(stage.repo.path().join("go")).unwrap();
    assert_eq!(stage.g3(["it never starts"]).ok(), "hello");
}

#[test]
fn many_tools_are_searched_instead_of_offered() {
    let script = [
        ScriptedReply::call("mcp_search", json!({"query": "sheep 17"})),
        ScriptedReply::call("mcp_call", json!({"server": "kit", "tool": "counter_17"})),
        ScriptedReply::call("mcp_search", json!({})),
        ScriptedReply::says("done"),
    ];
    let stage = stage(script, ["--many", "40"], ALLOW);
    know(&stage);
    stage.g3(["count"]).ok();
    let names = stage.asked()[0].tool_names();
    assert!(names.contains(&"mcp_search".into()), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("mcp__")), "{names:?}");
    assert!(result(&stage, 1).starts_with("server: kit\ntool: counter_17\n"));
    assert_eq!(result(&stage, 2), "counter_17 was called");
    assert!(result(&stage, 3).contains("kit counter_39: Counts sheep"));
}

#[test]
fn a_resumed_session_offers_the_same_tools() {
    let stage = stage([ScriptedReply::says("one"), ScriptedReply::says("two")], [], "");
    stage.g3(["begin"]).ok();
    know(&stage);
    stage.g3(["--resume", "--", "go on"]).ok();
    let asked = stage.asked();
    assert_eq!(asked[0].body["tools"], asked[1].body["tools"]);
}

#[test]
fn images_failures_noise_and_large_results_are_handled() {
    let script = [
        ScriptedReply::new()
            .calls("mcp__kit__image", json!({}))
            .calls("mcp__kit__fail", json!({}))
            .calls("mcp__kit__noise", json!({}))
            .calls("mcp__kit__structured", json!({}))
            .calls("mcp__kit__huge", json!({"bytes": "3000000"})),
        ScriptedReply::new()
            .calls_raw("mcp__kit__echo", "{\"text\": ")
            .calls("mcp__kit__nope", json!({})),
        ScriptedReply::says("done"),
    ];
    let stage = stage(script, [], ALLOW);
    know(&stage);
    let ran = stage.g3(["--json", "all of it"]);
    ran.ok();
    let ends = ends(&ran);
    let of = |begin: &str| ends.iter().find(|(_, text)| text.contains(begin)).expect(begin).0;
    assert!(of("here it is\n[resource more at file:///more]"));
    assert!(!of("it did not work"));
    assert!(of("after the noise"));
    assert!(of("\"answer\": 42"));
    assert!(of("[truncated "));
    assert!(!of("the arguments are not a JSON object; nothing was run"));
    assert!(!of("`kit` has no tool `mcp__kit__nope`; it has: echo"));
    let body = stage.asked()[1].body.to_string();
    assert!(body.contains("image/png") && body.contains("iVBORw0KGgo"), "the model sees it");
    let kept = std::fs::read_dir(stage.session_dir().join("tools")).unwrap();
    let sizes: Vec<u64> = kept.map(|file| file.unwrap().metadata().unwrap().len()).collect();
    assert!(sizes.contains(&3_000_000), "the whole is kept: {sizes:?}");
}

#[test]
fn a_server_that_dies_is_restarted() {
    let marker = "died-once";
    let script = [
        ScriptedReply::call("mcp__kit__die", json!({})),
        ScriptedReply::call("mcp__kit__echo", json!({"text": "back"})),
        ScriptedReply::call("mcp__kit__die_once", json!({"marker": marker})),
        ScriptedReply::says("done"),
    ];
    let stage = stage(script, ["--pids", "pids"], ALLOW);
    know(&stage);
    std::fs::remove_file(stage.repo.path().join("pids")).unwrap();
    stage.g3(["try"]).ok();
    let died = result(&stage, 1);
    for part in ["lost during the call", "code 3", "I am dying", "not known", "there again"] {
        assert!(died.contains(part), "{died}");
    }
    assert_eq!(result(&stage, 2), "back");
    assert_eq!(result(&stage, 3), "alive again", "a call that may be repeated is");
    assert_eq!(stage.repo.read("pids").lines().count(), 3);
    let log = stage.session_dir().join("mcp/kit.stderr");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "I am dying\nI am dying\n");
}

#[test]
fn a_server_without_a_handshake_is_used_like_the_others() {
    let script = [
        ScriptedReply::new()
            .calls("mcp__kit__echo", json!({"text": "here"}))
            .calls("mcp__kit__image", json!({}))
            .calls("mcp__kit__fail", json!({}))
            .calls("mcp__kit__structured", json!({})),
        ScriptedReply::call("mcp__kit__die", json!({})),
        ScriptedReply::call("mcp__kit__hang", json!({"marker": "marker"})),
        ScriptedReply::call("mcp__kit__echo", json!({"text": "still here"})),
        ScriptedReply::says("done"),
    ];
    let lines = "calls = \"allow\"\ntimeout_seconds = 4";
    let stage = stage(script, ["--stateless"], lines);
    know(&stage);
    let ran = stage.g3(["--json", "all of it"]);
    ran.ok();
    let ends = ends(&ran);
    let of = |begin: &str| ends.iter().find(|(_, text)| text.contains(begin)).expect(begin).0;
    assert!(of("here") && of("here it is\n[resource more at file:///more]"));
    assert!(of("\"answer\": 42") && !of("it did not work"));
    assert!(!of("lost during the call") && !of("no answer within 4 s"));
    assert!(of("still here"));
    assert_eq!(stage.repo.read("marker"), "begun\ncancelled\n");
}

#[test]
fn a_dead_server_is_restarted_for_the_call() {
    let kill = "kill -9 $(tail -n 1 pids); while kill -0 $(tail -n 1 pids) 2>/dev/null && \
                ! grep -q ') Z ' /proc/$(tail -n 1 pids)/stat; do sleep 0.01; done";
    let script = [
        ScriptedReply::call("mcp__kit__echo", json!({"text": "here"})),
        ScriptedReply::call("shell", json!({ "command": kill })),
        ScriptedReply::call("mcp__kit__fail", json!({})),
        ScriptedReply::says("done"),
    ];
    let stage = stage(script, ["--pids", "pids"], ALLOW);
    know(&stage);
    stage.g3(["try"]).ok();
    assert_eq!(result(&stage, 1), "here");
    assert_eq!(result(&stage, 3), "it did not work", "the call is not repeatable");
}

#[test]
fn a_call_that_times_out_does_not_stop_the_server() {
    let script = [
        ScriptedReply::call("mcp__kit__hang", json!({"marker": "marker"})),
        ScriptedReply::call("mcp__kit__echo", json!({"text": "still here"})),
        ScriptedReply::says("done"),
    ];
    let stage = stage(script, ["--pids", "pids"], "calls = \"allow\"\ntimeout_seconds = 4");
    know(&stage);
    std::fs::remove_file(stage.repo.path().join("pids")).unwrap();
    stage.g3(["wait"]).ok();
    assert!(result(&stage, 1).contains("no answer within 4 s"), "{}", result(&stage, 1));
    assert_eq!(result(&stage, 2), "still here");
    assert_eq!(stage.repo.read("marker"), "begun\ncancelled\n");
    assert_eq!(stage.repo.read("pids").lines().count(), 1, "one server did it all");
}

#[test]
fn an_interrupt_cancels_the_call_at_the_server() {
    let script = [ScriptedReply::call("mcp__kit__hang", json!({"marker": "marker"}))];
    let stage = stage(script, ["--pids", "pids"], ALLOW);
    know(&stage);
    let mut g3 = stage.start(["--json", "wait"]);
    let marker = stage.repo.path().join("marker");
    until("the call to begin", || marker.exists().then_some(()));
    let pid = Pid::from_raw(g3.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    assert_eq!(exit_code(g3.wait_until(None).unwrap().unwrap()), 130);
    assert_eq!(stage.repo.read("marker"), "begun\ncancelled\n");
}

#[test]
fn kill_9_of_g3_leaves_no_server_alive() {
    let script = [ScriptedReply::call("mcp__kit__hang", json!({"marker": "marker"}))];
    let stage = stage(script, ["--pids", "pids"], ALLOW);
    know(&stage);
    let mut g3 = stage.start(["--json", "wait"]);
    until("the call to begin", || stage.repo.path().join("marker").exists().then_some(()));
    let server: u32 = stage.repo.read("pids").lines().last().unwrap().parse().unwrap();
    assert!(process::is_alive(server));
    let pid = Pid::from_raw(g3.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    g3.wait_until(None).unwrap();
    until("the server to end", || (!process::is_alive(server)).then_some(()));
}

#[test]
fn a_server_gets_only_the_configured_keys() {
    let ask = |name: &str| ScriptedReply::call("mcp__kit__env", json!({ "name": name }));
    let names = ["ANTHROPIC_API_KEY", "G3_AGENT__MAX_TURNS", "MY_TOKEN", "COPIED", "PATH"];
    let script: Vec<ScriptedReply> =
        names.into_iter().map(ask).chain([ScriptedReply::says("done")]).collect();
    let lines = "calls = \"allow\"\nenv = { MY_TOKEN = \"t1\", COPIED = \"<${OTHER_TOKEN}>\" }";
    let mut stage = stage(script, [], lines);
    stage.env.set("ANTHROPIC_API_KEY", "k");
    stage.env.set("OTHER_TOKEN", "t2");
    stage.env.set("G3_AGENT__MAX_TURNS", "50");
    know(&stage);
    stage.g3(["look"]).ok();
    let seen: Vec<String> = (1..=5).map(|request| result(&stage, request)).collect();
    assert_eq!(seen[..4], ["unset", "unset", "t1", "<t2>"]);
    assert_ne!(seen[4], "unset");
    stage.g3(["config", "show"]).output_lacks("t1").output_lacks("OTHER_TOKEN").ok();
}

#[test]
fn the_gate_checks_each_call_by_its_name() {
    let twice = |text: &str| {
        [
            ScriptedReply::call("mcp__kit__echo", json!({ "text": text })),
            call("echo", json!({ "text": text })),
            ScriptedReply::says("done"),
        ]
    };
    let script: Vec<ScriptedReply> = [twice("one"), twice("two"), twice("three")].concat();
    let stage = stage(script, [], "");
    know(&stage);
    let rules =
        |action: &str| format!("[[gate.rules]]\ntool = \"mcp__kit__e*\"\naction = \"{action}\"");
    stage.g3(["ask"]).ok();
    for request in [1, 2] {
        let denied = result(&stage, request);
        assert!(denied.contains("no terminal to ask on"), "{denied}");
        assert!(denied.contains("tool = \"mcp__kit__echo\"\naction = \"allow\""), "{denied}");
    }
    configure(&stage, &[], &rules("allow"));
    stage.g3(["a rule allows it"]).ok();
    assert_eq!((result(&stage, 4), result(&stage, 5)), ("two".into(), "two".into()));
    configure(&stage, &[], &format!("calls = \"allow\"\n{}", rules("deny")));
    stage.g3(["a rule denies it"]).ok();
    assert!(result(&stage, 7).starts_with("denied"), "a rule comes before the server's own word");
}

#[test]
fn only_listed_tools_are_available() {
    let script = [ScriptedReply::call("mcp__kit__fail", json!({})), ScriptedReply::says("done")];
    let stage = stage(script, [], "calls = \"allow\"\ntools = [\"echo\", \"ima*\"]");
    know(&stage);
    stage.g3(["look"]).ok();
    let names = stage.asked()[0].tool_names();
    let theirs: Vec<&String> = names.iter().filter(|name| name.starts_with("mcp")).collect();
    assert_eq!(theirs, ["mcp__kit__echo", "mcp__kit__image"]);
    assert!(result(&stage, 1).contains("has no tool"));
}

#[test]
fn a_server_that_cannot_start_is_reported_and_the_run_continues() {
    let script = [call("echo", json!({})), ScriptedReply::says("done")];
    let stage = stage(script, ["--broken"], ALLOW);
    let ran = stage.g3(["--json", "work"]);
    ran.ok();
    let events = ran.json_lines();
    let notice = of_type(&events, "notice")[0]["text"].as_str().unwrap();
    assert!(notice.contains("`kit` cannot be used: it ended with code 7"), "{notice}");
    assert!(notice.contains("there is no configuration for me"), "{notice}");
    assert!(result(&stage, 1).contains("cannot be used"));
}
