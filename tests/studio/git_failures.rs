//! Full disks, read-only repositories, moved repositories, and an emptied trash.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base::failure::FailureKind;
use base::process::{Command, OutputLimits};
use studio_git::gc::{self, RetentionPolicy};
use studio_git::repo::Repository;
use studio_git::{discard, import, land, moved_repository, transaction, undo, worktree};
use testkit::env::{NOW, TestEnv, until};
use testkit::repo::{Repo, tree};

use crate::git_fixtures::{Session, Setting, now, setting};

/// A small separate file system. Unmounted on drop.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Creates and mounts the file system.
    fn mount(env: &TestEnv, megabytes: u64) -> SmallDisk {
        let (image, at) = (env.home().join("disk.img"), env.home().join("disk"));
        fs::create_dir(&at).expect("the home is writable");
        let file = fs::File::create(&image).expect("the home is writable");
        file.set_len(megabytes << 20).expect("a sparse file");
        let run = |program: &str, args: &[&Path]| {
            let output = Command::new(program, "/").args(args).output(OutputLimits::seconds(60));
            output.is_ok_and(|output| output.ok())
        };
        let made = run("mkfs.ext4", &["-qF".as_ref(), "-m".as_ref(), "0".as_ref(), &image]);
        assert!(made, "mkfs.ext4 cannot make a file system");
        let mounted = run("mount", &["-o".as_ref(), "loop".as_ref(), &image, &at]);
        assert!(mounted, "this user may not mount a loop device");
        SmallDisk(at)
    }

    /// Fills the file system, except for this many bytes.
    fn fill(&self, leave: u64) {
        use std::io::Write;
        let mut filler = fs::File::create(self.0.join("filler")).expect("it is writable");
        // Blocks are allocated late: only written and synced data counts.
        while filler.write_all(&[0; 65_536]).and_then(|()| filler.sync_data()).is_ok() {}
        let taken = filler.metadata().expect("it is open").len();
        filler.set_len(taken.saturating_sub(leave)).expect("it can shrink");
        filler.sync_all().expect("it is open");
    }

    fn free(&self) {
        fs::remove_file(self.0.join("filler")).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let job = Command::new("umount", "/").arg("-l").arg(&self.0);
        let _ = job.output(OutputLimits::seconds(60));
    }
}

/// Returns bytes that do not compress (xorshift).
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut x = seed + 88_172_645_463_325_252;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

fn setting_on(disk: &SmallDisk, env: TestEnv) -> Setting {
    let repo = Repo::make(&disk.0.join("repo"));
    for n in 0..20 {
        repo.write(&format!("big{n}"), noise(60_000, n));
    }
    repo.git(["add", "-A"]);
    repo.git(["commit", "-q", "-m", "big"]);
    let repository = Repository::discover(repo.path()).expect("a repository");
    Setting { env, repo, repository }
}

/// These tests need a mountable loop device.
mod needs_loop_device {
    use super::*;

    #[test]
    #[ignore = "needs a loop device that may be mounted"]
    fn a_full_disk_while_creating_a_worktree_leaves_no_files() {
        let env = TestEnv::new();
        let disk = SmallDisk::mount(&env, 24);
        let s = setting_on(&disk, env);
        s.session("first-abcd");
        let before = s.repo.everything();
        disk.fill(600_000);
        let order = s.order("task-abcd");
        let failure = worktree::create(&s.repository, &order).unwrap_err();
        let said = failure.to_string();
        assert!(said.contains("disk space") || said.contains("No space left"), "{failure}");
        disk.free();
        assert_eq!(s.repo.everything(), before);
        assert!(!order.session_repo(&s.repository).unwrap().git_dir.exists());
        s.session("task-abcd");
        s.repo.is_sound();
    }

