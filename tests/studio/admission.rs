//! Sessions start only if the machine has room for them.

use crate::fixtures::Scene;

const GIB: u64 = 1 << 30;

#[test]
fn a_session_waits_for_memory_and_says_so() {
    let mut scene = Scene::new();
    scene.env.set("G3_TEST_MEMORY", 256 << 20);
    let id = scene.exec(["write a 1"]);
    let status = scene.status(&id);
    assert_eq!(status["state"], "queued");
    assert_eq!(status["why"], "256 MiB of memory is free, and a session needs 512 MiB");
    scene.studio(["status", &id]).exits(0).output_contains("256 MiB of memory is free");
    scene.env.set("G3_TEST_MEMORY", GIB);
    scene.studio(["resume", &id]).exits(0);
    scene.await_state(&id, "ready");
}

#[test]
fn only_as_many_sessions_start_at_once_as_memory_allows() {
    let mut scene = Scene::new();
    scene.configure("limits.expected_memory_bytes = 1073741824\n");
    scene.env.set("G3_TEST_MEMORY", GIB);
    let one = scene.exec(["--agent", "talk", "gate go"]);
    scene.await_state(&one, "working");
    // The next one is planned while two are being started: only one of them has room.
    let list = "- write a 1; gate go\n- write b 1; gate go\n";
    scene.repo.write("tasks.md", list);
    scene.studio(["exec", "--tasks", "tasks.md"]).exits(0);
    let sessions = scene.studio(["list", "--json"]).json();
    let whys: Vec<&str> = sessions["sessions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|session| session["state"] == "queued")
        .filter_map(|session| session["why"].as_str())
        .collect();
    let is_about_memory = |why: &&&str| why.contains("for sessions that are starting");
    assert_eq!(whys.iter().filter(is_about_memory).count(), 1, "{whys:?}");
}

#[test]
fn the_disk_floor_and_the_load_hold_sessions_back() {
    let mut scene = Scene::new();
    scene.env.set("G3_TEST_FREE_DISK", 1 << 20);
    let full = scene.exec(["write a 1"]);
    let why = "1 MiB of disk space is free, and 512 MiB must remain free";
    assert_eq!(scene.status(&full)["why"], why);
    scene.studio(["stop", &full]).exits(0);
    scene.env.set("G3_TEST_FREE_DISK", GIB);
    scene.env.set("G3_TEST_LOAD", "1000.5");
    let first = scene.exec(["--agent", "talk", "gate go"]);
    scene.await_state(&first, "working");
    let second = scene.exec(["write b 1"]);
    let why = scene.status(&second)["why"].as_str().unwrap_or_default().to_owned();
    assert!(why.starts_with("the load of the machine is 1000.5"), "{why}");
    scene.env.set("G3_TEST_LOAD", "0");
    scene.studio(["resume", &second]).exits(0);
    scene.await_state(&second, "ready");
    scene.worktree(&first).write("go", "");
}
