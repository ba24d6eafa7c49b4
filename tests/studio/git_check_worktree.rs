//! Check worktrees: exactly the files of a commit, and no files of an earlier check.

use std::fs;
use std::os::unix::fs::symlink;

use base::failure::FailureKind;
use studio_git::check_worktree::{self, CheckWorktree};
use studio_git::merge::MergeStrategy;
use studio_git::names::{BranchTemplate, WorktreeTemplate};
use studio_git::{commit_list, discard, worktree};
use testkit::env::NOW;
use testkit::repo::Repo;

use crate::git_fixtures::{Setting, setting};

/// Prepares a check worktree with the files of a commit.
fn check_worktree(s: &Setting, kept: &[&str], commit: &str) -> CheckWorktree {
    let (worktrees, branches) = (WorktreeTemplate::default(), BranchTemplate::default());
    let kept: Vec<String> = kept.iter().map(|path| (*path).to_owned()).collect();
    let kept = check_worktree::parse_kept_paths("check_caches", &kept).expect("they are relative");
    check_worktree::prepare(&s.repository, &worktrees, &branches, &kept, commit)
        .unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn a_check_worktree_has_exactly_the_merged_files_and_the_configured_caches() {
    let s = setting();
    s.repo.commit_file(".gitignore", "cache/\nnode_modules/\n*.pyc\n");
    let session = s.session("task-abcd");
    session.work.write("new", "x");
    let ready = s.ready(&session, MergeStrategy::Squash);
    let prepare = |commit: &str| check_worktree(&s, &["deep/cache", "gone", "README.md"], commit);
    let first = prepare(&ready.candidate.merged_commit);
    let work = Repo::at(&first.session_repo.worktree);
    assert_eq!(
        (work.read("new").as_str(), work.git(["status", "--porcelain"]).as_str()),
        ("x", "")
    );
    work.write("deep/cache/big", "warm");
    work.write("cache/not-listed", "warm");
    work.write("node_modules/dep/index.js", "by a check");
    work.write("mod.pyc", "by a check");
    work.write("left/over", "by a check");
    work.write("README.md", "changed by a check");
    work.git(["config", "filter.evil.smudge", "false"]);
    work.git(["init", "-q", "nested"]);
    fs::create_dir_all(&first.temporary).unwrap();
    fs::write(first.temporary.join("x"), "by a check").unwrap();
    let second = prepare(&ready.candidate.merged_commit);
    assert_ne!(
        second.session_repo.worktree, first.session_repo.worktree,
        "the first is still in use"
    );
    drop(first);
    let again = prepare(&s.repo.rev("main"));
    assert_eq!(again.session_repo.worktree, work.path());
    assert_eq!(work.git(["status", "--porcelain", "--ignored"]), "!! deep/");
    assert_eq!(work.read("deep/cache/big"), "warm");
    assert_eq!(work.read("README.md"), "# A repository\n");
    assert_eq!(work.git(["diff", "main"]), "");
    assert!(!again.temporary.exists() && !again.caches.exists());
    let slot = again.session_repo.git_dir.parent().unwrap().to_owned();
    let trash = s.repo.worktrees().join(".trash");
    drop(again);
    assert_eq!(fs::read_dir(trash).unwrap().count(), 0, "what was put aside is removed");
    let left = fs::read_dir(slot).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("emptied")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_worktree_in_which_all_checks_passed_is_found_by_its_tree_and_kept_while_it_is_read() {
    let s = setting();
    let trees =
        |tip: &str| commit_list::trees(&s.repository, &s.repo.rev(tip), 2).expect("they exist");
    s.repo.commit_file("a", "1");
    s.repo.commit_file("b", "1");
    let (newer, older) = (s.repo.rev("main"), s.repo.rev("main~1"));
    let [new_tree, old_tree] = trees("main").try_into().expect("two");
    assert_eq!(trees("main~1")[0], old_tree);
    let found = |trees: &[&String]| {
        let trees: Vec<String> = trees.iter().copied().cloned().collect();
        check_worktree::passed(&s.repository, &trees)
    };
    let (one, two) = (check_worktree(&s, &[], &older), check_worktree(&s, &[], &newer));
    assert!(found(&[&new_tree, &old_tree]).is_none(), "nothing passed");
    one.record_passed(&old_tree).unwrap();
    two.record_passed(&new_tree).unwrap();
    assert!(found(&[&new_tree, &old_tree]).is_none(), "their checks may still run");
    let (first, second) = (one.session_repo.worktree.clone(), two.session_repo.worktree.clone());
    drop((one, two));
    let newest = found(&[&new_tree, &old_tree]).expect("it is free");
    assert_eq!(
        (newest.tree.as_str(), newest.worktree.as_path()),
        (new_tree.as_str(), second.as_path())
    );
    assert_eq!(found(&[&old_tree]).expect("it is free").worktree, first);
    assert!(found(&[]).is_none());

    // Two readers do not exclude each other; a check uses another worktree.
    let other = found(&[&new_tree]).expect("another reader is there");
    let kept = [check_worktree(&s, &[], &newer), check_worktree(&s, &[], &newer)];
    assert!(kept.iter().all(|it| it.session_repo.worktree != second));
    drop((newest, other));
    assert!(found(&[&old_tree]).is_none(), "the first worktree is used again");
    drop(kept);
    assert!(found(&[&old_tree]).is_none(), "nothing passed in it since");
}

#[test]
fn files_of_a_check_in_its_git_directory_are_never_followed_or_used() {
    let s = setting();
    s.repo.commit_file("check.sh", "exit 1\n");
    s.repo.commit_file(".gitignore", "cache/\n");
    let main = s.repo.rev("main");
    let canaries = ["bashrc", "authorized_keys", "kept"].map(|name| s.env.home().join(name));
    canaries.iter().for_each(|path| fs::write(path, "theirs").unwrap());
    let first = check_worktree(&s, &["cache", "link/cache"], &main);
    let work = Repo::at(&first.session_repo.worktree);
    work.git(["update-index", "--skip-worktree", "check.sh"]);
    work.write("check.sh", "exit 0\n");
    let git = &first.session_repo.git_dir;
    fs::remove_file(git.join("refs/heads/studio-check")).unwrap();
    symlink(&canaries[0], git.join("refs/heads/studio-check")).unwrap();
    fs::remove_file(git.join("index")).unwrap();
    symlink(&canaries[1], git.join("index")).unwrap();
    symlink(&canaries[2], work.path().join("cache")).unwrap();
    let elsewhere = s.env.home().join("elsewhere");
    fs::create_dir_all(elsewhere.join("cache")).unwrap();
    symlink(&elsewhere, work.path().join("link")).unwrap();
    drop(first);

    let again = check_worktree(&s, &["cache", "link/cache"], &main);

    assert_eq!(again.session_repo.worktree, work.path());
    assert_eq!(work.read("check.sh"), "exit 1\n");
    assert_eq!(work.git(["status", "--porcelain", "--ignored"]), "");
    for path in &canaries {
        assert_eq!(fs::read_to_string(path).unwrap(), "theirs", "{}", path.display());
    }
    assert!(elsewhere.join("cache").is_dir());
}

#[test]
fn check_worktrees_and_trash_never_follow_a_symlink() {
    // Inside the main checkout, a commit can contain such links.
    for (template, inside) in [("{parent}/{repo}.worktrees/{id}", false), (".worktrees/{id}", true)]
    {
        let s = setting();
        let outside = s.env.home().join("outside");
        fs::create_dir(&outside).unwrap();
        let main = s.repo.rev("main");
        let worktrees = WorktreeTemplate::parse(template).unwrap();
        let directory = if inside { s.repo.path().join(".worktrees") } else { s.repo.worktrees() };
        let prepare = || {
            let branches = BranchTemplate::default();
            check_worktree::prepare(&s.repository, &worktrees, &branches, &[], &main).map(drop)
        };
        let order = worktree::WorktreeSpec { worktree: worktrees.clone(), ..s.order("task-abcd") };
        symlink(&outside, &directory).unwrap();
        assert_eq!(prepare().unwrap_err().kind, FailureKind::Refused);
        assert_eq!(worktree::create(&s.repository, &order).unwrap_err().kind, FailureKind::Refused);
        fs::remove_file(&directory).unwrap();
        let session = s.session_of(&order);
        symlink(&outside, directory.join(".checks")).unwrap();
        assert_eq!(prepare().unwrap_err().kind, FailureKind::Refused);
        fs::remove_file(directory.join(".checks")).unwrap();
        symlink(&outside, directory.join(".trash")).unwrap();
        assert_eq!(prepare().unwrap_err().kind, FailureKind::Refused);
        let place = std::slice::from_ref(&session.place);
        assert_eq!(
            discard::discard(&s.repository, place, NOW).unwrap_err().kind,
            FailureKind::Refused
        );
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{template}");
        fs::remove_file(directory.join(".trash")).unwrap();
        prepare().unwrap();
        discard::discard(&s.repository, place, NOW).unwrap();
    }
}

#[test]
fn a_user_directory_is_not_mistaken_for_a_check_worktree() {
    let s = setting();
    let theirs = s.env.home().join("my repö-check-1");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("file"), "theirs").unwrap();
    let worktrees = WorktreeTemplate::parse("{parent}/{repo}-{id}").unwrap();
    let main = s.repo.rev("main");
    let prepare = || {
        check_worktree::prepare(&s.repository, &worktrees, &BranchTemplate::default(), &[], &main)
    };
    assert_eq!(prepare().unwrap_err().kind, FailureKind::Refused);
    assert_eq!(fs::read_to_string(theirs.join("file")).unwrap(), "theirs");
    fs::remove_dir_all(&theirs).unwrap();
    for _ in 0..2 {
        let made = prepare().unwrap();
        assert_eq!(made.session_repo.worktree, theirs);
    }
}