    #[test]
    #[ignore = "needs a loop device that may be mounted"]
    fn a_full_disk_during_import_or_landing_changes_and_loses_nothing() {
        let env = TestEnv::new();
        let disk = SmallDisk::mount(&env, 32);
        let s = setting_on(&disk, env);
        let session = s.session("task-abcd");
        session.work.commit_file("large", noise(900_000, 77));
        let before = s.repo.everything();
        disk.fill(200_000);
        let failure = import::import(&s.repository, &session.place).unwrap_err();
        assert!(failure.to_string().contains("No space left"), "{failure}");
        assert_eq!(s.repo.everything(), before);
        disk.free();
        let ready = s.ready(&session, studio_git::merge::MergeStrategy::Squash);
        let before = s.repo.everything();
        disk.fill(300_000);
        let failure = land::accept(&s.repository, &ready).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Failed, "{failure}");
        disk.free();
        transaction::recover(&s.repository).unwrap();
        assert_eq!(s.repo.everything(), before);
        assert!(matches!(land::accept(&s.repository, &ready), Ok(land::LandResult::Landed { .. })));
        assert_eq!(s.repo.git(["status", "--porcelain"]), "");
        s.repo.is_sound();
    }

    #[test]
    #[ignore = "needs a loop device that may be mounted"]
    fn a_read_only_repository_is_reported() {
        let env = TestEnv::new();
        let disk = SmallDisk::mount(&env, 24);
        let s = setting_on(&disk, env);
        let session = s.session("task-abcd");
        session.work.write("README.md", "changed");
        let remount = |how: &str| {
            // The kernel frees the rules of a confined thread, and the files in them, with a delay.
            until("the disk to be mounted again", || {
                let job = Command::new("mount", "/").args(["-o", how]).arg(&disk.0);
                job.output(OutputLimits::seconds(60)).unwrap().ok().then_some(())
            });
        };
        remount("remount,ro");
        let order = s.order("other-abcd");
        for failure in [
            worktree::create(&s.repository, &order).unwrap_err(),
            discard::discard(&s.repository, std::slice::from_ref(&session.place), NOW).unwrap_err(),
        ] {
            assert!(failure.to_string().contains("Read-only file system"), "{failure}");
        }
        remount("remount,rw");
        assert_eq!(session.work.read("README.md"), "changed");
        s.session("other-abcd");
        s.repo.is_sound();
    }
}

/// Moves a repository and the directory of its worktrees.
fn move_with_worktrees(repo: &Repo, there: &Path) {
    fs::rename(repo.path(), there).expect("it is ours");
    fs::rename(repo.worktrees(), Repo::at(there).worktrees()).expect("it is ours");
}

#[test]
fn worktrees_that_did_not_move_with_the_repository_are_found_restored_and_emptied() {
    let s = setting();
    let (dropped, live) = (s.session("dropped-b"), s.session("live-d"));
    dropped.work.write("README.md", "changed");
    live.work.write("ignored", "x");
    let stayed = s.repo.worktrees();
    discard::discard(&s.repository, std::slice::from_ref(&dropped.place), NOW).unwrap();
    let there = s.env.home().join("moved away");
    fs::rename(s.repo.path(), &there).unwrap();
    let repository = Repository::discover(&there).unwrap();
    let moved = Setting { repo: Repo::at(&there), repository, ..s };
    let now_there = moved.session("later-e");
    assert_eq!(now_there.work.path().parent().unwrap(), moved.repo.worktrees());

    let place = moved_repository::current_paths(&moved.repository.common_dir, &live.place);
    assert_eq!(place.worktree, stayed.join("live-d"));
    moved_repository::repair(&moved.repository, &place).unwrap();
    let live = Session { work: Repo::at(&place.worktree), place };
    assert_eq!(live.work.git(["status", "--porcelain"]), "?? ignored");
    undo::undo(&moved.repository, None, NOW).unwrap();
    assert_eq!(Repo::at(&stayed.join("dropped-b")).read("README.md"), "changed");
    let operation =
        discard::discard(&moved.repository, std::slice::from_ref(&live.place), NOW).unwrap();
    let after = now() + jiff::SignedDuration::from_hours(24 * 8);
    let freed = gc::empty_trash(&moved.repository, RetentionPolicy::default(), after).unwrap();
    assert!(freed.operations.contains(&operation));
    let left: Vec<String> = tree(&stayed).into_keys().collect();
    assert!(!left.iter().any(|path| path.contains(&operation)), "{left:?}");

    let copy = moved.env.home().join("copy");
    let job = Command::new("cp", "/").arg("-a").arg(moved.repo.path()).arg(&copy);
    assert!(job.output(OutputLimits::seconds(60)).unwrap().ok());
    let place = moved_repository::current_paths(
        &copy.canonicalize().unwrap().join(".git"),
        &now_there.place,
    );
    assert_eq!(place.worktree, Repo::at(&copy).worktrees().join("later-e"), "not the original's");
}

