//! Prepared worktrees: taken over once, checked before, and never in the way after a crash.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use testkit::env::until;

use crate::fixtures::{Scene, studio};

fn records(scene: &Scene) -> Vec<PathBuf> {
    let entries = fs::read_dir(scene.repo.path().join(".git/studio/pool")).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Returns the directories in the pool, complete or not.
fn prepared(scene: &Scene) -> Vec<PathBuf> {
    let entries = fs::read_dir(scene.repo.worktrees().join(".pool")).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

/// Waits until one worktree is complete, and returns it.
fn await_prepared(scene: &Scene) -> PathBuf {
    until("a worktree to be prepared", || {
        let is_complete = |record: &PathBuf| record.join("commit").exists();
        let record = records(scene).into_iter().find(is_complete)?;
        Some(fs::read_to_string(record.join("worktree")).expect("it has a path").into())
    })
}

/// Creates a repository with some files whose pool has one worktree.
fn scene() -> Scene {
    let scene = Scene::new();
    scene.configure("pool = 1");
    scene.repo.write("d/one", "1\n");
    scene.repo.write("d/run.sh", "true\n");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(scene.repo.path().join("d/run.sh"), executable).expect("ours");
    symlink("d/one", scene.repo.path().join("link")).expect("free");
    scene.repo.git(["add", "-A"]);
    scene.repo.git(["commit", "-q", "-m", "files"]);
    scene.ready("write first 1");
    scene
}

fn inode(path: PathBuf) -> u64 {
    path.symlink_metadata().expect("it exists").ino()
}

#[test]
fn pain_07_the_next_session_takes_over_a_prepared_worktree_and_another_one_is_prepared() {
    let scene = scene();
    let worktree = await_prepared(&scene);
    let file = inode(worktree.join("d/one"));
    let id = scene.ready("write second 2");
    let work = scene.worktree(&id);
    assert_eq!(inode(work.path().join("d/one")), file, "the same file");
    assert!(!worktree.exists());
    assert_eq!(work.git(["status", "--porcelain"]), "?? second");
    assert_eq!(work.git(["branch", "--show-current"]), format!("studio/{id}"));
    work.is_sound();
    let next = await_prepared(&scene);
    assert_ne!(next, worktree);
    scene.studio(["accept", &id, "-m", "Add second"]).exits(0);
    assert_eq!(scene.repo.read("second"), "2\n");

    // From another commit, only the files that differ are written.
    let kept = inode(next.join("d/one"));
    let id = scene.ready("write third 3");
    let work = scene.worktree(&id);
    assert_eq!(inode(work.path().join("d/one")), kept);
    assert_eq!(work.read("second"), "2\n");
    assert_eq!(work.git(["status", "--porcelain"]), "?? third");
    let disk = scene.studio(["list", "--disk", "--json"]).json();
    assert!(disk["pool"].as_u64() > Some(0), "{disk}");

    await_prepared(&scene);
    scene.configure("pool = 0");
    scene.studio(["gc"]).exits(0);
    assert_eq!((records(&scene).len(), prepared(&scene).len()), (0, 0));
}

/// A prepared worktree that somebody changed is never handed out, nor one to two sessions.
#[test]
fn pain_3_a_prepared_worktree_is_checked_when_it_is_taken_over() {
    let scene = scene();
    let changes: [(&str, &dyn Fn(PathBuf)); 6] = [
        ("changed", &|dir| fs::write(dir.join("d/one"), "2\n").expect("writable")),
        ("added", &|dir| fs::write(dir.join("d/two"), "2\n").expect("writable")),
        ("ignored", &|dir| fs::create_dir(dir.join("target")).expect("writable")),
        ("removed", &|dir| fs::remove_file(dir.join("d/one")).expect("writable")),
        ("replaced", &|dir| {
            fs::remove_file(dir.join("link")).expect("writable");
            symlink("/etc/hostname", dir.join("link")).expect("writable");
        }),
        ("mode", &|dir| {
            fs::set_permissions(dir.join("d/one"), fs::Permissions::from_mode(0o777)).expect("ours")
        }),
    ];
    for (name, change) in changes {
        let worktree = await_prepared(&scene);
        let has_states = |record: &PathBuf| record.join("directories").is_file();
        assert!(records(&scene).iter().all(has_states), "the states of directories are recorded");
        change(worktree.clone());
        let id = scene.ready("write new 1");
        let work = scene.worktree(&id);
        assert_eq!(work.git(["status", "--porcelain"]), "?? new", "{name}");
        assert_eq!((work.read("d/one"), work.read("link")), ("1\n".into(), "1\n".into()), "{name}");
        assert!(!worktree.exists(), "{name}");
    }
    await_prepared(&scene);
    let ids = [scene.exec(["write a 1"]), scene.exec(["write b 2"]), scene.exec(["write c 3"])];
    for (id, name) in ids.iter().zip(["a", "b", "c"]) {
        scene.await_state(id, "ready");
        assert_eq!(scene.worktree(id).git(["status", "--porcelain"]), format!("?? {name}"));
    }
}

#[test]
fn a_preparation_or_a_takeover_killed_at_any_step_leaves_nothing_wrong() {
    let scene = scene();
    await_prepared(&scene);
    let (common, base) = (scene.repo.path().join(".git"), scene.repo.rev("main"));
    let common = common.to_str().expect("UTF-8");
    for step in ["pool.record", "pool.directory", "pool.files", "pool.complete"] {
        // The preparation for a session may not have ended yet: a second one then ends at once.
        until("the preparation to be killed", || {
            let args = ["__pool", common, "{parent}/{repo}.worktrees/{id}", &base, "2"];
            let job = scene.env.command(studio(), scene.repo.path()).args(args);
            let ran = scene.env.run_command(job.env("G3_TEST_KILL_AT", step));
            (ran.code == 137).then_some(())
        });
        scene.studio(["doctor"]);
        scene.studio(["doctor"]).exits(0).output_contains("no problems found");
        let complete = records(&scene).iter().filter(|it| it.join("commit").exists()).count();
        let expected = if step == "pool.complete" { 2 } else { 1 };
        assert_eq!(
            (complete, records(&scene).len(), prepared(&scene).len()),
            (expected, expected, expected),
            "{step}"
        );
    }
    for step in ["pool.claimed", "pool.moved"] {
        await_prepared(&scene);
        let job = scene.env.command(studio(), scene.repo.path()).args(["exec", "write new 1"]);
        let ran = scene.env.run_command(job.env("G3_TEST_KILL_AT", step));
        let id = ran.ok().to_owned();
        until("the supervisor to be killed and the session to be ready", || {
            scene.studio(["doctor"]);
            match scene.status(&id)["state"].as_str().expect("a state") {
                "ready" => Some(()),
                "crashed" => {
                    scene.studio(["resume", &id]).exits(0);
                    None
                }
                _ => None,
            }
        });
        let work = scene.worktree(&id);
        assert_eq!(work.git(["status", "--porcelain"]), "?? new", "{step}");
        assert_eq!(work.read("d/one"), "1\n");
        work.is_sound();
    }
}
