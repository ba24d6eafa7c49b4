//! Leftovers of checks in a worktree, and copies of the user's own files, are not the session's
//! work.

use testkit::env::until;
use testkit::repo::Repo;

use crate::fixtures::Scene;

/// Creates a ready session whose check wrote a report, rewrote one file and deleted another.
fn checked(scene: &Scene, more: &str) -> (String, Repo) {
    scene.repo.commit_file("lock", "1\n");
    scene.repo.commit_file("sample", "s\n");
    let check = "mkdir -p out && echo r > out/report && echo 2 > lock && rm -f sample";
    let task = format!("write a 1; {more}; write b 2");
    let id = scene.exec(["--check", check, &task]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    let work = scene.worktree(&id);
    assert_eq!(work.read("out/report"), "r\n", "nothing is removed from the worktree");
    (id, work)
}

#[test]
fn leftovers_of_checks_do_not_land() {
    let scene = Scene::new();
    let (id, work) = checked(&scene, "commit a");

    let note = "changed while the checks ran, will not land: lock out/report sample; `git add`";
    let patch = scene.studio(["diff", &id]);
    patch
        .exits(0)
        .output_contains("+1")
        .output_lacks("b/out/report")
        .output_lacks("b/lock")
        .output_contains(note);
    scene.studio(["accept", &id, "-m", "Add a and b"]).exits(0).output_contains(note);

    assert_eq!((scene.repo.read("a"), scene.repo.read("b")), ("1\n".into(), "2\n".into()));
    assert_eq!((scene.repo.read("lock"), scene.repo.read("sample")), ("1\n".into(), "s\n".into()));
    assert!(!scene.repo.path().join("out").exists());
    scene.studio(["undo"]).exits(0);
    assert_eq!(work.read("lock"), "2\n", "it came back as it was");
    scene.repo.is_sound();
}

#[test]
fn changes_after_the_checks_land() {
    let scene = Scene::new();
    let (id, work) = checked(&scene, "write lock 1");
    work.write("lock", "3\n");
    work.write("by-hand", "h\n");
    work.git(["add", "out/report"]);
    work.git(["rm", "-q", "--cached", "sample"]);

    scene.studio(["accept", &id, "-m", "Add"]).exits(0);

    assert_eq!((scene.repo.read("lock"), scene.repo.read("by-hand")), ("3\n".into(), "h\n".into()));
    assert_eq!(scene.repo.read("out/report"), "r\n");
    assert!(!scene.repo.path().join("sample").exists());
}

#[test]
fn later_turns_and_recreated_worktrees_exclude_leftovers() {
    let scene = Scene::new();
    let (id, work) = checked(&scene, "");
    scene.studio(["send", &id, "go on; write c 3"]).exits(0);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    std::fs::remove_dir_all(work.path()).unwrap();

    scene.studio(["accept", &id, "-m", "Add"]).exits(0);

    assert_eq!((scene.repo.read("b"), scene.repo.read("c")), ("2\n".into(), "3\n".into()));
    assert!(!scene.repo.path().join("out").exists());
    assert_eq!(scene.repo.read("lock"), "1\n");
}

#[test]
fn copied_user_files_do_not_land_unless_the_agent_adds_them() {
    let scene = Scene::new();
    scene.repo.write(".worktreeinclude", "*.local\nsecret dir/\n");
    let names = ["my [odd] *name?.local", "b.local", "secret dir/key"];
    for name in names {
        scene.repo.write(name, "mine\n");
    }
    let empty = scene.exec(["sh echo changed > b.local"]);
    scene.await_state(&empty, "empty");

    let id = scene
        .ready("write b.local changed; write new.local agents; write a 1; sh git add -f new.local");
    scene.await_free(&id);
    let work = scene.worktree(&id);
    assert_eq!(work.git(["status", "--porcelain"]), "A  new.local\n?? a");
    assert!(names.iter().all(|name| work.path().join(name).exists()));
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0);

    let landed = scene.repo.git(["show", "--format=", "--name-only", "main"]);
    assert_eq!(landed, "a\nnew.local");
    assert_eq!(scene.repo.read("b.local"), "mine\n");
}

