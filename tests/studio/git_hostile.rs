//! Attacks of an agent through its own worktree and git directory, and their effects outside.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::failure::FailureKind;
use rustix::fs::{CWD, Mode, RenameFlags, mkfifoat, renameat_with};
use studio_git::import::tampering_warning;
use studio_git::merge::{self, MergeStrategy};
use studio_git::names::BranchName;
use studio_git::snapshot::SnapshotLimits;
use studio_git::{discard, land, landing_history, snapshot, undo};
use testkit::env::NOW;
use testkit::repo::Repo;

use crate::git_fixtures::{Session, Setting, now, setting};

/// A thread that exchanges two paths until it is dropped.
struct Racer {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Racer {
    fn exchanging(one: &Path, other: &Path) -> Racer {
        let stop = Arc::new(AtomicBool::new(false));
        let (ended, one, other) = (Arc::clone(&stop), one.to_owned(), other.to_owned());
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let _ = renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE);
            }
        });
        Racer { stop, thread: Some(thread) }
    }
}

impl Drop for Racer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn pipe(path: &Path) {
    let _ = fs::remove_file(path);
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).expect("its directory is writable");
}

fn has_object(repo: &Repo, content: &str) -> bool {
    let file = repo.path().parent().expect("it lies in the home").join("secret");
    fs::write(&file, content).expect("the home is writable");
    let id = repo.git(["hash-object", &file.display().to_string()]);
    repo.try_git(["cat-file", "-e", &id]).0 == 0
}

#[test]
fn a_directory_that_becomes_a_symlink_exposes_no_secret() {
    let s = setting();
    let secrets = s.env.home().join(".ssh");
    fs::create_dir_all(&secrets).unwrap();
    let secret = "the user's own key, in nobody's repository\n";
    fs::write(secrets.join("id"), secret).unwrap();
    let session = s.session("task-abcd");
    session.work.commit_file("tracked/id", "mine\n");
    let (dir, link) = (session.work.path().join("tracked"), s.env.home().join("link"));
    symlink(&secrets, &link).unwrap();
    let home = s.home(&session);

    let racer = Racer::exchanging(&dir, &link);
    let control = (0..1_000_000)
        .any(|_| fs::read_to_string(dir.join("id")).is_ok_and(|content| content == secret));
    assert!(control, "reading by name would have met the secret");
    let mut taken = 0;
    for n in 0..30 {
        let _ = fs::write(s.env.home().join("new"), format!("{n}"));
        let _ = fs::rename(s.env.home().join("new"), session.work.path().join("other"));
        let limits = SnapshotLimits::default();
        let snapshot = snapshot::take(&s.repository, &session.place, &home, &limits, now());
        taken += usize::from(snapshot.is_ok());
        assert!(!has_object(&s.repo, secret), "snapshot {n} brought the secret in");
    }
    drop(racer);
    assert!(taken > 0, "no snapshot was taken at all");
}

#[test]
fn pipes_in_place_of_git_files_block_no_command() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("new", "work");
    let broken = s.session("broken-abcd");
    pipe(&broken.place.git_dir.join("index"));
    pipe(&broken.place.git_dir.join("objects/pack/pack-1.idx"));
    fs::create_dir_all(broken.place.git_dir.join("objects/ab")).unwrap();
    pipe(&broken.place.git_dir.join("objects/ab").join("c".repeat(38)));
    assert!(!s.snapshot(&broken).is_dirty());
    pipe(&broken.work.path().join(".git"));

    s.accept(&session).unwrap_or_else(|failure| panic!("{failure}"));
    let refused = studio_git::import::import(&s.repository, &broken.place);
    assert_eq!(refused.unwrap_err().kind, FailureKind::Refused);
    let dropped = discard::discard(&s.repository, std::slice::from_ref(&broken.place), NOW);
    let operation = dropped.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(!broken.work.path().exists());
    undo::undo(&s.repository, Some(&operation), NOW).unwrap_or_else(|why| panic!("{why}"));
    assert!(broken.work.path().exists());
}

#[test]
fn an_endless_index_is_replaced_by_that_of_head() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.write("new", "work");
    let index = fs::File::create(session.place.git_dir.join("index")).unwrap();
    index.set_len(1 << 42).unwrap();
    let taken = s.snapshot(&session);
    assert_eq!(s.repo.git(["ls-tree", "-r", "--name-only", &taken.work]), "README.md\nnew");
}

/// Returns a pattern that takes a matcher years, and a name that almost matches it.
fn endless(s: &Setting) -> (Session, String) {
    let session = s.session("task-abcd");
    session.work.write(&format!("{}c", "a".repeat(120)), "work");
    (session, format!("{}b", "*a".repeat(60)))
}

