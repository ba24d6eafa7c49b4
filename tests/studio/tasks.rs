//! `studio run --tasks`: task lists with dependencies.

use serde_json::{Value, json};
use testkit::env::until;

use crate::fixtures::{Scene, studio};

/// Returns the sessions, in the order of their creation.
fn sessions(scene: &Scene) -> Vec<Value> {
    scene.studio(["list", "--all", "--json"]).json()["sessions"].as_array().expect("a list").clone()
}

fn session(scene: &Scene, task: &str) -> Value {
    let found = sessions(scene).into_iter().find(|it| it["task"] == task);
    found.unwrap_or_else(|| panic!("no session `{task}`"))
}

fn id(session: &Value) -> &str {
    session["id"].as_str().expect("an id")
}

const CHAIN: &str = "[[task]]\nid = 'third'\ntext = 'sh echo three >> log'\nafter = ['second']\n\
    [[task]]\nid = 'first'\ntext = 'write log one'\nrequirements = ['R1', 'R2']\n\
    [[task]]\nid = 'second'\ntext = 'sh echo two >> log'\nafter = ['first']\n";

#[test]
fn a_dependent_task_starts_from_the_landed_work() {
    let scene = Scene::new();
    scene.repo.write("t.toml", CHAIN);
    scene.studio(["run", "--tasks", "t.toml", "--accept"]).exits(0);
    assert_eq!(scene.repo.read("log"), "one\ntwo\nthree\n");
    let landed = scene.repo.git(["log", "--reverse", "--format=%(trailers:key=Task,valueonly)"]);
    let landed: Vec<&str> = landed.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(landed, ["write log one", "sh echo two >> log", "sh echo three >> log"]);
    assert!(sessions(&scene).iter().all(|it| it["state"] == "accepted"));
    let first = scene.repo.git(["log", "-1", "--format=%B%n%N", "--notes=studio", "main~2"]);
    assert!(first.contains("Requirement: R1\nRequirement: R2\n"), "{first}");
    assert!(first.contains("\"requirements\": [\n    \"R1\""), "{first}");
    scene.repo.is_sound();
}

#[test]
fn without_accept_a_task_starts_after_the_user_lands_its_dependency() {
    let scene = Scene::new();
    scene.repo.write("t.toml", CHAIN);
    let ran = scene.studio(["run", "--tasks", "t.toml"]);
    let first = session(&scene, "write log one");
    ran.exits(0).output_contains(&format!("waiting for `{}` to land", id(&first)));
    let second = session(&scene, "sh echo two >> log");
    assert_eq!((&second["state"], &second["after"]), (&json!("queued"), &json!([first["id"]])));
    scene.studio(["explain", id(&second)]).exits(0).output_contains("to land");
    scene.studio(["accept", id(&first), "-m", "One"]).exits(0);
    scene.await_state(id(&second), "ready");
    assert_eq!(scene.worktree(id(&second)).read("log"), "one\ntwo\n");
    assert_eq!(scene.status(id(&second))["base"]["commit"], scene.repo.rev("main"));
    scene.studio(["discard", id(&second)]).exits(0);
    let third = session(&scene, "sh echo three >> log");
    let why = scene.status(id(&third))["why"].as_str().unwrap().to_owned();
    assert!(why.contains("which was discarded (studio undo op2)"), "{why}");
    scene.studio(["undo", "op2"]).exits(0);
    scene.studio(["accept", id(&second), "-m", "Two"]).exits(0);
    scene.await_state(id(&third), "ready");
    assert_eq!(scene.worktree(id(&third)).read("log"), "one\ntwo\nthree\n");
}

#[test]
fn tasks_that_depend_on_a_failure_block_no_others() {
    let scene = Scene::new();
    let tasks = "- exit 1\n  id: a\n- write b 1\n  after: a\n- write c 1\n- [x] done before\n  id: d\n- write e 1\n  after: d\n";
    scene.repo.write("t.md", tasks);
    let ran = scene.studio(["run", "--accept", "--tasks", "t.md"]);
    ran.exits(1).output_contains("waiting for");
    let states: Vec<Value> = sessions(&scene).iter().map(|it| it["state"].clone()).collect();
    assert_eq!(states, ["failed", "queued", "accepted", "accepted"]);
    let list = scene.studio(["list"]);
    list.exits(0)
        .output_contains("1 waiting for other sessions to land")
        .output_lacks("studio resume --all");
}

