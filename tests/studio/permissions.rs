//! Permission requests of agents: many of them, attended and unattended.

use std::io::{BufRead, BufReader};

use crate::fixtures::{Scene, studio};

fn answers(scene: &Scene, id: &str) -> Vec<String> {
    scene.worktree(id).read("answers.txt").lines().map(str::to_owned).collect()
}

/// Returns the numbers of the open requests.
fn open_requests(scene: &Scene, id: &str) -> Vec<u64> {
    let mut open = Vec::new();
    for line in scene.journal(id) {
        let n = line["n"].as_u64();
        match line["entry"].as_str() {
            Some("asked") => open.extend(n),
            Some("answered") => open.retain(|one| Some(*one) != n),
            Some("spawned" | "turn_end") => open.clear(),
            _ => {}
        }
    }
    open
}

#[test]
fn every_request_of_an_agent_is_answered() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "--ask", "ask one; ask two; ask three"]);
    for (n, word) in [("1", "allow"), ("2", "deny"), ("3", "allow")] {
        testkit::env::until("the request", || {
            let waiting = scene.status(&id);
            waiting["why"].as_str().unwrap().starts_with(&format!("permission {n}:")).then_some(())
        });
        scene.studio(["answer", &id, n, word]).exits(0);
    }
    scene.await_state(&id, "ready");
    assert_eq!(answers(&scene, &id), ["one: yes", "two: no", "three: yes"]);
}

#[test]
fn concurrent_requests_are_answered_in_any_order() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "--ask", "askall one | two | three"]);
    testkit::env::until("three requests", || {
        (open_requests(&scene, &id) == [1, 2, 3]).then_some(())
    });
    scene
        .studio(["answer", &id, "allow"])
        .exits(3)
        .output_contains("several permission requests are open");
    for (n, word) in [("2", "deny"), ("3", "allow"), ("1", "allow")] {
        scene.studio(["answer", &id, n, word]).exits(0);
    }
    scene.await_state(&id, "ready");
    assert_eq!(answers(&scene, &id), ["two: no", "three: yes", "one: yes"]);
}

#[test]
fn request_numbers_continue_over_turns_and_restarts() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "loads", "--ask", "ask one"]);
    scene.await_state(&id, "waiting");
    scene.studio(["send", &id, "ask two"]).exits(0);
    scene.studio(["answer", &id, "1", "allow"]).exits(0);
    testkit::env::until("the second turn", || (open_requests(&scene, &id) == [2]).then_some(()));
    scene.studio(["answer", &id, "2", "allow"]).exits(0);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene.studio(["send", &id, "ask three; ask four"]).exits(0);
    for n in [3, 4] {
        testkit::env::until("a request of the new start", || {
            (open_requests(&scene, &id) == [n]).then_some(())
        });
        scene.studio(["answer", &id, &n.to_string(), "allow"]).exits(0);
    }
    scene.await_state(&id, "ready");
    assert_eq!(answers(&scene, &id), ["one: yes", "two: yes", "three: yes", "four: yes"]);
}

#[test]
fn requests_of_two_sessions_are_answered_separately() {
    let scene = Scene::new();
    let first = scene.exec(["--agent", "talk", "--ask", "ask one; ask two"]);
    let second = scene.exec(["--agent", "talk", "--ask", "ask one; ask two"]);
    for n in ["1", "2"] {
        for (id, word) in [(&first, "allow"), (&second, "deny")] {
            testkit::env::until("the request", || {
                (open_requests(&scene, id) == [n.parse::<u64>().unwrap()]).then_some(())
            });
            scene.studio(["answer", id, n, word]).exits(0);
        }
    }
    scene.await_state(&first, "ready");
    scene.await_state(&second, "ready");
    assert_eq!(answers(&scene, &first), ["one: yes", "two: yes"]);
    assert_eq!(answers(&scene, &second), ["one: no", "two: no"]);
}

#[test]
fn unattended_requests_are_denied_with_a_hint() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "loads", "ask one; askall two | three"]);
    let ready = scene.await_state(&id, "ready");
    let denied =
        format!("no no terminal to ask on; `studio resume {id} --ask` keeps requests open");
    let mut said = answers(&scene, &id);
    said.sort();
    let wanted = ["one", "three", "two"].map(|what| format!("{what}: {denied}"));
    assert_eq!(said, wanted);
    let why = ready["why"].as_str().unwrap();
    assert!(
        why.contains("3 requests were denied (the first: one): no terminal to ask on"),
        "{why}"
    );
    scene
        .studio(["logs", &id])
        .exits(0)
        .output_contains("answer 1: denied by studio: no terminal to ask on");

    scene.await_free(&id);
    scene.studio(["resume", &id, "--ask"]).exits(0);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene.studio(["send", &id, "ask four"]).exits(0);
    scene.await_state(&id, "waiting");
    scene.studio(["answer", &id, "4", "allow"]).exits(0);
    scene.await_state(&id, "ready");
}

