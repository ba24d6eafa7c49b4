//! A worktree that was deleted by hand: the work of its last snapshot still lands and can be
//! restored.

use std::fs;

use studio_git::land::LandResult;
use studio_git::recreate_worktree::{self, Recreated};
use testkit::env::until;
use testkit::repo::tree;

use crate::fixtures::{Scene, studio};
use crate::git_fixtures::{Session, setting};

const TASK: &str = "write kept 1; commit one; write README.md changed; write staged s; sh git add staged; write new/untracked u";

/// Creates a ready session, with commits, staged, changed and untracked files, whose worktree was
/// deleted.
fn gone(scene: &Scene) -> String {
    let id = scene.ready(TASK);
    scene.await_free(&id);
    fs::remove_dir_all(scene.worktree(&id).path()).expect("it is ours");
    id
}

#[test]
fn accept_lands_the_newest_snapshot() {
    for pruned in [false, true] {
        let scene = Scene::new();
        let id = gone(&scene);
        if pruned {
            scene.repo.git(["worktree", "prune"]);
        }
        scene
            .studio(["doctor"])
            .exits(1)
            .output_contains("latest snapshot")
            .output_contains("studio resume");
        scene.studio(["diff", &id, "--stat"]).exits(0).output_contains("new/untracked");

        let ran = scene.studio(["accept", &id, "-m", "Add"]);

        ran.exits(0).output_contains(&format!("refs/studio/snapshots/{id}/1"));
        assert_eq!(scene.repo.read("README.md"), "changed\n");
        assert_eq!(scene.repo.read("new/untracked"), "u\n");
        assert_eq!(scene.repo.read("staged"), "s\n");
        assert_eq!(scene.repo.read("kept"), "1\n");
        scene.repo.is_sound();
    }
}

#[test]
fn the_worktree_is_recreated_with_files_and_index() {
    let s = setting();
    s.repo.write(".worktreeinclude", ".env\n");
    s.repo.commit_file(".gitignore", ".env\n");
    s.repo.write(".env", "local");
    let session = s.session("task-abcd");
    session.work.commit_file("kept", "1");
    session.work.write("README.md", "changed");
    session.work.write("staged", "s");
    session.work.git(["add", "staged"]);
    session.work.write("staged", "changed after staging");
    session.work.write("new/untracked", "u");
    s.snapshot(&session);
    let state = |session: &Session| {
        let status = session.work.git(["status", "--porcelain", "--ignored", "--branch"]);
        (tree(session.work.path()), status, session.work.git(["diff", "--cached"]))
    };
    let before = state(&session);
    fs::remove_dir_all(session.work.path()).unwrap();
    s.repo.git(["worktree", "prune"]);

    let remade = || recreate_worktree::recreate_if_missing(&s.repository, &session.place).unwrap();
    assert_eq!(remade(), Recreated::Yes { note: None });

    assert_eq!(state(&session), before);
    let list = s.repo.git(["worktree", "list", "--porcelain"]);
    assert!(list.contains("branch refs/heads/studio/task-abcd"), "{list}");
    let beside = fs::read_dir(session.work.path().parent().unwrap()).unwrap();
    assert_eq!(beside.count(), 1, "nothing else is left there");
    assert_eq!(remade(), Recreated::No);
    assert!(matches!(s.accept(&session), Ok(LandResult::Landed { .. })));
    assert_eq!(s.repo.read("staged"), "changed after staging");
}

#[test]
fn send_and_resume_recreate_the_worktree() {
    let scene = Scene::new();
    let id = scene.ready("write a 1; commit a; write b 2");
    scene.await_free(&id);
    fs::remove_dir_all(scene.worktree(&id).path()).unwrap();

    scene.studio(["send", &id, "go on; write c 3"]).exits(0);
    scene.await_state(&id, "ready");
    scene.await_free(&id);

    scene.studio(["accept", &id, "-m", "Add"]).exits(0);
    assert_eq!(scene.repo.read("a"), "1\n");
    assert_eq!((scene.repo.read("b"), scene.repo.read("c")), ("2\n".into(), "3\n".into()));
}

#[test]
fn files_deleted_after_a_snapshot_are_not_restored() {
    let scene = Scene::new();
    let id = scene.ready("write a 1; commit a; write junk 1");
    scene.await_free(&id);
    fs::remove_file(scene.worktree(&id).path().join("junk")).unwrap();
    scene.studio(["diff", &id]).exits(0).output_lacks("junk");
    fs::remove_dir_all(scene.worktree(&id).path()).unwrap();
    assert_eq!(scene.status(&id)["dirty"], true, "as the run ended");
    let landed = scene.studio(["accept", &id, "--strategy", "merge", "-m", "Add a"]);
    landed.exits(0).output_lacks("was restored from");
    assert_eq!(scene.repo.git(["log", "-1", "--format=%s", "HEAD^2"]), "a", "no empty commit");
    assert!(!scene.repo.path().join("junk").exists());
    assert_eq!(scene.repo.read("a"), "1\n");
}

#[test]
fn a_snapshot_from_before_the_last_commit_is_reported_and_prevents_landing() {
    let scene = Scene::new();
    let id = scene.ready("write a 1; write b 2");
    scene.await_free(&id);
    let work = scene.worktree(&id);
    work.git(["add", "a"]);
    work.git(["commit", "-q", "-m", "a"]);
    fs::remove_dir_all(work.path()).unwrap();
    let before = scene.repo.rev("main");

    let refused = scene.studio(["accept", &id, "-m", "Add"]);

    let snapshot = format!("refs/studio/snapshots/{id}/1");
    refused.exits(3).output_contains(&snapshot).output_contains("git diff");
    assert_eq!(scene.repo.rev("main"), before);
    scene.studio(["send", &id, "go on; write c 3"]).exits(0);
    until("the second turn", || work.path().join("c").exists().then_some(()));
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene
        .studio(["status", &id])
        .exits(0)
        .output_contains(&snapshot)
        .output_contains("was not used");
    scene.studio(["discard", &id]).exits(0);
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.repo.show(&format!("refs/studio/snapshots/{id}/1"), "b"), "2");
}

#[test]
fn an_operation_whose_worktree_was_deleted_in_the_trash_can_be_undone() {
    for verb in ["accept", "discard"] {
        let scene = Scene::new();
        let id = scene.ready("write a 1; commit a; write b 2");
        scene.await_free(&id);
        let before = scene.repo.rev("main");
        let more: &[&str] = if verb == "accept" { &["-m", "Add"] } else { &[] };
        let args: Vec<&str> = [verb, id.as_str()].iter().chain(more).copied().collect();
        scene.env.run(studio(), scene.repo.path(), args).exits(0);
        fs::remove_dir_all(scene.repo.worktrees()).unwrap();

        scene.studio(["undo"]).exits(0).output_contains("studio resume");

        assert_eq!(scene.repo.rev("main"), before);
        assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
        assert_eq!(scene.status(&id)["state"], "ready");
        scene.studio(["accept", &id, "-m", "Add"]).exits(0);
        assert_eq!((scene.repo.read("a"), scene.repo.read("b")), ("1\n".into(), "2\n".into()));
        scene.repo.is_sound();
    }
}
