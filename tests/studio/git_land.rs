//! Landing: what moves, what is refused, and that the user's own changes are unchanged.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use base::failure::{Failure, FailureKind, Result};
use studio_git::land::{self, LandResult};
use studio_git::merge::MergeStrategy;
use studio_git::{receipt, undo};
use testkit::repo::Repo;

use crate::git_fixtures::{Session, Setting, setting};

/// Creates a session that adds `new`, changes `file`, deletes `gone` and creates a link and a
/// program.
fn worked(s: &Setting) -> Session {
    s.repo.commit_file("file", "old\n");
    s.repo.commit_file("gone", "x\n");
    s.repo.commit_file("other", "other\n");
    let session = s.session("task-abcd");
    session.work.commit_file("dir/new", "new\n");
    session.work.write("file", "changed\n");
    session.work.write("run", "#!/bin/sh\n");
    let run = session.work.path().join("run");
    fs::set_permissions(run, fs::Permissions::from_mode(0o755)).expect("the worktree is writable");
    symlink("run", session.work.path().join("link")).expect("the worktree is writable");
    fs::remove_file(session.work.path().join("gone")).expect("the worktree is writable");
    session
}

fn operation(accepted: Result<LandResult>) -> String {
    match accepted.unwrap_or_else(|failure| panic!("{failure}")) {
        LandResult::Landed { operation, .. } => operation,
        LandResult::TargetMoved => panic!("the target moved"),
    }
}

fn refused(accepted: Result<LandResult>) -> Failure {
    let failure = accepted.expect_err("it is refused");
    assert_eq!(failure.kind, FailureKind::Refused, "{failure}");
    failure
}

#[test]
fn a_landing_updates_the_main_checkout_and_moves_the_session_to_the_trash() {
    let s = setting();
    let session = worked(&s);
    assert_eq!(operation(s.accept(&session)), "op1");
    assert_eq!(s.repo.git(["log", "-1", "--format=%s"]), "Land it");
    assert_eq!(s.repo.git(["status", "--porcelain", "--ignored"]), "");
    assert_eq!(s.repo.git(["diff-files", "--name-only"]), "", "also without a refresh");
    assert_eq!((s.repo.read("file"), s.repo.read("dir/new")), ("changed\n".into(), "new\n".into()));
    assert_eq!(s.repo.git(["ls-files", "-s", "run"]).split(' ').next(), Some("100755"));
    assert!(s.repo.path().join("link").is_symlink() && !s.repo.path().join("gone").exists());
    assert!(!session.work.path().exists());
    assert_eq!(s.repo.git(["worktree", "list"]).lines().count(), 1);
    assert_eq!(s.repo.git(["branch", "--list", "studio/*"]), "");
    assert!(s.repo.git(["reflog", "-1"]).contains("studio: op1"));
    let note = receipt::read(&s.repository, &s.repo.rev("main")).unwrap();
    assert_eq!(note.as_deref(), Some("{\"checks\":[]}"));
    s.repo.git(["gc", "-q", "--prune=now"]);
    s.repo.is_sound();
}

#[test]
fn unrelated_user_changes_are_kept_and_stay_staged() {
    let s = setting();
    let session = worked(&s);
    s.repo.write("other", "unstaged\n");
    s.repo.write("staged", "staged\n");
    s.repo.git(["add", "staged"]);
    s.repo.write("staged", "and changed again\n");
    s.repo.write("intent", "later\n");
    s.repo.git(["add", "-N", "intent"]);
    s.repo.write("untracked", "u\n");
    let before = s.repo.git(["status", "--porcelain"]);
    operation(s.accept(&session));
    assert_eq!(s.repo.git(["status", "--porcelain"]), before);
    assert_eq!(s.repo.git(["show", ":staged"]), "staged");
    assert_eq!(s.repo.read("staged"), "and changed again\n");
}

#[test]
fn a_directory_lands_in_the_place_of_a_symlink_and_leaves_what_that_led_to() {
    let s = setting();
    s.repo.commit_file("data/k", "kept\n");
    symlink("data", s.repo.path().join("link")).unwrap();
    s.repo.git(["add", "link"]);
    s.repo.git(["commit", "-qm", "Add a link"]);
    let session = s.session("task-abcd");
    fs::remove_file(session.work.path().join("link")).unwrap();
    session.work.write("link/k", "new\n");
    operation(s.accept(&session));
    let contents = || (s.repo.read("data/k"), s.repo.read("link/k"));
    assert_eq!(contents(), ("kept\n".into(), "new\n".into()));
    assert!(!s.repo.path().join("link").is_symlink());
    assert_eq!(s.repo.git(["status", "--porcelain"]), "");
    undo::undo(&s.repository, None, "2026-01-02T03:04:05Z").unwrap();
    assert_eq!(contents(), ("kept\n".into(), "kept\n".into()));
    assert!(s.repo.path().join("link").is_symlink());
    assert_eq!(s.repo.git(["status", "--porcelain"]), "");
}

