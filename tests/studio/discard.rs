//! `studio discard` and `studio undo`: no data is lost.

use base::lock::Lock;
use testkit::repo::tree;

use crate::fixtures::{Scene, studio};

#[test]
fn pain_01_undo_restores_a_discarded_session_byte_for_byte() {
    let scene = Scene::new();
    let script = "write kept 1; commit one; write README.md changed; write new/untracked x; \
                  write .gitignore ignored; write ignored secret; sh git stash -q; write staged y; \
                  sh git add staged; write dirty z";
    let id = scene.ready(script);
    scene.await_free(&id);
    let worktree = scene.worktree(&id);
    let before = (tree(worktree.path()), worktree.git(["status", "--porcelain", "--ignored"]));
    let stash = worktree.git(["stash", "list"]);

    scene
        .studio(["discard", &id])
        .exits(0)
        .output_contains("discarded")
        .output_contains("studio undo op1");
    assert!(!worktree.path().exists());
    assert_eq!(scene.repo.git(["branch", "--list", "studio/*"]), "");
    assert_eq!(scene.status(&id)["state"], "discarded");
    scene.studio(["undo"]).exits(0).output_contains("is restored");

    let after = (tree(worktree.path()), worktree.git(["status", "--porcelain", "--ignored"]));
    assert_eq!(after, before);
    assert_eq!(worktree.git(["stash", "list"]), stash);
    assert_eq!(scene.status(&id)["state"], "ready");
    scene.studio(["accept", &id, "-m", "Go on"]).exits(0);
}

#[test]
fn undo_reverts_a_landing_while_it_is_the_tip() {
    let scene = Scene::new();
    let before = scene.repo.rev("main");
    let id = scene.ready("write a 1");
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
    scene.studio(["undo"]).exits(0).output_contains("no longer landed");
    assert_eq!(scene.repo.rev("main"), before);
    assert!(!scene.repo.path().join("a").exists());
    assert_eq!(scene.status(&id)["state"], "ready");
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
    scene.repo.commit_file("b", "later");
    scene.studio(["undo"]).exits(3).output_contains("git revert");
}

#[test]
fn a_running_session_is_discarded_only_after_confirmation() {
    let scene = Scene::new();
    let id = scene.exec(["write a 1; hang"]);
    scene.await_state(&id, "working");
    scene.studio(["discard", &id]).exits(3).output_contains("--yes");
    scene.studio(["discard", "--yes", &id]).exits(0);
    assert_eq!(scene.status(&id)["state"], "discarded");
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.status(&id)["state"], "stopped");
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
}

#[test]
fn only_one_of_two_concurrent_undos_succeeds() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.studio(["discard", &id]).exits(0);
    let mut both = [0, 1].map(|_| scene.env.start(studio(), scene.repo.path(), ["undo", "op1"]));
    let codes = both.each_mut().map(|run| {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        base::process::exit_code(run.wait_until(Some(end)).unwrap().expect("it ends"))
    });
    assert!(codes == [0, 3] || codes == [3, 0], "{codes:?}");
    assert_eq!(scene.status(&id)["state"], "ready");
    scene.studio(["undo"]).exits(5).output_contains("nothing to undo");
}

#[test]
fn gc_deletes_only_what_is_old_enough() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.studio(["discard", &id]).exits(0);
    scene.studio(["gc"]).exits(0).output_contains("nothing is old enough");
    scene.studio(["gc", "--older", "0", "--dry-run"]).exits(0).output_contains("would delete");
    scene.studio(["gc", "--older", "0"]).exits(0).output_contains("deleted the data of op1");
    scene.studio(["undo"]).exits(5).output_contains("already been removed");
    scene.studio(["undo", "op1"]).exits(3).output_contains("was deleted by `studio gc`");
    scene.repo.is_sound();
}

#[test]
fn a_session_without_a_worktree_is_restored_and_nothing_else_is_undone() {
    let scene = Scene::new();
    let landed = scene.ready("write a 1");
    scene.studio(["accept", &landed, "-m", "Add a"]).exits(0);
    let tip = scene.repo.rev("main");
    let hangs = scene.exec(["-j", "1", "hang"]);
    scene.await_state(&hangs, "working");
    let waits = scene.exec(["-j", "1", "write b 1"]);
    assert_eq!(scene.status(&waits)["state"], "queued");
    scene.studio(["discard", "--yes", &waits]).exits(0).output_contains("undo op2");
    scene.studio(["discard", &waits]).exits(3).output_contains("studio undo op2");

    scene.studio(["undo"]).exits(0).output_contains(&waits);

    assert_eq!(scene.repo.rev("main"), tip, "the landing before it stays");
    assert_eq!(scene.status(&waits)["state"], "stopped");
    scene.studio(["stop", &hangs]).exits(0);
}

#[test]
fn a_command_that_uses_a_session_is_not_mistaken_for_a_shell() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let _mends = Lock::try_take(&scene.session_file(&id, "shell.lock")).unwrap().expect("no shell");
    scene
        .studio(["discard", &id])
        .exits(3)
        .output_contains("another command")
        .output_lacks("shell");
}
