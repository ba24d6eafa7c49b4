//! An interactive g3 in a session: `studio cli` and `studio resume --interactive`.

use serde_json::json;
use testkit::env::until;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;
use testkit::tmux::TmuxTerminal;

use crate::fixtures::Scene;

const STUDIO: &str = env!("CARGO_BIN_EXE_studio");

fn start<'a>(scene: &'a Scene, args: &[&str]) -> TmuxTerminal<'a> {
    let command = [STUDIO].into_iter().chain(args.iter().copied());
    TmuxTerminal::start(&scene.env, scene.repo.path(), (100, 30), command)
}

#[test]
fn work_with_an_interactive_g3_is_collected_checked_and_continued() {
    let scene = Scene::new(
        "anthropic",
        Script::from(vec![
            ScriptedReply::call("write_file", json!({"file_path": "a", "content": "1\n"})),
            ScriptedReply::says("wrote a"),
            ScriptedReply::says("the second answer"),
        ]),
    );
    scene.studio(["cli"]).exits(2).output_contains("needs a terminal");
    scene.studio(["list", "--json"]).exits(0).output_contains("\"sessions\":[]");

    let terminal = start(&scene, &["cli", "by hand", "--check", "test -e a"]);
    terminal.shows("g3");
    until("the session to work", || {
        let sessions = scene.sessions();
        (sessions.first()?["state"] == "working").then_some(())
    });
    terminal.enters("please write a");
    terminal.shows("wrote a");
    // No scheduler starts it a second time, and nothing lands under it.
    scene.studio(["resume", "--all"]);
    let id = scene.id("by hand");
    scene.studio(["discard", &id]).exits(3);
    scene.studio(["stop", &id]).exits(3).output_contains("exit that shell");
    terminal.enters("/exit");
    let text = terminal.ends();
    assert!(text.contains("ready") && text.contains(&format!("studio accept {id}")), "{text}");
    let session = scene.session("by hand");
    assert_eq!((&session["state"], &session["files_changed"]), (&json!("ready"), &json!(1)));
    assert_eq!(session["checks"][0]["ok"], true);

    let terminal = start(&scene, &["resume", &id, "--interactive"]);
    terminal.shows("g3");
    terminal.enters("and again");
    terminal.shows("the second answer");
    terminal.enters("/exit");
    terminal.ends();
    let last = scene.model.wait_for_requests(3).pop().unwrap().body.to_string();
    assert!(last.contains("please write a") && last.contains("and again"), "{last}");
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
    assert_eq!(scene.repo.read("a"), "1\n");
}
