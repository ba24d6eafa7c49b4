//! Conflicts between pairs of commits, beside git's own merges.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt;

use studio_git::conflict::SideLabels;
use studio_git::pair_conflicts::{self, PairConflicts, PairSelection, WorkRange};
use testkit::repo::Repo;

use crate::git_fixtures::{Setting, setting};

const LINES: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

/// Commits a change on a branch of its own, and returns the work.
fn work(repo: &Repo, name: &str, change: impl FnOnce(&Repo)) -> WorkRange {
    let base = repo.rev("main");
    repo.git(["checkout", "-q", "-b", name, "main"]);
    change(repo);
    repo.git(["add", "-A"]);
    repo.git(["commit", "-q", "--allow-empty", "-m", name]);
    let commit = repo.rev("HEAD");
    repo.git(["checkout", "-q", "main"]);
    WorkRange { base, commit }
}

fn find(s: &Setting, works: &[WorkRange]) -> PairConflicts {
    pair_conflicts::find(&s.repository, works, PairSelection::ALL).expect("they can be compared")
}

fn pairs(found: &PairConflicts) -> Vec<(usize, usize)> {
    found.conflicts.iter().map(|conflict| (conflict.first, conflict.second)).collect()
}

#[test]
fn pairs_conflict_where_git_says_so() {
    let s = setting();
    s.repo.write("text", LINES);
    s.repo.write("other", LINES);
    s.repo.write("dir/inner", "x\n");
    s.repo.write("old name", "a\nb\nc\nd\ne\nf\n".repeat(5));
    s.repo.write("binary", [0u8, 1, 2, 3]);
    s.repo.write("locked", LINES);
    s.repo.write(".gitattributes", "locked merge=binary\n");
    s.repo.git(["add", "-A"]);
    s.repo.git(["commit", "-q", "-m", "files"]);
    let line = |n: &str, new: &str| LINES.replace(&format!("{n}\n"), &format!("{new}\n"));
    let works = [
        work(&s.repo, "start", |r| r.write("text", line("1", "one"))),
        work(&s.repo, "start-too", |r| r.write("text", line("1", "uno"))),
        work(&s.repo, "end", |r| r.write("text", line("9", "nine"))),
        work(&s.repo, "both-files", |r| {
            r.write("text", line("9", "neun"));
            r.write("other", line("5", "fünf"));
        }),
        work(&s.repo, "delete", |r| std::fs::remove_file(r.path().join("text")).unwrap()),
        work(&s.repo, "add", |r| r.write("new", "one\n")),
        work(&s.repo, "add-too", |r| r.write("new", "two\n")),
        work(&s.repo, "add-same", |r| r.write("new", "one\n")),
        work(&s.repo, "file-for-directory", |r| {
            std::fs::remove_dir_all(r.path().join("dir")).unwrap();
            r.write("dir", "a file\n");
        }),
        work(&s.repo, "in-directory", |r| r.write("dir/second", "y\n")),
        work(&s.repo, "rename", |r| drop(r.git(["mv", "old name", "new name"]))),
        work(&s.repo, "edit-renamed", |r| {
            let text = r.read("old name");
            r.write("old name", format!("first\n{text}"));
        }),
        work(&s.repo, "rename-too", |r| drop(r.git(["mv", "old name", "another name"]))),
        work(&s.repo, "binary", |r| r.write("binary", [0u8, 9, 2, 3])),
        work(&s.repo, "binary-too", |r| r.write("binary", [0u8, 1, 2, 9])),
        work(&s.repo, "executable", |r| {
            let path = r.path().join("other");
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }),
        work(&s.repo, "attribute", |r| r.write("locked", line("1", "one"))),
        work(&s.repo, "attribute-too", |r| r.write("locked", line("9", "nine"))),
        work(&s.repo, "nothing", |_| ()),
    ];
    let found = find(&s, &works);
    let mut expected = Vec::new();
    for first in 0..works.len() {
        for second in first + 1..works.len() {
            let (ours, theirs) = (&works[first].commit, &works[second].commit);
            let (code, _, _) = s.repo.try_git(["merge-tree", "--write-tree", ours, theirs]);
            if code != 0 {
                expected.push((first, second));
            }
        }
    }
    assert_eq!(pairs(&found), expected);
    assert!(expected.len() > 10, "{expected:?}");
    let all = works.len() * (works.len() - 1) / 2;
    assert!(found.merged < all / 4, "{} of {all} pairs were merged", found.merged);
    let files = found.conflicts.iter().find(|it| (it.first, it.second) == (2, 3));
    assert_eq!(files.unwrap().paths, ["text"]);
}

