//! Build directories that a new session takes over from the main checkout.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use testkit::env::until;
use testkit::repo::tree;

use crate::fixtures::{Scene, studio};

/// Creates a repository with a lock file, and with a build directory that git ignores.
fn scene() -> Scene {
    let scene = Scene::new();
    scene.configure("caches = [\"target\"]");
    scene.repo.write("Cargo.lock", "version = 4\n");
    scene.repo.write(".gitignore", "/target/\nnode_modules/\n/.venv/\n");
    scene.repo.git(["add", "-A"]);
    scene.repo.git(["commit", "-q", "-m", "lock"]);
    scene.repo.write("target/debug/deps/lib.rlib", "built\n");
    scene.repo.write("target/debug/incremental/x", "large\n");
    symlink("lib.rlib", scene.repo.path().join("target/debug/deps/link")).expect("free");
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
    let file = fs::File::options().write(true).open(built(scene.repo.path())).expect("ours");
    file.set_modified(old).expect("ours");
    scene
}

fn built(checkout: &Path) -> std::path::PathBuf {
    checkout.join("target/debug/deps/lib.rlib")
}

fn settled(scene: &Scene, script: &str) -> String {
    let id = scene.ready(script);
    scene.await_free(&id);
    id
}

#[test]
fn a_session_gets_a_copy_of_what_the_main_checkout_has_built() {
    let scene = scene();
    let task = "sh cat target/debug/deps/lib.rlib > seen; sh echo evil > target/debug/deps/lib.rlib; \
                sh touch target/planted";
    let id = settled(&scene, task);
    let worktree = scene.worktree(&id);
    assert_eq!(worktree.read("seen"), "built\n");
    assert_eq!(fs::read_to_string(built(scene.repo.path())).expect("ours"), "built\n");
    let link = fs::read_link(worktree.path().join("target/debug/deps/link")).expect("a symlink");
    assert_eq!(link, Path::new("lib.rlib"));
    assert!(!worktree.path().join("target/debug/incremental").exists());
    assert_eq!(scene.status(&id)["files_changed"], 1, "git ignores the copy");
    scene
        .studio(["logs", &id])
        .exits(0)
        .output_contains("target is a copy of that of your main checkout");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);

    // The next one has a copy of the user's, not of the first session's.
    let other = scene.worktree(&settled(&scene, "write b 1"));
    let (copy, own) = (built(other.path()), built(scene.repo.path()));
    assert_eq!(fs::read_to_string(&copy).expect("copied"), "built\n");
    assert!(!other.path().join("target/planted").exists());
    let metadata = |path: &Path| path.metadata().expect("it is there");
    assert_eq!(metadata(&copy).mtime(), metadata(&own).mtime(), "build tools compare times");
    assert_eq!((metadata(&copy).nlink(), metadata(&own).nlink()), (1, 1));
    assert_ne!(metadata(&copy).ino(), metadata(&own).ino());
}

#[test]
fn the_packages_of_node_are_copied_by_their_lock_file() {
    let scene = scene();
    scene.configure("");
    scene.repo.write("node_modules/x/index.js", "1\n");
    let has = |id: &str, path: &str| scene.worktree(id).path().join(path).exists();
    let id = settled(&scene, "write a 1");
    assert!(!has(&id, "node_modules"), "without a lock file");
    scene.repo.write("package-lock.json", "{}\n");
    scene.repo.git(["add", "package-lock.json"]);
    scene.repo.git(["commit", "-q", "-m", "lock"]);
    let id = settled(&scene, "write b 1");
    assert!(has(&id, "node_modules/x/index.js") && !has(&id, "target"));
    scene.repo.write("package-lock.json", "{ }\n");
    let id = settled(&scene, "write c 1");
    assert!(!has(&id, "node_modules"), "with another lock file");
}