#[test]
fn files_written_from_outside_during_the_checks_are_reported() {
    let scene = Scene::new();
    let check = "case $PWD in */.checks/*) exit 0;; esac; mkdir -p .g3; : > .g3/begun; until test -e .g3/go; do sleep 0.01; done";
    let id = scene.exec(["--check", check, "write a 1"]);
    let work = scene.worktree(&id);
    until("the check", || work.path().join(".g3/begun").exists().then_some(()));
    work.write("README.md", "by hand\n");
    work.write("kept", "by hand\n");
    work.write(".g3/go", "");
    scene.await_state(&id, "ready");
    scene.await_free(&id);

    scene
        .studio(["diff", &id])
        .exits(0)
        .output_contains("will not land: README.md kept; `git add`");
    work.git(["add", "kept"]);
    let landed = scene.studio(["accept", &id, "-m", "Add a"]);

    landed.exits(0).output_contains("will not land: README.md; `git add`");
    assert_eq!((scene.repo.read("a"), scene.repo.read("kept")), ("1\n".into(), "by hand\n".into()));
    assert_eq!(scene.repo.read("README.md"), "# A repository\n");
}

#[test]
fn a_large_leftover_neither_lands_nor_blocks_landing() {
    let scene = Scene::new();
    let check = "head -c 11000000 /dev/zero > by-check";
    let id = scene.exec(["--check", check, "write a 1"]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    let work = scene.worktree(&id);
    scene.studio(["diff", &id]).exits(0).output_contains("will not land: by-check;");
    std::fs::OpenOptions::new()
        .append(true)
        .open(work.path().join("by-check"))
        .unwrap()
        .set_len(12_000_000)
        .unwrap();
    scene
        .studio(["accept", &id, "-m", "Add a"])
        .exits(3)
        .output_contains("by-check: larger than 10 MB");
    std::fs::remove_file(work.path().join("by-check")).unwrap();
    scene.studio(["send", &id, "go on; write b 1"]).exits(0);
    until("the second turn", || work.path().join("b").exists().then_some(()));
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene
        .studio(["accept", &id, "-m", "Add a"])
        .exits(0)
        .output_contains("will not land: by-check;");
    assert_eq!(scene.repo.read("a"), "1\n");
    assert!(!scene.repo.path().join("by-check").exists());

    let id = scene.exec(["--check", "true", "write c 1; sh head -c 11000000 /dev/zero > by-agent"]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene
        .studio(["accept", &id, "-m", "Add c"])
        .exits(3)
        .output_contains("by-agent: larger than 10 MB");
}

#[test]
fn small_packs_are_combined_unless_the_user_has_switched_that_off() {
    let scene = Scene::new();
    scene.repo.git(["config", "gc.auto", "0"]);
    for number in 0..60 {
        scene.repo.commit_file("a.txt", format!("{number}\n"));
        scene.repo.git(["repack", "-q"]);
    }
    let packs = || {
        let names = std::fs::read_dir(scene.repo.path().join(".git/objects/pack")).unwrap();
        let names = names.flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".idx")).count()
    };
    assert!(packs() >= 60);
    let objects = scene.repo.git(["rev-list", "--all", "--objects"]);
    let first = scene.ready("write b.txt one");
    scene.await_supervisor(&first);
    assert!(packs() >= 60, "the user does not want it");
    scene.repo.git(["config", "--unset", "gc.auto"]);
    scene.repo.git(["config", "repack.writeBitmaps", "true"]);
    let second = scene.ready("write c.txt one");
    scene.await_supervisor(&second);
    assert!(packs() < 20, "{} packs", packs());
    for line in objects.lines() {
        let object = line.split(' ').next().unwrap();
        scene.repo.git(["cat-file", "-e", object]);
    }
    scene.repo.git(["fsck", "--strict"]);
    for id in [&first, &second] {
        scene.studio(["accept", id, "--message", "m"]).exits(0);
    }
}
