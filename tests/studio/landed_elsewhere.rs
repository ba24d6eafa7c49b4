//! Work that reached its target without studio: six ways to see it, and what is not landed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::fixtures::Scene;

/// What happens to the target after the session was ready.
type Landing = fn(&Scene, &str);

/// A ready session with two commits, whose branch was landed with plain git.
fn landed(landing: Landing) -> (Scene, String) {
    let scene = Scene::new();
    scene.repo.commit_file("base.txt", "1\n2\n3\n4\n5\n");
    let id = scene.ready("write a one; commit one; write b two; commit two");
    scene.await_free(&id);
    landing(&scene, &id);
    (scene, id)
}

fn git(scene: &Scene, args: &[&str]) {
    let mut command = scene.repo.job();
    command = command.args(args);
    let output = command.output(base::process::OutputLimits::seconds(60)).unwrap();
    assert!(output.ok(), "git {args:?}: {}", output.error_text());
}

fn squash(scene: &Scene, id: &str) {
    git(scene, &["merge", "-q", "--squash", &format!("studio/{id}")]);
    git(scene, &["commit", "-q", "-m", "squashed"]);
}

/// Asserts that the session is named as landed in this way, and that accepting it closes it without
/// a commit, which can be undone.
#[track_caller]
fn is_closed(scene: &Scene, id: &str, way: &str) {
    let status = scene.status(id);
    assert_eq!(status["landed_elsewhere"]["by"], way, "{status:#}");
    assert_eq!(status["state"], "ready");
    scene.studio(["list"]).exits(0).output_contains("landed elsewhere");
    scene.studio(["doctor"]).output_contains(&format!("`{id}` landed elsewhere"));
    scene.studio(["gc"]).exits(0).output_contains(&format!("`{id}` landed elsewhere"));
    let before = (scene.repo.rev("main"), scene.repo.git(["status", "--porcelain"]));
    scene.studio(["accept", id, "--dry-run"]).exits(0).output_contains("would be closed");
    let closed = scene.studio(["accept", id]);
    closed.exits(0).output_contains("landed elsewhere").output_contains("undo: studio undo");
    assert_eq!((scene.repo.rev("main"), scene.repo.git(["status", "--porcelain"])), before);
    assert_eq!(scene.status(id)["state"], "accepted");
    scene.studio(["undo"]).exits(0);
    let status = scene.status(id);
    assert_eq!(
        (&status["state"], &status["landed_elsewhere"]["by"]),
        (&"ready".into(), &way.into())
    );
    assert_eq!(scene.worktree(id).read("b"), "two\n");
    scene.repo.is_sound();
}

#[test]
fn the_queue_closes_what_landed_elsewhere() {
    let (scene, id) = landed(squash);
    let other = scene.ready("write c three");
    scene.await_free(&other);
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(0).json();
    let landed = outcome["landed"].as_array().unwrap();
    let of = |id: &str| landed.iter().find(|it| it["id"] == id).unwrap();
    assert!(of(&id)["elsewhere"].is_object() && of(&other)["elsewhere"].is_null(), "{outcome}");
    for id in [&id, &other] {
        assert_eq!(scene.status(id)["state"], "accepted");
    }
    scene.repo.is_sound();
}

/// Asserts that the session is not named as landed.
#[track_caller]
fn is_open(scene: &Scene, id: &str) {
    let status = scene.status(id);
    assert!(status["landed_elsewhere"].is_null(), "{status:#}");
    scene.studio(["list"]).exits(0).output_lacks("landed elsewhere");
}

#[test]
fn the_same_commit() {
    let (scene, id) =
        landed(|scene, id| git(scene, &["merge", "-q", "--ff-only", &format!("studio/{id}")]));
    is_closed(&scene, &id, "same-commit");
    // More work in the worktree is not in the target.
    scene.worktree(&id).write("c", "three\n");
    scene.studio(["accept", &id, "-m", "more"]).exits(0).output_contains("landed on main");
    assert_eq!(scene.repo.read("c"), "three\n");
}

#[test]
fn an_ancestor() {
    let (scene, id) = landed(|scene, id| {
        git(scene, &["merge", "-q", "--no-ff", "-m", "merged", &format!("studio/{id}")]);
        scene.repo.commit_file("later", "1\n");
    });
    is_closed(&scene, &id, "ancestor");
    let (scene, id) = landed(|scene, id| {
        git(scene, &["merge", "-q", "--no-ff", "-m", "merged", &format!("studio/{id}")]);
        git(scene, &["revert", "-m1", "--no-edit", "HEAD"]);
        scene.repo.commit_file("later", "1\n");
    });
    is_open(&scene, &id);
}

#[test]
fn no_added_changes() {
    let scene = Scene::new();
    let id = scene.ready("write b two; commit one");
    scene.await_free(&id);
    let worktree = scene.worktree(&id);
    worktree.git(["rm", "-q", "b"]);
    worktree.git(["commit", "-q", "-m", "nothing is left"]);
    let closed = scene.studio(["accept", &id]);
    closed.exits(0).output_contains("its commits together change nothing");
    scene.studio(["undo"]).exits(0);
    // Changes that are reverted in the worktree only may be restored.
    let id = scene.ready("write a 1; commit one");
    scene.await_free(&id);
    std::fs::remove_file(scene.worktree(&id).path().join("a")).unwrap();
    scene.studio(["accept", &id]).exits(3).output_contains("no longer has the changes");
}

#[test]
fn the_same_tree() {
    let (scene, id) = landed(squash);
    is_closed(&scene, &id, "same-tree");
    let (scene, id) = landed(|scene, id| {
        squash(scene, id);
        git(scene, &["revert", "--no-edit", "HEAD"]);
    });
    is_open(&scene, &id);
}

#[test]
fn a_merge_that_adds_nothing() {
    let (scene, id) = landed(|scene, id| {
        squash(scene, id);
        scene.repo.commit_file("later", "1\n");
    });
    is_closed(&scene, &id, "merge-adds-nothing");
    let (scene, id) = landed(|scene, id| {
        squash(scene, id);
        scene.repo.commit_file("later", "1\n");
        git(scene, &["revert", "--no-edit", "HEAD~1"]);
    });
    is_open(&scene, &id);
    // A part of the work is not all of it.
    let (scene, id) = landed(|scene, id| {
        git(scene, &["cherry-pick", &format!("studio/{id}~1")]);
    });
    is_open(&scene, &id);
}

#[test]
fn the_same_patch() {
    // Later commits changed the same lines, so that a merge conflicts.
    let (scene, id) = landed(|scene, id| {
        squash(scene, id);
        scene.repo.commit_file("a", "changed later\n");
    });
    is_closed(&scene, &id, "patch-id");
    // Rebased elsewhere: each commit alone.
    let (scene, id) = landed(|scene, id| {
        scene.repo.commit_file("first", "1\n");
        git(scene, &["cherry-pick", &format!("main..studio/{id}")]);
        scene.repo.commit_file("b", "changed later\n");
    });
    is_closed(&scene, &id, "patch-id");
    let (scene, id) = landed(|scene, id| {
        squash(scene, id);
        git(scene, &["revert", "--no-edit", "HEAD"]);
        scene.repo.commit_file("a", "somebody else's\n");
        scene.repo.git(["rm", "-q", "a"]);
        git(scene, &["commit", "-q", "-m", "gone again"]);
    });
    is_open(&scene, &id);
    scene.studio(["accept", &id, "-m", "again"]).exits(0).output_contains("landed on main");
}