#[test]
fn an_empty_session_reports_denied_requests() {
    let scene = Scene::new();
    let script = "ask write /opt/x; sh rm answer.txt answers.txt";
    let id = scene.exec(["--agent", "talk", script]);
    let empty = scene.await_state(&id, "empty");
    let why = empty["why"].as_str().unwrap();
    assert!(
        why.starts_with("the agent finished and changed nothing; a request was denied"),
        "{why}"
    );
    assert_eq!(empty["next"][0], format!("studio resume {id} --ask"));
}

#[test]
fn always_answers_the_same_request_later() {
    let scene = Scene::new();
    let script = "ask push; ask push; ask other";
    let id = scene.exec(["--agent", "talk", "--ask", script]);
    scene.await_state(&id, "waiting");
    scene
        .studio(["answer", &id, "deny", "--always"])
        .exits(2)
        .output_contains("--always cannot be used");
    scene
        .studio(["answer", &id, "allow", "--always"])
        .exits(0)
        .output_contains("allowed for this session");
    testkit::env::until("the other request", || (open_requests(&scene, &id) == [3]).then_some(()));
    scene.studio(["answer", &id, "deny"]).exits(0);
    scene.await_state(&id, "ready");
    assert_eq!(answers(&scene, &id), ["push: always", "push: always", "other: no"]);
}

#[test]
fn a_write_that_the_sandbox_denies_is_reported_with_the_line_that_opens_it() {
    let scene = Scene::new();
    let outside = scene.env.home().join("outside/f");
    std::fs::create_dir(outside.parent().unwrap()).unwrap();
    let call = |path: &std::path::Path| {
        format!(
            r#"request {{"title":"Edit","kind":"edit","locations":[{{"path":"{}"}}]}}"#,
            path.display()
        )
    };
    let id = scene.exec(["--agent", "talk", "--ask", &call(&outside)]);
    scene.await_state(&id, "ready");
    let opens = format!("`[sandbox] write = [\"{}\"]`", outside.parent().unwrap().display());
    let said = answers(&scene, &id);
    assert!(said[0].starts_with("Edit: no") && said[0].contains(&opens), "{said:?}");

    let inside = scene.exec(["--agent", "talk", "--ask", "gate go; write go 1"]);
    let file = scene.worktree(&inside).path().join("f");
    scene.studio(["send", &inside, &call(&file)]).exits(0);
    testkit::env::until("the worktree", || file.parent().unwrap().exists().then_some(()));
    scene.worktree(&inside).write("go", "");
    scene.await_state(&inside, "waiting");
    scene.studio(["answer", &inside, "allow"]).exits(0);
    scene.await_state(&inside, "ready");
}

#[test]
fn a_request_is_shown_in_full_and_an_unreadable_one_is_denied() {
    let scene = Scene::new();
    let call = r#"request {"title":"Tidy up","kind":"execute","rawInput":{"command":"rm -rf /\u001b]0,x","cwd":"/w"}}"#;
    let id = scene.exec(["--agent", "talk", "--ask", call]);
    scene.await_state(&id, "waiting");
    let page = scene.studio(["status", &id]);
    page.exits(0)
        .output_contains("Tidy up")
        .output_contains("rm -rf /^[]0,x")
        .output_contains("in /w");
    scene.studio(["answer", &id, "deny"]).exits(0);
    scene.await_state(&id, "ready");

    let long = format!("ask {}", "x".repeat(20_000));
    let id = scene.exec(["--agent", "talk", "--ask", &long]);
    scene.await_state(&id, "ready");
    let said = answers(&scene, &id);
    assert!(said[0].contains("it is 20000 bytes long"), "{}", &said[0][19_000..]);
}

#[test]
fn run_names_the_answering_command_without_a_terminal() {
    let scene = Scene::new();
    let args = ["run", "--agent", "talk", "--ask", "ask one; ask two"];
    let mut run = scene.env.start(studio(), scene.repo.path(), args);
    let mut lines = BufReader::new(run.child.stderr.take().unwrap()).lines();
    for n in ["1", "2"] {
        let command = format!("{n} allow    (or deny)");
        let named = lines.by_ref().map(Result::unwrap).find(|line| line.contains(&command));
        let named = named.expect("the command is named");
        let (id, _) = named.split_once(':').expect("the line begins with the id");
        scene.studio(["answer", id, n, "allow"]).exits(0);
    }
    assert!(lines.map(Result::unwrap).any(|line| line.contains("ready")));
}