#[test]
fn conflicting_user_files_are_named_and_nothing_is_changed() {
    type Plant = fn(&Repo);
    let cases: &[(&str, &str, Plant)] = &[
        ("changed", "file", |repo| repo.write("file", "mine\n")),
        ("staged", "file", |repo| {
            repo.write("file", "mine\n");
            repo.git(["add", "file"]);
        }),
        ("staged and put back", "file", |repo| {
            repo.write("file", "mine\n");
            repo.git(["add", "file"]);
            repo.write("file", "old\n");
        }),
        ("untracked", "dir/new", |repo| repo.write("dir/new", "mine\n")),
        ("ignored", "dir/new", |repo| {
            repo.write(".git/info/exclude", "dir/\n.g3/*\n!.g3/skills/\n");
            repo.write("dir/new", "secret\n");
        }),
        ("staged, but absent on disk", "dir/new", |repo| {
            repo.write("dir/new", "mine\n");
            repo.git(["add", "dir/new"]);
            fs::remove_file(repo.path().join("dir/new")).unwrap();
        }),
        ("assume-unchanged", "file", |repo| {
            repo.git(["update-index", "--assume-unchanged", "file"]);
            repo.write("file", "mine\n");
        }),
        ("skip-worktree", "file", |repo| {
            repo.git(["update-index", "--skip-worktree", "file"]);
            repo.write("file", "mine\n");
        }),
        ("changed where it is deleted", "gone", |repo| repo.write("gone", "mine\n")),
        ("a file where a directory is needed", "dir", |repo| repo.write("dir", "mine\n")),
        ("a directory where a file is needed", "run", |repo| repo.write("run/x", "mine\n")),
        ("a symlink where a directory is needed", "dir", |repo| {
            symlink("/tmp", repo.path().join("dir")).unwrap();
        }),
    ];
    for (name, path, plant) in cases {
        let s = setting();
        let session = worked(&s);
        plant(&s.repo);
        let ready = s.ready(&session, MergeStrategy::Squash);
        let before = s.repo.everything();
        let preflight = land::preflight(&s.repository, &ready.candidate).unwrap_err();
        let failure = refused(land::accept(&s.repository, &ready));
        assert!(failure.to_string().contains(path), "{name}: {failure}");
        assert_eq!(failure.to_string(), preflight.to_string(), "{name}");
        assert_eq!(s.repo.everything(), before, "{name}");
        assert!(!s.repo.path().join(".git/index.lock").exists(), "{name}");
        assert_eq!(session.work.read("file"), "changed\n");
    }
}

#[test]
fn a_target_without_a_checkout_only_moves() {
    let s = setting();
    let session = worked(&s);
    s.repo.git(["checkout", "-q", "-b", "elsewhere"]);
    s.repo.write("file", "mine\n");
    operation(s.accept(&session));
    assert_eq!(s.repo.read("file"), "mine\n");
    assert_eq!(s.repo.git(["status", "--porcelain"]), " M file");
    assert_eq!(s.repo.show("main", "file"), "changed");
}

#[test]
fn all_checkouts_of_the_target_are_updated() {
    let s = setting();
    let session = worked(&s);
    s.repo.git(["worktree", "add", "-q", "--force", "../second", "main"]);
    let second = Repo::at(&s.env.home().join("second"));
    second.write("other", "mine\n");
    operation(s.accept(&session));
    assert_eq!(second.read("file"), "changed\n");
    assert_eq!(second.git(["status", "--porcelain"]), " M other");
    assert_eq!(s.repo.git(["status", "--porcelain"]), "");
}

#[test]
fn a_conflict_in_a_second_checkout_prevents_the_landing() {
    let s = setting();
    let session = worked(&s);
    s.repo.git(["worktree", "add", "-q", "--force", "../second", "main"]);
    let second = Repo::at(&s.env.home().join("second"));
    second.write("file", "mine\n");
    let failure = refused(s.accept(&session));
    assert!(failure.what.contains("second"), "{failure}");
    assert_eq!(s.repo.read("file"), "old\n");
    second.git(["checkout", "-q", "--", "file"]);
    assert_eq!(s.repo.git(["status", "--porcelain"]), "");
    operation(s.accept(&session));
}

