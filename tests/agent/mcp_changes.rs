//! Tests of servers whose tools change during a session.

use std::path::{Path, PathBuf};

use serde_json::json;
use testkit::env::until;
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::mcp_support::{call, know, result, stage};

/// Returns the cached tools of `kit`.
fn remembered(home: &Path) -> String {
    let files = std::fs::read_dir(home.join(".g3/mcp")).into_iter().flatten().flatten();
    files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
}

/// Runs a conversation; the gate opens as soon as g3 knows the tool `fresh`.
fn talk<const N: usize>(stage: &Stage, args: [&str; N], input: &str, gate: &ReplyGate) -> String {
    let (home, gate): (PathBuf, ReplyGate) = (stage.env.home().to_owned(), gate.clone());
    let opener = std::thread::spawn(move || {
        until("the change is known", || {
            remembered(&home).contains("Came in between").then_some(())
        });
        gate.open_all();
    });
    let ran = stage.g3_with_input(args, input);
    opener.join().unwrap();
    ran.ok();
    ran.out + &ran.err
}

#[test]
fn changed_tools_are_offered_from_the_next_turn_on() {
    changed_tools_are_offered([]);
}

#[test]
fn changed_tools_of_a_server_without_a_handshake_are_offered_too() {
    changed_tools_are_offered(["--stateless"]);
}

fn changed_tools_are_offered<const N: usize>(args: [&str; N]) {
    let gate = ReplyGate::new();
    let stage = stage(
        [
            ScriptedReply::call("mcp__kit__change", json!({})),
            ScriptedReply::says("ok").gate(&gate),
            ScriptedReply::call("mcp__kit__fresh", json!({})).calls("mcp__kit__image", json!({})),
            ScriptedReply::says("done"),
            ScriptedReply::says("still there"),
        ],
        args,
        "calls = \"allow\"",
    );
    know(&stage);

    let said = talk(&stage, [], "change\nuse it\n", &gate);

    assert!(said.contains("kit offers other tools from now on"), "{said}");
    assert!(said.contains("new: mcp__kit__fresh; gone: mcp__kit__image"), "{said}");
    let asked = stage.asked();
    assert_eq!(asked[0].body["tools"], asked[1].body["tools"], "within a turn");
    assert_eq!(asked[2].body["tools"], asked[3].body["tools"], "within a turn");
    let has = |request: usize, name: &str| asked[request].tool_names().contains(&name.to_owned());
    assert!(has(1, "mcp__kit__image") && !has(1, "mcp__kit__fresh"));
    assert!(has(2, "mcp__kit__fresh") && !has(2, "mcp__kit__image"));
    assert_eq!(asked[0].system(), asked[3].system());
    let results = asked[3].tool_results();
    let texts: Vec<&str> = results.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts[1], "fresh was called");
    assert!(texts[2].contains("has no tool `mcp__kit__image`"), "{texts:?}");
    // A resumed session continues with the same tools.
    stage.g3(["--resume", "--", "go on"]).ok();
    assert_eq!(stage.asked()[4].body["tools"], asked[3].body["tools"]);
}

#[test]
fn searched_tools_are_found_immediately_and_change_no_request() {
    let gate = ReplyGate::new();
    let stage = stage(
        [
            call("change", json!({})),
            ScriptedReply::call("mcp_search", json!({"query": "fresh"})).gate(&gate),
            call("fresh", json!({})),
            ScriptedReply::says("done"),
            ScriptedReply::says("again"),
        ],
        ["--many", "30"],
        "calls = \"allow\"",
    );

    let said = talk(&stage, [], "change and use it\nmore\n", &gate);

    assert!(result(&stage, 2).contains("Came in between"), "{}", result(&stage, 2));
    assert_eq!(result(&stage, 3), "fresh was called");
    assert!(!said.contains("other tools"), "nothing else is offered: {said}");
    let asked = stage.asked();
    assert!(asked.iter().all(|one| one.body["tools"] == asked[0].body["tools"]));
}

#[test]
fn endless_change_notifications_cause_only_one_query_task() {
    let stage = stage(
        [
            ScriptedReply::call("mcp__kit__flood", json!({ "times": "20000" })),
            ScriptedReply::call("mcp__kit__lists", json!({})),
            ScriptedReply::says("done"),
        ],
        [],
        "calls = \"allow\"",
    );
    know(&stage);
    stage.g3(["flood"]).ok();
    let told = result(&stage, 2);
    let asked = told.split_whitespace().nth(1).and_then(|count| count.parse::<u32>().ok());
    let asked = asked.unwrap_or_else(|| panic!("{told}"));
    assert!(asked < 200, "{told}");
}
