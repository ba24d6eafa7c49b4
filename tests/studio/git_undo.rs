//! Discarding sessions and restoring them byte for byte; undoing landings.

use std::collections::BTreeMap;
use std::fs;

use base::failure::FailureKind;
use studio_git::merge::MergeStrategy;
use studio_git::oplog::{self, OperationKind as Operation};
use studio_git::{discard, land, transaction, undo};
use testkit::env::NOW;
use testkit::repo::tree;

use crate::git_fixtures::{Session, Setting, setting};

/// Returns the complete state of a session: its files including ignored ones, its git directory,
/// its refs.
fn everything(s: &Setting, session: &Session) -> BTreeMap<String, String> {
    let mut all = tree(session.work.path());
    let private = tree(&session.place.git_dir);
    all.extend(private.into_iter().map(|(name, content)| (format!("git/{name}"), content)));
    let refs =
        s.repo.git(["for-each-ref", "refs/heads", "refs/studio/pins", "refs/studio/snapshots"]);
    all.insert("<refs>".into(), refs);
    all.insert("<worktrees>".into(), s.repo.git(["worktree", "list", "--porcelain"]));
    all
}

fn discard(s: &Setting, session: &Session) -> String {
    discard::discard(&s.repository, std::slice::from_ref(&session.place), NOW)
        .unwrap_or_else(|failure| panic!("{failure}"))
}

fn undo(s: &Setting) -> undo::UndoResult {
    undo::undo(&s.repository, None, NOW).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn every_state_is_restored_byte_for_byte() {
    type Mess = fn(&Session);
    let messes: &[(&str, Mess)] = &[
        ("dirty, untracked, ignored, stashed", |session| {
            let work = &session.work;
            work.write(".gitignore", "*.o\n");
            work.write("README.md", "stashed");
            work.git(["stash"]);
            work.write("README.md", "changed");
            work.write("staged", "1");
            work.git(["add", "staged"]);
            work.write("sub/untracked", "2");
            work.write("junk.o", "3");
            work.git(["branch", "mine"]);
            fs::create_dir(work.path().join("empty")).unwrap();
        }),
        ("detached", |session| {
            session.work.commit_file("a", "a");
            session.work.git(["checkout", "-q", "--detach", "HEAD~1"]);
            session.work.write("b", "b");
        }),
        ("in the middle of a rebase", |session| {
            session.work.commit_file("a", "ours");
            session.work.git(["checkout", "-q", "-b", "side", "HEAD~1"]);
            session.work.commit_file("a", "theirs");
            assert_ne!(session.work.try_git(["rebase", "studio/task-abcd"]).0, 0);
        }),
        ("with a nested repository", |session| {
            let nested = testkit::repo::Repo::make(&session.work.path().join("nested"));
            nested.write("x", "y");
        }),
    ];
    for (name, mess) in messes {
        let s = setting();
        let session = s.session("task-abcd");
        mess(&session);
        s.snapshot(&session);
        let before = everything(&s, &session);
        let operation = discard(&s, &session);
        assert!(!session.work.path().exists() && !session.place.git_dir.exists(), "{name}");
        assert_eq!(s.repo.git(["branch", "--list", "studio/*"]), "", "{name}");
        assert_eq!(s.repo.git(["worktree", "list"]).lines().count(), 1, "{name}");
        s.repo.git(["worktree", "prune"]);
        s.repo.git(["gc", "-q", "--prune=now"]);
        let undone = undo(&s);
        assert_eq!((undone.undone, undone.kind), (operation, Operation::Discard));
        assert_eq!(everything(&s, &session), before, "{name}");
        session.work.git(["status"]);
        s.repo.is_sound();
    }
}

#[test]
fn a_session_continues_after_its_discard_was_undone() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.write("README.md", "changed");
    session.work.git(["stash"]);
    discard(&s, &session);
    undo(&s);
    session.work.git(["stash", "pop"]);
    session.work.git(["commit", "-q", "-a", "-m", "go on"]);
    assert!(matches!(s.accept(&session), Ok(land::LandResult::Landed { .. })));
    assert_eq!(s.repo.read("README.md"), "changed");
}

#[test]
fn several_sessions_are_discarded_in_one_operation() {
    let s = setting();
    let sessions = [s.session("task-a"), s.session("task-b")];
    let places: Vec<_> = sessions.iter().map(|session| session.place.clone()).collect();
    discard::discard(&s.repository, &places, NOW).unwrap();
    assert_eq!(s.repo.git(["branch", "--list", "studio/*"]), "");
    assert_eq!(undo(&s).sessions, places);
    for session in &sessions {
        session.work.git(["status"]);
    }
}