#[test]
fn copies_that_a_kill_interrupts_are_made_again_and_are_never_half() {
    let scene = scene();
    scene.configure("");
    scene.repo.write("package-lock.json", "{}\n");
    scene.repo.git(["add", "package-lock.json"]);
    scene.repo.git(["commit", "-q", "-m", "lock"]);
    for number in 0..5 {
        scene.repo.write(&format!("node_modules/x/{number}.js"), "1\n");
    }
    let expected = tree(&scene.repo.path().join("node_modules"));
    for step in ["carry.begin", "carry.file", "carry.file:4", "carry.copied"] {
        let job = scene.env.command(studio(), scene.repo.path()).env("G3_TEST_KILL_AT", step);
        let id = scene.env.run_command(job.args(["exec", "write a 1"])).ok().trim().to_owned();
        let worktree = scene.worktree(&id);
        let directory = worktree.path().join("node_modules");
        until("the session to be ready", || {
            assert!(!directory.exists() || tree(&directory) == expected, "{step}: half a copy");
            let state = scene.status(&id)["state"].clone();
            if state == "crashed" {
                scene.studio(["resume", &id]).exits(0);
            }
            (state == "ready").then_some(())
        });
        assert_eq!(tree(&directory), expected, "{step}");
        assert!(!scene.session_file(&id, "carried").exists(), "{step}");
        let journal = scene.journal(&id);
        let starts = journal.iter().filter(|entry| entry["entry"] == "spawned").count();
        assert!(starts > 1, "{step}: it was killed");
    }
}

#[test]
fn a_worktree_that_was_deleted_by_hand_gets_its_copies_again() {
    let scene = scene();
    let id = settled(&scene, "write a 1");
    fs::remove_dir_all(scene.worktree(&id).path()).unwrap();
    scene.studio(["resume", &id]).exits(0);
    scene.await_state(&id, "ready");
    assert!(built(scene.worktree(&id).path()).exists());
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
    let logs = scene.studio(["logs", &id]);
    let copies =
        logs.exits(0).out.matches("target is a copy of that of your main checkout").count();
    assert_eq!(copies, 2, "{logs}");
}

#[test]
fn only_ignored_directories_with_the_same_lock_file_are_copied() {
    let scene = scene();
    let has =
        |id: &str, path: &str| scene.worktree(id).path().join(path).symlink_metadata().is_ok();
    scene.repo.write("Cargo.lock", "version = 4\n# of another branch\n");
    let id = settled(&scene, "write a 1");
    assert!(!has(&id, "target"));
    scene
        .studio(["logs", &id])
        .exits(0)
        .output_contains("target was not copied: Cargo.lock is another");

    scene.repo.git(["checkout", "-q", "Cargo.lock"]);
    scene.configure("caches = []");
    assert!(!has(&settled(&scene, "write b 1"), "target"));

    scene.configure("caches = [\"out\", \".venv\", \"web/node_modules\", \"missing\", \"target\"]");
    scene.repo.write("out/x", "1\n");
    scene.repo.write(".venv/pyvenv.cfg", "home = /usr\n");
    scene.repo.write("web/index.js", "1\n");
    scene.repo.git(["add", "web/index.js"]);
    scene.repo.git(["commit", "-q", "-m", "web"]);
    scene.repo.write("web/node_modules/x/index.js", "1\n");
    symlink("/etc", scene.repo.path().join("target/outside")).expect("free");
    let id = settled(&scene, "write c 1");
    assert!(has(&id, "web/node_modules/x/index.js"));
    assert!(!has(&id, "out") && !has(&id, ".venv") && !has(&id, "target"));
    let logs = scene.studio(["logs", &id]);
    logs.exits(0).output_contains("out was not copied: git does not ignore it");
    logs.output_contains(".venv was not copied: a virtual environment contains its own path");
    logs.output_contains("missing was not copied: your main checkout has no such directory");
    logs.output_contains("target was not copied: it has a symlink with an absolute path");

    scene.configure("caches = [\"../elsewhere\"]");
    let refused = scene.studio(["run", "write d 1"]);
    assert_ne!(refused.code, 0);
    refused.output_contains("invalid `[studio] caches`");
}

