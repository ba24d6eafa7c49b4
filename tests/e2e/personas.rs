//! Personas of g3 in studio: their prompt, their write scope, and that they apply to the whole
//! session.

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::fixtures::Scene;

#[test]
fn g3_keeps_its_persona_and_write_scope_for_the_whole_session() {
    let write = |path: &str| {
        ScriptedReply::new().calls("write_file", json!({"file_path": path, "content": "x\n"}))
    };
    let script = Script::by(move |request| match request.assistant_messages() {
        0 => write("docs/use.md"),
        1 => write("src.rs"),
        _ => ScriptedReply::says("Done."),
    });
    let scene = Scene::new("anthropic", script.commit_message("Say how it is used"));

    scene
        .studio(["run", "--persona", "lamport", "document it"])
        .exits(0)
        .output_contains("g3 as lamport");

    let session = scene.session("document it");
    assert_eq!((&session["agent"], &session["persona"]), (&json!("g3"), &json!("lamport")));
    let asked = scene.model.requests();
    assert!(asked[0].system().contains("You are lamport"));
    let (_, denied) = asked[2].tool_results().remove(1);
    assert!(denied.contains("lamport"), "{denied}");

    let id = scene.id("document it");
    scene.studio(["send", &id, "and more"]).exits(0);
    testkit::env::until("the second turn", || {
        let last = scene.questions().pop()?;
        let is_it = last.text().contains("and more");
        is_it.then(|| assert!(last.system().contains("You are lamport")))
    });
    testkit::env::until("it is ready again", || {
        (scene.session("document it")["state"] == "ready").then_some(())
    });
    scene.studio(["accept", &id]).exits(0);
    assert_eq!(scene.repo.read("docs/use.md"), "x\n");
    assert!(!scene.repo.path().join("src.rs").exists());
}

#[test]
fn a_missing_persona_is_refused_before_any_session_starts() {
    let scene = Scene::new("anthropic", Script::new([]));
    let ran = scene.studio(["run", "--persona", "lamprt", "work"]);
    ran.exits(2).output_contains("no such agent: `lamprt`").output_contains("lamport");
    assert!(scene.sessions().is_empty(), "it is noticed before anything starts");
}
