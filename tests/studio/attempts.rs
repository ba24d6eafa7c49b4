//! Several attempts at one task: `run --attempts`, `compare`, and landing one of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use testkit::env::{built, until};
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::repo::tree;

use crate::fixtures::Scene;

/// A check that runs every test below `tests`.
const CHECK: &str = "for t in tests/*; do sh $t || exit 1; done";

/// Creates a repository with a test, and agents that do the task in different ways.
fn scene() -> Scene {
    let scene = Scene::new();
    scene.configure(&format!(
        "checks = [\"{CHECK}\"]\n\
         [studio.agents.good]\nprotocol = \"command\"\ncommand = [\"sh\", \"-c\", \"echo 4 > answer; mkdir -p tests; echo 'grep -q 4 answer' > tests/four\"]\n\
         [studio.agents.long]\nprotocol = \"command\"\ncommand = [\"sh\", \"-c\", \"printf '4\\\\n\\\\n\\\\n\\\\n\\\\n\\\\n' > answer\"]\n\
         [studio.agents.wrong]\nprotocol = \"command\"\ncommand = [\"sh\", \"-c\", \"echo 5 > answer; echo 'grep -q . answer' > tests/some\"]\n"
    ));
    scene.repo.commit_file("tests/exists", "test -e README.md\n");
    scene
}

/// Runs three attempts by three agents, and returns their ids.
fn attempts(scene: &Scene) -> Vec<String> {
    let run = ["run", "--attempts", "3", "--agent", "wrong,long,good", "compute", "--json"];
    let ran = scene.studio(run);
    let summary = ran.exits(0).json_lines().pop().unwrap();
    let sessions = summary["sessions"].as_array().unwrap();
    let ids: Vec<String> =
        sessions.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect();
    for (n, session) in (1..).zip(sessions) {
        assert_eq!((&session["group"], &session["attempt"]), (&json!(ids[0]), &json!(n)));
        assert_eq!(session["base"], sessions[0]["base"]);
        scene.await_free(session["id"].as_str().unwrap());
    }
    ids
}

