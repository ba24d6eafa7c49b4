//! Tests of the screen tools as a model uses them: what is offered, what the gate decides, and one
//! conversation that uses each of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testkit::desktop::Desktop;
use testkit::env::TestEnv;
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::Stage;
use crate::desktop_support::{control, lead};

/// Creates a stage on this desktop with this configuration.
fn stage(desktop: &Desktop, script: impl Into<Script>, configured: &str) -> Stage {
    let mut env = TestEnv::new();
    lead(&mut env, desktop);
    let model = ModelServer::start(script);
    env.config(&format!("{}\n{configured}", model.config_toml("anthropic")));
    let repo = env.repo();
    Stage { env, repo, model }
}

fn offered(stage: &Stage) -> BTreeSet<String> {
    stage.asked()[0].tool_names().into_iter().collect()
}

const DIRECT: [&str; 4] = ["observe_screen", "execute_gui", "get_ui_context", "execute_accessible"];
const BOTH: [&str; 6] = [
    "take_screenshot",
    "mouse_click",
    "type_text",
    "find_element",
    "list_windows",
    "maximize_active_window",
];

#[test]
fn the_setting_decides_what_is_offered_and_the_gate_what_runs() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let (x, y) = program.place("Press_me").middle();
    let script = || {
        [ScriptedReply::call("mouse_click", json!({ "x": x, "y": y })), ScriptedReply::says("done")]
    };
    // Disabled: nothing is offered, and a model that calls the tools anyway is denied.
    let off = stage(&desktop, script(), "");
    off.g3(["click"]).ok();
    let names = offered(&off);
    assert!(BOTH.iter().chain(&DIRECT).all(|name| !names.contains(*name)), "{names:?}");
    let (_, denied) = &off.asked()[1].tool_results()[0];
    assert!(denied.contains("denied: it acts on the screen") && denied.contains("[[gate.rules]]"));
    assert!(!program.log().contains("clicked"));
    // Enabled, but each action asks, and there is no user.
    let asks = stage(&desktop, script(), &control("require_confirmation = true"));
    asks.g3(["click"]).ok();
    assert!(offered(&asks).contains("mouse_click"));
    assert!(asks.asked()[1].tool_results()[0].1.contains("no terminal to ask on"));
    assert!(!program.log().contains("clicked"));
    // Enabled, but a rule denies it.
    let rule = "[[gate.rules]]\ntool = \"mouse_*\"\naction = \"deny\"\n";
    let ruled = stage(&desktop, script(), &format!("{}\n{rule}", control("")));
    ruled.g3(["click"]).ok();
    assert!(ruled.asked()[1].tool_results()[0].1.contains("denied: a rule says so"));
    assert!(!program.log().contains("clicked"));
    // Enabled.
    let on = stage(&desktop, script(), &control(""));
    on.g3(["click"]).ok();
    let names = offered(&on);
    assert!(BOTH.iter().chain(&DIRECT).all(|name| names.contains(*name)), "{names:?}");
    assert!(!names.contains("execute_computer_use"));
    program.saw_times("clicked Press me", 1);
}

#[test]
fn divergence_05_a_configured_planner_replaces_the_tools_that_it_uses() {
    let desktop = Desktop::bare();
    let configured = control("computer_use_provider = \"gemini.planner\"");
    let on = stage(&desktop, [ScriptedReply::says("done")], &configured);
    on.g3(["hello"]).ok();
    let names = offered(&on);
    assert!(names.contains("execute_computer_use"), "{names:?}");
    assert!(DIRECT.iter().all(|name| !names.contains(*name)), "{names:?}");
    assert!(BOTH.iter().all(|name| names.contains(*name)), "{names:?}");
}

#[test]
fn a_scripted_agent_uses_every_screen_tool() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let point = |name: &str| {
        let (x, y) = program.place(name).middle();
        json!({ "x": x, "y": y })
    };
    let with = |mut args: Value, key: &str, value: Value| {
        args[key] = value;
        args
    };
    // All in one reply: screen calls run in order.
    let all = ScriptedReply::new()
        .calls("list_windows", json!({}))
        .calls("find_element", json!({ "text": "Press me" }))
        .calls("mouse_click", point("Name"))
        .calls("type_text", json!({ "text": "first" }))
        .calls("execute_gui", json!({ "action": "hotkey", "key": "ctrl+a" }))
        .calls("type_text", json!({ "text": "second" }))
        .calls("execute_gui", with(point("Press_me"), "action", json!("click")))
        .calls("observe_screen", json!({}))
        .calls("get_ui_context", json!({}))
        .calls("execute_accessible", json!({ "element_name": "Remember", "action": "click" }))
        .calls("take_screenshot", json!({ "path": "end.png", "window_id": "Fixture" }))
        .calls("screenshot", json!({}))
        .calls("maximize_active_window", json!({}));
    let stage = stage(&desktop, [all, ScriptedReply::says("done")], &control(""));
    stage.g3(["use the screen"]).ok();
    let results = stage.asked()[1].tool_results();
    assert_eq!(results.len(), 13);
    for line in ["text second", "clicked Press me", "toggled Remember on", "maximized on"] {
        program.saw(line);
    }
    let log = program.log();
    let at = |line: &str| {
        log.lines().position(|known| known == line).unwrap_or_else(|| panic!("{line}: {log}"))
    };
    assert!(at("text first") < at("text second") && at("text second") < at("clicked Press me"));
    assert!(stage.env.home().join("tmp/end.png").is_file());
    assert!(
        results[0].1.contains("\"Fixture\"") && results[1].1.contains("push button"),
        "{results:?}"
    );
    let sent = stage.asked()[1].text();
    assert!(!sent.contains("image_b64"), "pictures go as pictures");
    // The actions are in the history with their undo hints.
    let history = stage.session_dir().join("tools/history.jsonl");
    let history = std::fs::read_to_string(history).unwrap();
    let lines: Vec<Value> =
        history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let hint = |name: &str| {
        lines.iter().find(|line| line["tool"] == name).map(|line| line["undoable_hint"].clone())
    };
    assert_eq!(hint("execute_gui"), Some(json!("ctrl_z")));
    assert_eq!(hint("execute_accessible"), Some(json!("no_undo")));
    assert_eq!(hint("list_windows"), Some(json!("no_op")));
}
