//! `studio try`: a session's work in the user's checkout, and everything back as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use testkit::env::{CommandRun, until};
use testkit::repo::Repo;
use testkit::tmux::TmuxTerminal;

use crate::fixtures::{Scene, studio};

/// What a trial must not change for good: every file with its permissions, the bytes of the index,
/// HEAD and the branches.
fn checkout(repo: &Repo) -> BTreeMap<String, String> {
    let mut files = repo.files();
    let git = repo.path().join(".git");
    let git = if git.is_dir() { git } else { repo.git(["rev-parse", "--git-dir"]).into() };
    let index = fs::read(git.join("index")).expect("there is an index");
    files.insert("<index>".into(), index.escape_ascii().to_string());
    files.insert("<HEAD>".into(), fs::read_to_string(git.join("HEAD")).expect("there is a HEAD"));
    files.insert("<branches>".into(), repo.git(["for-each-ref", "refs/heads/main", "refs/tags"]));
    files
}

/// Creates a repository with files of many kinds, and changes of the user that no session touches.
fn scene() -> Scene {
    let scene = Scene::new();
    let repo = &scene.repo;
    repo.write(".gitignore", "*.log\n");
    repo.write("file", "old\n");
    repo.write("private", "p\n");
    repo.write("gone", "g\n");
    repo.write("run.sh", "echo\n");
    repo.write("flat", "a file\n");
    repo.write("deep/one", "1\n");
    repo.write("mine", "m\n");
    // git would check this file out with other line ends.
    repo.write(".gitattributes", "mixed text\n");
    repo.write("mixed", "a\r\nb\r\n");
    symlink("file", repo.path().join("link")).expect("a symlink can be made");
    repo.git(["add", "-A"]);
    repo.git(["commit", "-q", "-m", "start"]);
    fs::set_permissions(repo.path().join("private"), Permissions::from_mode(0o600))
        .expect("the file is ours");
    fs::create_dir(repo.path().join("empty")).expect("the directory is ours");
    repo.write("mine", "changed by me\n");
    repo.write("staged", "mine\n");
    repo.git(["add", "staged"]);
    repo.write("staged", "mine, and more\n");
    repo.write("untracked", "u\n");
    repo.write("debug.log", "l\n");
    repo.git(["status"]);
    scene
}

const WORK: &str = "write file new; write private changed; write deep/two 2; sh rm gone; \
                    sh chmod +x run.sh; sh rm flat && mkdir flat && echo x > flat/x; \
                    write mixed other; write empty/x e; \
                    sh rm -r deep/one && rm link && ln -s run.sh link; commit some; \
                    write more/x uncommitted; write trace.log ignored";

#[test]
fn work_is_tried_and_every_byte_comes_back() {
    let scene = scene();
    let id = scene.ready(WORK);
    let repo = &scene.repo;
    let before = checkout(repo);

    let tried = scene.studio(["try", &id, "--once"]);
    tried.exits(0).output_contains("changed files in ").output_contains("studio try --end");
    assert_eq!(
        (repo.read("file"), repo.read("more/x"), repo.read("flat/x"), repo.read("empty/x")),
        ("new\n".into(), "uncommitted\n".into(), "x\n".into(), "e\n".into())
    );
    assert!(!repo.path().join("gone").exists() && !repo.path().join("deep/one").exists());
    assert!(!repo.path().join("trace.log").exists(), "ignored files stay in the session");
    assert_eq!(fs::read_link(repo.path().join("link")).unwrap().to_str(), Some("run.sh"));
    let mode = |name| fs::metadata(repo.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("private"), mode("run.sh") & 0o111), (0o600, 0o111));
    assert_eq!(
        (repo.read("mine"), repo.read("untracked")),
        ("changed by me\n".into(), "u\n".into())
    );
    let during = checkout(repo);
    for key in ["<index>", "<HEAD>", "<branches>"] {
        assert_eq!(during[key], before[key], "{key}");
    }

    scene.studio(["try", "--end"]).exits(0).output_contains("your files are back");
    assert_eq!(checkout(repo), before);
    assert!(!repo.path().join(".git/studio/trials").read_dir().unwrap().any(|_| true));
    repo.is_sound();
    scene.studio(["try", "--end"]).exits(3).output_contains("no session is being tried");
    assert_eq!(scene.status(&id)["state"], "ready");
}