#[test]
fn the_tests_of_each_attempt_run_on_the_code_of_the_others() {
    let scene = scene();
    let ids = attempts(&scene);
    let [wrong, long, good] = ids.as_slice() else { panic!("{ids:?}") };
    let compared = scene.studio(["compare", "--json"]).exits(0).json();
    assert_eq!((&compared["group"], &compared["task"]), (&json!(wrong), &json!("compute")));
    let ranked: Vec<&str> = compared["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["id"].as_str().unwrap())
        .collect();
    // All pass their own checks; the tests of `good` fail on the code of `wrong` only.
    assert_eq!(ranked, [good, long, wrong]);
    let results = |index: usize| -> Vec<&str> {
        let tests = compared["attempts"][index]["tests"].as_array().unwrap();
        tests.iter().map(|it| it["result"].as_str().unwrap()).collect()
    };
    assert_eq!(results(0), ["passed", "no_tests", "passed"]);
    assert_eq!(results(1), ["passed", "no_tests", "passed"]);
    assert_eq!(results(2), ["passed", "no_tests", "failed"]);
    assert_eq!(compared["attempts"][0]["test_files"], json!(["tests/four"]));
    assert_eq!(compared["attempts"][2]["failed"], 1);

    // A repeated call runs nothing again.
    let checks = scene.repo.path().join(".git/studio/cache/checks");
    let cached = tree(&checks);
    assert_eq!(scene.studio(["compare", good, "--json"]).json(), compared);
    assert_eq!(tree(&checks), cached);
    let page = scene.studio(["compare", wrong]);
    page.exits(0)
        .output_contains("tests of each attempt (rows) on the code of each attempt (columns)")
        .output_contains(&format!("studio accept {good}"));
    scene.studio(["list"]).exits(0).output_contains("3: compute");
    // Alternatives do not count as conflicts.
    assert_eq!(scene.studio(["conflicts", "--json"]).json()["pairs"], json!([]));
    scene.repo.is_sound();
}

#[test]
fn accept_drops_the_others_and_undo_restores_all_of_them() {
    let scene = scene();
    let ids = attempts(&scene);
    let worktrees = || -> Vec<_> { ids.iter().map(|id| tree(scene.worktree(id).path())).collect() };
    let refs = || scene.repo.git(["for-each-ref", "refs/heads", "refs/studio/snapshots"]);
    let (files_before, refs_before) = (worktrees(), refs());
    let states = |expected: [&str; 3]| {
        for (id, state) in ids.iter().zip(expected) {
            assert_eq!(scene.status(id)["state"], state, "{id}");
        }
    };
    let plain = scene.studio(["accept", &ids[2], "-m", "Compute", "--dry-run"]);
    plain.exits(0);
    states(["ready", "ready", "ready"]);

    let landed = scene.studio(["accept", &ids[2], "-m", "Compute", "--drop-others", "--json"]);
    let landed = landed.exits(0).json();
    assert_eq!(landed["landed"][0]["dropped"], json!([ids[0], ids[1]]));
    states(["discarded", "discarded", "accepted"]);
    assert_eq!(scene.repo.git(["worktree", "list"]).lines().count(), 1);
    assert_eq!(scene.repo.read("answer"), "4\n");
    let operations = scene.studio(["operations", "--json"]).json();
    assert_eq!(operations["operations"].as_array().unwrap().len(), 1, "one operation");

    scene.studio(["undo"]).exits(0);
    states(["ready", "ready", "ready"]);
    assert_eq!((worktrees(), refs()), (files_before, refs_before));
    assert!(!scene.repo.path().join("answer").exists());
    scene.studio(["doctor"]).exits(0);
    scene.repo.is_sound();

    // Without a terminal and without the flag, nothing is dropped.
    let kept = scene.studio(["accept", &ids[2], "-m", "Compute"]);
    kept.exits(0).output_contains("the other attempts stay open");
    states(["ready", "ready", "accepted"]);
}

#[test]
fn accept_all_leaves_the_choice_between_attempts_to_the_user() {
    let scene = scene();
    let ids = attempts(&scene);
    let other = scene.ready("write other 1");
    scene.await_free(&other);
    scene.studio(["accept", "--all", "--drop-others"]).exits(2);
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(3).json();
    assert_eq!(outcome["landed"].as_array().unwrap().len(), 1, "{outcome}");
    assert_eq!(outcome["landed"][0]["id"], other);
    assert_eq!(outcome["refused"].as_array().unwrap().len(), 3, "{outcome}");
    for id in &ids {
        assert_eq!(scene.status(id)["state"], "ready");
    }
    let all = scene.studio(["accept", "--all"]);
    all.exits(3).output_contains("is ready too").output_contains("studio compare");
}

#[test]
fn a_landing_that_is_refused_stops_no_other_attempt() {
    let scene = Scene::new();
    scene.repo.commit_file("a", "0\n");
    scene.configure("");
    let run = ["run", "--attempts", "2", "--detach", "write a 1; gate go"];
    scene.studio(run).exits(0);
    let list = scene.studio(["list", "--json"]).exits(0).json();
    let ids: Vec<String> = list["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["id"].as_str().unwrap().to_owned())
        .collect();
    for id in &ids {
        until("its file", || scene.worktree(id).path().join("a").exists().then_some(()));
        until("its work", || (scene.worktree(id).read("a") == "1\n").then_some(()));
    }
    scene.worktree(&ids[0]).write("go", "");
    scene.await_state(&ids[0], "ready");
    scene.await_free(&ids[0]);
    scene.repo.commit_file("a", "conflict\n");
    let refused = scene.studio(["accept", &ids[0], "--drop-others", "-m", "x"]);
    refused.exits(4).output_contains("conflict");
    assert_eq!(scene.status(&ids[1])["state"], "working");
    scene.studio(["stop", &ids[1]]).exits(0);
}

#[test]
fn hunks_of_two_attempts_land_one_after_the_other() {
    let scene = Scene::new();
    let lines: String = (1..=30).map(|n| format!("line {n}\n")).collect();
    scene.repo.commit_file("long", lines);
    scene.configure("checks = [\"test -e long\"]");
    let edit = |n: u32, word: &str| format!("sed -i 's/^line {n}$/{word}/' long");
    let task = format!("sh {} && {}", edit(3, "three"), edit(20, "twenty"));
    let first = scene.ready(&task);
    let second = scene.ready(&format!("sh {} && {}", edit(3, "III"), edit(28, "XXVIII")));
    let hunk = |id: &str, text: &str| -> String {
        let review = scene.studio(["review", id, "--json"]).exits(0).json();
        let hunks = review["reviews"][0]["hunks"].as_array().unwrap().clone();
        let has = |hunk: &Value| {
            hunk["lines"].as_array().unwrap().iter().any(|line| line["text"] == text)
        };
        hunks.iter().find(|hunk| has(hunk)).unwrap()["id"].as_str().unwrap().to_owned()
    };
    let from_first = hunk(&first, "twenty");
    scene.studio(["accept", &first, "--hunks", &from_first, "-m", "Twenty"]).exits(0);
    let from_second = hunk(&second, "XXVIII");
    scene.studio(["accept", &second, "--hunks", &from_second, "-m", "XXVIII"]).exits(0);
    let text = scene.repo.read("long");
    assert!(text.contains("twenty") && text.contains("XXVIII"), "{text}");
    assert!(!text.contains("three") && !text.contains("\nIII\n"), "{text}");
    for id in [&first, &second] {
        assert_eq!(scene.status(id)["state"], "ready", "it stays open with the rest");
    }
}

#[test]
fn a_judge_decides_ties_only_and_disagreement_is_a_tie() {
    for (answers, winner) in [(["A", "B"], true), (["A", "A"], false)] {
        let scene = Scene::new();
        assert!(built("g3").exists());
        scene.configure("");
        let [first, second] = ["write a 1", "write b 1"].map(|task| scene.ready(task));
        for id in [&first, &second] {
            scene.await_supervisor(id);
        }
        // Only now is there a model, which therefore wrote no messages for the commits.
        let server = ModelServer::start(answers.map(ScriptedReply::says).to_vec());
        let path = scene.env.home().join(".config/g3/config.toml");
        let agents = std::fs::read_to_string(path).unwrap();
        scene.env.config(&format!("{}\n{agents}", server.config_toml("anthropic")));
        let compared = scene.studio(["compare", &first, &second, "--judge", "--json"]);
        let judge = compared.exits(0).json()["judge"].clone();
        assert_eq!(judge.as_array().unwrap().len(), 1);
        assert_eq!(judge[0]["winner"].is_string(), winner, "{judge}");
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "both orders");
        for request in requests {
            let text = request.body.to_string();
            assert!(!text.contains(&first) && !text.contains(&second), "{text}");
        }
    }
}

/// Returns the result of the tests of `good` on the code of `long`.
fn cross_result(scene: &Scene, good: &str, long: &str) -> Value {
    let compared = scene.studio(["compare", good, "--json"]).exits(0).json();
    let attempts = compared["attempts"].as_array().unwrap();
    let attempt = attempts.iter().find(|it| it["id"] == long).unwrap();
    let tests = attempt["tests"].as_array().unwrap();
    tests.iter().find(|it| it["tests_of"] == good).unwrap().clone()
}

#[test]
fn a_check_with_a_cached_result_runs_again_before_one_without() {
    let scene = scene();
    scene.repo.commit_file(".gitignore", "built\n");
    let config = scene.env.home().join(".config/g3/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace(CHECK, "touch built")).unwrap();
    let ids = attempts(&scene);
    let [_, long, good] = ids.as_slice() else { panic!("{ids:?}") };
    assert_eq!(cross_result(&scene, good, long)["result"], "passed");
    for id in &ids {
        scene.studio(["edit", id, "--check", "touch built", "--check", "test -e built"]).exits(0);
        scene.studio(["check", id]).exits(0);
    }
    let result = cross_result(&scene, good, long);
    assert_eq!(result["result"], "passed", "{result}");
}

#[test]
fn a_check_that_was_ended_or_not_started_is_not_cached() {
    let scene = scene();
    let dir = scene.env.home().join("marks");
    std::fs::create_dir(&dir).unwrap();
    let path = dir.display();
    let check = format!(
        "[ ! -e {path}/slow ] || sleep 60; [ ! -e {path}/killed ] || kill -9 $$; \
         [ ! -e {path}/absent ] || exec no-such-program; [ ! -e {path}/red ] || exit 3"
    );
    let config = scene.env.home().join(".config/g3/config.toml");
    let text = std::fs::read_to_string(&config).unwrap().replace(CHECK, &check);
    let limit = "[studio]\nlimits = { check_seconds = 4 }\n";
    let text = text.replacen("[studio]\n", limit, 1);
    std::fs::write(&config, format!("{text}[sandbox]\nread = [\"{path}\"]\n")).unwrap();
    let ids = attempts(&scene);
    let [_, long, good] = ids.as_slice() else { panic!("{ids:?}") };
    for (mark, code) in [("slow", 124), ("killed", 137), ("absent", 127)] {
        std::fs::write(dir.join(mark), "").unwrap();
        let result = cross_result(&scene, good, long);
        let why = result["why"].as_str().unwrap();
        assert!(why.contains(&format!("failed with exit code {code}")), "{mark}: {result}");
        std::fs::remove_file(dir.join(mark)).unwrap();
    }
    // What the files decided is cached.
    for has_mark in [true, false] {
        let mark = dir.join("red");
        if has_mark { std::fs::write(mark, "") } else { std::fs::remove_file(mark) }.unwrap();
        let result = cross_result(&scene, good, long);
        assert!(result["why"].as_str().unwrap().contains("exit code 3"), "{result}");
    }
}
