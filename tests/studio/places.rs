//! Sessions on another machine, over a real sshd on loopback: every verb, broken connections, lost
//! hosts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use testkit::env::until;

use crate::fixtures::Scene;
use crate::place_fixtures::SshHost;

/// Asserts that home's journal is that of the place, byte for byte.
fn assert_equal_journals(scene: &Scene, host: &SshHost, id: &str) {
    let here = fs::read_to_string(scene.session_file(id, "journal.jsonl")).unwrap();
    let there = fs::read_to_string(host.session_file(id, "journal.jsonl")).unwrap();
    assert_eq!(here, there);
}

mod needs_sshd {
    use super::*;

    #[test]
    #[ignore = "needs sshd"]
    fn a_session_at_a_place_is_ready_reviewed_and_landed_as_one_here() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "");
        let script = "write a.txt one; commit first; write b.txt two; say done";
        let id = scene.exec(["--on", "farm", "--check", "test -e b.txt", script]);
        let status = scene.await_state(&id, "ready");
        assert_eq!(status["place"]["name"], "farm");
        assert_eq!(status["files_changed"], 2);
        assert_eq!(status["dirty"], true);
        scene.await_free(&id);
        assert_equal_journals(&scene, &host, &id);
        assert!(!scene.worktree(&id).path().exists(), "it has no worktree here");
        scene.studio(["diff", &id]).output_contains("+one").output_contains("+two");
        scene.studio(["logs", &id]).output_contains("done");
        scene.studio(["list"]).output_contains("ready at farm");
        scene.studio(["accept", &id, "--message", "Add both"]).exits(0);
        assert_eq!(scene.repo.show("main", "a.txt"), "one");
        assert_eq!(scene.repo.show("main", "b.txt"), "two");
        scene.studio(["undo"]).exits(0);
        scene.await_state(&id, "ready");
        scene.studio(["discard", &id]).exits(0);
        scene.studio(["undo"]).exits(0);
        scene.studio(["diff", &id]).output_contains("+two");
        scene.repo.git(["fsck", "--strict"]);
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_message_resumes_it_at_its_place() {
        let (scene, host) = (Scene::new(), SshHost::start());
        host.use_in(&scene, "");
        let id = scene.exec(["--agent", "loads", "--on", "farm", "write a.txt one"]);
        scene.await_state(&id, "ready");
        scene.studio(["send", &id, "write b.txt two"]).exits(0);
        until("the second turn", || (scene.status(&id)["files_changed"] == 2).then_some(()));
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        assert_equal_journals(&scene, &host, &id);
        assert_eq!(scene.status(&id)["place"]["attempt"], 2);
        let sent = |line: &&serde_json::Value| line["entry"] == "turn";
        assert_eq!(scene.journal(&id).iter().filter(sent).count(), 2, "each message once");
        assert_eq!(scene.status(&id)["place"]["set_aside"], serde_json::Value::Null);
    }
}
