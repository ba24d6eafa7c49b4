//! kill -9 at every durable step of every git operation: afterwards recovery and a second try lead
//! to the same state as an uninterrupted run, and no work is lost.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use base::failure::FailureKind;
use base::process::{Command, OutputLimits, Stream};
use studio_git::check_leftovers::WorkBeforeChecks;
use studio_git::move_worktree::Relocation;
use studio_git::names::WorktreeTemplate;
use studio_git::recreate_worktree::Recreated;
use studio_git::repo::Repository;
use studio_git::session_repo::SessionRepo;
use studio_git::{
    check_leftovers, discard, import, land, merge, move_worktree, moved_repository,
    recreate_worktree, snapshot, transaction, undo, worktree,
};
use testkit::env::NOW;
use testkit::repo::{Repo, tree};

use crate::git_fixtures::{Session, Setting, now, order, setting};

/// The variables that tell the child process what to do.
const ACT: &str = "GIT_CRASH_ACT";
const REPO: &str = "GIT_CRASH_REPO";

/// A session up to the operation that is interrupted.
struct Scene {
    s: Setting,
    session: Session,
}

/// Creates a session with a commit, a change and untracked files, and uncommitted changes of the
/// user.
fn scene() -> Scene {
    let s = setting();
    s.repo.commit_file("file", "old\n");
    s.repo.commit_file("gone", "x\n");
    s.repo.commit_file("other", "o\n");
    let session = s.session("task-abcd");
    s.repo.commit_file("meanwhile", "m\n");
    s.repo.write("other", "mine\n");
    s.repo.write("staged", "mine\n");
    s.repo.git(["add", "staged"]);
    session.work.commit_file("dir/new", "new\n");
    session.work.write("file", "changed\n");
    session.work.write("sub/untracked", "u\n");
    fs::remove_file(session.work.path().join("gone")).expect("the worktree is writable");
    Scene { s, session }
}

fn act(name: &str, repository: &Repository) {
    let order = order(repository, if name == "create" { "task-new" } else { "task-abcd" });
    let mut place = order.session_repo(repository).expect("it works in a test");
    place.base = repository.base(Some("main~1")).expect("it works in a test").commit;
    let s = Setting {
        env: testkit::env::TestEnv::new(),
        repo: Repo::at(repository.main_checkout.as_deref().expect("it works in a test")),
        repository: repository.clone(),
    };
    let session = Session { work: Repo::at(&place.worktree), place };
    match name {
        "create" => drop(worktree::create(repository, &order).expect("it works in a test")),
        "import" => drop(s.home(&session)),
        "snapshot" => drop(s.snapshot(&session)),
        "accept" => drop(s.accept(&session).expect("it works in a test")),
        "discard" => {
            drop(discard::discard(repository, &[session.place], NOW).expect("it works in a test"))
        }
        "remake" => {
            let remade = recreate_worktree::recreate_if_missing(repository, &session.place)
                .expect("it works");
            assert_eq!(remade, Recreated::Yes { note: None });
        }
        "checks" => {
            let work = s.snapshot(&session).work;
            session.work.write("file", "rewritten by a check\n");
            let before = WorkBeforeChecks { work: &work, omitted: &[] };
            check_leftovers::record(repository, &session.place, before, now())
                .expect("it works in a test");
        }
        "mend" => {
            let place = SessionRepo { worktree: apart(&session.work), ..session.place };
            moved_repository::repair(repository, &place).expect("it works in a test");
        }
        "relocate" => {
            let to = session.place.worktree.clone();
            let place = SessionRepo { worktree: inside(&s.repo), ..session.place };
            let wanted = [Relocation { session_repo: place, new_worktree: to }];
            drop(move_worktree::relocate(repository, &wanted, NOW).expect("it works in a test"));
        }
        "undo" => drop(undo::undo(repository, None, NOW).expect("it works in a test")),
        other => panic!("{other}?"),
    }
}

#[test]
#[ignore = "a process of the crash tests"]
fn child() {
    let (Ok(name), Ok(repo)) = (std::env::var(ACT), std::env::var(REPO)) else {
        panic!("{ACT} and {REPO} are not set");
    };
    act(&name, &Repository::discover(Path::new(&repo)).expect("it works in a test"));
}