#[test]
fn an_undo_recreates_a_lost_registration_under_an_unused_name() {
    let s = setting();
    let session = s.session("task-abcd");
    let operation = discard(&s, &session);
    let admin = discard::private_trash(&s.repository, &operation).join("task-abcd/admin");
    fs::remove_dir_all(admin).unwrap();
    s.repo.git(["worktree", "add", "-q", "--detach", "../elsewhere/task-abcd"]);
    undo(&s);
    let list = s.repo.git(["worktree", "list", "--porcelain"]);
    assert!(list.contains("branch refs/heads/studio/task-abcd"), "{list}");
    assert_eq!(list.matches("worktree ").count(), 3, "{list}");
    session.work.git(["status"]);
}

#[test]
fn obstacles_to_an_undo_are_named() {
    let s = setting();
    let session = s.session("task-abcd");
    let operation = discard(&s, &session);
    fs::create_dir_all(session.work.path()).unwrap();
    let failure = undo::undo(&s.repository, None, NOW).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused);
    assert!(failure.to_string().contains("exists again"), "{failure}");
    fs::remove_dir(session.work.path()).unwrap();
    undo(&s);
    let again = undo::undo(&s.repository, Some(&operation), NOW).unwrap_err();
    assert!(again.to_string().contains("already undone by"), "{again}");
    assert_eq!(undo::undo(&s.repository, None, NOW).unwrap_err().kind, FailureKind::NotFound);
    assert_eq!(
        undo::undo(&s.repository, Some("op99"), NOW).unwrap_err().kind,
        FailureKind::NotFound
    );
}

#[test]
fn undoing_a_landing_restores_the_checkout_and_the_session() {
    let s = setting();
    s.repo.commit_file("file", "old\n");
    s.repo.commit_file("other", "o\n");
    let session = s.session("task-abcd");
    session.work.commit_file("dir/new", "new\n");
    session.work.write("file", "changed\n");
    s.repo.write("other", "mine\n");
    let ready = s.ready(&session, MergeStrategy::Squash);
    let before = (everything(&s, &session), s.repo.everything());
    land::accept(&s.repository, &ready).unwrap();
    let undone = undo(&s);
    assert_eq!(undone.kind, Operation::Accept);
    assert_eq!(everything(&s, &session), before.0);
    let mut after = s.repo.everything();
    for all in [&mut after, &mut before.1.clone()] {
        all.remove("<refs>");
    }
    let mut expected = before.1;
    expected.remove("<refs>");
    assert_eq!(after, expected);
    assert_eq!(
        s.repo.git(["cat-file", "-t", &ready.landing_commit.commit]),
        "commit",
        "the landed commit is kept"
    );
    assert_eq!(s.repo.git(["status", "--porcelain"]), " M other");
    let list = oplog::list(&s.repository).unwrap();
    assert_eq!(list[0].undone_by.as_deref(), Some("op2"));
    assert!(matches!(s.accept(&session), Ok(land::LandResult::Landed { .. })));
    s.repo.is_sound();
}

#[test]
fn a_landing_with_later_commits_is_not_undone() {
    for (strategy, revert) in
        [(MergeStrategy::Squash, "git revert "), (MergeStrategy::Merge, "git revert -m 1 ")]
    {
        let s = setting();
        let session = s.session("task-abcd");
        session.work.write("file", "x");
        let ready = s.ready(&session, strategy);
        land::accept(&s.repository, &ready).unwrap();
        s.repo.commit_file("on-top", "y");
        let before = s.repo.everything();
        let failure = undo::undo(&s.repository, None, NOW).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Refused);
        assert_eq!(failure.hints[0], format!("{revert}{}", ready.landing_commit.commit));
        assert_eq!(s.repo.everything(), before);
        let argv: Vec<&str> = failure.hints[0].split(' ').skip(1).collect();
        let mut job = s.repo.job().args(&argv);
        job = job.env("GIT_EDITOR", "true");
        assert!(job.output(base::process::OutputLimits::seconds(60)).unwrap().ok());
        assert!(!s.repo.path().join("file").exists());
    }
}

#[test]
fn user_changes_that_conflict_with_an_undo_are_named_and_kept() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.write("file", "x");
    s.accept(&session).unwrap();
    s.repo.write("file", "mine");
    let before = s.repo.everything();
    let failure = undo::undo(&s.repository, None, NOW).unwrap_err();
    assert!(failure.to_string().contains("file"), "{failure}");
    assert_eq!(s.repo.everything(), before);
}

