//! The error messages of studio: what failed, why, and a hint for the given case.

use std::fs;

use crate::fixtures::{Scene, studio};

#[test]
fn without_an_id_the_candidate_sessions_are_named() {
    let scene = Scene::new();
    scene.studio(["discard"]).exits(2).output_contains("no open session");
    let failed = scene.exec(["write a 1; exit 1"]);
    scene.await_state(&failed, "failed");
    scene.await_free(&failed);
    scene.studio(["accept"]).exits(5).output_contains("no session matches");
    scene.studio(["discard"]).exits(2).output_contains(&failed);
    let stopped = scene.exec(["write b 1; exit 1"]);
    scene.await_state(&stopped, "failed");
    scene.await_free(&stopped);
    scene.studio(["accept", "--force"]).exits(2).output_contains(&failed).output_contains(&stopped);
    scene.studio(["discard", &stopped]).exits(0);
    scene.studio(["accept", "--force", "-m", "Add a"]).exits(0).output_contains("landed on main");
    assert_eq!(scene.repo.read("a"), "1\n");
}

#[test]
fn an_empty_message_is_a_usage_error_before_anything_runs() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.studio(["accept", &id, "-m", " \n"]).exits(2).output_contains("message is empty");
    assert_eq!(scene.status(&id)["state"], "ready");
}

#[test]
fn force_is_not_suggested_if_the_same_check_would_fail() {
    let scene = Scene::new();
    let id = scene.exec(["--check", "false", "write a 1"]);
    scene.await_state(&id, "failed");
    scene.await_free(&id);
    let refused = scene.studio(["accept", &id]);
    refused.exits(3).output_contains("make the check pass").output_lacks("--force");
    scene.studio(["accept", "--force", &id]).exits(1).output_contains("fails on the merged tree");
}

#[test]
fn a_session_locked_by_another_command_is_not_reported_as_running() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let path = scene.session_file(&id, "lock");
    let _lock = base::lock::Lock::take(&path).unwrap();
    let refused = scene.studio(["accept", &id, "-m", "Add a"]);
    refused
        .exits(3)
        .output_contains("in use")
        .output_contains("another command")
        .output_lacks("studio stop");
}

#[test]
fn undo_skips_operations_emptied_by_gc_and_hints_name_the_operation() {
    let mut scene = Scene::new();
    let (kept, emptied) = (scene.ready("write a 1"), scene.ready("write b 1"));
    scene.env.set("G3_TEST_NOW", "2026-02-01T10:00:00Z");
    scene.studio(["discard", &kept]).exits(0);
    scene.env.set("G3_TEST_NOW", testkit::env::NOW);
    scene.studio(["discard", &emptied]).exits(0);
    scene.studio(["discard", &emptied]).exits(3).output_contains("studio undo op2");
    scene.env.set("G3_TEST_NOW", "2026-02-02T10:00:00Z");
    scene.studio(["gc"]).exits(0).output_contains("deleted the data of op2");

    let over = scene.studio(["discard", &emptied]);
    over.exits(3).output_contains("data has already been removed").output_lacks("studio undo");
    scene.studio(["send", &kept, "more"]).exits(3).output_contains("studio undo op1");
    assert_eq!(scene.status(&kept)["next"][0], "studio undo op1");
    assert_eq!(scene.status(&emptied)["next"], serde_json::json!([]));
    scene.studio(["undo"]).exits(0).output_contains(&kept);
    scene.studio(["undo"]).exits(5).output_contains("already been removed");
    scene.studio(["undo", "op2"]).exits(3).output_contains("was deleted by `studio gc`");
}

#[test]
fn send_and_resume_recover_a_landing_that_was_killed() {
    for verb in ["send", "resume"] {
        let scene = Scene::new();
        let id = scene.ready("write a 1");
        scene.await_free(&id);
        let job =
            scene.env.command(studio(), scene.repo.path()).args(["accept", &id, "-m", "Add a"]);
        scene.env.run_command(job.env("G3_TEST_KILL_AT", "accept.files")).exits(137);
        assert_eq!(scene.status(&id)["state"], "landing");
        let args = [verb, id.as_str(), "write b 2"];
        let count = if verb == "send" { 3 } else { 2 };

        let ran = scene.env.run(studio(), scene.repo.path(), &args[..count]);

        ran.exits(0).output_contains("was rolled back");
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert!(!scene.repo.path().join("a").exists());
    }
}

#[test]
fn a_branch_that_blocks_session_branches_is_reported_before_a_session_is_created() {
    let scene = Scene::new();
    scene.repo.git(["branch", "studio"]);
    let refused = scene.studio(["exec", "write a 1"]);
    refused
        .exits(2)
        .output_contains("the branch `studio` blocks")
        .output_contains("[studio] branch");
    assert_eq!(scene.studio(["list", "--all", "--json"]).json()["sessions"], serde_json::json!([]));
    scene.configure("branch = \"agents/{id}\"");
    scene.ready("write a 1");
}

#[test]
fn a_run_that_failed_before_its_agent_has_a_hint() {
    let scene = Scene::new();
    let id = scene.exec(["write a 1; gate go"]);
    scene.await_state(&id, "working");
    scene.studio(["stop", &id]).exits(0);
    scene.await_free(&id);
    fs::write(scene.worktree(&id).path().join(".git"), "gitdir: /nowhere\n").unwrap();

    scene
        .studio(["doctor"])
        .exits(1)
        .output_contains(".git was changed")
        .output_contains("studio discard");
    scene.studio(["resume", &id]).exits(0);
    let failed = scene.await_state(&id, "failed");
    assert!(failed["why"].as_str().unwrap().contains("try: "), "{failed}");
}

#[test]
fn a_session_keeps_the_trusted_configuration_of_a_linked_worktree() {
    let scene = Scene::new();
    let linked = scene.env.home().join("linked");
    scene.repo.git(["worktree", "add", "-q", "-b", "other", linked.to_str().unwrap()]);
    let text = "[studio]\nsetup = \"echo from-here > made.txt\"\n";
    fs::write(linked.join("g3.toml"), text).unwrap();
    let store = scene.env.home().join(".config/g3/trust.json");
    let clock = base::clock::Clock::fixed(crate::git_fixtures::now());
    let file = linked.join("g3.toml");
    base::config::trust::accept(&store, &file, text.as_bytes(), &clock).expect("it is ours");

    let ran = scene.studio_in(&linked, ["exec", "write a 1"]);
    let id = ran.ok().to_owned();
    scene.await_state(&id, "ready");
    scene.await_free(&id);

    assert_eq!(scene.worktree(&id).read("made.txt"), "from-here\n");
}