#[test]
fn a_moved_repository_finds_its_sessions() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.commit_file("new", "x");
    let there = s.env.home().join("moved away");
    move_with_worktrees(&s.repo, &there);
    let repo = Repo::at(&there);
    let repository = Repository::discover(&there).unwrap();
    let place = moved_repository::current_paths(&repository.common_dir, &session.place);
    assert_eq!(place.worktree, Repo::at(&there).worktrees().join("task-abcd"));
    let did = moved_repository::repair(&repository, &place).unwrap();
    assert_eq!(did.len(), 3, "{did:?}");
    assert!(moved_repository::repair(&repository, &place).unwrap().is_empty());
    assert!(repo.git(["worktree", "list"]).contains("moved away.worktrees/task-abcd"));
    let status = s.env.run("git", &place.worktree, ["status", "--porcelain"]);
    assert_eq!((status.exits(0).err.as_str(), status.out.as_str()), ("", ""));
    let session = Session { work: Repo::at(&place.worktree), place };
    let s = Setting { repo, repository, ..s };
    assert!(matches!(s.accept(&session), Ok(land::LandResult::Landed { .. })));
    assert_eq!(s.repo.read("new"), "x");
}

#[test]
fn operations_from_before_a_move_are_undone_and_emptied_at_the_new_path() {
    let s = setting();
    let (landed, dropped, old) =
        (s.session("landed-a"), s.session("dropped-b"), s.session("old-c"));
    let live = s.session("live-d");
    landed.work.write("new", "x");
    dropped.work.write("README.md", "changed");
    s.snapshot(&dropped);
    let place = |session: &Session| std::slice::from_ref(&session.place).to_vec();
    discard::discard(&s.repository, &place(&old), NOW).unwrap();
    discard::discard(&s.repository, &place(&dropped), NOW).unwrap();
    s.accept(&landed).unwrap();
    let files = |worktree: &Path| {
        let mut files = tree(worktree);
        files.remove(".git").expect("it leads to the git directory, which moves");
        files
    };
    let before = files(live.work.path());
    let there = s.env.home().join("moved away");
    move_with_worktrees(&s.repo, &there);
    fs::create_dir(s.repo.path()).unwrap();
    let (repo, repository) = (Repo::at(&there), Repository::discover(&there).unwrap());

    undo::undo(&repository, Some("op3"), NOW).unwrap_or_else(|failure| panic!("{failure}"));
    undo::undo(&repository, Some("op2"), NOW).unwrap_or_else(|failure| panic!("{failure}"));
    let live = moved_repository::current_paths(&repository.common_dir, &live.place);
    let operation = discard::discard(&repository, std::slice::from_ref(&live), NOW).unwrap();

    let at = |name: &str| Repo::at(&Repo::at(&there).worktrees().join(name));
    assert_eq!(
        (at("landed-a").read("new"), at("dropped-b").read("README.md")),
        ("x".into(), "changed".into())
    );
    assert!(!there.join("new").exists());
    let list = repo.git(["worktree", "list", "--porcelain"]);
    let wanted = ["moved away.worktrees/dropped-b\n", "moved away.worktrees/landed-a\n"];
    assert!(wanted.iter().all(|name| list.contains(name)), "{list}");
    assert_eq!(list.matches("worktree ").count(), 3, "no stale registration stays: {list}");
    undo::undo(&repository, Some(&operation), NOW).unwrap();
    assert_eq!(files(&live.worktree), before);
    assert!(repo.git(["worktree", "list"]).contains("moved away.worktrees/live-d"));
    let after = now() + jiff::SignedDuration::from_hours(24 * 8);
    gc::empty_trash(&repository, RetentionPolicy::default(), after).unwrap();
    assert!(
        !repo.worktrees().join(".trash/op1").exists()
            && !there.join(".git/studio/trash/op1").exists()
    );
    assert_eq!(fs::read_dir(s.repo.path()).unwrap().count(), 0, "nothing is made at the old place");
    repo.is_sound();
}

