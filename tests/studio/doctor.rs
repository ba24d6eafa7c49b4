//! `studio doctor`: orphans, stale locks, leaked processes, old trash, and what the machine
//! supports.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use base::process::{Command, is_alive};
use testkit::env::until;

use crate::fixtures::Scene;

/// Creates a ready session with a commit and an uncommitted file, in which nothing runs.
fn ready(scene: &Scene) -> String {
    let id = scene.ready("write a 1; commit one; write b 2");
    scene.await_free(&id);
    id
}

/// Makes a file an hour older.
fn age(scene: &Scene, path: &Path) {
    let path = path.display().to_string();
    scene.env.run("touch", scene.repo.path(), ["-d", "1 hour ago", &path]).ok();
}

#[test]
fn orphans_are_kept_until_the_user_discards_them_and_undo_restores_them() {
    let scene = Scene::new();
    let id = ready(&scene);
    let branch = format!("refs/heads/studio/{id}");
    fs::remove_dir_all(scene.session_file(&id, "")).expect("the record is deleted");
    // A branch of the user with such a name is not an orphan.
    scene.repo.git(["branch", "studio/mine-abcd"]);
    let refs = scene.repo.git(["for-each-ref"]);

    let doctor = scene.studio(["doctor"]);
    doctor
        .exits(1)
        .output_contains(&format!("with branch `studio/{id}` belongs to no session"))
        .output_contains("studio doctor --discard-orphans")
        .output_lacks("mine-abcd");
    assert_eq!(scene.repo.git(["for-each-ref"]), refs);
    assert_eq!(scene.worktree(&id).read("b"), "2\n");

    scene.studio(["doctor", "--discard-orphans"]).exits(0).output_contains("studio undo op1");
    assert!(!scene.worktree(&id).path().exists());
    assert!(!scene.repo.git(["for-each-ref"]).contains(&branch));
    scene.studio(["doctor"]).exits(0).output_contains("no problems found");

    scene.studio(["undo", "op1"]).exits(0);
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
    assert_eq!(scene.worktree(&id).read("b"), "2\n");
    assert!(scene.repo.git(["for-each-ref"]).contains(&branch));
    scene.studio(["doctor"]).exits(1).output_contains("belongs to no session");
}

#[test]
fn pain_05_a_ghost_branch_is_found_and_a_missing_worktree_is_unregistered() {
    let scene = Scene::new();
    let id = ready(&scene);
    fs::remove_dir_all(scene.session_file(&id, "")).expect("the record is deleted");
    fs::remove_dir_all(scene.worktree(&id).path()).expect("the worktree is deleted");
    assert!(scene.repo.git(["worktree", "list"]).contains(&id));
    let doctor = scene.studio(["doctor"]);
    doctor
        .exits(1)
        .output_contains("repaired: removed the registration of the missing ")
        .output_contains(&format!("the branch `studio/{id}` belongs to no session"));
    assert!(!scene.repo.git(["worktree", "list"]).contains(&id));
    assert!(scene.repo.git(["branch", "--list", "studio/*"]).contains(&id));
}

#[test]
fn stale_locks_of_sessions_are_removed_and_those_of_the_repository_are_named() {
    let scene = Scene::new();
    let id = ready(&scene);
    let git = scene.session_file(&id, "git");
    let (stale, fresh) = (git.join("index.lock"), git.join("HEAD.lock"));
    let own = scene.repo.path().join(".git/packed-refs.lock");
    for path in [&stale, &fresh, &own] {
        fs::write(path, "").expect("the git directory is ours");
    }
    [&stale, &own].into_iter().for_each(|path| age(&scene, path));

    let doctor = scene.studio(["doctor"]);
    doctor
        .exits(1)
        .output_contains("repaired: removed the stale ")
        .output_contains("packed-refs.lock is older than");
    assert!(!stale.exists() && fresh.exists() && own.exists());
    fs::remove_file(&own).expect("it is there");
    scene.studio(["doctor"]).exits(0).output_contains("no problems found");

    // A git in the worktree that waits for its editor keeps its lock.
    fs::write(&stale, "").expect("the git directory is ours");
    age(&scene, &stale);
    let waiting = Command::new("sleep", scene.worktree(&id).path()).arg("600").spawn().unwrap();
    scene.studio(["doctor"]).exits(0).output_contains("no problems found");
    assert!(stale.exists());
    drop(waiting);
}

#[test]
fn processes_that_outlive_their_session_are_ended() {
    let scene = Scene::new();
    let id = ready(&scene);
    let temporary = scene.session_file(&id, "tmp").display().to_string();
    let sleep = || Command::new("sleep", scene.repo.path()).arg("600");
    let leaked = sleep().env("TMPDIR", &temporary).spawn().unwrap();
    let other = sleep().env("TMPDIR", format!("{temporary}-other")).spawn().unwrap();
    until("the process to run its program", || {
        let environment = fs::read_to_string(format!("/proc/{}/environ", leaked.id())).ok()?;
        environment.contains(&temporary).then_some(())
    });
    let expected = format!("ended process {} (`sleep`), left over from `{id}`", leaked.id());
    scene.studio(["doctor"]).exits(0).output_contains(&expected);
    let state = fs::read_to_string(format!("/proc/{}/stat", leaked.id())).unwrap();
    assert!(state.contains(") Z "), "killed, and not yet waited for: {state}");
    assert!(is_alive(other.id()));
    scene.studio(["doctor"]).exits(0).output_contains("no problems found");
}

#[test]
fn old_trash_is_reported() {
    let mut scene = Scene::new();
    let id = ready(&scene);
    scene.studio(["discard", &id]).exits(0);
    scene.studio(["doctor"]).exits(0).output_lacks("trash");
    scene.env.set("G3_TEST_NOW", "2026-02-01T10:00:00Z");
    scene.studio(["doctor"]).exits(0).output_contains("1 operation older than 7 days");
}

#[test]
fn the_capabilities_of_the_machine_are_listed() {
    let scene = Scene::new();
    let found = scene.studio(["doctor", "--json"]).exits(0).json();
    let machine = found["machine"].as_array().unwrap();
    let names: Vec<&str> = machine.iter().map(|it| it["name"].as_str().unwrap()).collect();
    let kernel = base::sandbox::kernel_features();
    let mut expected = vec!["git"];
    expected.extend(kernel.iter().map(|feature| feature.name));
    expected.extend(["cgroups", "network", "disk"]);
    assert_eq!(names, expected);
    assert!(machine.iter().all(|it| it["complete"].is_boolean() && it["detail"].is_string()));
    let page = scene.studio(["doctor"]).out;
    for capability in machine.iter().take(expected.len() - 1) {
        assert!(page.contains(capability["detail"].as_str().unwrap()), "{page}");
    }
}
