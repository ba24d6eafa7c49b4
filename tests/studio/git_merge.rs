//! In-memory merges of work with its target, and checks in a separate worktree.

use base::failure::FailureKind;
use studio_git::diff;
use studio_git::merge::{self, MergeStrategy, PreparedMerge};
use studio_git::names::BranchName;

use crate::git_fixtures::{now, setting};

#[test]
fn committed_and_uncommitted_work_become_one_commit_on_the_moved_target() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("committed", "1");
    session.work.write("untracked", "2");
    s.repo.commit_file("meanwhile", "3");
    let before = s.repo.rev("main");
    let ready = s.ready(&session, MergeStrategy::Squash);
    assert_eq!(s.repo.rev("main"), before, "nothing that anybody sees moved");
    assert_eq!(s.repo.rev(&format!("{}^", ready.landing_commit.commit)), before);
    let list = s.repo.git(["ls-tree", "-r", "--name-only", &ready.landing_commit.commit]);
    assert_eq!(list, "README.md\ncommitted\nmeanwhile\nuntracked");
    let message = s.repo.git(["log", "-1", "--format=%B", &ready.landing_commit.commit]);
    assert_eq!(message, "Land it\n\nSession: task-abcd Evil: x");
    assert_eq!(s.repo.rev("studio/task-abcd"), session.work.rev("HEAD"));
    s.repo.git(["gc", "-q", "--prune=now"]);
    s.repo.is_sound();
}

#[test]
fn conflicts_are_listed_with_their_hunks_and_leave_no_files() {
    let s = setting();
    s.repo.commit_file("file", "a\nb\nc\n");
    s.repo.commit_file("gone", "x\n");
    let session = s.session("task-abcd");
    session.work.write("file", "a\nsession\nc\n");
    session.work.write("gone", "changed\n");
    session.work.write("both", [0u8, 1, 2]);
    s.repo.commit_file("file", "a\ntarget\nc\n");
    s.repo.commit_file("both", [0u8, 3, 4]);
    s.repo.git(["rm", "-q", "gone"]);
    s.repo.git(["commit", "-q", "-m", "remove"]);
    for strategy in [MergeStrategy::Squash, MergeStrategy::Merge, MergeStrategy::Rebase] {
        let PreparedMerge::Conflicts(conflicts) = s.prepared(&session, strategy) else {
            panic!("{strategy:?} found no conflict");
        };
        let paths: Vec<&str> = conflicts.iter().map(|c| c.path.as_str()).collect();
        assert_eq!(paths, ["both", "file", "gone"]);
        assert_eq!(conflicts[0].hunks, "binary, changed on both sides");
        let hunk = "a\n<<<<<<< target\ntarget\n=======\nsession\n>>>>>>> session\nc\n";
        assert_eq!(conflicts[1].hunks, hunk);
        assert_eq!(conflicts[2].hunks, "deleted in target, changed in session");
    }
    assert_eq!(s.repo.git(["for-each-ref", "refs/studio/landing"]), "");
}

#[test]
fn work_that_the_target_already_contains_is_empty() {
    let s = setting();
    let session = s.session("task-abcd");
    assert_eq!(s.prepared(&session, MergeStrategy::Squash), PreparedMerge::Nothing);
    session.work.commit_file("new", "same");
    s.repo.commit_file("new", "same");
    for strategy in [MergeStrategy::Squash, MergeStrategy::Merge, MergeStrategy::Rebase] {
        assert_eq!(s.prepared(&session, strategy), PreparedMerge::Nothing, "squash-merged by hand");
    }
}

#[test]
fn a_merge_keeps_the_agents_commits_and_a_rebase_replays_them() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("one", "1");
    session.work.commit_file("two", "2");
    session.work.write("three", "3");
    s.repo.commit_file("meanwhile", "x");
    let merged = s.ready(&session, MergeStrategy::Merge).landing_commit.commit;
    assert_eq!(s.repo.rev(&format!("{merged}^1")), s.repo.rev("main"));
    assert_eq!(s.repo.rev(&format!("{merged}^2^")), session.work.rev("HEAD"));
    let subjects = s.repo.git(["log", "--format=%s", &format!("main..{merged}^2")]);
    assert_eq!(subjects, "Uncommitted work of task-abcd\nadd two\nadd one");

    let rebased = s.ready(&session, MergeStrategy::Rebase).landing_commit.commit;
    let subjects = s.repo.git(["log", "--format=%s|%an", &format!("main..{rebased}")]);
    assert!(subjects.starts_with("Land it|"), "{subjects}");
    assert!(subjects.ends_with("\nadd two|Ada\nadd one|Ada"), "{subjects}");
    assert_eq!(s.repo.git(["rev-list", "--merges", &rebased]), "");
}

