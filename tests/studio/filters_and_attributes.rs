//! Sessions that change which filters apply: what is stored, what lands, and what comes back are what
//! plain git with the same filters makes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;

use testkit::env::until;
use testkit::repo::{Repo, tree};

use crate::filters::{ROT13, changes, configuration};
use crate::fixtures::{Scene, studio};

/// Names on both sides of `.gitattributes` in the order of git.
const NAMES: [&str; 5] = ["!first.bin", "changed.bin", "new.bin", "raw.bin", "sub/deep.bin"];
const SCRIPT: &str = "sh echo '*.bin filter=NAME -text' > .gitattributes; write new.bin new content; \
                      write !first.bin first; write changed.bin changed; write sub/deep.bin deep";

fn files(repo: &Repo) -> BTreeMap<&'static str, String> {
    let read = |name| fs::read_to_string(repo.path().join(name)).unwrap_or_default();
    NAMES.into_iter().map(|name| (name, read(name))).collect()
}

fn entries(repo: &Repo, revision: &str) -> String {
    repo.git(["ls-tree", "-r", revision])
}

/// Returns a clone in which plain git commits what the session does.
fn control(scene: &Scene, filter: &str) -> Repo {
    let path = scene.repo.path().with_file_name("control");
    scene.repo.git(["clone", "-q", ".", path.to_str().unwrap()]);
    let control = Repo::at(&path);
    // Else git would read the files again, with filters, that were written in the second of its index.
    assert_eq!(changes(&control), "");
    match filter {
        "lfs" => drop(control.git(["lfs", "install", "--local"])),
        _ => install_rot(&control),
    }
    control.write(".gitattributes", format!("*.bin filter={filter} -text\n"));
    control.write("new.bin", "new content\n");
    control.write("!first.bin", "first\n");
    control.write("changed.bin", "changed\n");
    control.write("sub/deep.bin", "deep\n");
    control.git(["add", "-A"]);
    control.git(["commit", "-q", "-m", "all"]);
    control
}

fn install_rot(repo: &Repo) {
    for command in ["clean", "smudge"] {
        repo.git(["config", &format!("filter.rot.{command}"), ROT13]);
    }
    repo.git(["config", "filter.rot.required", "true"]);
}

/// Creates a repository without attributes.
fn scene(filter: &str) -> Scene {
    let scene = Scene::new();
    match filter {
        "lfs" => {
            scene.configure("[studio.filters]\nlfs = \"git-lfs\"");
            scene.repo.git(["lfs", "install", "--local"]);
        }
        _ => {
            scene.configure(&configuration(ROT13, "required = true"));
            install_rot(&scene.repo);
        }
    }
    scene.repo.commit_file("raw.bin", "raw\n");
    scene.repo.commit_file("changed.bin", "before\n");
    // As in `control`.
    assert_eq!(changes(&scene.repo), "");
    scene
}

