//! Checks of merged trees at a place, over a real sshd on loopback.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use testkit::env::{processes_in, until};

use crate::filters::lfs_scene;
use crate::fixtures::{Scene, studio};
use crate::place_fixtures::SshHost;

/// Passes only in a check worktree at a place.
const PASSES_THERE: &str = "pwd | grep -q studio/repos";

/// Lets this check of merged trees run at a host.
fn check_at(scene: &Scene, host: &SshHost, check: &str) {
    let place = host.configuration("farm", "");
    scene.configure(&format!("checks_on = \"farm\"\nchecks = {check:?}\n{place}"));
}

/// Returns a session that is ready, without checks of its own.
fn ready(scene: &Scene, script: &str) -> String {
    let id = scene.ready(script);
    scene.await_free(&id);
    id
}

mod needs_sshd {
    use super::*;

    #[test]
    #[ignore = "needs sshd"]
    fn the_checks_of_a_landing_run_at_the_place() {
        let (scene, host) = (Scene::new(), SshHost::start());
        scene.repo.commit_file("other", "old\n");
        let id = ready(&scene, "write a.txt one");
        check_at(&scene, &host, PASSES_THERE);
        scene.repo.commit_file("other", "new\n");
        let accepted = scene.studio(["accept", &id, "--message", "Add a"]);
        accepted.exits(0).output_contains("on the merged tree at farm");
        assert_eq!(scene.repo.show("main", "a.txt"), "one");
        // A result of the place does not count for this machine, nor one of this machine for it.
        scene.studio(["undo"]).exits(0);
        scene.configure(&format!("checks = {PASSES_THERE:?}"));
        let refused = scene.studio(["accept", &id, "--message", "Add a"]);
        refused.exits(1).output_contains("fails on the merged tree");
        check_at(&scene, &host, PASSES_THERE);
        scene.studio(["accept", &id, "--message", "Add a"]).exits(0);
        scene.repo.is_sound();
    }

    #[test]
    #[ignore = "needs sshd"]
    fn files_in_git_lfs_are_there() {
        let (scene, host) = (lfs_scene(), SshHost::start());
        let id = ready(&scene, "write a.bin changed; write new.bin added");
        let check = format!(
            "{PASSES_THERE} && grep changed a.bin && grep kept kept.bin && grep added new.bin"
        );
        let place = host.configuration("farm", "[studio.filters]\nlfs = \"git-lfs\"");
        scene.configure(&format!("checks_on = \"farm\"\nchecks = {check:?}\n{place}"));
        scene.studio(["accept", &id, "--message", "m"]).exits(0);
        assert_eq!(scene.repo.read("new.bin"), "added\n");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_check_that_fails_there_refuses_the_landing_with_its_output() {
        let (scene, host) = (Scene::new(), SshHost::start());
        let id = ready(&scene, "write a.txt one");
        check_at(&scene, &host, "echo output of $((40 + 2)); test ! -e a.txt");
        let before = scene.repo.everything();
        let refused = scene.studio(["accept", &id, "--message", "m"]);
        refused.exits(1).output_contains("output of 42").output_contains("exit code 1");
        refused.output_lacks("also fails on `main`");
        assert_eq!(scene.repo.everything(), before);
        check_at(&scene, &host, "false");
        scene.studio(["accept", &id]).exits(1).output_contains("also fails on `main`");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn the_queue_checks_there() {
        let (scene, host) = (Scene::new(), SshHost::start());
        let ids = ["a", "b", "c"].map(|name| ready(&scene, &format!("write {name} 1")));
        check_at(&scene, &host, "test ! -e b && pwd | grep -q studio/repos");
        let landed = scene.studio(["accept", "--all"]);
        landed.exits(1).output_contains("fails on the merged tree");
        assert_eq!(scene.status(&ids[0])["state"], "accepted");
        assert_eq!(scene.status(&ids[1])["state"], "ready");
        assert_eq!(scene.status(&ids[2])["state"], "accepted");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn an_interrupted_landing_ends_its_checks_there() {
        let (scene, host) = (Scene::new(), SshHost::start());
        let id = ready(&scene, "write a.txt one");
        check_at(&scene, &host, "sleep 300");
        let mut landing = scene.env.start(studio(), scene.repo.path(), ["accept", &id]);
        let sleeps = || {
            let processes = processes_in(&host.home());
            processes.iter().any(|process| {
                let line = fs::read(format!("/proc/{}/cmdline", process.id)).unwrap_or_default();
                line.starts_with(b"sleep\x00300")
            })
        };
        until("the check to run", || sleeps().then_some(()));
        base::process::signal_group(landing.id(), rustix::process::Signal::INT);
        let status = landing.wait_until(None).unwrap().expect("it ends");
        assert_eq!(status.code(), Some(130));
        until("the check to end there", || processes_in(&host.home()).is_empty().then_some(()));
        assert_eq!(scene.status(&id)["state"], "ready");
        check_at(&scene, &host, PASSES_THERE);
        scene.studio(["accept", &id, "--message", "m"]).exits(0);
        assert_eq!(scene.repo.show("main", "a.txt"), "one");
    }

    #[test]
    #[ignore = "needs sshd"]
    fn a_place_that_is_away_refuses_the_landing() {
        let (scene, mut host) = (Scene::new(), SshHost::start());
        let id = ready(&scene, "write a.txt one");
        check_at(&scene, &host, PASSES_THERE);
        host.stop_server();
        let refused = scene.studio(["accept", &id, "--message", "m"]);
        refused.exits(1).output_contains("no connection to farm");
        refused.output_contains("[studio] checks_on");
        assert_eq!(scene.status(&id)["state"], "ready");
        host.restart();
        scene.studio(["accept", &id, "--message", "m"]).exits(0);
    }
}

#[test]
fn a_place_that_cannot_check_is_refused() {
    let scene = Scene::new();
    let id = ready(&scene, "write a.txt one");
    scene.configure("checks_on = \"farm\"\nchecks = \"true\"\n");
    scene.studio(["accept", &id]).exits(2).output_contains("no such place: `farm`");
    scene.configure("");
    scene.repo.write("g3.toml", "[studio]\nchecks_on = \"evil\"\n");
    let list = scene.studio(["places"]);
    list.exits(0).output_contains("only your own configuration chooses places");
    scene.studio(["accept", &id, "--message", "m"]).exits(0);
}