/// Returns the process of an operation, which writes its durable steps to a file.
fn operation(scene: &Scene, name: &str, steps: &Path) -> Command {
    Command::new(std::env::current_exe().expect("it works in a test"), "/")
        .args(["--ignored", "--exact", "git_crash::child", "--nocapture"])
        .env(ACT, name)
        .env(REPO, scene.s.repo.path())
        .env("G3_TEST_STEPS", steps)
}

/// Runs an operation in a separate process; returns its exit code and its durable steps.
fn run(scene: &Scene, name: &str, kill_at: Option<&str>) -> (i32, Vec<String>) {
    let steps = scene.s.env.home().join("steps");
    let _ = fs::remove_file(&steps);
    let mut job = operation(scene, name, &steps);
    if let Some(at) = kill_at {
        job = job.env("G3_TEST_KILL_AT", at);
    }
    let output = job.output(OutputLimits::seconds(120)).expect("it works in a test");
    if kill_at.is_none() {
        assert!(output.ok(), "{}\n{}", output.text(), output.error_text());
    }
    let passed = fs::read_to_string(&steps).unwrap_or_default();
    (output.code(), passed.lines().map(str::to_owned).collect())
}

/// Returns the final state for comparison. Kept refs and the log are named after operations, whose
/// number depends on the number of attempts, so they are excluded.
fn state(scene: &Scene) -> BTreeMap<String, String> {
    let repo = &scene.s.repo;
    let mut all = repo.everything();
    let refs = repo.git(["for-each-ref", "--format=%(refname) %(objectname)"]);
    let refs: Vec<&str> = refs.lines().filter(|line| !line.contains("refs/studio/kept/")).collect();
    all.insert("<refs>".into(), refs.join("\n"));
    all.insert("<status>".into(), repo.git(["status", "--porcelain"]));
    all.insert("<worktrees>".into(), repo.git(["worktree", "list", "--porcelain"]));
    for id in ["task-abcd", "task-new"] {
        let path = repo.worktrees().join(id);
        if path.is_dir() {
            let files = tree(&path);
            all.extend(files.into_iter().map(|(name, text)| (format!("{id}/{name}"), text)));
            all.insert(format!("<{id}>"), Repo::at(&path).git(["status", "--porcelain"]));
        }
    }
    all
}

/// Asserts that no remains of a killed process exist.
fn is_tidy(scene: &Scene, at: &str) {
    let git = scene.s.repo.path().join(".git");
    for name in fs::read_dir(&git).expect("it works in a test").flatten() {
        let name = name.file_name().to_string_lossy().into_owned();
        assert!(name == "index" || !name.starts_with("index"), "{at}: {name} is left");
    }
    import::remove_leftovers(&scene.s.repository).expect("it works in a test");
    let keeps = fs::read_dir(git.join("objects/pack")).expect("it works in a test").flatten();
    assert!(keeps.into_iter().all(|file| file.path().extension() != Some("keep".as_ref())), "{at}");
    scene.s.repo.git(["gc", "-q", "--prune=now"]);
    scene.s.repo.is_sound();
}

/// Kills the operation at each of its steps; `again` completes the operation, whatever remains of
/// it.
fn survive(name: &str, prepare: fn() -> Scene, again: fn(&Scene)) {
    let undisturbed = prepare();
    let (_, steps) = run(&undisturbed, name, None);
    assert!(!steps.is_empty(), "{name} passes no step");
    let wanted = state(&undisturbed);
    let mut passes: BTreeMap<&str, u32> = BTreeMap::new();
    // The first part of an operation (`import`, before a snapshot) has its own test.
    let begins: &[&str] = match name {
        "snapshot" | "remake" => &["import."],
        "checks" => &["import.", "snapshot."],
        "accept" => &["import.", "snapshot."],
        _ => &[],
    };
    for step in steps.iter().filter(|step| !begins.iter().any(|it| step.starts_with(it))) {
        let pass = passes.entry(step).or_insert(0);
        *pass += 1;
        let at = format!("{step}:{pass}");
        let scene = prepare();
        let (code, passed) = run(&scene, name, Some(&at));
        assert_eq!(code, 137, "{name} was not killed at {at}: {passed:?}");
        again(&scene);
        let found = state(&scene);
        let home = |all: &BTreeMap<String, String>, scene: &Scene| {
            let home = scene.s.env.home().to_string_lossy().into_owned();
            let text: Vec<String> = all.iter().map(|(k, v)| format!("{k}: {v}")).collect();
            text.join("\n").replace(&home, "HOME")
        };
        assert_eq!(home(&found, &scene), home(&wanted, &undisturbed), "killed at {at}");
        is_tidy(&scene, &at);
    }
}

