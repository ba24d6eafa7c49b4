//! Snapshots of work in progress, which leave the worktree unchanged.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base::process::{Command, OutputLimits};
use studio_git::check_leftovers::Leftover;
use studio_git::import;
use studio_git::snapshot::{self, OmissionReason, SnapshotLimits};
use testkit::repo::{Repo, tree};

use crate::git_fixtures::{now, setting};

/// Runs a shell script in a worktree.
fn sh(work: &Repo, script: &str) -> String {
    let command = Command::new("sh", work.path()).args(["-ec", script]);
    let output = command.output(OutputLimits::seconds(60)).expect("sh can be started");
    assert!(output.ok(), "{script}: {}", output.error_text());
    output.text()
}

#[test]
fn a_clean_worktree_creates_no_snapshot() {
    let s = setting();
    let session = s.session("task-abcd");
    let taken = s.snapshot(&session);
    assert_eq!((taken.number, &taken.work), (None, &s.repo.rev("main")));
    session.work.commit_file("new", "work");
    assert!(!s.snapshot(&session).is_dirty());
    assert_eq!(s.repo.git(["for-each-ref", "refs/studio/snapshots"]), "");
}

#[test]
fn objects_that_a_loss_of_power_emptied_are_written_again() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.write("changed", "text");
    session.work.write("staged", "staged");
    session.work.write("deleted", "staged, then deleted");
    session.work.git(["add", "staged", "deleted"]);
    for file in ["changed", "staged", "deleted"] {
        let id = session.work.git(["hash-object", file]);
        let object = session.place.git_dir.join("objects").join(&id[..2]).join(&id[2..]);
        fs::create_dir_all(object.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&object);
        let empty = fs::File::create(object).unwrap();
        empty.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }
    fs::remove_file(session.work.path().join("deleted")).unwrap();
    let taken = s.snapshot(&session);
    let show = |file: &str| s.repo.git(["show", &format!("{}:{file}", taken.work)]);
    assert_eq!(["changed", "staged"].map(show), ["text", "staged"]);
    assert_eq!(s.repo.git(["ls-tree", "--name-only", &taken.work, "deleted"]), "");
    s.repo.is_sound();
}

#[test]
fn a_snapshot_contains_all_changes_and_moves_no_file() {
    let s = setting();
    s.repo.commit_file("gone", "g");
    s.repo.commit_file("mode", "m");
    let session = s.session("task-abcd");
    session.work.write(".gitignore", "*.o\n");
    session.work.write("staged", "staged");
    session.work.git(["add", "staged"]);
    session.work.write("staged", "changed after staging");
    session.work.write("README.md", "changed");
    session.work.write("dir/untracked", "new");
    session.work.write("junk.o", "ignored");
    session.work.write("intent", "later");
    session.work.git(["add", "-N", "intent"]);
    fs::remove_file(session.work.path().join("gone")).unwrap();
    let mode = session.work.path().join("mode");
    fs::set_permissions(&mode, fs::Permissions::from_mode(0o755)).unwrap();
    symlink("nowhere", session.work.path().join("link")).unwrap();
    let status = session.work.git(["status", "--porcelain"]);
    let files = tree(session.work.path());

    let taken = s.snapshot(&session);
    assert_eq!((taken.number, taken.omissions.len()), (Some(1), 0));
    let list = s.repo.git(["ls-tree", "-r", "--format=%(objectmode) %(path)", &taken.work]);
    let expected = "100644 .gitignore\n100644 README.md\n100644 dir/untracked\n100644 intent\n\
                    120000 link\n100755 mode\n100644 staged";
    assert_eq!(list, expected);
    assert_eq!(s.repo.show(&taken.work, "staged"), "changed after staging");
    assert_eq!(s.repo.show(&format!("{}^2", taken.work), "staged"), "staged");
    assert_eq!(s.repo.rev(&format!("{}^1", taken.work)), session.work.rev("HEAD"));
    assert_eq!(session.work.git(["status", "--porcelain"]), status);
    assert_eq!(tree(session.work.path()), files);
    s.repo.is_sound();

    assert_eq!(s.snapshot(&session).number, Some(1), "nothing changed since");
    session.work.write("README.md", "changed again");
    assert_eq!(s.snapshot(&session).number, Some(2));
}

#[test]
fn the_tree_of_a_snapshot_is_the_one_of_git_add() {
    let s = setting();
    for path in ["file", "d/e/one", "d/e/two", "d/three", "only/child", "mode", "x/y"] {
        s.repo.commit_file(path, path);
    }
    let session = s.session("task-abcd");
    let steps = [
        "echo new > untracked; mkdir -p d/new/deep; echo new > d/new/deep/file",
        "echo changed > d/e/one",
        "rm d/e/two",
        "rm -r only",
        "rm -r x; echo a file > x",
        "rm file; mkdir file; echo below > file/below",
        "chmod 755 mode; ln -s mode link",
        "git add -A",
        "git rm -q --cached d/three",
        "echo again > d/e/one; rm untracked",
        "git commit -qm Work; touch d/e/one",
        "rm x; mkdir x; echo y > x/y; git rm -rq --cached x; rm -r file; echo file > file",
        "git mv d moved",
        "git update-index --assume-unchanged mode; echo hidden >> mode",
        "git add -N file; rm -r moved/e",
        "git update-index --no-assume-unchanged mode; git checkout -qf HEAD~1; git clean -fdq",
    ];
    for step in steps {
        sh(&session.work, step);
        let taken = s.snapshot(&session);
        let tree = s.repo.rev(&format!("{}^{{tree}}", taken.work));
        let index = s.env.home().join("index");
        let expected = format!(
            "export GIT_INDEX_FILE='{}'; git read-tree --empty; git add -A; git write-tree",
            index.display()
        );
        let expected = sh(&session.work, &expected);
        assert_eq!(tree, expected.trim(), "after: {step}");
    }
}

