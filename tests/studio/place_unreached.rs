//! Runs that home gave up because their place could not be reached, and takes up again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use serde_json::Value;
use testkit::env::until;

use crate::fixtures::Scene;
use crate::place_fixtures::{SshHost, kill_keeper};

/// Starts a session at a place and cuts the place off until home gives the run up.
fn given_up(script: &str) -> (Scene, SshHost, String) {
    let (scene, mut host) = (Scene::new(), SshHost::start());
    host.use_in(&scene, "keep_seconds = 1\nlost_after_seconds = 2");
    let id = scene.exec(["--agent", "loads", "--on", "farm", script]);
    until("the work to be kept", || (scene.status(&id)["files_changed"] == 1).then_some(()));
    host.stop_server();
    let status = scene.await_state(&id, "crashed");
    let why = status["why"].as_str().unwrap();
    assert!(why.contains("lost at farm: no connection to "), "{why}");
    scene.await_free(&id);
    // On a busy machine a connection may take longer than that.
    host.use_in(&scene, "keep_seconds = 1");
    (scene, host, id)
}

/// Returns the number of turns in the journal.
fn turns(scene: &Scene, id: &str) -> usize {
    scene.journal(id).iter().filter(|line| line["entry"] == "turn").count()
}

/// Lets the agent there go on.
fn open_gate(host: &SshHost, id: &str) {
    until("the agent to wait", || {
        host.repositories().first()?;
        host.worktree_file(id, "a.txt").exists().then_some(())
    });
    fs::write(host.worktree_file(id, "go"), "").unwrap();
}

fn assert_one_delivery(scene: &Scene, host: &SshHost, id: &str) {
    let here = fs::read_to_string(scene.session_file(id, "journal.jsonl")).unwrap();
    let there = fs::read_to_string(host.session_file(id, "journal.jsonl")).unwrap();
    assert_eq!(here, there);
    let place = &scene.status(id)["place"];
    assert_eq!((&place["attempt"], &place["set_aside"]), (&1.into(), &Value::Null));
}

mod needs_sshd {
    use super::*;

    #[test]
    #[ignore = "needs sshd"]
    fn a_run_that_ended_while_its_host_was_away_comes_home() {
        let (scene, mut host, id) = given_up("write a.txt one; gate go; write b.txt two");
        fs::write(host.worktree_file(&id, "go"), "").unwrap();
        let journal = host.session_file(&id, "journal.jsonl");
        until("the run there to end", || {
            fs::read_to_string(&journal).unwrap().contains("\"exit\"").then_some(())
        });
        host.restart();
        scene.studio(["resume", &id]).exits(0).output_contains("resumed");
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_one_delivery(&scene, &host, &id);
        assert_eq!(turns(&scene, &id), 1, "the agent did not start again");
        scene.studio(["accept", &id, "--message", "Add both"]).exits(0);
        assert_eq!(scene.repo.show("main", "b.txt"), "two");
        scene.studio(["doctor"]).exits(0);
        scene.repo.git(["fsck", "--strict"]);
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_run_that_goes_on_gets_messages_once() {
        let (scene, mut host, id) = given_up("write a.txt one; gate go; write b.txt two");
        // It is the run as it was started.
        let settings = scene.studio(["resume", &id, "--max-turns", "9"]);
        settings.exits(3).output_contains("may still run at farm").output_contains("--on farm");
        scene.studio(["send", &id, "write c.txt three"]).exits(0);
        host.restart();
        let requests = scene.session_file(&id, "requests.json");
        until("the message to be carried over", || {
            (!fs::read_to_string(&requests).unwrap().contains("three")).then_some(())
        });
        assert_eq!(scene.status(&id)["state"], "working");
        fs::write(host.worktree_file(&id, "go"), "").unwrap();
        until("both turns", || (turns(&scene, &id) == 2).then_some(()));
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_one_delivery(&scene, &host, &id);
        assert_eq!(turns(&scene, &id), 2);
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_run_whose_place_is_not_configured_for_a_while_goes_on() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "keep_seconds = 1");
        let script = "write a.txt one; gate go; write b.txt two";
        let id = scene.exec(["--agent", "loads", "--on", "farm", script]);
        until("the work to be kept", || (scene.status(&id)["files_changed"] == 1).then_some(()));
        kill_keeper(&scene, &id);
        scene.configure("");
        scene.studio(["doctor"]);
        let status = scene.await_state(&id, "crashed");
        assert!(status["why"].as_str().unwrap().contains("no such place: `farm`"), "{status}");
        scene.await_free(&id);
        host.use_in(&scene, "keep_seconds = 1");
        scene.studio(["resume", &id]).exits(0);
        open_gate(&host, &id);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_one_delivery(&scene, &host, &id);
        assert_eq!(turns(&scene, &id), 1);
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_host_that_no_longer_has_the_session_gets_it_again() {
        let (scene, mut host, id) = given_up("write a.txt one; gate go; write b.txt two");
        host.kill_all();
        fs::remove_dir_all(host.home().join("studio/repos")).unwrap();
        host.restart();
        scene.studio(["resume", &id]).exits(0);
        open_gate(&host, &id);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_eq!(scene.status(&id)["place"]["attempt"], 2);
        scene.studio(["logs", &id]).output_contains("no longer has the session");
        scene.studio(["diff", &id]).output_contains("+one");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn what_happened_here_since_starts_a_new_run_and_the_other_one_is_set_aside() {
        let (scene, mut host, id) = given_up("write a.txt one; gate go; write b.txt two");
        scene.studio(["shell", &id, "--", "sh", "-c", "echo mine > mine.txt"]).exits(0);
        host.restart();
        scene.studio(["resume", &id]).exits(0);
        until("the new run", || host.worktree_file(&id, "mine.txt").exists().then_some(()));
        open_gate(&host, &id);
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        let place = scene.status(&id)["place"].clone();
        assert_eq!(place["attempt"], 2);
        assert!(place["set_aside"].is_string(), "{place}");
        scene.studio(["diff", &id]).output_contains("+mine");
    }
}
