//! Frequent complaints of users of such tools, by number.

use serde_json::Value;

use crate::fixtures::Scene;

fn ids(sessions: &Value) -> Vec<&str> {
    let sessions = sessions.as_array().into_iter().flatten();
    sessions.filter_map(|session| session["id"].as_str()).collect()
}

/// A session that waits is never shown as working, nor the reverse, in any view.
#[test]
fn pain_14_every_view_shows_the_same_true_state() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "--ask", "ask one; gate go"]);
    let views = |expected: &str| {
        assert_eq!(scene.status(&id)["state"], expected);
        let listed = scene.studio(["list", "--json"]).json();
        assert_eq!(listed["sessions"][0]["state"], expected, "{listed}");
        scene.studio(["list"]).exits(0).output_contains(expected);
        assert_eq!(scene.studio(["explain", &id, "--json"]).json()["state"], expected);
        let inbox = scene.studio(["inbox", "--json"]).json();
        let asks = ids(&inbox["questions"]);
        assert_eq!(asks.contains(&id.as_str()), expected == "waiting", "{inbox}");
        assert_eq!(ids(&inbox["unseen"]).contains(&id.as_str()), expected == "ready", "{inbox}");
    };
    scene.await_state(&id, "waiting");
    views("waiting");
    scene.studio(["answer", &id, "1", "allow"]).exits(0);
    scene.await_state(&id, "working");
    views("working");
    scene.worktree(&id).write("go", "");
    scene.await_state(&id, "ready");
    views("ready");
}

/// An agent that reports nothing for a long time is named, not only by a state that says `working`.
#[test]
fn pain_15_a_stuck_agent_is_named_and_stopped_without_loss() {
    let mut scene = Scene::new();
    let stuck = scene.exec(["--agent", "talk", "write a 1; hang"]);
    scene.await_state(&stuck, "working");
    let asking = scene.exec(["--agent", "talk", "--ask", "ask one"]);
    scene.await_state(&asking, "waiting");
    let quiet = |scene: &Scene| scene.studio(["inbox", "--json"]).json()["quiet"].clone();
    assert_eq!(ids(&quiet(&scene)), [""; 0]);

    scene.env.set("G3_TEST_NOW", "2026-01-02T10:10:00Z");
    assert_eq!(ids(&quiet(&scene)), [&stuck], "the other one waits for the user");
    let page = scene.studio(["inbox"]);
    page.exits(0)
        .output_contains("No event for 10 minutes or more:")
        .output_contains("write a 1; hang");
    scene.studio(["stop", &stuck]).exits(0);
    scene.await_state(&stuck, "stopped");
    assert_eq!(ids(&quiet(&scene)), [""; 0]);
    assert_eq!(scene.worktree(&stuck).read("a"), "1\n");
}
