//! Frequent complaints of users of such tools, by number.

use serde_json::Value;

use crate::fixtures::Scene;

fn ids(sessions: &Value) -> Vec<&str> {
    let sessions = sessions.as_array().into_iter().flatten();
    sessions.filter_map(|session| session["id"].as_str()).collect()
}

/// What a session, the trash and the rest use on the disk is shown, and the oldest trash goes first.
#[test]
fn pain_4_disk_use_is_shown_and_limited() {
    let scene = Scene::new();
    let big = |name: &str| {
        let id = scene.ready("write a 1");
        let content = name.repeat(1 << 20);
        std::fs::write(scene.worktree(&id).path().join("big"), content).expect("writable");
        id
    };
    let ids = [big("x"), big("y"), big("z")];
    let disk = || scene.studio(["list", "--disk", "--json"]).exits(0).json();
    let before = disk();
    assert_eq!(before["sessions"].as_array().map(Vec::len), Some(3), "{before}");
    for session in before["sessions"].as_array().into_iter().flatten() {
        assert!(session["worktree"].as_u64() >= Some(1 << 20), "{session}");
        assert!(session["total"].as_u64() > session["worktree"].as_u64(), "{session}");
    }
    assert_eq!(before["trash"], 0);
    let page = scene.studio(["list", "--disk"]);
    page.exits(0).output_contains(&ids[0]).output_contains("MiB").output_contains("in the trash");
    for id in &ids {
        scene.studio(["discard", id, "--yes"]).exits(0);
    }
    let after = disk();
    assert!(after["trash"].as_u64() >= Some(3 << 20), "{after}");
    assert_eq!(after["sessions"], serde_json::json!([]));
    let freed = scene.studio(["gc", "--max-size", "2500K", "--json"]).exits(0).json();
    assert_eq!(freed["deleted"].as_array().map(Vec::len), Some(1), "{freed}");
    assert!(disk()["trash"].as_u64() <= Some(2500 << 10));
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.worktree(&ids[2]).read("big").len(), 1 << 20, "the newest is still there");
}

/// Sessions at the same time have ports, a database name and a Compose project of their own; what a
/// session leased is free again after its end.
#[test]
fn pains_8_and_9_sessions_share_no_port_and_no_name() {
    let scene = Scene::new();
    let shell = "[studio.agents.shell]\nprotocol = \"command\"\n\
                 command = [\"sh\", \"-c\", \"{prompt}\"]\n";
    scene.configure(&format!("checks = 'test -n \"$STUDIO_PORT\"'\nports = 3\n{shell}"));
    let print =
        "echo $STUDIO_PORT $STUDIO_PORT_COUNT $STUDIO_DATABASE $COMPOSE_PROJECT_NAME > mine";
    let start = || scene.exec(["--agent", "shell", print]);
    let ids = [start(), start(), start()];
    let mut seen = std::collections::BTreeSet::new();
    for id in &ids {
        let leases = scene.await_state(id, "ready")["leases"].clone();
        let (ports, names) = (&leases["ports"], [&leases["database"], &leases["compose_project"]]);
        let first = ports["first"].as_u64().expect("a port");
        assert_eq!(ports["count"], 3);
        assert!((first..first + 3).all(|port| seen.insert(port.to_string())), "{ports}");
        let [database, project] = names.map(|name| name.as_str().expect("a name"));
        assert!([database, project].into_iter().all(|name| seen.insert(name.to_owned())));
        assert_eq!(scene.worktree(id).read("mine"), format!("{first} 3 {database} {project}\n"));
        let shell = scene.studio(["shell", id, "--", "sh", "-c", "echo $STUDIO_PORT"]);
        shell.output_contains(&first.to_string());
    }
    let first_of = |id: &str| scene.status(id)["leases"]["ports"]["first"].clone();
    let freed = first_of(&ids[1]);
    scene.studio(["discard", &ids[1], "--yes"]).exits(0);
    assert_eq!(first_of(&ids[1]), Value::Null);
    // Something that still listens keeps its port.
    let port = u16::try_from(freed.as_u64().expect("a port")).expect("a port");
    let listener = std::net::TcpListener::bind(("127.0.0.1", port + 2)).expect("it was free");
    let next = start();
    scene.await_state(&next, "ready");
    assert!(first_of(&next) != freed && !seen.contains(&first_of(&next).to_string()));
    drop(listener);
    let next = start();
    scene.await_state(&next, "ready");
    assert_eq!(first_of(&next), freed);
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