#[test]
fn an_expensive_ignore_pattern_does_not_block_a_snapshot() {
    let s = setting();
    let (session, pattern) = endless(&s);
    session.work.write(".gitignore", format!("{pattern}\n"));
    let taken = s.snapshot(&session);
    assert_eq!(s.repo.git(["ls-tree", "-r", "--name-only", &taken.work]).lines().count(), 3);
}

#[test]
fn an_expensive_attributes_pattern_is_reported() {
    let s = setting();
    let (session, pattern) = endless(&s);
    session.work.write(".gitattributes", format!("*.txt text\n{pattern} text\n"));
    let home = s.home(&session);
    let limits = SnapshotLimits::default();
    let failure = snapshot::take(&s.repository, &session.place, &home, &limits, now()).unwrap_err();
    assert!(failure.full_text().contains(".gitattributes:2:"), "{}", failure.full_text());
}

#[test]
fn a_landing_deletes_no_file_behind_a_symlink_of_the_user() {
    let s = setting();
    s.repo.commit_file("dir/file", "content\n");
    let session = s.session("task-abcd");
    fs::remove_file(session.work.path().join("dir/file")).unwrap();
    let outside = s.env.home().join("elsewhere");
    fs::rename(s.repo.path().join("dir"), &outside).unwrap();
    symlink(&outside, s.repo.path().join("dir")).unwrap();
    let order = s.ready(&session, MergeStrategy::Squash);
    let before = s.repo.everything();
    let failure = land::accept(&s.repository, &order).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused);
    assert!(failure.full_text().contains("dir: not a directory"), "{}", failure.full_text());
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "content\n");
    assert_eq!(s.repo.everything(), before);

    fs::remove_file(s.repo.path().join("dir")).unwrap();
    fs::rename(&outside, s.repo.path().join("dir")).unwrap();
    land::accept(&s.repository, &order).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(!s.repo.path().join("dir/file").exists(), "without the symlink it lands");
}

#[test]
fn an_object_with_a_wrong_id_is_not_imported() {
    for forged in ["nothing", "blob", "commit"] {
        let s = setting();
        let session = s.session("task-abcd");
        session.work.commit_file("file", "honest\n");
        let honest = match forged {
            "commit" => session.work.rev("HEAD"),
            _ => session.work.rev("HEAD:file"),
        };
        session.work.commit_file("other", "other\n");
        let evil = session.work.rev(if forged == "commit" { "HEAD" } else { "HEAD:other" });
        let tip = s.repo.rev("refs/heads/studio/task-abcd");
        if forged == "nothing" {
            assert_eq!(s.home(&session).head, session.work.rev("HEAD"), "it comes home unforged");
            continue;
        }
        let objects = session.place.git_dir.join("objects");
        let loose = |id: &str| objects.join(&id[..2]).join(&id[2..]);
        fs::remove_file(loose(&honest)).unwrap();
        fs::copy(loose(&evil), loose(&honest)).unwrap();
        if forged == "commit" {
            let branch = session.place.git_dir.join("refs/heads/studio/task-abcd");
            fs::write(branch, format!("{honest}\n")).unwrap();
        }
        let home = studio_git::import::import(&s.repository, &session.place);
        assert!(home.is_err(), "a forged {forged} came home");
        assert_eq!(s.repo.rev("refs/heads/studio/task-abcd"), tip);
        s.repo.git(["gc", "-q"]);
        s.repo.is_sound();
    }
}

#[test]
fn staged_objects_and_names_of_an_agent_are_verified_in_snapshots() {
    for planted in ["git~1/hooks", ".gitmodules.d", "forged", "honest"] {
        let s = setting();
        let session = s.session("task-abcd");
        session.work.write("file", "honest\n");
        session.work.git(["add", "file"]);
        let blob = session.work.rev(":file");
        match planted {
            "honest" => {}
            "forged" => {
                session.work.write("other", "other\n");
                session.work.git(["add", "other"]);
                let other = session.work.rev(":other");
                let objects = session.place.git_dir.join("objects");
                let loose = |id: &str| objects.join(&id[..2]).join(&id[2..]);
                fs::remove_file(loose(&blob)).unwrap();
                fs::copy(loose(&other), loose(&blob)).unwrap();
            }
            name => {
                let entry = format!("100644,{blob},{name}");
                let setting = "core.protectNTFS=false";
                session.work.git(["-c", setting, "update-index", "--add", "--cacheinfo", &entry]);
            }
        }
        let imported = s.home(&session);
        let taken = snapshot::take(
            &s.repository,
            &session.place,
            &imported,
            &SnapshotLimits::default(),
            now(),
        );
        let is_usual = matches!(planted, ".gitmodules.d" | "honest");
        assert_eq!(taken.is_ok(), is_usual, "{planted}: {taken:?}");
        s.repo.git(["gc", "-q", "--prune=now"]);
        s.repo.is_sound();
    }
}

