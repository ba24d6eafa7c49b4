//! Import of work from a git directory that an agent may have changed.

use std::fs;
use std::os::unix::fs::symlink;

use base::failure::FailureKind;
use studio_git::{import, session_repo};

use crate::git_fixtures::setting;

#[test]
fn commits_are_imported_and_a_second_import_changes_nothing() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("new", "work");
    session.work.commit_file("more", "work");
    let home = s.home(&session);
    assert!(home.branch_moved && home.notes.is_empty(), "{home:?}");
    assert_eq!(home.branch.as_deref(), Some("studio/task-abcd"));
    assert_eq!(s.repo.rev("studio/task-abcd"), session.work.rev("HEAD"));
    assert_eq!(s.repo.show("studio/task-abcd", "more"), "work");
    s.repo.is_sound();
    let before = s.repo.everything();
    let again = s.home(&session);
    assert!(!again.branch_moved);
    assert_eq!(s.repo.everything(), before);
    let packs = fs::read_dir(s.repo.path().join(".git/objects/pack")).unwrap();
    assert!(packs.flatten().all(|file| file.path().extension() != Some("keep".as_ref())));
}

#[test]
fn packed_refs_rewritten_history_and_resets_are_imported() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("one", "1");
    session.work.git(["gc", "-q", "--prune=now"]);
    session.work.git(["pack-refs", "--all"]);
    assert!(s.home(&session).branch_moved);
    let first = session.work.rev("HEAD");
    session.work.git(["commit", "-q", "--amend", "-m", "better"]);
    assert!(s.home(&session).branch_moved);
    session.work.git(["reset", "-q", "--hard", "HEAD~1"]);
    let home = s.home(&session);
    assert_eq!(home.head, s.repo.rev("main"));
    s.repo.git(["gc", "-q", "--prune=now"]);
    assert_eq!(s.repo.git(["cat-file", "-t", &first]), "commit", "what came home stays pinned");
    s.repo.is_sound();
}

#[test]
fn an_agent_on_another_branch_or_a_detached_head_is_reported_and_its_head_imported() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.git(["checkout", "-q", "-b", "my-idea"]);
    session.work.commit_file("new", "work");
    let home = s.home(&session);
    assert_eq!(home.branch.as_deref(), Some("my-idea"));
    assert!(home.notes[0].contains("my-idea"), "{home:?}");
    assert_eq!(s.repo.show("studio/task-abcd", "new"), "work");
    session.work.git(["checkout", "-q", "--detach"]);
    session.work.commit_file("newer", "work");
    let home = s.home(&session);
    assert_eq!((home.branch, home.head), (None, session.work.rev("HEAD")));
    session.work.git(["checkout", "-q", "--orphan", "fresh"]);
    let orphan = s.home(&session);
    assert!(!orphan.branch_moved && orphan.notes[0].contains("no commit yet"), "{orphan:?}");
}

#[test]
fn a_rewritten_git_file_is_refused_and_reported() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("new", "work");
    let pointer = session.work.path().join(".git");
    let good = fs::read(&pointer).unwrap();
    let evil = s.env.repo_at("evil");
    fs::write(&pointer, format!("gitdir: {}/.git\n", evil.path().display())).unwrap();
    let failure = import::import(&s.repository, &session.place).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused);
    assert!(failure.what.contains(".git was changed"), "{failure}");
    fs::remove_file(&pointer).unwrap();
    symlink(evil.path().join(".git"), &pointer).unwrap();
    assert!(import::import(&s.repository, &session.place).is_err());
    fs::remove_file(&pointer).unwrap();
    session.work.git(["init", "-q"]);
    assert!(import::import(&s.repository, &session.place).is_err());
    fs::remove_dir_all(&pointer).unwrap();
    fs::write(&pointer, good).unwrap();
    assert!(s.home(&session).branch_moved);
}

