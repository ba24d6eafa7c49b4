//! `studio selftest`, and the invariants with a positive control each.

use std::fs;
use std::path::Path;

use studio_core::invariants::Baseline;
use testkit::env::TestEnv;
use testkit::repo::Repo;

use crate::fixtures::{Scene, studio};

#[test]
fn a_few_rounds_of_chaos_have_no_findings_and_leave_nothing() {
    let env = TestEnv::new();
    let args = ["selftest", "--chaos", "--rounds", "1", "--seed", "7", "--json"];
    let ran = env.run(studio(), Path::new("/"), args);
    let report = ran.exits(0).json();
    assert_eq!((&report["seed"], &report["rounds"]), (&7.into(), &1.into()), "{report}");
    assert_eq!(report["operations"], 12);
    assert_eq!(report["findings"].as_array().map(Vec::len), Some(0), "{report}");
    let left = fs::read_dir(env.home().join("tmp")).expect("the directory of the test").count();
    assert_eq!(left, 0, "the scratch repository is removed");
}

#[test]
fn operations_at_once_have_no_findings_with_and_without_chaos() {
    for chaos in [&["--chaos"][..], &[]] {
        let env = TestEnv::new();
        let args = ["selftest", "--parallel", "3", "--rounds", "1", "--seed", "11", "--json"];
        let args: Vec<&str> = args.iter().chain(chaos).copied().collect();
        let ran = env.run(studio(), Path::new("/"), args);
        let report = ran.exits(0).json();
        assert_eq!(report["operations"], 36, "{report}");
        assert_eq!(report["findings"].as_array().map(Vec::len), Some(0), "{report}");
    }
}

#[test]
fn impossible_numbers_of_rounds_are_refused() {
    let env = TestEnv::new();
    env.run(studio(), Path::new("/"), ["selftest", "--rounds", "0"]).exits(2);
    env.run(studio(), Path::new("/"), ["selftest", "--parallel", "0"]).exits(2);
    let both = ["selftest", "--rounds", "1", "--minutes", "1"];
    env.run(studio(), Path::new("/"), both).exits(2).output_contains("cannot be used with");
}

/// Checks that a damage is found, with these words.
fn finds(scene: &Scene, words: &str, damage: impl FnOnce(&Repo)) {
    let worktrees = [scene.repo.worktrees()];
    let baseline =
        Baseline::read(scene.repo.path(), &worktrees).expect("the repository can be read");
    assert_eq!(baseline.violations().expect("the repository can be read"), Vec::<String>::new());
    damage(&scene.repo);
    let found = baseline.violations().expect("the repository can be read");
    assert!(found.iter().any(|it| it.contains(words)), "no `{words}` in {found:#?}");
}

#[test]
fn every_invariant_is_checked() {
    let scene = Scene::new();
    let id = scene.ready("write a 1; commit one; write b 2");
    scene.await_free(&id);
    let git = scene.repo.path().join(".git");
    finds(&scene, "file README.md", |repo| repo.write("README.md", "changed\n"));
    finds(&scene, "index README.md", |repo| drop(repo.git(["add", "README.md"])));
    finds(&scene, "refs/tags/x is new", |repo| drop(repo.git(["tag", "x"])));
    finds(&scene, "refs/tags/x moved", |repo| drop(repo.git(["tag", "-d", "x"])));
    finds(&scene, "index.lock is left over", |_| fs::write(git.join("index.lock"), "").unwrap());
    fs::remove_file(git.join("index.lock")).unwrap();
    let temporary = git.join("studio/.tmp-x");
    finds(&scene, ".tmp-x is left over", |_| fs::write(&temporary, "").unwrap());
    fs::remove_file(temporary).unwrap();
    finds(&scene, "b is lost", |_| {
        let snapshots = format!("refs/studio/snapshots/{id}");
        let list = scene.repo.git(["for-each-ref", "--format=%(refname)", &snapshots]);
        list.lines().for_each(|name| drop(scene.repo.git(["update-ref", "-d", name])));
        fs::remove_file(scene.worktree(&id).path().join("b")).unwrap();
    });
    finds(&scene, "HEAD is", |repo| drop(repo.git(["checkout", "-q", "-b", "other"])));
}

#[test]
fn a_session_that_is_over_has_neither_worktree_nor_branch() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let baseline = Baseline::read(scene.repo.path(), &[scene.repo.worktrees()]).unwrap();
    let mut list = scene.studio(["list", "--all", "--json"]).json();
    assert_eq!(baseline.inconsistent_sessions(&list).unwrap(), Vec::<String>::new());
    list["sessions"][0]["state"] = "discarded".into();
    let found = baseline.inconsistent_sessions(&list).unwrap();
    assert!(found[0].contains("worktree: true, branch: true"), "{found:?}");
}