#[test]
fn files_are_converted_as_by_git_add() {
    for (key, value) in [
        ("core.autocrlf", "false"),
        ("core.autocrlf", "input"),
        ("core.filemode", "false"),
        ("core.symlinks", "false"),
    ] {
        let s = setting();
        s.repo.git(["config", key, value]);
        s.repo.commit_file("mode", "m");
        s.repo.commit_file("run", "x");
        symlink("run", s.repo.path().join("was-link")).unwrap();
        s.repo.git(["add", "was-link"]);
        s.repo.git(["update-index", "--chmod=+x", "run"]);
        s.repo.git(["commit", "-qm", "executable"]);
        let attributes = "*.id ident\n*.txt text\n*.auto text=auto\n*.raw -text\n*.un !text\n[attr]own ident\n*.own own\n";
        s.repo.commit_file(".gitattributes", attributes);
        let session = s.session("task-abcd");
        for name in ["a.id", "b.txt", "c.auto", "d.raw", "e.un", "f", "g.own"] {
            session.work.write(name, "$Id$ one\ntwo\n");
            session.work.write(&format!("dos/{name}"), "$Id: old $ one\r\ntwo\r\n");
        }
        session.work.write("empty", "");
        sh(
            &session.work,
            "chmod 755 mode; echo changed >> mode; chmod 644 run; echo changed >> run",
        );
        sh(
            &session.work,
            "echo new > new; chmod 755 new; ln -s mode link; rm was-link; printf mode > was-link",
        );
        let taken = s.snapshot(&session);
        let index = s.env.home().join("index");
        let expected = format!(
            "export GIT_INDEX_FILE='{}'; git read-tree HEAD; git add -A; git write-tree",
            index.display()
        );
        let expected = sh(&session.work, &expected);
        let tree = s.repo.rev(&format!("{}^{{tree}}", taken.work));
        let list = || s.repo.git(["ls-tree", "-r", &tree]);
        assert_eq!(tree, expected.trim(), "{key} = {value}\n{}", list());
    }
}

#[test]
fn a_snapshot_writes_no_file_again_that_the_one_before_has() {
    let s = setting();
    let session = s.session("task-abcd");
    for n in 0..20 {
        session.work.write(&format!("file{n}"), n.to_string());
    }
    s.snapshot(&session);
    session.work.write("file3", "changed");
    let content = snapshot::read_worktree(
        &s.repository,
        &session.place,
        &s.home(&session),
        &SnapshotLimits::default(),
        &Leftover::default(),
    );
    let content = content.unwrap_or_else(|failure| panic!("{failure}"));
    let objects = content.scratch.repo.path().join("objects");
    let objects =
        tree(&objects).into_keys().filter(|path| !path.starts_with("info") && !path.ends_with('/'));
    let written: Vec<String> = objects.collect();
    assert_eq!(written.len(), 2, "the changed file and the tree: {written:?}");
}

#[test]
fn the_scratch_directory_of_a_running_command_is_no_leftover() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.write("file", "1");
    let limits = SnapshotLimits::default();
    let home = s.home(&session);
    let content = snapshot::read_worktree(
        &s.repository,
        &session.place,
        &home,
        &limits,
        &Leftover::default(),
    )
    .unwrap_or_else(|failure| panic!("{failure}"));
    let used = content.scratch.repo.path().to_owned();
    let killed = used.with_file_name("s-killed");
    fs::create_dir(&killed).unwrap();
    fs::write(killed.join("lock"), "").unwrap();
    let young = used.with_file_name("s-young");
    fs::create_dir(&young).unwrap();
    let old = SystemTime::now() - Duration::from_secs(7200);
    for directory in [&used, &killed] {
        fs::File::open(directory).unwrap().set_modified(old).unwrap();
    }
    let removed = import::remove_leftovers(&s.repository).unwrap();
    assert_eq!(removed, [format!("removed {}", killed.display())]);
    assert_eq!((used.exists(), young.exists()), (true, true));
    drop(content);
    assert!(!used.exists());
}

#[test]
fn the_last_twenty_snapshots_are_kept() {
    let s = setting();
    let session = s.session("task-abcd");
    for n in 0..23 {
        session.work.write("file", format!("{n}"));
        s.snapshot(&session);
    }
    let refs = s.repo.git(["for-each-ref", "--format=%(refname)", "refs/studio/snapshots"]);
    assert_eq!(refs.lines().count(), 20);
    let latest = snapshot::latest(&s.repository, &session.place.id).unwrap().unwrap();
    assert_eq!(s.repo.rev("refs/studio/snapshots/task-abcd/23"), latest);
}