fn lands_what_git_makes(filter: &str) {
    let scene = scene(filter);
    let (before, main) = (files(&scene.repo), scene.repo.rev("main"));
    let id = scene.ready(&SCRIPT.replace("NAME", filter));
    scene.await_free(&id);
    scene.await_supervisor(&id);
    let control = control(&scene, filter);
    let prefix = format!("refs/studio/snapshots/{id}/");
    let snapshots = scene.repo.git(["for-each-ref", "--format=%(refname)", &prefix]);
    let latest = snapshots.lines().last().unwrap();
    assert_eq!(entries(&scene.repo, latest), entries(&control, "HEAD"));
    assert_ne!(scene.repo.show(latest, "new.bin"), "new content");
    let session = tree(scene.worktree(&id).path());

    scene.studio(["try", &id, "--once"]).exits(0);
    assert_eq!(files(&scene.repo), files(&control));
    scene.studio(["try", "--end"]).exits(0);
    assert_eq!(files(&scene.repo), before);
    // Git must read the file: its time is new.
    fs::File::options()
        .write(true)
        .open(scene.repo.path().join("changed.bin"))
        .unwrap()
        .set_modified(std::time::SystemTime::now())
        .unwrap();

    scene.studio(["accept", &id, "-m", "Land it"]).exits(0).output_lacks("filters were not run");
    assert_eq!(entries(&scene.repo, "main"), entries(&control, "HEAD"));
    assert_eq!(files(&scene.repo), files(&control));
    assert_eq!(scene.repo.git(["status", "--porcelain"]), control.git(["status", "--porcelain"]));
    assert_eq!(changes(&scene.repo), changes(&control));
    if filter == "lfs" {
        assert!(scene.repo.git(["lfs", "ls-files"]).contains("!first.bin"));
    }

    scene.studio(["undo"]).exits(0);
    assert_eq!((files(&scene.repo), scene.repo.rev("main")), (before, main));
    assert!(!scene.repo.path().join(".gitattributes").exists());
    assert_eq!(changes(&scene.repo), "");
    scene.await_free(&id);
    assert_eq!(tree(scene.worktree(&id).path()), session);
    scene.studio(["discard", &id]).exits(0);
    scene.studio(["undo"]).exits(0);
    assert_eq!(tree(scene.worktree(&id).path()), session);
    scene.repo.is_sound();
}

#[test]
fn attributes_and_their_first_files_in_git_lfs_land_as_git_makes_them() {
    lands_what_git_makes("lfs");
}

/// Git LFS leaves content that it has not stored as it is; this filter does not.
#[test]
fn attributes_and_their_first_filtered_files_land_as_git_makes_them() {
    lands_what_git_makes("rot");
}

#[test]
fn a_landing_of_attributes_killed_at_any_step_has_landed_or_has_not() {
    let prepared = || {
        let scene = scene("rot");
        let id = scene.ready(&SCRIPT.replace("NAME", "rot"));
        scene.await_free(&id);
        scene.await_supervisor(&id);
        (scene, id)
    };
    let with = |scene: &Scene, key: &str, value: &str, id: &str| {
        let job = scene.env.command(studio(), scene.repo.path());
        scene.env.run_command(job.args(["accept", id, "-m", "Land it"]).env(key, value))
    };
    let (scene, id) = prepared();
    let recorded = scene.env.home().join("steps");
    with(&scene, "G3_TEST_STEPS", recorded.to_str().unwrap(), &id).exits(0);
    let landed = files(&scene.repo);
    let mut passes = BTreeMap::<String, u32>::new();
    let mut steps = Vec::new();
    for name in fs::read_to_string(&recorded).unwrap().lines() {
        let number = passes.entry(name.to_owned()).or_default();
        *number += 1;
        steps.push(format!("{name}:{number}"));
    }
    steps.retain(|step| step.starts_with("filter.") || step.starts_with("accept."));
    assert!(steps.iter().any(|step| step == "filter.smudged:3"), "{steps:?}");
    for step in steps {
        let (scene, id) = prepared();
        let before = files(&scene.repo);
        with(&scene, "G3_TEST_KILL_AT", &step, &id).exits(137);
        scene.studio(["doctor"]);
        if scene.status(&id)["state"] != "accepted" {
            assert_eq!(scene.status(&id)["state"], "ready", "{step}");
            assert_eq!(files(&scene.repo), before, "{step}");
            assert_eq!(changes(&scene.repo), "", "{step}");
            scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
        }
        assert_eq!(files(&scene.repo), landed, "{step}");
        scene.studio(["doctor"]);
        scene.studio(["doctor"]).exits(0).output_contains("no problems found");
        scene.repo.is_sound();
    }
}

/// Returns the worktree that is prepared with a commit's files.
fn await_prepared(scene: &Scene) -> std::path::PathBuf {
    until("a worktree to be prepared", || {
        let pool = fs::read_dir(scene.repo.path().join(".git/studio/pool")).ok()?;
        let record = pool.flatten().find(|it| it.path().join("commit").exists())?.path();
        Some(fs::read_to_string(record.join("worktree")).ok()?.into())
    })
}

