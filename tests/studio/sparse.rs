//! Sparse checkouts: sessions have the patterns of the user's checkout, their work outside of the
//! patterns is kept, and a landing leaves the checkout sparse.

use std::fs;

use testkit::env::until;
use testkit::repo::Repo;

use crate::fixtures::Scene;

/// Changes files inside, adds files on both sides, and touches nothing else outside.
const TASK: &str = "sh test -e in/x && test ! -e out && test ! -e deep/out && echo ok > in/sparse; \
     write in/x changed; write in/new one; write out/new two; write deep/in/new three; write deep/new four; sh rm in/z";

/// Creates a repository with files in and outside of the directories that `sparse` keeps.
fn scene(sparse: &[&str]) -> Scene {
    let scene = Scene::new();
    for path in ["in/x", "in/z", "out/y", "deep/in/x", "deep/out/y"] {
        scene.repo.write(path, "1\n");
    }
    scene.repo.git(["add", "-A"]);
    scene.repo.git(["commit", "-q", "-m", "files"]);
    let args = ["sparse-checkout", "set"].into_iter().chain(sparse.iter().copied());
    let set = scene.repo.job().args(args).output(base::process::OutputLimits::seconds(60));
    assert!(set.expect("git can be run").ok());
    assert!(!scene.repo.path().join("out").exists());
    scene
}

fn entries(repo: &Repo) -> String {
    repo.git(["ls-files", "-s", "-t"])
}

#[test]
fn a_session_is_sparse_and_its_landing_leaves_the_checkout_sparse() {
    let shapes: [&[&str]; 2] = [
        &["--cone", "in", "deep/in"],
        &["--no-cone", "/*", "!out/", "!/deep/", "/deep/in/", "/deep/new"],
    ];
    for shape in shapes {
        let scene = scene(shape);
        let repo = &scene.repo;
        let before = entries(repo);
        let id = scene.ready(TASK);
        scene.await_free(&id);
        assert!(scene.worktree(&id).path().join("out/new").exists());
        assert_eq!(scene.status(&id)["files_changed"], 7, "{shape:?}");
        let diff = scene.studio(["diff", &id]);
        diff.exits(0).output_contains("out/new").output_contains("in/z").output_lacks("out/y");

        scene.studio(["try", &id]).exits(0);
        assert_eq!((repo.read("in/x"), repo.read("in/new")), ("changed\n".into(), "one\n".into()));
        assert!(!repo.path().join("out").exists(), "{shape:?}");
        scene.studio(["try", "--end"]).exits(0);
        assert_eq!(
            (entries(repo), repo.git(["status", "--porcelain"])),
            (before.clone(), "".into())
        );

        scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
        assert_eq!(repo.git(["status", "--porcelain"]), "", "{shape:?}");
        assert_eq!(repo.show("main", "out/new"), "two");
        assert_eq!(
            (repo.show("main", "out/y"), repo.show("main", "deep/out/y")),
            ("1".into(), "1".into())
        );
        assert!(repo.path().join("deep/in/new").exists() && !repo.path().join("out").exists());
        assert!(entries(repo).contains("S 100644") && entries(repo).contains("\tout/new"));
        let landed = entries(repo);
        let files = repo.path().join("deep/new").exists();
        repo.git(["sparse-checkout", "reapply"]);
        assert_eq!(entries(repo), landed, "git agrees about what is left out: {shape:?}");
        assert_eq!(repo.path().join("deep/new").exists(), files, "{shape:?}");
        repo.is_sound();

        scene.studio(["undo"]).exits(0);
        assert_eq!((entries(repo), repo.git(["status", "--porcelain"])), (before, "".into()));
        assert!(!repo.path().join("in/new").exists() && !repo.path().join("out").exists());
    }
}

