//! Notes of several g3 sessions in the workspace memory: all of them land.

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::fixtures::Scene;

fn notes(task: &str, notes: &str) -> (String, Vec<ScriptedReply>) {
    let remember = ScriptedReply::call("remember", json!({ "notes": notes }));
    (task.to_owned(), vec![remember, ScriptedReply::says("I wrote it down.")])
}

#[test]
fn the_notes_of_two_sessions_both_land() {
    let script = Script::by_task([
        notes(
            "look at the build",
            "### Build\n- the build uses make\n\n### Tools\n- ctags is there",
        ),
        notes(
            "look at the tests",
            "### Build\n- the tests need a port\n\n### Tests\n- they are slow",
        ),
        notes("look at it again", "### Build\n- the build uses make\n- it is quick"),
    ]);
    let scene = Scene::new("anthropic", script.commit_message("Note what was found"));
    scene.studio(["run", "look at the build", "look at the tests"]).exits(0);
    let (build, tests) = (scene.id("the build"), scene.id("the tests"));
    assert!(scene.session("the build")["state"] == "ready", "{}", scene.session("the build"));

    scene.studio(["accept", &build]).exits(0);
    scene.studio(["accept", &tests]).exits(0);

    let landed = scene.repo.read("analysis/memory.md");
    let once = |line: &str| assert_eq!(landed.matches(line).count(), 1, "{line}\n{landed}");
    once("- the build uses make");
    once("- ctags is there");
    once("- the tests need a port");
    once("- they are slow");
    once("# Workspace Memory");

    // A session after the merge appends its notes below the merged heading, without a second
    // header.
    scene.studio(["run", "look at it again"]).exits(0);
    scene.studio(["accept", &scene.id("it again")]).exits(0);
    let landed = scene.repo.read("analysis/memory.md");
    let once = |line: &str| assert_eq!(landed.matches(line).count(), 1, "{line}\n{landed}");
    once("- the build uses make");
    once("- it is quick");
    once("> Updated:");
    once("- they are slow");
}