/// Two processes create the same worktree only if the session's lock is lost. One removes it as
/// incomplete while the other one writes its files.
#[test]
fn a_worktree_that_another_process_removes_is_not_finished() {
    let scene = scene();
    let place = scene.s.order("task-new").session_repo(&scene.s.repository).unwrap();
    let steps = scene.s.env.home().join("steps");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &steps, mode).unwrap();
    let mut creating = operation(&scene, "create", &steps).stdin(Stream::Null).spawn().unwrap();
    // It waits at each step until the pipe is read.
    while !fs::read_to_string(&steps).unwrap().contains("create.pinned") {}
    let removed = worktree::remove_incomplete(&scene.s.repository, &place);
    let _reader = File::options().read(true).write(true).open(&steps).unwrap();
    let ended = creating.wait_until(Some(Instant::now() + Duration::from_secs(60))).unwrap();
    let ended = ended.expect("the process ends");
    assert_eq!(ended.success(), removed.is_err(), "{ended:?}, {removed:?}");
    assert_eq!(worktree::is_finished(&place), removed.is_err());
    assert_eq!(place.git_dir.join("HEAD").exists(), removed.is_err());
    if removed.is_ok() {
        worktree::create(&scene.s.repository, &scene.s.order("task-new")).unwrap();
        assert!(worktree::is_finished(&place) && place.git_dir.join("HEAD").exists());
    }
}