#[test]
fn each_checkout_has_its_own_patterns() {
    let scene = scene(&["in"]);
    scene.repo.git(["branch", "other"]);
    let linked = scene.env.home().join("linked");
    let path = linked.to_str().expect("UTF-8");
    scene.repo.git(["worktree", "add", "-q", path, "other"]);
    let linked = Repo::at(&linked);
    linked.git(["sparse-checkout", "set", "deep/out"]);
    let run = |at: &Repo, task| {
        let ran = scene.studio_in(at.path(), ["exec", task]);
        let id = ran.ok().to_owned();
        scene.await_state(&id, "ready");
        scene.await_free(&id);
        id
    };
    let main = run(&scene.repo, "write in/x 2");
    let other = run(&linked, "write deep/out/y 2");
    let exists = |id: &str, path: &str| scene.worktree(id).path().join(path).exists();
    assert!(exists(&main, "in/x") && !exists(&main, "deep"));
    assert!(exists(&other, "deep/out/y") && !exists(&other, "in") && !exists(&other, "deep/in"));

    // A landing on a branch follows the patterns of the checkout that has it.
    let both = run(&scene.repo, "write deep/out/new 3; write in/new 3");
    scene.studio(["accept", &both, "--onto", "other", "-m", "Land it"]).exits(0);
    assert_eq!(linked.read("deep/out/new"), "3\n");
    assert!(!linked.path().join("in").exists());
    assert_eq!(linked.git(["status", "--porcelain"]), "");
    assert_eq!(linked.show("other", "in/new"), "3");
}

#[test]
fn a_prepared_worktree_with_all_files_is_not_used() {
    let scene = scene(&["in"]);
    scene.repo.git(["sparse-checkout", "disable"]);
    scene.configure("pool = 1");
    scene.ready("write a 1");
    until("a worktree to be prepared", || {
        let records = fs::read_dir(scene.repo.path().join(".git/studio/pool")).ok()?;
        records.flatten().any(|record| record.path().join("commit").exists()).then_some(())
    });
    scene.repo.git(["sparse-checkout", "set", "in"]);
    let id = scene.ready("sh test ! -e out && echo 1 > b");
    scene.await_free(&id);
    assert_eq!(scene.status(&id)["files_changed"], 1);
}

#[test]
fn files_outside_do_not_count_as_deleted_without_an_index() {
    let scene = scene(&["in", "deep/in"]);
    let id = scene.ready("write in/x 2; sh rm in/z; sh rm \"$(git rev-parse --git-path index)\"");
    scene.await_free(&id);
    let diff = scene.studio(["diff", &id]);
    diff.exits(0).output_contains("in/x").output_contains("in/z").output_lacks("out/y");
    assert_eq!(scene.status(&id)["files_changed"], 2);
}

#[test]
fn a_recreated_or_forked_worktree_has_the_work_outside_of_the_patterns() {
    let scene = scene(&["in"]);
    let task = "write in/x 2; write out/new 3; sh mkdir -p deep/out; write deep/out/y 4";
    let id = scene.ready(task);
    scene.await_free(&id);
    scene.studio(["fork", &id, "write in/fork 5"]).exits(0);
    until("the fork", || {
        let sessions = scene.studio(["list", "--json"]).json()["sessions"].clone();
        let sessions = sessions.as_array().expect("a list").clone();
        let fork = sessions.iter().find(|session| session["id"] != id.as_str())?.clone();
        (fork["state"] == "ready").then_some(())
    });
    let sessions = scene.studio(["list", "--json"]).json()["sessions"].clone();
    let fork = sessions.as_array().expect("a list").iter().find(|it| it["id"] != id.as_str());
    let fork = fork.expect("the fork")["id"].as_str().expect("an id").to_owned();
    scene.await_free(&fork);
    let fork = scene.worktree(&fork);
    assert_eq!((fork.read("out/new"), fork.read("deep/out/y")), ("3\n".into(), "4\n".into()));
    assert!(!fork.path().join("out/y").exists());

    fs::remove_dir_all(scene.worktree(&id).path()).expect("it is there");
    scene.studio(["send", &id, "go on; write in/more 6"]).exits(0);
    let worktree = scene.worktree(&id);
    until("the second turn", || worktree.path().join("in/more").exists().then_some(()));
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    assert_eq!(
        (worktree.read("out/new"), worktree.read("deep/out/y")),
        ("3\n".into(), "4\n".into())
    );
    assert!(!worktree.path().join("out/y").exists());
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
    assert_eq!(scene.repo.show("main", "deep/out/y"), "4");
    assert_eq!(scene.repo.show("main", "out/y"), "1");
    assert!(!scene.repo.path().join("out").exists());
}
