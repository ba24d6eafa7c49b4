//! Repository discovery: the supported repositories, and the errors for unsupported ones.

use std::rc::Rc;

use base::failure::FailureKind;
use studio_git::handle;
use studio_git::names::BranchName;
use studio_git::repo::Repository;
use testkit::env::TestEnv;
use testkit::repo::Repo;

use crate::git_fixtures::{discover, setting};

#[test]
fn a_repository_is_found_from_a_sub_directory_and_from_a_linked_worktree() {
    let s = setting();
    s.repo.write("deep/er/file", "x");
    assert_eq!(s.repository.main_checkout.as_deref(), Some(s.repo.path()));
    let deep = Repository::discover(&s.repo.path().join("deep/er")).unwrap();
    assert_eq!(deep, s.repository);

    s.repo.git(["worktree", "add", "-q", "-b", "other", "../linked"]);
    let linked = discover(&Repo::at(&s.env.home().join("linked")));
    assert_eq!(linked.common_dir, s.repository.common_dir);
    assert_eq!(linked.main_checkout, s.repository.main_checkout);
    assert_eq!(linked.base(None).unwrap().branch.unwrap().as_str(), "other");
}

#[test]
fn a_session_worktree_belongs_to_its_repository() {
    let s = setting();
    let session = s.session("task-abcd");
    let home = discover(&session.work);
    assert_eq!(home.common_dir, s.repository.common_dir);
    assert_eq!(home.main_checkout, s.repository.main_checkout);
    assert_eq!(home.session, Some(session.place.id));
    assert_eq!(home.base(None).unwrap().branch.unwrap().as_str(), "main");
}

#[test]
fn a_bare_repository_and_its_worktrees_are_one_repository() {
    let s = setting();
    let bare = s.env.home().join("bare.git");
    s.repo.git(["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let repository = Repository::discover(&bare).unwrap();
    assert_eq!((repository.main_checkout.clone(), repository.name().as_str()), (None, "bare"));
    Repo::at(&bare).git(["worktree", "add", "-q", "../wt", "main"]);
    let from_worktree = Repository::discover(&s.env.home().join("wt")).unwrap();
    assert_eq!(from_worktree.common_dir, repository.common_dir);
    assert_eq!(from_worktree.main_checkout, None);
}

#[test]
fn the_base_is_a_branch_a_tag_a_commit_or_head() {
    let s = setting();
    let first = s.repo.rev("HEAD");
    s.repo.git(["tag", "-a", "-m", "one", "v1"]);
    s.repo.commit_file("b", "b");
    let named = |name: &str| s.repository.base(Some(name));
    assert_eq!(named("v1").unwrap().commit, first);
    assert_eq!(named("v1").unwrap().branch, None);
    assert_eq!(named(&first).unwrap().commit, first);
    assert_eq!(named("main").unwrap().branch.unwrap().as_str(), "main");
    assert_eq!(named("refs/heads/main").unwrap(), named("main").unwrap());
    assert_eq!(named("HEAD").unwrap(), s.repository.base(None).unwrap());
    for wrong in ["nope", "--upload-pack=x", "$(touch x)", ""] {
        assert_eq!(named(wrong).unwrap_err().kind, FailureKind::NotFound, "{wrong}");
    }
    s.repo.git(["checkout", "-q", "--detach", "v1"]);
    let detached = s.repository.base(None).unwrap();
    assert_eq!((detached.branch, detached.commit), (None, first));
}

#[test]
fn an_empty_repository_is_refused_with_a_hint_to_commit() {
    let env = TestEnv::new();
    let repo = Repo::empty(&env.home().join("empty"));
    let failure = discover(&repo).base(None).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused);
    assert!(failure.hints[0].contains("git commit --allow-empty"), "{failure}");
}

#[test]
fn a_directory_without_a_repository_is_refused_with_a_hint() {
    let env = TestEnv::new();
    let failure = Repository::discover(env.home()).unwrap_err();
    assert_eq!(failure.kind, FailureKind::NotFound);
    assert!(failure.hints[0].contains("git init"), "{failure}");
}

#[test]
fn unsupported_formats_are_refused_by_name() {
    let cases = [
        ("extensions.refstorage", "tree", "ref format `tree`"),
        ("extensions.partialclone", "origin", "partial clone"),
    ];
    for (key, value, name) in cases {
        let s = setting();
        s.repo.git(["config", "core.repositoryformatversion", "1"]);
        s.repo.git(["config", key, value]);
        let failure = Repository::discover(s.repo.path()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Usage);
        assert!(failure.what.contains(name), "{failure}");
    }
}

#[test]
fn an_operation_keeps_its_handle_which_sees_what_git_does_meanwhile() {
    let s = setting();
    let open = || s.repository.open().unwrap();
    let first = handle::keep_open(|| {
        let (handle, again) = (open(), handle::keep_open(open));
        assert!(Rc::ptr_eq(&handle, &again), "one operation within the other");
        let tip = || s.repository.tip(&BranchName::parse("main").unwrap()).unwrap();
        let before = tip();
        s.repo.commit_file("later", "x");
        s.repo.git(["gc", "-q", "--prune=now"]);
        assert_ne!(tip(), before);
        let commit = studio_git::refs::oid(&tip().unwrap()).unwrap();
        assert!(open().find_commit(commit).is_ok(), "it is in a new pack");
        assert!(Rc::ptr_eq(&handle, &open()));
        handle
    });
    assert!(!Rc::ptr_eq(&first, &open()), "it was closed");
    assert!(!Rc::ptr_eq(&open(), &open()), "outside of an operation each call opens one");
}