#[test]
fn a_crash_before_a_move_is_recovered_at_the_new_path() {
    let s = setting();
    let session = s.session("task-abcd");
    session.work.write("README.md", "changed");
    let operation =
        discard::discard(&s.repository, std::slice::from_ref(&session.place), NOW).unwrap();
    let log = s.repo.path().join(".git/studio/operations.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let (intent, _) = text.trim_end().rsplit_once('\n').unwrap();
    fs::write(&log, format!("{intent}\n")).unwrap();
    fs::rename(
        s.repo.worktrees().join(".trash").join(&operation).join("task-abcd"),
        session.work.path(),
    )
    .unwrap();
    let there = s.env.home().join("moved away");
    move_with_worktrees(&s.repo, &there);
    let repository = Repository::discover(&there).unwrap();

    transaction::recover(&repository).unwrap_or_else(|failure| panic!("{failure}"));

    let worktree = Repo::at(&there).worktrees().join("task-abcd");
    assert!(!worktree.exists());
    undo::undo(&repository, None, NOW).unwrap();
    assert_eq!(Repo::at(&worktree).read("README.md"), "changed");
}

#[test]
fn user_worktrees_on_a_session_branch_and_repository_copies_are_unchanged() {
    let s = setting();
    let session = s.session("task-abcd");
    fs::rename(session.work.path(), s.env.home().join("aside")).unwrap();
    s.repo.git(["worktree", "prune"]);
    s.repo.git(["worktree", "add", "-q", "../look", "studio/task-abcd"]);
    fs::rename(s.env.home().join("aside"), session.work.path()).unwrap();
    discard::discard(&s.repository, std::slice::from_ref(&session.place), NOW).unwrap();
    assert!(s.repo.path().join(".git/worktrees/look/HEAD").exists(), "it is the user's");

    let s = setting();
    s.repo.git(["worktree", "add", "-q", "-b", "linked", "../linked"]);
    let copy = s.env.home().join("copy");
    let job = Command::new("cp", "/").arg("-a").arg(s.repo.path()).arg(&copy);
    assert!(job.output(OutputLimits::seconds(60)).unwrap().ok());
    let repository = Repository::discover(&copy).unwrap();
    let all = studio_git::checkout::all(&repository).unwrap();
    assert_eq!(all.len(), 1, "the original's worktree is none of the copy's: {all:?}");
}

#[test]
fn changes_of_git_worktree_repair_are_reverted() {
    let s = setting();
    let session = s.session("task-abcd");
    s.repo.git(["worktree", "repair"]);
    assert!(import::import(&s.repository, &session.place).is_err());
    moved_repository::repair(&s.repository, &session.place).unwrap();
    s.home(&session);
    assert_eq!(session.work.git(["status", "--porcelain"]), "");
}

#[test]
fn only_old_trash_is_emptied_and_an_undo_reports_it() {
    let s = setting();
    let (old, live) = (s.session("old-abcd"), s.session("live-abcd"));
    let place = |session: &Session| session.place.clone();
    old.work.write("deep/er/file", "x");
    fs::set_permissions(old.work.path().join("deep/er"), fs::Permissions::from_mode(0o555))
        .unwrap();
    s.snapshot(&old);
    let operation = discard::discard(&s.repository, &[place(&old)], NOW).unwrap();
    let second = s.session("second-abcd");
    let later = "2026-01-08T10:00:00Z";
    discard::discard(&s.repository, &[place(&second)], later).unwrap();
    let after = |days: i64| now() + jiff::SignedDuration::from_hours(24 * days);
    let none = gc::empty_trash(&s.repository, RetentionPolicy::default(), after(6)).unwrap();
    assert_eq!(none.operations, Vec::<String>::new());
    let planned = gc::preview(&s.repository, RetentionPolicy::default(), after(8)).unwrap();
    assert_eq!(planned.operations, std::slice::from_ref(&operation));
    let freed = gc::empty_trash(&s.repository, RetentionPolicy::default(), after(8)).unwrap();
    assert_eq!(freed.operations, std::slice::from_ref(&operation));
    assert!(freed.bytes > 0);
    let refs = s.repo.git(["for-each-ref", "--format=%(refname)"]);
    assert!(!refs.contains("old-abcd") && !refs.contains(&format!("kept/{operation}/")), "{refs}");
    assert!(refs.contains("refs/studio/pins/live-abcd"), "{refs}");
    let gone = undo::undo(&s.repository, Some(&operation), NOW).unwrap_err();
    assert!(gone.to_string().contains("deleted by"), "{gone}");
    assert_eq!(live.work.read("README.md"), "# A repository\n");
    undo::undo(&s.repository, None, NOW).unwrap();
    assert_eq!(second.work.git(["status", "--porcelain"]), "");
    discard::discard(&s.repository, &[place(&second)], later).unwrap();
    let tight = RetentionPolicy { bytes: 1000, ..RetentionPolicy::default() };
    assert_eq!(gc::empty_trash(&s.repository, tight, after(6)).unwrap().operations.len(), 1);
    s.repo.is_sound();
}

#[test]
fn worktrees_at_custom_paths_follow_a_move_and_belong_to_the_original_of_a_copy() {
    let s = setting();
    let template = format!("{}/at/{{id}}", s.env.home().display());
    let order = studio_git::worktree::WorktreeSpec {
        worktree: studio_git::names::WorktreeTemplate::parse(&template).unwrap(),
        ..s.order("task-abcd")
    };
    let session = s.session_of(&order);
    session.work.write("new", "x");
    let copy = s.env.home().join("deeper/copy");
    fs::create_dir(s.env.home().join("deeper")).unwrap();
    let job = Command::new("cp", "/").arg("-a").arg(s.repo.path()).arg(&copy);
    assert!(job.output(OutputLimits::seconds(60)).unwrap().ok());
    let repository = Repository::discover(&copy).unwrap();
    let place = moved_repository::current_paths(&repository.common_dir, &session.place);
    for failure in [
        discard::discard(&repository, std::slice::from_ref(&place), NOW).unwrap_err(),
        import::import(&repository, &place).unwrap_err(),
    ] {
        assert!(failure.to_string().contains("another repository"), "{failure}");
    }
    assert!(moved_repository::repair(&repository, &place).unwrap().is_empty());
    assert_eq!(session.work.git(["status", "--porcelain"]), "?? new");
    fs::remove_dir_all(&copy).unwrap();

    fs::rename(s.repo.path(), &copy).unwrap();
    let repository = Repository::discover(&copy).unwrap();
    let failure = import::import(&repository, &place).unwrap_err();
    assert!(failure.to_string().contains("studio doctor"), "{failure}");
    moved_repository::repair(&repository, &place).unwrap();
    assert_eq!(session.work.git(["status", "--porcelain"]), "?? new");
    let s = Setting { repo: Repo::at(&copy), repository, ..s };
    let session = Session { work: Repo::at(&place.worktree), place };
    assert!(matches!(s.accept(&session), Ok(land::LandResult::Landed { .. })));
    assert_eq!(s.repo.read("new"), "x");
    undo::undo(&s.repository, None, NOW).unwrap();
    assert_eq!(session.work.git(["status", "--porcelain"]), "?? new");
}