#[test]
fn a_session_without_its_worktree_can_be_discarded() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("new", "x");
    s.home(&session);
    fs::remove_dir_all(session.work.path()).unwrap();
    discard(&s, &session);
    assert_eq!(s.repo.git(["branch", "--list", "studio/*"]), "");
    undo(&s);
    assert_eq!(s.repo.show("studio/task-abcd", "new"), "x");
}

#[test]
fn concurrent_undos_undo_an_operation_once() {
    let s = setting();
    let session = s.session("task-abcd");
    let operation = discard(&s, &session);
    let results: Vec<_> = std::thread::scope(|scope| {
        let undo = || undo::undo(&s.repository, Some(&operation), NOW);
        let both = [scope.spawn(undo), scope.spawn(undo)];
        both.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    session.work.git(["status"]);
}

/// Replaces one line of the operation log, counted from 0.
fn damage(s: &Setting, at: usize, replace: impl Fn(&str) -> String) {
    let path = s.repository.common_dir.join("studio/operations.jsonl");
    let text = fs::read_to_string(&path).expect("there is a log");
    let damaged = |(n, line): (usize, &str)| match n == at {
        true => format!("{}\n", replace(line)),
        false => format!("{line}\n"),
    };
    fs::write(&path, text.lines().enumerate().map(damaged).collect::<String>())
        .expect("the log is writable");
}

#[test]
fn an_operation_with_a_damaged_line_is_unchanged_and_its_id_is_not_reused() {
    let s = setting();
    let (one, two) = (s.session("one-abcd"), s.session("two-abcd"));
    assert_eq!((discard(&s, &one), discard(&s, &two)), ("op1".into(), "op2".into()));
    damage(&s, 3, |line| line.replace("\"done\":true", "\"do"));
    assert!(transaction::recover(&s.repository).unwrap().is_empty(), "it is not finished again");
    let refused = undo::undo(&s.repository, Some("op2"), NOW).unwrap_err();
    assert_eq!(refused.kind, FailureKind::Refused);
    assert!(refused.full_text().contains("line 4 of studio/operations.jsonl is damaged"));
    let refused = undo::undo(&s.repository, None, NOW).unwrap_err();
    assert!(refused.full_text().contains("line 4"), "{}", refused.full_text());
    let three = s.session("three-abcd");
    assert_eq!(discard(&s, &three), "op3");
    undo::undo(&s.repository, Some("op1"), NOW).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(one.work.path().exists(), "other operations can still be undone");
}

#[test]
fn an_operation_of_a_newer_version_is_refused_by_name() {
    let s = setting();
    let session = s.session("one-abcd");
    discard(&s, &session);
    damage(&s, 0, |line| line.replace("\"discard\"", "\"archive\""));
    let refused = undo::undo(&s.repository, Some("op1"), NOW).unwrap_err();
    assert!(refused.full_text().contains("written by a newer"), "{}", refused.full_text());
    assert_eq!(discard(&s, &s.session("two-abcd")), "op2");
}

#[test]
fn an_incomplete_line_of_the_log_is_ignored() {
    let s = setting();
    let session = s.session("one-abcd");
    let path = s.repository.common_dir.join("studio/operations.jsonl");
    discard(&s, &session);
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("{\"intent\":{\"id\":\"op2\",\"ti");
    fs::write(&path, &text).unwrap();
    assert_eq!(discard(&s, &s.session("two-abcd")), "op2", "it never began");
    undo::undo(&s.repository, Some("op1"), NOW).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn an_undo_after_a_revert_restores_the_session_and_it_can_land_again() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("new", "work");
    s.accept(&session).unwrap_or_else(|failure| panic!("{failure}"));
    s.repo.commit_file("later", "x");
    let refused = undo::undo(&s.repository, Some("op1"), NOW).unwrap_err();
    assert_eq!(refused.kind, FailureKind::Refused, "its changes are still there");
    s.repo.git(["revert", "--no-edit", "HEAD~1"]);
    let tip = s.repo.rev("main");
    undo::undo(&s.repository, Some("op1"), NOW).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(s.repo.rev("main"), tip, "the branch stays where the user put it");
    assert_eq!(session.work.read("new"), "work");
    assert!(!s.repo.path().join("new").exists());
    s.accept(&session).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(s.repo.read("new"), "work");
    assert_eq!(s.repo.git(["status", "--porcelain"]), "");
}