#[test]
fn a_changed_private_configuration_is_restored_without_running_anything() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("new", "work");
    let marker = s.env.home().join("marker");
    let touch = format!("touch '{}'", marker.display());
    let git = &session.place.git_dir;
    let original = fs::read(git.join("config")).unwrap();
    let outside = s.env.home().join("outside");
    fs::create_dir_all(&outside).unwrap();
    session.work.git(["config", "core.fsmonitor", &touch]);
    session.work.git(["config", "uploadpack.packObjectsHook", &touch]);
    session.work.git(["config", "core.worktree", "/"]);
    fs::write(git.join("hooks/reference-transaction"), "#!/bin/sh\nexit 1\n").unwrap();
    fs::write(git.join("objects/info/alternates"), "/nowhere\n").unwrap();
    fs::remove_dir_all(git.join("info")).unwrap();
    symlink(&outside, git.join("info")).unwrap();
    assert!(s.home(&session).branch_moved);
    assert!(!marker.exists());
    assert_eq!(fs::read(git.join("config")).unwrap(), original);
    assert_eq!(fs::read_dir(git.join("hooks")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "no symlink was followed");
    assert_eq!(session.work.git(["status", "--porcelain"]), "");
}

#[test]
fn a_missing_object_is_an_error_and_moves_no_ref() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("new", "work");
    let blob = session.work.rev("HEAD:new");
    fs::remove_file(session.place.git_dir.join("objects").join(&blob[..2]).join(&blob[2..]))
        .unwrap();
    let before = s.repo.everything();
    let failure = import::import(&s.repository, &session.place).unwrap_err();
    assert!(failure.reason().unwrap().contains(&blob));
    assert_eq!(s.repo.everything(), before);
    s.repo.is_sound();
}

#[test]
fn a_worktree_that_the_agent_deleted_loses_no_commit() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("new", "work");
    fs::remove_dir_all(session.work.path()).unwrap();
    let home = s.home(&session);
    assert!(home.branch_moved && home.notes[0].contains("is missing"), "{home:?}");
    assert_eq!(s.repo.show("studio/task-abcd", "new"), "work");
}

#[test]
fn borrowed_objects_survive_gc_in_the_repository() {
    let s = setting();
    s.repo.git(["checkout", "-q", "-b", "side"]);
    s.repo.commit_file("side", "s");
    s.repo.git(["tag", "-a", "-m", "t", "v1"]);
    s.repo.git(["checkout", "-q", "main"]);
    let session = s.session("task-abcd");
    session.work.git(["checkout", "-q", "side"]);
    session.work.write("side", "stashed");
    session.work.git(["stash"]);
    session.work.git(["checkout", "-q", "studio/task-abcd"]);
    session.work.git(["gc", "-q", "--prune=now"]);
    s.repo.git(["branch", "-q", "-D", "side"]);
    s.repo.git(["tag", "-d", "v1"]);
    s.repo.git(["reflog", "expire", "--expire=now", "--all"]);
    s.repo.git(["gc", "-q", "--prune=now"]);
    let dropped = session_repo::remove_dead_refs(&s.repository, &session.place).unwrap();
    assert_eq!(dropped, ["refs/tags/v1"], "a tag object cannot be pinned");
    session.work.git(["log", "--all", "--oneline"]);
    session.work.git(["checkout", "-q", "side"]);
    session.work.git(["stash", "pop"]);
    assert_eq!(session.work.read("side"), "stashed");
}

#[test]
fn gc_in_the_repository_while_sessions_commit_loses_nothing() {
    let s = setting();
    let sessions: Vec<_> = (0..3).map(|n| s.session(&format!("task-{n}"))).collect();
    // A user's git waits for a tenth of a second.
    s.repo.git(["config", "reftable.lockTimeout", "10000"]);
    std::thread::scope(|scope| {
        for session in &sessions {
            scope.spawn(|| {
                for n in 0..8 {
                    session.work.commit_file(&format!("f{n}"), format!("{n}"));
                    session.work.write("untracked", format!("{n}"));
                    s.snapshot(session);
                }
            });
        }
        for _ in 0..6 {
            s.repo.git(["gc", "-q", "--prune=now"]);
            s.repo.git(["fsck"]);
        }
    });
    for session in &sessions {
        assert_eq!(s.repo.rev(session.place.branch.as_str()), session.work.rev("HEAD"));
    }
    s.repo.is_sound();
}
