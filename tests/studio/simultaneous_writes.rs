//! Files of the main checkout that another program writes while a landing or an undo replaces them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use crate::filters::{ROT13, changes};
use crate::fixtures::{Scene, studio};

/// Ways to write to the file `shared`: as a program that holds it open, and as an editor.
const WRITES: [&str; 2] =
    ["echo of the user >> shared", "{ cat shared; echo of the user; } > s; mv s shared"];

/// Creates a repository in which the second run of a filter in the main checkout, once it is armed,
/// does something: the landing has examined all files then, and begins to write.
fn scene(write: &str) -> Scene {
    let scene = Scene::new();
    let (home, repo) = (scene.env.home().display(), scene.repo.path().display());
    let smudge = format!(
        "if test -e {home}/armed && ! mkdir {home}/examined 2>&-; then cd '{repo}'; rm {home}/armed; \
         {write}; fi; {ROT13}"
    );
    scene.configure(&format!("[studio.filters.rot]\nclean = {ROT13:?}\nsmudge = {smudge:?}\n"));
    for (command, line) in [("clean", ROT13), ("smudge", &smudge)] {
        scene.repo.git(["config", &format!("filter.rot.{command}"), line]);
    }
    scene.repo.commit_file(".gitattributes", "*.rot filter=rot\n");
    scene.repo.commit_file("a.rot", "hello\n");
    scene.repo.commit_file("shared", "one\n");
    scene
}

fn arm(scene: &Scene) {
    let _ = fs::remove_dir(scene.env.home().join("examined"));
    arm_revert(scene);
}

/// Lets the next run of the filter write: a revert examines files without it.
fn arm_revert(scene: &Scene) {
    fs::write(scene.env.home().join("armed"), "").unwrap();
}

/// Checks that the user's work is there, and nothing of what a command would have written.
fn is_kept(scene: &Scene, write: &str, before: &str) {
    assert!(!scene.env.home().join("armed").exists(), "the filter ran");
    assert_eq!(scene.repo.read("shared"), format!("{before}of the user\n"), "{write}");
    assert_eq!(changes(&scene.repo), " M shared", "{write}");
}

#[test]
fn a_file_that_is_written_during_a_landing_is_kept_and_refuses_it() {
    for write in WRITES {
        for (task, deletes) in [("write shared two", false), ("sh rm shared", true)] {
            let scene = scene(write);
            let id = scene.ready(&format!("{task}; write a.rot world"));
            scene.await_free(&id);
            arm(&scene);
            let refused = scene.studio(["accept", &id, "-m", "Land it"]);
            refused.exits(3).output_contains("shared changed during the landing");
            is_kept(&scene, write, "one\n");
            assert_eq!(scene.repo.read("a.rot"), "hello\n");
            scene.repo.git(["checkout", "-q", "shared"]);
            scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
            assert_eq!(scene.repo.read("a.rot"), "world\n");
            assert_eq!(scene.repo.path().join("shared").exists(), !deletes);
            assert_eq!(changes(&scene.repo), "");
            scene.repo.is_sound();
        }
    }
}

#[test]
fn a_file_that_is_written_during_an_undo_is_kept_and_refuses_it() {
    for write in WRITES {
        let scene = scene(write);
        let id = scene.ready("write shared two; write a.rot world");
        scene.await_free(&id);
        scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
        arm(&scene);
        let refused = scene.studio(["undo"]);
        refused.exits(3).output_contains("shared changed during the landing");
        is_kept(&scene, write, "two\n");
        scene.repo.git(["checkout", "-q", "shared"]);
        scene.studio(["undo"]).exits(0);
        assert_eq!(
            (scene.repo.read("shared"), scene.repo.read("a.rot")),
            ("one\n".into(), "hello\n".into())
        );
        assert_eq!(scene.status(&id)["state"], "ready");
    }
}

#[test]
fn a_new_file_at_the_path_of_a_landed_one_is_kept_and_refuses_it() {
    let scene = scene("echo of the user > b.txt");
    let id = scene.ready("write b.txt landed; write a.rot world");
    scene.await_free(&id);
    arm(&scene);
    let refused = scene.studio(["accept", &id, "-m", "Land it"]);
    refused.exits(3).output_contains("b.txt changed during the landing");
    assert_eq!(scene.repo.read("b.txt"), "of the user\n");
    assert_eq!(changes(&scene.repo), "?? b.txt");
}

#[test]
fn a_file_that_is_deleted_during_a_landing_refuses_it_and_is_back() {
    for task in ["write shared two", "sh rm shared"] {
        let scene = scene("rm shared");
        let id = scene.ready(&format!("{task}; write a.rot world"));
        scene.await_free(&id);
        arm(&scene);
        let refused = scene.studio(["accept", &id, "-m", "Land it"]);
        refused.exits(3).output_contains("shared changed during the landing");
        assert_eq!(
            (scene.repo.read("shared"), changes(&scene.repo)),
            ("one\n".into(), String::new())
        );
        assert_eq!(scene.status(&id)["state"], "ready");
    }
}

#[test]
fn a_file_that_is_written_during_the_revert_of_a_landing_is_kept() {
    for write in WRITES {
        for (task, landed) in [("write shared two", "two\n"), ("write b.txt b", "b\n")] {
            let path = if task.contains("b.txt") { "b.txt" } else { "shared" };
            let scene = scene(&write.replace("shared", path));
            let id = scene.ready(&format!("{task}; write a.rot world"));
            scene.await_free(&id);
            let accept = scene.env.command(studio(), scene.repo.path());
            let accept = accept.args(["accept", &id, "-m", "Land it"]);
            let killed = scene.env.run_command(accept.env("G3_TEST_KILL_AT", "accept.files"));
            killed.exits(137);
            assert_eq!(scene.repo.read(path), landed);
            assert_eq!(scene.repo.read("a.rot"), "world\n");
            fs::create_dir(scene.env.home().join("examined")).unwrap();
            arm_revert(&scene);
            let repaired = scene.studio(["doctor"]);
            repaired.output_contains(&format!("{path} was changed, staged or committed"));
            assert!(!scene.env.home().join("armed").exists(), "the filter ran");
            assert_eq!(scene.repo.read(path), format!("{landed}of the user\n"), "{write}");
            assert_eq!(scene.repo.read("a.rot"), "hello\n");
            assert_eq!(scene.status(&id)["state"], "ready");
        }
    }
}