#[test]
fn files_that_the_user_changed_are_named_and_nothing_is_written() {
    type Change = fn(&Repo);
    let changes: &[(&str, Change)] = &[
        ("file: changed", |repo| repo.write("file", "mine\n")),
        ("file: staged", |repo| {
            repo.write("file", "mine\n");
            repo.git(["add", "file"]);
        }),
        ("new: untracked or ignored", |repo| repo.write("new", "mine\n")),
        ("out.log: untracked or ignored", |repo| repo.write("out.log", "mine\n")),
        ("dir: a file where a directory is needed", |repo| repo.write("dir", "mine\n")),
        ("file: marked assume-unchanged", |repo| {
            repo.git(["update-index", "--assume-unchanged", "file"]);
            repo.write("file", "hidden\n");
        }),
    ];
    for (reason, change) in changes {
        let scene = Scene::new();
        scene.repo.write(".gitignore", "*.log\n");
        scene.repo.write("file", "old\n");
        scene.repo.git(["add", "-A"]);
        scene.repo.git(["commit", "-q", "-m", "start"]);
        let id = scene.ready("write file x; write new x; write dir/x x; write out.log x; sh git add -f out.log; commit all");
        change(&scene.repo);
        let before = checkout(&scene.repo);
        scene.studio(["try", &id, "--once"]).exits(3).output_contains(reason);
        assert_eq!(checkout(&scene.repo), before, "{reason}");
        scene.studio(["try"]).exits(0).output_contains("no session is being tried");
        scene.studio(["operations"]).exits(0).output_contains("no operations yet");
    }
}

#[test]
fn a_file_that_the_user_edits_during_a_trial_is_never_lost() {
    let scene = Scene::new();
    scene.repo.commit_file("file", "old\n");
    scene.repo.commit_file("other", "old\n");
    let id = scene.ready("write file tried; write new tried; write other tried");
    scene.studio(["try", &id, "--once"]).exits(0);
    scene.repo.write("file", "tried, and improved\n");
    scene.repo.git(["add", "new"]);

    let refused = scene.studio(["try", "--end"]);
    refused.exits(3).output_contains("file: changed since it was tried");
    refused.output_contains("new: staged or committed since it was tried").output_lacks("other: ");
    refused.output_contains("studio try --end --keep");
    scene.studio(["undo"]).exits(3).output_contains("the trial cannot end");
    // Newer work of the session does not overwrite it either.
    scene.worktree(&id).write("file", "newer\n");
    scene.studio(["try", &id, "--once"]).exits(3).output_contains("is not shown");
    assert_eq!(scene.repo.read("file"), "tried, and improved\n");

    let ended = scene.studio(["try", "--end", "--keep", "--json"]).exits(0).json();
    assert_eq!(ended["kept"], serde_json::json!(["file", "new"]));
    assert_eq!(
        (scene.repo.read("file"), scene.repo.read("new"), scene.repo.read("other")),
        ("tried, and improved\n".into(), "tried\n".into(), "old\n".into())
    );
    assert_eq!(scene.repo.git(["diff", "--cached", "--name-only"]), "new");
}

#[test]
fn work_that_conflicts_with_head_is_refused_by_name() {
    let scene = Scene::new();
    scene.repo.commit_file("file", "old\n");
    let id = scene.ready("write file theirs");
    scene.repo.commit_file("file", "ours\n");
    let before = checkout(&scene.repo);
    scene
        .studio(["try", &id, "--once"])
        .exits(4)
        .output_contains("conflicts with your HEAD in file");
    assert_eq!(checkout(&scene.repo), before);
    // Work that merges is tried together with the newer commits.
    let other = scene.ready("write another x");
    scene.repo.commit_file("later", "m\n");
    scene.studio(["try", &other, "--once"]).exits(0).output_contains("1 changed file in");
    assert_eq!(scene.repo.read("later"), "m\n");
    scene.studio(["try", "--end"]).exits(0);
}

