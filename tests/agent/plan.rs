//! Tests of plan mode at the prompt: nothing changes before the user approves, and the approval is
//! bound to the text.

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::{Stage, journal, of_type};

fn writes() -> ScriptedReply {
    ScriptedReply::call("write_file", json!({"file_path": "a.txt", "content": "hi\n"}))
}

fn proposes(plan: &str) -> ScriptedReply {
    ScriptedReply::call("propose_plan", json!({"plan": plan}))
}

#[test]
fn a_plan_waits_for_approval_and_is_then_carried_out() {
    let stage = Stage::new([
        writes(),
        proposes("1. write a.txt"),
        ScriptedReply::says("that is my plan"),
        writes(),
        ScriptedReply::says("done"),
    ]);
    let ran = stage.g3_with_input([], "/plan write a.txt\n/plan\n/approve\n/plan\n");
    ran.output_contains("waits for /approve")
        .output_contains("approved: plan ")
        .output_contains("(approved)");
    assert_eq!(stage.repo.read("a.txt"), "hi\n");
    let asked = stage.asked();
    assert!(asked[0].text().contains("Plan mode: look around"));
    assert!(asked[1].tool_results()[0].1.contains("plan mode"), "{:?}", asked[1].tool_results());
    assert!(asked[3].text().contains("I approve the plan"));
    assert!(asked.iter().all(|request| request.tool_names() == asked[0].tool_names()));
}

#[test]
fn an_unapproved_plan_is_not_carried_out_even_after_a_restart() {
    let stage = Stage::new([
        proposes("1. write a.txt"),
        ScriptedReply::says("my plan"),
        writes(),
        ScriptedReply::says("I may not"),
    ]);
    stage.g3_with_input([], "/plan write a.txt\n").ok();
    stage.g3(["just do it", "--resume"]).ok();
    assert!(!stage.repo.path().join("a.txt").exists());
    assert!(stage.asked()[3].tool_results().last().unwrap().1.contains("plan mode"));
}

#[test]
fn an_approval_does_not_apply_to_a_changed_text() {
    let stage = Stage::new([
        proposes("1. write a.txt"),
        ScriptedReply::says("my plan"),
        writes(),
        ScriptedReply::says("done"),
        writes(),
        ScriptedReply::says("I may not"),
    ]);
    stage.g3_with_input([], "/plan write a.txt\n/approve\n").ok();
    std::fs::remove_file(stage.repo.path().join("a.txt")).unwrap();
    let dir = stage.session_dir();
    // The plan has changed, and the session was left in plan mode.
    std::fs::write(dir.join("plan.g3.md"), "1. delete everything").unwrap();
    std::fs::write(dir.join("stance"), "plan").unwrap();
    stage.g3(["go on", "--resume"]).ok();
    assert!(!stage.repo.path().join("a.txt").exists());
}

#[test]
fn the_plan_is_an_event_and_survives_a_summary() {
    let stage = Stage::new(Script::new([
        proposes("1. plant plums"),
        ScriptedReply::says("my plan"),
        ScriptedReply::says("a summary"),
        ScriptedReply::says("yes"),
    ]));
    stage.g3_with_input(["--events", "events"], "/plan garden\n/compact\nand?\n").ok();
    let lines = stage.repo.read("events");
    let events: Vec<_> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let plan = of_type(&events, "plan")[0];
    assert_eq!((&plan["plan"], &plan["approved"]), (&json!("1. plant plums"), &json!(false)));
    assert_eq!(plan["sha256"].as_str().unwrap().len(), 64);
    assert!(stage.asked()[3].text().contains("plant plums"));
    assert!(journal(&stage.session_dir()).len() > 4);
}

#[test]
fn modes_can_be_shown_and_selected() {
    let stage = Stage::new([writes(), ScriptedReply::says("no terminal to ask on")]);
    let ran = stage.g3_with_input([], "/mode\n/mode nope\n/mode ask\n/mode\nwrite it\n");
    ran.output_contains("* auto").output_contains("no such mode: `nope`").output_contains("* ask");
    // There is no user to ask here: the write is denied.
    assert!(!stage.repo.path().join("a.txt").exists());
}