#[test]
fn a_target_with_an_operation_in_progress_is_refused() {
    let s = setting();
    let session = worked(&s);
    s.repo.git(["bisect", "start"]);
    assert!(refused(s.accept(&session)).what.contains("bisected"));
    s.repo.git(["bisect", "reset"]);

    s.repo.git(["checkout", "-q", "-b", "side", "main~1"]);
    s.repo.commit_file("other", "conflict\n");
    s.repo.git(["checkout", "-q", "main"]);
    assert_ne!(s.repo.try_git(["rebase", "side"]).0, 0);
    assert!(refused(s.accept(&session)).what.contains("rebased"));
    s.repo.git(["rebase", "--abort"]);

    assert_ne!(s.repo.try_git(["merge", "side"]).0, 0);
    assert!(refused(s.accept(&session)).what.contains("not finished"));
    s.repo.git(["merge", "--abort"]);

    s.repo.write(".git/index.lock", "");
    assert!(refused(s.accept(&session)).to_string().contains("index.lock"));
    assert!(s.repo.path().join(".git/index.lock").exists(), "it is not ours to remove");
    fs::remove_file(s.repo.path().join(".git/index.lock")).unwrap();
    operation(s.accept(&session));
}

#[test]
fn a_target_that_moved_is_merged_again() {
    let s = setting();
    let session = worked(&s);
    let ready = s.ready(&session, MergeStrategy::Squash);
    s.repo.commit_file("meanwhile", "m\n");
    let before = s.repo.everything();
    assert_eq!(land::accept(&s.repository, &ready).unwrap(), LandResult::TargetMoved);
    assert_eq!(s.repo.everything(), before);
    operation(s.accept(&session));
    assert_eq!(s.repo.read("meanwhile"), "m\n");
}

#[test]
fn concurrent_accepts_land_a_session_once() {
    let s = setting();
    let session = worked(&s);
    let ready = s.ready(&session, MergeStrategy::Squash);
    let results: Vec<_> = std::thread::scope(|scope| {
        let land = || land::accept(&s.repository, &ready);
        let both = [scope.spawn(land), scope.spawn(land)];
        both.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let landed = results.iter().filter(|it| matches!(it, Ok(LandResult::Landed { .. }))).count();
    assert_eq!(landed, 1, "{results:?}");
    assert_eq!(s.repo.git(["log", "--oneline", "--grep=Land it"]).lines().count(), 1);
}

#[test]
fn hooks_and_signing_of_the_repository_do_not_run_and_do_not_prevent_landing() {
    let s = setting();
    let session = worked(&s);
    for hook in ["pre-commit", "commit-msg", "post-checkout", "reference-transaction"] {
        let path = s.repo.path().join(".git/hooks").join(hook);
        fs::write(&path, "#!/bin/sh\nexit 1\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    s.repo.git(["config", "commit.gpgSign", "true"]);
    s.repo.git(["config", "gpg.program", "/bin/false"]);
    operation(s.accept(&session));
    assert_eq!(s.repo.read("file"), "changed\n");
}

#[test]
fn unusual_names_and_line_endings_land_as_git_would_write_them() {
    use std::os::unix::ffi::OsStrExt;
    let s = setting();
    s.repo.commit_file(".gitattributes", "*.txt text eol=crlf\n");
    let session = s.session("task-abcd");
    let odd = std::ffi::OsStr::from_bytes(b"not utf8 \xff [*] \n name");
    fs::write(session.work.path().join(odd), "odd").unwrap();
    session.work.write("dos.txt", "a\r\nb\r\n");
    session.work.write("größe/a b", "x");
    operation(s.accept(&session));
    assert_eq!(s.repo.git(["status", "--porcelain"]), "");
    assert_eq!(s.repo.read("dos.txt"), "a\r\nb\r\n");
    assert_eq!(fs::read(s.repo.path().join(odd)).unwrap(), b"odd");
}

#[test]
fn a_bare_repository_and_a_session_branch_are_distinguished() {
    let s = setting();
    let session = worked(&s);
    let other = s.session("other-abcd");
    let mut ready = s.ready(&session, MergeStrategy::Squash);
    ready.candidate.target = other.place.branch.clone();
    ready.candidate.target_tip = s.repo.rev("studio/other-abcd");
    assert!(refused(land::accept(&s.repository, &ready)).what.contains("belongs to a session"));

    let bare = s.env.home().join("bare.git");
    s.repo.git(["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let mut s = s;
    s.repository = studio_git::repo::Repository::discover(&bare).unwrap();
    s.repo = Repo::at(&bare);
    let session = s.session("task-bare");
    session.work.write("file", "from bare\n");
    operation(s.accept(&session));
    assert_eq!(s.repo.show("main", "file"), "from bare");
    s.repo.is_sound();
}