/// Creates a repository whose check builds `target`, and whose main checkout has not built it.
fn unbuilt_scene(caches: &str) -> Scene {
    let scene = scene();
    fs::remove_dir_all(scene.repo.path().join("target")).expect("ours");
    let check = "mkdir -p target; cat a b > target/lib; test ! -e a || test ! -e b";
    scene.configure(&format!("{caches}\nchecks = [\"{check}\"]"));
    scene
}

/// Runs a session that writes down what was built before it; returns this and the notes.
fn seen(scene: &Scene, name: &str) -> (String, String) {
    let id = settled(scene, &format!("sh cat target/lib > {name} 2>&1 || true"));
    let seen = scene.worktree(&id).read(name);
    let logs = scene.studio(["logs", &id]);
    logs.exits(0);
    (seen, logs.out.clone())
}

#[test]
fn a_session_gets_what_the_last_passed_check_of_its_start_has_built() {
    let scene = unbuilt_scene("caches = [\"target\"]");
    let first = settled(&scene, "write a one");
    let logs = scene.studio(["logs", &first]);
    logs.exits(0)
        .output_contains("target was not copied: your main checkout has no such directory");
    scene.studio(["accept", &first, "-m", "Land one"]).exits(0);
    assert!(!scene.repo.path().join("target").exists());
    let (built, notes) = seen(&scene, "x");
    assert_eq!(built, "one\n");
    assert!(notes.contains("target is a copy of that of the last passed check"), "{notes}");

    // The main checkout's has precedence, unless its lock file is another one.
    scene.repo.write("target/lib", "of the user");
    assert_eq!(seen(&scene, "c").0, "of the user");
    scene.repo.write("Cargo.lock", "version = 5\n");
    assert_eq!(seen(&scene, "d").0, "one\n");
    scene.repo.git(["checkout", "-q", "Cargo.lock"]);
    fs::remove_dir_all(scene.repo.path().join("target")).expect("ours");

    // A session that starts elsewhere gets nothing of it.
    scene.studio(["undo"]).exits(0);
    let (built, notes) = seen(&scene, "e");
    assert!(built.contains("No such file"), "{built}");
    assert!(notes.contains("your main checkout has no such directory"), "{notes}");
}

#[test]
fn what_a_check_built_is_copied_only_if_all_passed_and_the_configuration_names_it() {
    let scene = unbuilt_scene("caches = [\"target\"]");
    let [first, second] = ["write a one", "write b two"].map(|task| settled(&scene, task));
    scene.studio(["accept", &first, "-m", "Land one"]).exits(0);
    assert_eq!(seen(&scene, "c").0, "one\n");
    // The check of both fails, and leaves the worktree in which that of the first one passed.
    assert_ne!(scene.studio(["accept", &second, "-m", "Land two"]).code, 0);
    let (built, notes) = seen(&scene, "d");
    assert!(built == "one\n" && notes.contains("that of the last passed check"), "{notes}");

    let scene = unbuilt_scene("");
    scene.repo.write("package-lock.json", "{}\n");
    scene.repo.git(["add", "package-lock.json"]);
    scene.repo.git(["commit", "-q", "-m", "lock"]);
    scene.configure("checks = [\"mkdir -p node_modules; echo planted > node_modules/x\"]");
    let first = settled(&scene, "write a one");
    scene.studio(["accept", &first, "-m", "Land one"]).exits(0);
    let id = settled(&scene, "sh ls node_modules > seen 2>&1 || true");
    let seen = scene.worktree(&id).read("seen");
    assert!(seen.contains("No such file"), "the configuration does not name it: {seen}");
}

#[test]
fn a_symlink_in_place_of_a_build_directory_is_not_followed() {
    let scene = scene();
    let target = scene.repo.path().join("target");
    fs::remove_dir_all(&target).expect("ours");
    fs::create_dir(scene.env.home().join("elsewhere")).expect("free");
    fs::write(scene.env.home().join("elsewhere/secret"), "x").expect("ours");
    symlink(scene.env.home().join("elsewhere"), &target).expect("free");
    scene.repo.write(".gitignore", "target\n");
    scene.repo.git(["commit", "-qam", "ignore"]);
    let id = settled(&scene, "write a 1");
    assert!(!scene.worktree(&id).path().join("target").exists());
}