#[test]
fn a_trial_is_shown_and_blocks_landing_and_other_trials_here() {
    let scene = Scene::new();
    scene.repo.git(["branch", "next"]);
    let (id, other) = (scene.ready("write a 1"), scene.ready("write b 1"));
    let operation = scene.studio(["try", &id, "--json"]).exits(0).json()["operation"].clone();

    scene.studio(["list"]).exits(0).output_contains(&format!("{id} is being tried in "));
    scene.studio(["status", &id]).exits(0).output_contains("tried in");
    let path = scene.repo.path().canonicalize().unwrap();
    assert_eq!(scene.status(&id)["tried_in"], path.to_str().unwrap());
    assert!(scene.status(&other)["tried_in"].is_null());
    let shown = scene.studio(["try", "--json"]).exits(0).json();
    assert_eq!(shown["trials"][0]["id"], id);
    assert_eq!(shown["trials"][0]["operation"], operation);

    for refused in [&id, &other] {
        let accepted = scene.studio(["accept", refused, "-m", "Land"]);
        accepted.exits(3).output_contains(&format!("`{id}` is being tried in"));
        accepted.output_contains("try --end");
    }
    scene.studio(["try", &other, "--once"]).exits(3).output_contains("is being tried in");
    // Another branch has nothing to do with this checkout.
    scene.await_free(&other);
    scene.studio(["accept", &other, "--onto", "next", "-m", "Add b"]).exits(0);

    let undone = scene.studio(["undo", operation.as_str().unwrap()]);
    undone.exits(0).output_contains(&format!("{id} is removed from your checkout"));
    assert!(!scene.repo.path().join("a").exists());
    scene.studio(["operations"]).exits(0).output_contains("try").output_contains("undone by");
    scene.await_free(&id);
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
    assert_eq!(scene.status(&other)["state"], "accepted");
}

#[test]
fn a_linked_worktree_of_the_user_tries_by_itself_and_a_session_never_does() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    let linked = Repo::at(&scene.env.home().join("linked"));
    scene.repo.git(["worktree", "add", "-q", "-b", "side", linked.path().to_str().unwrap()]);
    let before = checkout(&linked);
    scene.studio_in(linked.path(), ["try", &id, "--once"]).exits(0);
    assert_eq!(linked.read("a"), "1\n");
    assert!(!scene.repo.path().join("a").exists());
    scene.studio(["try", "--end"]).exits(3).output_contains("linked' try --end");
    scene.studio_in(linked.path(), ["try", "--end"]).exits(0);
    assert_eq!(checkout(&linked), before);
    let inside = scene.worktree(&id);
    scene
        .studio_in(inside.path(), ["try", &id, "--once"])
        .exits(3)
        .output_contains("session's worktree");

    // A trial ends although its checkout was removed.
    scene.studio_in(linked.path(), ["try", &id, "--json"]).exits(0);
    scene.repo.git(["worktree", "remove", "--force", linked.path().to_str().unwrap()]);
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.studio(["try", "--json"]).json()["trials"], serde_json::json!([]));
}

#[test]
fn a_trial_follows_its_session_on_a_terminal_and_survives_the_follower() {
    let scene = Scene::new();
    scene.repo.commit_file("file", "old\n");
    let before = checkout(&scene.repo);
    let id =
        scene.exec(["--agent", "loads", "write file one; write early x; gate go; write late y"]);
    scene.await_state(&id, "working");
    until("the first files", || scene.worktree(&id).path().join("early").exists().then_some(()));
    let terminal =
        TmuxTerminal::start(&scene.env, scene.repo.path(), (100, 24), [studio(), "try", &id]);
    terminal.shows("following the session");
    assert_eq!(scene.repo.read("file"), "one\n");

    fs::write(scene.worktree(&id).path().join("go"), "").unwrap();
    scene.await_state(&id, "ready");
    until("the new file", || scene.repo.path().join("late").exists().then_some(()));
    // A file that the session no longer changes is as it was.
    scene.await_free(&id);
    scene.studio(["send", &id, "sh git checkout file && rm early"]).exits(0);
    scene.await_state(&id, "ready");
    until("the old content", || (scene.repo.read("file") == "old\n").then_some(()));
    until("the file to go", || (!scene.repo.path().join("early").exists()).then_some(()));

    terminal.presses("C-c");
    assert!(terminal.ends().contains("the files stay"), "{}", terminal.text());
    assert_eq!(scene.repo.read("late"), "y\n");
    scene.studio(["try", "--end"]).exits(0);
    assert_eq!(checkout(&scene.repo), before);
}

fn with(scene: &Scene, key: &str, value: &str, args: &[&str]) -> CommandRun {
    let job = scene.env.command(studio(), scene.repo.path()).args(args).env(key, value);
    scene.env.run_command(job)
}