#[test]
fn a_prepared_worktree_is_taken_over_only_with_the_filters_and_attributes_of_now() {
    use std::os::unix::fs::MetadataExt;
    let scene = crate::filters::scene();
    let inode = |path: &std::path::Path| path.join("a.rot").metadata().unwrap().ino();
    let pool = |command: &str| {
        scene.configure(&format!("pool = 1\n{}", configuration(command, "required = true")));
    };
    let session = |script: &str| {
        let id = scene.ready(script);
        scene.await_free(&id);
        scene.worktree(&id)
    };
    scene.configure("pool = 1");
    session("write x 1");
    let unfiltered = await_prepared(&scene);
    assert_eq!(Repo::at(&unfiltered).read("a.rot"), "uryyb\n");

    // It was made before the filter was configured.
    pool(ROT13);
    let work = session("sh cat a.rot > seen.txt");
    assert_eq!((work.read("seen.txt"), work.read("a.rot")), ("hello\n".into(), "hello\n".into()));
    until("it to be removed", || (!unfiltered.exists()).then_some(()));
    let filtered = await_prepared(&scene);
    assert_eq!(Repo::at(&filtered).read("sub dir/it's.rot"), "nested\n");

    // The files are those of the prepared one.
    let file = inode(&filtered);
    let work = session("sh cat a.rot > seen.txt; sh git status --porcelain > status.txt");
    assert_eq!((work.read("seen.txt"), inode(work.path())), ("hello\n".into(), file));
    assert!(!work.read("status.txt").contains(".rot"), "{}", work.read("status.txt"));

    // Only the files that differ are written.
    let file = inode(&await_prepared(&scene));
    scene.repo.commit_file("new.rot", "new\n");
    scene.repo.commit_file("sub dir/it's.rot", "changed\n");
    let work = session("write x 1");
    assert_eq!(
        (work.read("new.rot"), work.read("sub dir/it's.rot")),
        ("new\n".into(), "changed\n".into())
    );
    assert_eq!((work.read("a.rot"), inode(work.path())), ("hello\n".into(), file));

    // With other attributes, the same blobs are other files.
    let earlier = await_prepared(&scene);
    scene.repo.commit_file(".gitattributes", "new.rot filter=rot\n");
    let work = session("write x 1");
    assert_eq!((work.read("a.rot"), work.read("new.rot")), ("uryyb\n".into(), "new\n".into()));
    until("it to be removed", || (!earlier.exists()).then_some(()));

    // The filter changes.
    let earlier = await_prepared(&scene);
    pool("tr a-z b-za");
    let work = session("write x 1");
    assert_eq!(work.read("new.rot"), "bsk\n");
    until("it to be removed", || (!earlier.exists()).then_some(()));
    assert_eq!(Repo::at(&await_prepared(&scene)).read("new.rot"), "bsk\n");
}

#[test]
fn worktrees_are_prepared_with_the_lowest_priority() {
    let scene = crate::filters::scene();
    let log = scene.env.home().join("priorities");
    let record = format!("{{ nice; cat /proc/self/autogroup; }} >> '{}'", log.display());
    let command = format!("{record}; {ROT13}");
    scene.configure(&format!("pool = 1\n{}", configuration(&command, "required = true")));
    scene.ready("write x 1");
    await_prepared(&scene);
    let priorities = fs::read_to_string(&log).unwrap();
    // The session's own files first.
    assert_eq!(priorities.lines().next(), Some("0"), "{priorities}");
    assert!(priorities.lines().any(|line| line == "19"), "{priorities}");
    if std::path::Path::new("/proc/self/autogroup").exists() {
        assert!(priorities.lines().any(|line| line.ends_with(" nice 19")), "{priorities}");
    }
}