#[test]
fn files_without_a_diff_conflict_as_others_do() {
    let s = setting();
    s.repo.write("text", LINES);
    s.repo.write(".gitattributes", "* -diff\n");
    s.repo.git(["add", "-A"]);
    s.repo.git(["commit", "-q", "-m", "files"]);
    let works = [
        work(&s.repo, "one", |r| r.write("text", LINES.replace("5\n", "five\n"))),
        work(&s.repo, "two", |r| r.write("text", LINES.replace("5\n", "fünf\n"))),
        work(&s.repo, "three", |r| r.write("text", LINES.replace("9\n", "nine\n"))),
    ];
    assert_eq!(pairs(&find(&s, &works)), [(0, 1)]);
}

#[test]
fn a_second_call_merges_nothing_and_a_damaged_cache_is_replaced() {
    let s = setting();
    s.repo.commit_file("text", LINES);
    let mut works = vec![
        work(&s.repo, "a", |r| r.write("text", "a\n")),
        work(&s.repo, "b", |r| r.write("text", "b\n")),
    ];
    let objects = || s.repo.git(["count-objects"]);
    let before = objects();
    let first = find(&s, &works);
    assert_eq!((first.merged, pairs(&first)), (1, vec![(0, 1)]));
    assert_eq!(objects(), before, "nothing is written to the repository");
    assert_eq!(find(&s, &works), PairConflicts { merged: 0, ..first.clone() });
    works.push(work(&s.repo, "c", |r| r.write("text", format!("{LINES}10\n"))));
    let third = find(&s, &works);
    assert_eq!((third.merged, pairs(&third)), (2, vec![(0, 1), (0, 2), (1, 2)]));
    let cache = s.repo.path().join(".git/studio/cache/pair-conflicts.json");
    std::fs::write(&cache, "{\"paths\":").unwrap();
    assert_eq!(find(&s, &works).conflicts, third.conflicts);
    assert_eq!(find(&s, &works).merged, 0, "it was written again");
    // An unreadable commit does not hide the other pairs.
    works[1].commit = "1".repeat(40);
    let fourth = find(&s, &works);
    assert_eq!((fourth.unreadable.clone(), pairs(&fourth)), (vec![1], vec![(0, 2)]));
}

#[test]
fn a_conflict_with_the_moved_branch_is_not_one_between_two_works() {
    let s = setting();
    s.repo.write("text", LINES);
    s.repo.commit_file("other", LINES);
    let early = work(&s.repo, "early", |r| {
        r.write("text", LINES.replace('1', "early"));
        r.write("other", LINES.replace('9', "early"));
    });
    s.repo.commit_file("text", LINES.replace('1', "main"));
    let late = work(&s.repo, "late", |r| r.write("other", LINES.replace('1', "late")));
    let clash = work(&s.repo, "clash", |r| r.write("other", LINES.replace('9', "clash")));
    let works = [early, late, clash];
    let found = find(&s, &works);
    assert_eq!(pairs(&found), [(0, 2)]);
    assert_eq!(found.conflicts[0].paths, ["other"]);
    let labels = SideLabels { ours: "early-1", theirs: "clash-2" };
    let hunks = pair_conflicts::hunks(&s.repository, &works[0], &works[2], labels).unwrap();
    assert_eq!(hunks.len(), 1);
    let text = "6\n7\n8\n<<<<<<< early-1\nearly\n=======\nclash\n>>>>>>> clash-2\n";
    assert_eq!((hunks[0].path.as_str(), hunks[0].hunks.as_str()), ("other", text));
}