#[test]
fn an_invalid_list_starts_no_session_and_names_the_lines() {
    let scene = Scene::new();
    for (name, text, lines) in [
        (
            "circle.toml",
            "[[task]]\nid='a'\ntext='x'\nafter=['b']\n\n[[task]]\nid='b'\ntext='x'\nafter=['a']\n",
            &["circle.toml:1: circular dependency: a → b → a"][..],
        ),
        (
            "unknown.md",
            "- x\n\n- y\n  after: t1, z\n",
            &["unknown.md:3: task `t2` depends on `z`, which is not in this file"],
        ),
        (
            "twice.md",
            "- x\n  id: a\n- y\n  id: a\n- z\n  after: z\n",
            &[
                "twice.md:3: duplicate task id `a` (first used at line 1)",
                "twice.md:5: task `t3` depends on `z`",
            ],
        ),
        ("key.toml", "[[task]]\ntext = 'x'\naftr = []\n", &["key.toml:3:", "aftr"]),
        ("syntax.toml", "[[task]]\ntext = 'x\n", &["syntax.toml:2:"]),
        ("empty.md", "# nothing\n- [x] done\n", &["no open task"]),
    ] {
        scene.repo.write(name, text);
        let ran = scene.studio(["run", "--tasks", name]);
        for line in lines {
            ran.exits(2).output_contains(line);
        }
    }
    assert!(sessions(&scene).is_empty());
    assert!(!scene.repo.worktrees().exists());
}

#[test]
fn tasks_with_overlapping_paths_run_one_after_the_other() {
    let scene = Scene::new();
    let tasks = "- gate go; write src/a 1\n  paths: src/**\n- sh echo 2 >> src/a\n  paths: src/a\n- write docs/b 1\n  paths: docs\n";
    scene.repo.write("t.md", tasks);
    let args = ["run", "--accept", "-j", "4", "--tasks", "t.md"];
    let mut run = scene.env.start(studio(), scene.repo.path(), args);
    until("the third has landed", || {
        let states: Vec<Value> = sessions(&scene).iter().map(|it| it["state"].clone()).collect();
        (states == ["working", "queued", "accepted"]).then_some(())
    });
    let first = sessions(&scene)[0].clone();
    scene.worktree(id(&first)).write("go", "");
    until("all have ended", || run.child.try_wait().unwrap());
    assert_eq!(scene.repo.read("src/a"), "1\n2\n", "the second started from what the first landed");
}

#[test]
fn a_dry_run_shows_dependencies() {
    let scene = Scene::new();
    scene.repo.write("t.toml", CHAIN);
    scene
        .studio(["run", "--dry-run", "--tasks", "t.toml"])
        .exits(0)
        .output_contains(", after first)");
    let told = scene.studio(["run", "--dry-run", "--json", "--tasks", "t.toml"]).json_lines();
    let names: Vec<&Value> = told.iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["first", "second", "third"]);
    assert_eq!(
        (&told[0]["requirements"], &told[2]["after"]),
        (&json!(["R1", "R2"]), &json!(["second"]))
    );
    assert!(sessions(&scene).is_empty());
}

#[test]
fn each_requirement_is_traced_to_its_commits_and_checks() {
    let scene = Scene::new();
    scene.configure("checks = [\"test -e log\"]");
    let wishes =
        "{{CURRENT REQUIREMENTS}}\n\n- R1: a log\n- R2: two lines\n- R3: a moon\n- R4: no check\n";
    scene.repo.commit_file("g3-plan/current_requirements.md", wishes);
    let none = scene.studio(["trace", "--json"]).exits(1).json();
    assert_eq!(none["requirements"][0]["state"], "not landed");
    let chain = CHAIN.replace("after = ['second']", "after = ['second']\nrequirements = ['R2']");
    scene.repo.write("t.toml", &chain);
    scene.studio(["run", "--tasks", "t.toml", "--accept"]).exits(0);
    // A commit by the user also names one; it has no receipt.
    scene.repo.git(["commit", "-q", "--allow-empty", "-m", "By hand\n\nRequirement: R4"]);
    let traced = scene.studio(["trace", "--json"]).exits(1).json();
    let all = traced["requirements"].as_array().expect("a list");
    let states: Vec<&Value> = all.iter().map(|it| &it["state"]).collect();
    assert_eq!(states, ["shown", "shown", "not landed", "no check"]);
    assert_eq!(all[0]["commits"], json!([scene.repo.rev("main~3")]));
    assert_eq!(all[1]["commits"].as_array().map(Vec::len), Some(2));
    assert_eq!(all[1]["checks"], json!(["test -e log"]));
    let table = scene.studio(["trace"]);
    table
        .exits(1)
        .output_contains("a moon")
        .output_contains("2 of 4 requirements have not landed with a passing check");
    let one = scene.studio(["trace", "r1"]);
    one.exits(0)
        .output_contains("R1: a log (shown)")
        .output_contains("passed test -e log")
        .output_contains("session write-log-one");
    scene.studio(["trace", "R4"]).exits(1).output_contains("without a receipt");
    scene.studio(["trace", "R9"]).exits(5).output_contains("studio trace");
    let later = scene.studio(["trace", "--since", "main", "--json"]).exits(1).json();
    assert_eq!(later["requirements"][0]["state"], "not landed");
    scene
        .studio(["trace", "--since", "nowhere"])
        .exits(2)
        .output_contains("no such commit: `nowhere`");
    scene.studio(["trace", "--file", "gone.md"]).exits(2).output_contains("gone.md");
}
