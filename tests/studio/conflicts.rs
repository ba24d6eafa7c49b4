//! The conflict radar: which sessions change the same lines, the order in which to land them, and
//! what agents are told.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use testkit::env::{CommandRun, until};

use crate::fixtures::{Scene, studio};

const LINES: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

/// Returns a script that replaces a line of a file.
fn replace(line: &str, new: &str) -> String {
    format!("sh sed -i 's/^{line}$/{new}/' text")
}

fn conflicts(scene: &Scene) -> Value {
    scene.studio(["conflicts", "--json"]).exits(0).json()
}

/// The entries about the same lines in a session's journal: the other session and the files.
fn told(scene: &Scene, id: &str) -> Vec<(String, Value)> {
    let entries = scene.journal(id).into_iter().filter(|line| line["entry"] == "same_lines");
    entries.map(|line| (line["id"].as_str().unwrap().to_owned(), line["files"].clone())).collect()
}

/// The prompts of a session's turns.
fn turns(scene: &Scene, id: &str) -> Vec<String> {
    let turns = scene.journal(id).into_iter().filter(|line| line["entry"] == "turn");
    turns.map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

fn with(scene: &Scene, key: &str, value: &str, args: &[&str]) -> CommandRun {
    let job = scene.env.command(studio(), scene.repo.path()).args(args).env(key, value);
    scene.env.run_command(job)
}

#[test]
fn pairs_branches_and_the_landing_order_are_shown_for_uncommitted_work() {
    let scene = Scene::new();
    scene.repo.commit_file("text", LINES);
    scene.studio(["conflicts"]).exits(0).output_contains("no open session has changes");
    let first = scene.ready(&replace("1", "one"));
    let second = scene.ready(&format!("{}; commit uno", replace("1", "uno")));
    let third = scene.ready(&replace("9", "nine"));
    // The agent of the last one still works: its first turn was collected.
    let fourth = scene.exec(["--agent", "loads", &replace("1", "eins")]);
    scene.await_state(&fourth, "ready");
    scene.studio(["send", &fourth, "gate go"]).exits(0);
    scene.await_state(&fourth, "working");
    [&first, &second, &third].iter().for_each(|id| scene.await_free(id));
    scene.repo.commit_file("text", LINES.replace('9', "NINE"));

    let found = conflicts(&scene);
    let pair = |a: &String, b: &String| json!({"sessions": [a, b], "files": [{"path": "text", "hunks": null, "merges_by_syntax": null}]});
    assert_eq!(
        found["pairs"],
        json!([pair(&first, &second), pair(&first, &fourth), pair(&second, &fourth)])
    );
    let files = json!([{"path": "text", "hunks": null, "merges_by_syntax": null}]);
    assert_eq!(found["branches"], json!([{"session": third, "branch": "main", "files": files}]));
    let order: Vec<&str> =
        found["order"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(order, [&first, &third, &second, &fourth]);
    assert_eq!(found["order"][3]["conflicts_with"], json!([first, second]));

    // One session, a pair, and the hunks.
    let of_one = scene.studio(["conflicts", &third]);
    of_one.exits(0).output_contains(&format!("{third} and main: text"));
    of_one.output_lacks(&format!("{first} and"));
    scene.studio(["conflicts", &first, &third]).exits(0).output_lacks(&second);
    let patch = scene.studio(["conflicts", "--patch", &first, &second]);
    patch.exits(0).output_contains(&format!("<<<<<<< {first}\n    one\n    =======\n    uno"));

    // Marks.
    let with = |id: &String| json!({"id": id, "files": ["text"]});
    assert_eq!(scene.status(&first)["conflicts_with"], json!([with(&second), with(&fourth)]));
    assert_eq!(scene.status(&fourth)["conflicts_with"], json!([with(&first), with(&second)]));
    assert_eq!(scene.status(&third)["conflicts_with"], json!([]));
    let list = scene.studio(["list", "--json"]).json();
    let listed = |id: &String| {
        let sessions = list["sessions"].as_array().unwrap().iter();
        sessions.clone().find(|it| it["id"] == **id).unwrap()["conflicts_with"].clone()
    };
    assert_eq!(listed(&first), json!([with(&second), with(&fourth)]));
    scene.studio(["list"]).exits(0).output_contains(&format!("conflicts with {second} in text"));
    let inbox = scene.studio(["inbox", "--json"]).json();
    assert_eq!(inbox["conflicts"].as_array().unwrap().len(), 3);
    assert_eq!(inbox["questions"], json!([]), "it is information, not a question");

    // What landed or was discarded is not compared.
    scene.studio(["accept", &first, "-m", "One"]).exits(0);
    scene.studio(["discard", &second]).exits(0);
    let found = conflicts(&scene);
    assert_eq!(found["pairs"], json!([]));
    assert_eq!(found["branches"].as_array().unwrap().len(), 2);
    scene.studio(["stop", &fourth]).exits(0);
}

#[test]
fn both_agents_are_told_once_with_their_next_turn() {
    let scene = Scene::new();
    scene.repo.commit_file("text", LINES);
    let prompts = |id: &str| turns(&scene, id);
    // One has settled, the other one works, when it turns out that they change the same lines.
    let first = scene.exec(["--agent", "loads", &replace("1", "one")]);
    scene.await_state(&first, "ready");
    scene.await_free(&first);
    let second = scene.exec(["--agent", "loads", &format!("{}; say 1", replace("1", "uno"))]);
    scene.await_state(&second, "ready");
    scene.await_free(&second);
    assert_eq!(told(&scene, &first), [(second.clone(), json!(["text"]))]);
    assert_eq!(told(&scene, &second), [(first.clone(), json!(["text"]))]);
    assert_eq!(scene.status(&first)["state"], "ready", "no turn begins because of it");
    assert_eq!(prompts(&first).len(), 1);

    // The next turn brings the note, and only that one.
    for (id, other) in [(&first, &second), (&second, &first)] {
        for n in [2, 3] {
            scene.studio(["send", id, &format!("say {n}")]).exits(0);
            until("the turn to end", || {
                (prompts(id).len() == n && scene.status(id)["state"] == "ready").then_some(())
            });
            scene.await_free(id);
        }
        let prompts = prompts(id);
        assert!(prompts[1].contains(&format!("session `{other}`: `text`")), "{prompts:?}");
        assert!(!prompts[0].contains("Note from studio"), "{prompts:?}");
        assert!(!prompts[2].contains("Note from studio"), "{prompts:?}");
        assert_eq!(told(&scene, id).len(), 1);
        scene.studio(["logs", id]).exits(0).output_contains("changes the same lines: text");
    }

    // Another file is told again. The turns end one after the other, so that both journals say so
    // at once.
    scene.studio(["send", &first, "write new 1"]).exits(0);
    until("the file", || scene.worktree(&first).path().join("new").exists().then_some(()));
    scene.await_state(&first, "ready");
    scene.await_free(&first);
    scene.studio(["send", &second, "write new 2"]).exits(0);
    until("both to be told", || {
        (told(&scene, &first).len() == 2 && told(&scene, &second).len() == 2).then_some(())
    });
    assert_eq!(told(&scene, &first)[1], (second.clone(), json!(["new"])));
}

#[test]
fn agents_whose_turns_end_at_the_same_moment_are_told_once_with_their_next_turn() {
    let scene = Scene::new();
    scene.repo.commit_file("text", LINES);
    let names = ["one", "uno", "eins", "un"];
    let task = |name: &&str| format!("{}; gate go", replace("1", name));
    let tasks: Vec<String> = names.iter().map(task).collect();
    let ids: Vec<String> =
        tasks.iter().map(|task| scene.exec(["--agent", "loads", task])).collect();
    for id in &ids {
        let file = scene.worktree(id).path().join("text");
        let has_changed = |text: String| text.lines().count() == 9 && text != LINES;
        until("its work", || std::fs::read_to_string(&file).is_ok_and(has_changed).then_some(()));
    }
    ids.iter().for_each(|id| scene.worktree(id).write("go", ""));
    ids.iter().for_each(|id| drop(scene.await_state(id, "ready")));
    ids.iter().for_each(|id| scene.await_free(id));

    for id in &ids {
        for n in [2, 3] {
            scene.studio(["send", id, &format!("say {n}")]).exits(0);
            until("the turn to end", || (turns(&scene, id).len() == n).then_some(()));
            scene.await_state(id, "ready");
            scene.await_free(id);
        }
        let others = ids.iter().filter(|other| *other != id);
        let mut expected: Vec<_> = others.map(|other| (other.clone(), json!(["text"]))).collect();
        let mut told = told(&scene, id);
        let prompts = turns(&scene, id);
        for (other, _) in &expected {
            let note = format!("session `{other}`: `text`");
            let with_note = prompts.iter().map(|prompt| prompt.contains(&note));
            assert_eq!(with_note.collect::<Vec<_>>(), [false, true, false], "{prompts:?}");
        }
        told.sort_by(|a, b| a.0.cmp(&b.0));
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(told, expected);
    }
}

#[test]
fn notes_to_agents_can_be_switched_off() {
    let scene = Scene::new();
    scene.configure("conflict_notes = false");
    scene.repo.commit_file("text", LINES);
    let first = scene.ready(&replace("1", "one"));
    let second = scene.ready(&replace("1", "uno"));
    scene.await_free(&first);
    scene.await_free(&second);
    assert_eq!(told(&scene, &first).len(), 1, "the journal has it");
    scene.studio(["send", &first, "say more"]).exits(0);
    until("the second turn", || {
        let turns = scene.journal(&first).into_iter().filter(|line| line["entry"] == "turn");
        let texts: Vec<Value> = turns.map(|line| line["text"].clone()).collect();
        assert!(!texts.iter().any(|text| text.as_str().unwrap().contains("Note from studio")));
        (texts.len() == 2).then_some(())
    });
}

#[test]
fn a_supervisor_killed_while_it_tells_tells_each_agent_once() {
    let scene = Scene::new();
    scene.repo.commit_file("text", LINES);
    let first = scene.ready(&replace("1", "one"));
    scene.await_free(&first);
    let task = replace("1", "uno");
    let id = with(&scene, "G3_TEST_KILL_AT", "conflicts.told", &["exec", &task]);
    let second = id.ok().to_owned();
    scene.await_state(&second, "crashed");
    assert_eq!(told(&scene, &first).len(), 1);
    assert_eq!(told(&scene, &second), []);
    scene.studio(["resume", &second]).exits(0);
    scene.await_state(&second, "ready");
    scene.await_free(&second);
    assert_eq!(told(&scene, &first), [(second.clone(), json!(["text"]))]);
    assert_eq!(told(&scene, &second), [(first.clone(), json!(["text"]))]);
}