#[test]
fn changes_of_a_session_git_directory_are_reported_until_restored() {
    let s = setting();
    let session = s.session("task-abcd");
    let told = || tampering_warning(&session.place);
    assert_eq!(told(), None);
    session.work.git(["config", "core.fsmonitor", "/evil"]);
    let git_dir = &session.place.git_dir;
    fs::write(git_dir.join("hooks/post-checkout"), "#!/bin/sh\n").unwrap();
    assert_eq!(told().as_deref(), Some("the agent changed config, hooks in its git directory"));
    s.home(&session);
    assert_eq!(told(), None, "put back when the work came home");
    fs::write(git_dir.join("commondir"), "/elsewhere\n").unwrap();
    assert!(told().unwrap().contains("commondir"));
    s.home(&session);
    fs::write(git_dir.join("info/attributes"), "* filter=evil\n").unwrap();
    assert!(told().unwrap().contains("info/attributes"));
    fs::write(session.work.path().join(".git"), "gitdir: /elsewhere\n").unwrap();
    assert!(told().unwrap().contains(".git was changed"));
}

#[test]
fn attributes_that_an_agent_rewrites_in_place_are_reported() {
    let s = setting();
    s.repo.write(".git/info/attributes", "* text=auto\n");
    let session = s.session("task-abcd");
    assert_eq!(tampering_warning(&session.place), None);
    fs::write(session.place.git_dir.join("info/attributes"), "* filter=evil\n").unwrap();
    let warning = tampering_warning(&session.place).unwrap();
    assert_eq!(warning, "the agent changed info/attributes in its git directory");
}

#[test]
fn requirements_in_commits_of_an_agent_are_ignored() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.write("new", "work");
    session.work.git(["add", "new"]);
    session.work.git(["commit", "-qm", "Work\n\nRequirement: R1\nRequirement: R9"]);
    let mut order = s.ready(&session, MergeStrategy::Ff);
    order.receipt = Some("{\"requirements\":[\"R1\"],\"checks\":[]}".to_owned());
    land::accept(&s.repository, &order).unwrap_or_else(|failure| panic!("{failure}"));
    let landed = landing_history::read(&s.repository, "main", None).unwrap();
    assert_eq!(landed.len(), 1);
    assert_eq!(landed[0].requirements, ["R1"]);
}

/// Commits a tree whose files never existed, on top of the session's HEAD.
fn commit_tree(session: &Session, entries: &str) {
    let tree = mktree(session, entries);
    let commit = session.work.git(["commit-tree", "-p", "HEAD", "-m", "odd", &tree]);
    session.work.git(["update-ref", "HEAD", &commit]);
}

fn mktree(session: &Session, entries: &str) -> String {
    let job = session.work.job().arg("mktree").input(entries.as_bytes());
    let output = job.output(base::process::OutputLimits::seconds(60)).expect("git runs");
    assert!(output.ok(), "{}", output.error_text());
    output.text()
}

#[test]
fn work_that_cannot_be_checked_out_is_refused_with_the_reason() {
    let s = setting();
    let main = BranchName::parse("main").unwrap();
    let prepare = |session: &Session, strategy| {
        let snapshot = s.snapshot(session);
        merge::prepare(&s.repository, &session.place, &snapshot, &main, strategy, now())
    };
    let long = s.session("long-abcd");
    let blob = long.work.rev("HEAD:README.md");
    commit_tree(&long, &format!("100644 blob {blob}\t{}\n", "d".repeat(4000)));
    let refused = prepare(&long, MergeStrategy::Squash).unwrap_err();
    assert_eq!(refused.kind, FailureKind::Refused);
    assert!(
        refused.full_text().contains("has 4000 bytes; the most is 255"),
        "{}",
        refused.full_text()
    );

    for (levels, fits) in [(2, true), (9, false)] {
        let session = s.session(if fits { "small-abcd" } else { "bomb-abcd" });
        let level = |kind: &str, id: &str| -> String {
            (0..10).map(|n| format!("{kind} {id}\t{n}\n")).collect()
        };
        let mut entries = level("100644 blob", &blob);
        for _ in 1..levels {
            entries = level("040000 tree", &mktree(&session, &entries));
        }
        commit_tree(&session, &entries);
        let prepared = prepare(&session, MergeStrategy::Rebase);
        match fits {
            true => assert!(prepared.is_ok(), "a hundred files are no bomb"),
            false => {
                let refused = prepared.unwrap_err().full_text();
                assert!(refused.contains("expands to 1000000000 files"), "{refused}");
            }
        }
    }
}

#[test]
fn an_expensive_pattern_does_not_land() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("dir/.gitignore", format!("*.o\n{}b\n", "*a".repeat(60)));
    let order = s.ready(&session, MergeStrategy::Squash);
    let refused = land::preflight(&s.repository, &order.candidate).unwrap_err();
    assert_eq!(refused.kind, FailureKind::Refused);
    assert!(refused.full_text().contains("dir/.gitignore:2"), "{}", refused.full_text());
}