#[test]
fn a_fast_forward_lands_the_agents_own_commits_or_is_refused() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("one", "1");
    assert_eq!(
        s.ready(&session, MergeStrategy::Ff).landing_commit.commit,
        session.work.rev("HEAD")
    );
    s.repo.commit_file("meanwhile", "x");
    let snapshot = s.snapshot(&session);
    let main = BranchName::parse("main").unwrap();
    let failure =
        merge::prepare(&s.repository, &session.place, &snapshot, &main, MergeStrategy::Ff, now())
            .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused);
    let gone = BranchName::parse("gone").unwrap();
    let failure =
        merge::prepare(&s.repository, &session.place, &snapshot, &gone, MergeStrategy::Ff, now())
            .unwrap_err();
    assert_eq!(failure.kind, FailureKind::NotFound);
}

#[test]
fn union_merges_and_workspace_memory_do_not_conflict() {
    let s = setting();
    s.repo.commit_file(".gitattributes", "*.log merge=union\n");
    s.repo.commit_file("notes.log", "start\n");
    s.repo.commit_file("analysis/memory.md", "start\n");
    let session = s.session("task-abcd");
    for file in ["notes.log", "analysis/memory.md"] {
        session.work.commit_file(file, "start\nsession\n");
        s.repo.commit_file(file, "start\ntarget\n");
    }
    let ready = s.ready(&session, MergeStrategy::Squash);
    for file in ["notes.log", "analysis/memory.md"] {
        assert_eq!(s.repo.show(&ready.landing_commit.commit, file), "start\ntarget\nsession");
    }
}

#[test]
fn g3s_working_files_do_not_land_even_if_committed() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.write(".g3/sessions/x", "private");
    session.work.write(".g3/skills/mine/SKILL.md", "skill");
    session.work.git(["add", "-f", ".g3"]);
    session.work.git(["commit", "-q", "-m", "everything"]);
    let ready = s.ready(&session, MergeStrategy::Squash);
    let list = s.repo.git(["ls-tree", "-r", "--name-only", &ready.landing_commit.commit]);
    assert_eq!(list, ".g3/skills/mine/SKILL.md\nREADME.md");
    let stats = diff::stats(&s.repository, &session.place.base, &ready.candidate.work).unwrap();
    assert_eq!(stats.paths, [".g3/skills/mine/SKILL.md"]);
}

#[test]
fn the_diff_is_counted_and_shown_without_running_programs() {
    let s = setting();
    s.repo.commit_file("file", "a\nb\nc\n");
    let marker = s.env.home().join("marker");
    s.repo.git(["config", "diff.external", &format!("touch '{}'", marker.display())]);
    let session = s.session("task-abcd");
    session.work.write("file", "a\nB\nc\nd\n");
    session.work.write("new", "x\n");
    let work = s.snapshot(&session).work;
    let stats = diff::stats(&s.repository, &session.place.base, &work).unwrap();
    assert_eq!((stats.files, stats.insertions, stats.deletions), (2, 3, 1));
    let patch = diff::patch(&s.repository, &session.place.base, &work).unwrap();
    assert!(patch.contains("-b\n+B\n c\n+d\n") && patch.contains("+++ b/new"), "{patch}");
    assert!(!marker.exists());
    let apart = diff::commit_distance(&s.repository, &work, &session.place.base).unwrap();
    assert_eq!((apart.ahead, apart.behind), (2, 0));
}

#[test]
fn a_file_and_a_directory_of_the_same_name_conflict() {
    let s = setting();
    s.repo.commit_file("dir/inner", "x\n");
    let session = s.session("task-abcd");
    session.work.write("dir/second", "y\n");
    session.work.write("dir-2", "z\n");
    s.repo.git(["rm", "-q", "-r", "dir"]);
    s.repo.commit_file("dir", "a file\n");
    let PreparedMerge::Conflicts(conflicts) = s.prepared(&session, MergeStrategy::Squash) else {
        panic!("the file of the target would be lost");
    };
    assert_eq!(conflicts.len(), 1);
    assert_eq!(conflicts[0].path, "dir");
    assert_eq!(conflicts[0].hunks, "a file on one side, a directory on the other");
}