#[test]
fn unusual_names_and_line_endings_are_kept() {
    let s = setting();
    s.repo.commit_file(".gitattributes", "*.txt text eol=crlf\n");
    let session = s.session("task-abcd");
    let odd = std::ffi::OsStr::from_bytes(b"not utf8 \xff \n name");
    fs::write(session.work.path().join(odd), "odd").unwrap();
    session.work.write("größe/a b", "x");
    session.work.write("dos.txt", "a\r\nb\r\n");
    let taken = s.snapshot(&session);
    let list = s.repo.git(["ls-tree", "-r", "-z", "--name-only", &taken.work]);
    assert!(list.contains("größe/a b\0"), "{list:?}");
    assert!(list.contains("not utf8 \u{fffd} \n name"), "{list:?}");
    let size = s.repo.git(["cat-file", "-s", &format!("{}:dos.txt", taken.work)]);
    assert_eq!(size, "4", "stored with plain line ends, as git would");
}

#[test]
fn large_files_too_many_files_and_nested_repositories_are_reported_and_excluded() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.write("large", vec![0u8; 2000]);
    session.work.write("fine", "x");
    let nested = testkit::repo::Repo::make(&session.work.path().join("vendor/nested"));
    nested.write("inside", "x");
    for (name, content) in [("HEAD", "ref: x"), ("config", ""), ("objects/x", "")] {
        session.work.write(&format!("disguised/{name}"), content);
    }
    let home = s.home(&session);
    let take = |limits: &SnapshotLimits| {
        snapshot::take(&s.repository, &session.place, &home, limits, now()).unwrap()
    };
    let limits = SnapshotLimits { file_bytes: 1000, ..SnapshotLimits::default() };
    let taken = take(&limits);
    let mut named: Vec<_> = taken.omissions.iter().map(|l| (l.path.as_str(), l.why)).collect();
    named.sort_by_key(|(path, _)| *path);
    let expected = [
        ("disguised", OmissionReason::Repository),
        ("large", OmissionReason::TooLarge),
        ("vendor/nested/", OmissionReason::Repository),
    ];
    assert_eq!(named, expected);
    assert_eq!(s.repo.git(["ls-tree", "-r", "--name-only", &taken.work]), "README.md\nfine");
    let failure = snapshot::refuse_omissions(&taken, session.work.path()).unwrap_err();
    assert!(failure.to_string().contains("large: larger than 10 MB"), "{failure}");

    let included =
        take(&SnapshotLimits { include: vec![PathBuf::from("large")], ..limits.clone() });
    assert!(included.omissions.iter().all(|left| left.path != "large"));
    let few = take(&SnapshotLimits { untracked: 1, ..SnapshotLimits::default() });
    assert!(few.omissions.iter().any(|left| left.why == OmissionReason::TooMany));
}

#[test]
fn g3s_working_files_are_excluded_and_project_skills_included() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.write(".g3/sessions/x/session.jsonl", "{}");
    session.work.write(".g3/skills/mine/SKILL.md", "skill");
    let taken = s.snapshot(&session);
    let list = s.repo.git(["ls-tree", "-r", "--name-only", &taken.work]);
    assert_eq!(list, ".g3/skills/mine/SKILL.md\nREADME.md");
}

#[test]
fn an_index_that_only_git_can_read_is_accepted() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.write("staged", "1");
    session.work.git(["add", "staged"]);
    session.work.git(["update-index", "--split-index"]);
    session.work.write("second", "2");
    session.work.git(["add", "second"]);
    let taken = s.snapshot(&session);
    assert_eq!(
        s.repo.git(["ls-tree", "-r", "--name-only", &taken.work]),
        "README.md\nsecond\nstaged"
    );
    fs::remove_file(session.place.git_dir.join("index")).unwrap();
    let taken = s.snapshot(&session);
    assert_eq!(
        s.repo.git(["ls-tree", "-r", "--name-only", &taken.work]),
        "README.md\nsecond\nstaged"
    );
}

#[test]
fn flags_that_hide_changes_from_git_are_ignored() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.git(["update-index", "--assume-unchanged", "README.md"]);
    session.work.write("README.md", "hidden change");
    let taken = s.snapshot(&session);
    assert_eq!(s.repo.show(&taken.work, "README.md"), "hidden change");
}

#[test]
fn a_merge_in_progress_is_snapshotted_unchanged() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("file", "ours");
    session.work.git(["checkout", "-q", "-b", "theirs", "HEAD~1"]);
    session.work.commit_file("file", "theirs");
    let (code, _, _) = session.work.try_git(["merge", "-q", "studio/task-abcd"]);
    assert_ne!(code, 0);
    let taken = s.snapshot(&session);
    assert!(s.repo.show(&taken.work, "file").contains("<<<<<<<"));
    assert_eq!(s.home(&session).operation.as_deref(), Some("merge"));
    s.repo.is_sound();
}