fn recover(scene: &Scene) {
    transaction::recover(&scene.s.repository).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn creating_a_worktree_survives_a_crash() {
    survive("create", scene, |scene| {
        recover(scene);
        let place = scene.s.order("task-new").session_repo(&scene.s.repository).unwrap();
        if !worktree::is_finished(&place) {
            worktree::remove_incomplete(&scene.s.repository, &place).unwrap();
            worktree::create(&scene.s.repository, &scene.s.order("task-new")).unwrap();
        }
    });
}

#[test]
fn importing_work_survives_a_crash() {
    survive("import", scene, |scene| drop(scene.s.home(&scene.session)));
}

#[test]
fn taking_a_snapshot_survives_a_crash() {
    survive("snapshot", scene, |scene| drop(scene.s.snapshot(&scene.session)));
}

#[test]
fn landing_survives_a_crash() {
    survive("accept", scene, |scene| {
        recover(scene);
        if scene.session.work.path().exists() {
            let accepted = scene.s.accept(&scene.session).unwrap();
            assert!(matches!(accepted, land::LandResult::Landed { .. }));
        }
    });
}

#[test]
fn discarding_a_session_survives_a_crash() {
    survive("discard", scene, |scene| {
        recover(scene);
        if scene.session.work.path().exists() {
            let places = std::slice::from_ref(&scene.session.place);
            discard::discard(&scene.s.repository, places, NOW).unwrap();
        }
    });
}

#[test]
fn recreating_a_deleted_worktree_survives_a_crash() {
    let gone = || {
        let scene = scene();
        scene.s.snapshot(&scene.session);
        fs::remove_dir_all(scene.session.work.path()).expect("it is ours");
        scene.s.repo.git(["worktree", "prune"]);
        scene
    };
    survive("remake", gone, |scene| {
        recover(scene);
        recreate_worktree::recreate_if_missing(&scene.s.repository, &scene.session.place).unwrap();
        let places = std::slice::from_ref(&scene.session.place);
        assert!(recreate_worktree::remove_leftovers(places).unwrap().is_empty());
    });
}

/// Returns a custom worktree path for a session with this default worktree.
fn apart(usual: &Repo) -> std::path::PathBuf {
    let mut above = usual.path().ancestors().map(|dir| dir.join("at/task-abcd"));
    above.find(|path| path.exists()).expect("it is there")
}

/// Returns the worktree path of earlier versions.
fn inside(repo: &Repo) -> std::path::PathBuf {
    repo.path().join(".worktrees/task-abcd")
}

#[test]
fn moving_a_worktree_survives_a_crash() {
    let made_inside = || {
        let s = setting();
        s.repo.commit_file("file", "old\n");
        let worktree = WorktreeTemplate::parse(".worktrees/{id}").unwrap();
        let session = s.session_of(&worktree::WorktreeSpec { worktree, ..s.order("task-abcd") });
        session.work.write("file", "changed\n");
        session.work.write("untracked", "u\n");
        let place = SessionRepo { worktree: inside(&s.repo), ..session.place };
        Scene { session: Session { work: session.work, place }, s }
    };
    survive("relocate", made_inside, |scene| {
        recover(scene);
        let file =
            scene.s.repository.session_dir(&scene.session.place.id).join(move_worktree::PATHS_FILE);
        if !file.exists() {
            act("relocate", &scene.s.repository);
        }
        let found: SessionRepo = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        assert_eq!(found.worktree, scene.s.repo.worktrees().join("task-abcd"));
        assert!(import::check_pointer(&found).unwrap());
    });
}

#[test]
fn repairing_a_moved_repository_survives_a_crash() {
    for at in ["mend.pointer", "mend.saved", "mend.alternates"] {
        let s = setting();
        s.repo.commit_file("file", "x");
        let home = s.env.home().to_owned();
        let template = format!("{}/at/{{id}}", home.display());
        let worktree = WorktreeTemplate::parse(&template).unwrap();
        let session = s.session_of(&worktree::WorktreeSpec { worktree, ..s.order("task-abcd") });
        let there = home.join("deeper/repo");
        fs::create_dir(home.join("deeper")).unwrap();
        fs::rename(s.repo.path(), &there).unwrap();
        let repository = Repository::discover(&there).unwrap();
        let scene = Scene { s: Setting { repo: Repo::at(&there), repository, ..s }, session };

        let (code, passed) = run(&scene, "mend", Some(at));

        assert_eq!(code, 137, "{passed:?}");
        act("mend", &scene.s.repository);
        let work = scene.session.work.path();
        let status = scene.s.env.run("git", work, ["status", "--porcelain"]);
        assert_eq!((status.err.as_str(), status.out.as_str()), ("", ""), "{at}");
        let place =
            moved_repository::current_paths(&scene.s.repository.common_dir, &scene.session.place);
        assert!(import::check_pointer(&place).unwrap(), "{at}");
    }
}

#[test]
fn recording_leftovers_of_checks_survives_a_crash() {
    survive("checks", scene, |scene| {
        recover(scene);
        // Unrecorded leftovers count as the session's work, so the checks start over.
        scene.session.work.write("file", "changed\n");
        act("checks", &scene.s.repository);
        assert_eq!(scene.s.repo.show(&scene.s.snapshot(&scene.session).work, "file"), "changed");
    });
}

fn undo_unless_done(scene: &Scene) {
    recover(scene);
    if !scene.session.work.path().exists() {
        undo::undo(&scene.s.repository, None, NOW).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn restoring_a_discarded_session_survives_a_crash() {
    let dropped = || {
        let scene = scene();
        scene.s.snapshot(&scene.session);
        let places = std::slice::from_ref(&scene.session.place);
        discard::discard(&scene.s.repository, places, NOW).unwrap();
        scene
    };
    survive("undo", dropped, undo_unless_done);
}

#[test]
fn undoing_a_landing_survives_a_crash() {
    let landed = || {
        let scene = scene();
        scene.s.accept(&scene.session).unwrap();
        scene
    };
    survive("undo", landed, undo_unless_done);
}

#[test]
fn work_of_an_interrupted_landing_is_kept_and_can_be_discarded() {
    let scene = scene();
    let (code, _) = run(&scene, "accept", Some("merge.committed"));
    assert_eq!(code, 137);
    assert_eq!(scene.session.work.read("file"), "changed\n");
    merge::release(&scene.s.repository, &scene.session.place).unwrap();
    assert_eq!(scene.s.repo.git(["for-each-ref", "refs/studio/landing"]), "");
    let id = &scene.session.place.id;
    assert!(snapshot::latest(&scene.s.repository, id).unwrap().is_some());
}

#[test]
fn a_session_that_the_recovery_ended_is_neither_discarded_nor_landed() {
    let ended = |kind: &str, step: &str| {
        let scene = scene();
        let (code, _) = run(&scene, kind, Some(step));
        assert_eq!(code, 137);
        let places = std::slice::from_ref(&scene.session.place);
        let refused = discard::discard(&scene.s.repository, places, NOW).unwrap_err();
        assert!(refused.to_string().contains("session `task-abcd` has ended"), "{refused}");
        (scene, refused)
    };
    let (landed, refused) = ended("accept", "accept.refs");
    assert_eq!(refused.kind, FailureKind::Refused);
    // The last operation is still the one that ended it.
    let undone = undo::undo(&landed.s.repository, None, NOW).unwrap();
    assert_eq!(undone.undone, "op1");
    assert_eq!(landed.session.work.read("file"), "changed\n");
    let work = landed.s.snapshot(&landed.session).work;
    let places = std::slice::from_ref(&landed.session.place);
    discard::discard(&landed.s.repository, places, NOW).unwrap();
    let closed = land::close(&landed.s.repository, &landed.session.place, &work, NOW);
    assert_eq!(closed.unwrap_err().kind, FailureKind::Refused);
    let (discarded, _) = ended("discard", "discard.refs");
    undo::undo(&discarded.s.repository, None, NOW).unwrap();
    assert_eq!(discarded.session.work.read("file"), "changed\n");
}

/// Returns a scene whose landing was killed while the main checkout was being updated.
fn killed_while_files_land() -> Scene {
    let scene = scene();
    let (code, _) = run(&scene, "accept", Some("accept.files"));
    assert_eq!(code, 137);
    scene
}

#[test]
fn files_that_the_user_changes_after_a_crash_are_kept() {
    let scene = killed_while_files_land();
    assert_eq!(scene.s.repo.read("file"), "changed\n", "the files were brought along already");
    scene.s.repo.write("file", "the user's own\n");
    let said = transaction::recover(&scene.s.repository).unwrap();
    assert!(said.iter().any(|line| line.contains("left unchanged")), "{said:?}");
    assert_eq!(scene.s.repo.read("file"), "the user's own\n");
    assert!(!scene.s.repo.path().join("dir/new").exists());
    assert_eq!(scene.s.repo.read("gone"), "x\n");
    assert_eq!(scene.s.repo.git(["status", "--porcelain"]), " M file\n M other\nA  staged");
}

#[test]
fn files_that_the_user_commits_or_stages_after_a_crash_are_kept() {
    let scene = killed_while_files_land();
    let repo = &scene.s.repo;
    fs::remove_file(repo.path().join(".git/index.lock")).unwrap();
    repo.git(["add", "dir/new"]);
    repo.git(["commit", "-q", "-m", "the user's own", "dir/new", "gone"]);
    repo.git(["add", "file"]);

    let said = transaction::recover(&scene.s.repository).unwrap();

    for name in ["dir/new", "file", "gone"] {
        let named = |line: &String| line.contains(name) && line.contains("left unchanged");
        assert!(said.iter().any(named), "{name}: {said:?}");
    }
    assert_eq!((repo.read("dir/new"), repo.read("file")), ("new\n".into(), "changed\n".into()));
    assert!(!repo.path().join("sub/untracked").exists(), "what nobody took over is taken back");
    let status = repo.git(["status", "--porcelain"]);
    assert_eq!(status, "M  file\n M other\nA  staged");
}

#[test]
fn refs_of_a_failed_landing_are_rolled_back() {
    let scene = killed_while_files_land();
    let repo = &scene.s.repo;
    // The state after git was killed while it moved several refs.
    let work = snapshot::latest(&scene.s.repository, &scene.session.place.id).unwrap();
    let kept = "refs/studio/kept/op1/task-abcd/work";
    repo.git(["update-ref", kept, &work.expect("there is one")]);
    recover(&scene);
    assert_eq!(repo.git(["for-each-ref", "refs/studio/kept"]), "");
}