/// Returns the durable steps of a command, each with the number of its pass.
fn steps(scene: &Scene, args: &[&str]) -> Vec<String> {
    let file = scene.env.home().join("steps");
    let _ = fs::remove_file(&file);
    with(scene, "G3_TEST_STEPS", &file.display().to_string(), args).exits(0);
    let text = fs::read_to_string(file).expect("there are steps");
    let mut passes: BTreeMap<&str, u32> = BTreeMap::new();
    let numbered = text.lines().map(|name| {
        let pass = passes.entry(name).or_insert(0);
        *pass += 1;
        format!("{name}:{pass}")
    });
    numbered.collect()
}

#[test]
fn a_trial_killed_at_any_step_is_undone_or_done() {
    const FEW: &str =
        "write file new; sh rm gone; write dir/x 1; sh rm flat && mkdir flat && echo x > flat/x";
    let start = || {
        let scene = scene();
        let id = scene.ready(FEW);
        scene.await_free(&id);
        let before = checkout(&scene.repo);
        (scene, id, before)
    };
    let (sample, id, _) = start();
    let first = steps(&sample, &["try", &id, "--once"]);
    sample.worktree(&id).write("file", "newer\n");
    sample.worktree(&id).write("second", "2\n");
    fs::remove_file(sample.worktree(&id).path().join("dir/x")).unwrap();
    let update = steps(&sample, &["try", &id, "--once"]);
    let end = steps(&sample, &["try", "--end"]);
    let files = |steps: &[String]| steps.iter().filter(|it| it.starts_with("try.file:")).count();
    assert!(files(&first) >= 5 && files(&update) >= 3 && files(&end) >= 5, "{first:?} {end:?}");

    for step in &first {
        let (scene, id, before) = start();
        with(&scene, "G3_TEST_KILL_AT", step, &["try", &id, "--once"]);
        scene.studio(["doctor"]);
        let ended = scene.studio(["try", "--end"]);
        assert!([0, 3].contains(&ended.code), "{step}: {ended}");
        assert_eq!(checkout(&scene.repo), before, "{step}");
        scene.studio(["try", &id, "--once"]).exits(0);
        scene.studio(["try", "--end"]).exits(0);
        assert_eq!(checkout(&scene.repo), before, "{step}");
    }
    for step in update.iter().filter(|step| step.starts_with("try.")) {
        let (scene, id, before) = start();
        scene.studio(["try", &id, "--once"]).exits(0);
        scene.worktree(&id).write("file", "newer\n");
        scene.worktree(&id).write("second", "2\n");
        fs::remove_file(scene.worktree(&id).path().join("dir/x")).unwrap();
        with(&scene, "G3_TEST_KILL_AT", step, &["try", &id, "--once"]);
        scene.studio(["doctor"]);
        if step.ends_with(":1") {
            // The next look at the session finishes it.
            scene.studio(["try", &id, "--once"]).exits(0);
            assert_eq!(scene.repo.read("second"), "2\n", "{step}");
            assert!(!scene.repo.path().join("dir").exists(), "{step}");
        }
        scene.studio(["try", "--end"]).exits(0);
        assert_eq!(checkout(&scene.repo), before, "{step}");
    }
    for step in &end {
        let (scene, id, before) = start();
        scene.studio(["try", &id, "--once"]).exits(0);
        with(&scene, "G3_TEST_KILL_AT", step, &["try", "--end"]);
        scene.studio(["doctor"]);
        let ended = scene.studio(["try", "--end"]);
        assert!([0, 3].contains(&ended.code), "{step}: {ended}");
        assert_eq!(checkout(&scene.repo), before, "{step}");
        scene.studio(["doctor"]).exits(0).output_contains("no problems found");
    }
    let all: BTreeSet<&String> = first.iter().chain(&update).chain(&end).collect();
    assert!(all.len() >= 15, "{all:?}");
}

#[test]
fn what_the_user_edits_after_a_crash_is_kept() {
    let scene = Scene::new();
    scene.repo.commit_file("file", "old\n");
    scene.repo.commit_file("zz", "old\n");
    let id = scene.ready("write file tried; write zz tried");
    scene.await_free(&id);
    with(&scene, "G3_TEST_KILL_AT", "try.files", &["try", &id, "--once"]);
    scene.repo.write("file", "my edit\n");
    scene.studio(["doctor"]).exits(0).output_contains("was left unchanged");
    assert_eq!(
        (scene.repo.read("file"), scene.repo.read("zz")),
        ("my edit\n".into(), "old\n".into())
    );
    scene.studio(["try"]).exits(0).output_contains("no session is being tried");
}
