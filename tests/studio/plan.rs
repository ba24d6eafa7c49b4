//! `studio plan` with existing requirements and tasks: what is asked, landed, redone and refused.
//! The agents are scripts.

use serde_json::{Value, json};
use testkit::env::{CommandRun, until};

use crate::fixtures::{Scene, studio};

const REQUIREMENTS: &str = "g3-plan/current_requirements.md";
const TASKS: &str = "g3-plan/tasks.toml";

/// Returns a refined text with these requirements.
fn refined(lines: &[&str]) -> String {
    let lines: String = lines.iter().map(|line| format!("- {line}\n")).collect();
    format!("{{{{CURRENT REQUIREMENTS}}}}\n\n{lines}")
}

/// Returns a task list: id, text, requirements, and dependencies.
fn tasks(rows: &[(&str, &str, &[&str], &[&str])]) -> String {
    let row = |(id, text, serves, after): &(&str, &str, &[&str], &[&str])| {
        format!(
            "[[task]]\nid = {id:?}\ntext = {text:?}\nrequirements = {serves:?}\nafter = {after:?}\n\n"
        )
    };
    rows.iter().map(row).collect()
}

/// Creates three requirements, and a task for each; the third depends on the first.
fn scene() -> Scene {
    let scene = Scene::new();
    scene.repo.write(REQUIREMENTS, refined(&["R1: an a", "R2: a b", "R3: a c"]));
    scene.repo.write(
        TASKS,
        tasks(&[
            ("third", "sh cat a > c", &["R3"], &["first"]),
            ("first", "write a 1", &["R1"], &[]),
            ("second", "write b 1", &["R2"], &[]),
        ]),
    );
    scene
}

fn sessions(scene: &Scene) -> Vec<Value> {
    scene.studio(["list", "--all", "--json"]).json()["sessions"].as_array().expect("a list").clone()
}

/// Returns the id and state of each task in the last line of `plan --json`.
fn states(ran: &CommandRun) -> Vec<(String, String)> {
    let summary = ran.json_lines().pop().expect("a summary");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let tasks = summary["tasks"].as_array().unwrap_or_else(|| panic!("{ran}")).clone();
    tasks.iter().map(|task| (text(&task["id"]), text(&task["state"]))).collect()
}

#[test]
fn no_session_starts_before_both_texts_are_approved() {
    let scene = scene();
    let ran = scene.studio(["plan"]);
    ran.exits(3)
        .output_contains("R2: a b")
        .output_contains("the requirements are not approved")
        .output_contains("--yes");
    assert!(sessions(&scene).is_empty());
    scene.studio(["plan", "--yes"]).exits(0).output_contains("accepted").output_contains("third");
    assert_eq!((scene.repo.read("a"), scene.repo.read("c")), ("1\n".into(), "1\n".into()));
    let log =
        scene.repo.git(["log", "--format=%(trailers:key=Requirement,valueonly,separator=%x2C)"]);
    assert_eq!(log.lines().next(), Some("R3"), "what waits lands last: {log}");
    assert!(sessions(&scene).iter().all(|it| it["state"] == "accepted"));
    let history = scene.repo.read("g3-plan/planner_history.txt");
    let told: Vec<&str> =
        history.lines().filter_map(|line| line.split_once(" - ")).map(|(_, it)| it).collect();
    assert!(
        told[0].starts_with("APPROVED REQUIREMENTS (") && told[1].starts_with("GIT HEAD ("),
        "{history}"
    );
    assert!(history.ends_with("START IMPLEMENTING (current_requirements.md)\n<<\n  R1: an a\n  R2: a b\n  R3: a c\n>>\n"), "{history}");
    let again = scene.studio(["plan"]);
    again.exits(0).output_contains("accepted");
    assert_eq!(sessions(&scene).len(), 3, "what is done stays done");
    assert_eq!(scene.repo.git(["status", "--porcelain", "-uno"]), "");
}

#[test]
fn an_approval_applies_to_its_text_and_only_affected_tasks_are_redone() {
    let scene = scene();
    scene.studio(["plan", "--yes"]).exits(0);
    let before = sessions(&scene);
    scene.repo.write(REQUIREMENTS, refined(&["R1: an a with 2", "R2: a b", "R3: a c"]));
    let changed = tasks(&[
        ("third", "sh cat a > c", &["R3"], &["first"]),
        ("first", "write a 2", &["R1"], &[]),
        ("second", "write b 1", &["R2"], &[]),
    ]);
    scene.repo.write(TASKS, &changed);
    let ran = scene.studio(["plan"]);
    ran.exits(3)
        .output_contains("~ R1: an a with 2")
        .output_contains("  R2: a b")
        .output_contains("not approved");
    assert_eq!(sessions(&scene).len(), before.len());
    scene.studio(["plan", "--yes"]).exits(0).output_contains("to be redone");
    assert_eq!((scene.repo.read("a"), scene.repo.read("c")), ("2\n".into(), "2\n".into()));
    let now = sessions(&scene);
    assert_eq!(now.len(), 5, "the first, and the third that builds on it");
    let anew: Vec<&Value> = now.iter().filter(|it| !before.contains(it)).collect();
    let told = anew[0]["task"].as_str().unwrap_or_default();
    assert!(told.starts_with("write a 2\n\nEarlier work on this has landed as commit"), "{told}");
}

#[test]
fn a_change_discards_running_sessions_of_the_old_text() {
    let scene = scene();
    let list = tasks(&[("one", "write a 1; gate go", &["R1", "R2", "R3"], &[])]);
    scene.repo.write(TASKS, &list);
    let mut first = scene.env.start(studio(), scene.repo.path(), ["plan", "--yes"]);
    until("the agent works", || (sessions(&scene).first()?["state"] == "working").then_some(()));
    let busy = scene.studio(["plan", "--yes"]);
    busy.exits(3).output_contains("`studio plan` is already running");
    first.child.kill().expect("it can be killed");
    until("it is gone", || first.child.try_wait().expect("a child"));
    scene.repo.write(TASKS, list.replace("write a 1; gate go", "write a 2"));
    let ran = scene.studio(["plan", "--yes"]);
    ran.exits(0)
        .output_contains("discarded because the plan changed")
        .output_contains("undo: studio undo op1");
    assert_eq!(scene.repo.read("a"), "2\n");
    let states: Vec<Value> = sessions(&scene).iter().map(|it| it["state"].clone()).collect();
    assert_eq!(states, ["discarded", "accepted"]);
}

#[test]
fn a_new_requirement_gets_a_task_and_the_users_tasks_are_kept() {
    let scene = scene();
    scene.studio(["plan", "--yes"]).exits(0);
    scene.repo.write(REQUIREMENTS, refined(&["R1: an a", "R2: a b", "R3: a c", "R4: a d"]));
    let before = scene.repo.read(TASKS);
    // No model is configured here.
    let ran = scene.studio(["plan"]);
    ran.exits(3).output_contains("+ R4: a d");
    scene
        .studio(["plan", "--yes"])
        .exits(0)
        .output_contains("each requirement becomes one task")
        .output_contains("r4");
    let added = "\n[[task]]\nid = \"r4\"\ntext = \"a d\"\nrequirements = [\"R4\"]\n";
    assert_eq!(scene.repo.read(TASKS), before.trim_end().to_owned() + "\n" + added);
    scene.repo.write(TASKS, &before);
    let more = "\n# my own\n[[task]]\nid = 'fourth'\ntext = 'write d 1'\nrequirements = ['R4']\n";
    let text = scene.repo.read(TASKS) + more;
    scene.repo.write(TASKS, &text);
    let ran = scene.studio(["plan", "--yes", "--json"]);
    ran.exits(0);
    assert_eq!(states(&ran).last(), Some(&("fourth".to_owned(), "accepted".to_owned())));
    assert_eq!((sessions(&scene).len(), scene.repo.read(TASKS)), (5, text));
}

#[test]
fn errors_name_their_lines_and_start_no_session() {
    let scene = scene();
    for (list, words) in [
        (
            "[[task]]\nid='a'\ntext='x'\n\n[[task]]\nid='b'\ntext='y'\nrequirements=['R9']\n",
            "tasks.toml:5: task `b` names R9, which is not in g3-plan/current_requirements.md",
        ),
        ("[[task]]\nid='a'\ntext='x'\nafter=['a']\n", "tasks.toml:1: circular dependency"),
        ("[[task]]\ntext='x'\naftr=[]\n", "tasks.toml:3:"),
    ] {
        scene.repo.write(TASKS, list);
        scene.studio(["plan", "--yes"]).exits(2).output_contains(words);
    }
    scene.repo.write(REQUIREMENTS, refined(&["R1: a", "R1: b"]));
    scene.studio(["plan", "--yes"]).exits(2).output_contains("two requirements have the id R1");
    scene.studio(["plan", "nowhere.md"]).exits(2).output_contains("cannot read nowhere.md");
    scene.repo.write("empty.md", " \n");
    scene.studio(["plan", "empty.md"]).exits(2).output_contains("empty.md is empty");
    assert!(sessions(&scene).is_empty());
    let other = Scene::new();
    other.studio(["plan"]).exits(2).output_contains("no plan in this repository");
    other.repo.write("wish.md", "- R1: x\n");
    other.repo.git(["switch", "-q", "--detach"]);
    other.studio(["plan", "wish.md"]).exits(3).output_contains("a plan needs a branch to land on");
}

#[test]
fn a_plan_without_a_usable_agent_is_refused_before_it_starts() {
    let scene = scene();
    scene.studio(["plan"]).exits(3);
    let old = scene.repo.read(REQUIREMENTS);
    // g3 would refine the text, and has neither an API key nor a model here.
    scene.repo.write("wish.md", "make it faster\n");
    scene
        .studio(["plan", "--new", "--yes", "wish.md"])
        .exits(2)
        .output_contains("is not on this machine");
    assert_eq!(scene.repo.read(REQUIREMENTS), old);
    let list = scene.repo.read(TASKS).replacen("id = ", "agent = \"g3\"\nid = ", 1);
    scene.repo.write(TASKS, list);
    scene.studio(["plan", "--yes"]).exits(2).output_contains("is not on this machine");
    assert!(sessions(&scene).is_empty());
}

#[test]
fn another_plan_is_archived_only_on_request() {
    let scene = scene();
    scene.studio(["plan"]).exits(3);
    let (old, list) = (scene.repo.read(REQUIREMENTS), scene.repo.read(TASKS));
    scene.repo.write("wish.md", refined(&["R1: a d"]));
    scene.studio(["plan", "--yes", "wish.md"]).exits(3).output_contains("another plan is active");
    assert_eq!(scene.repo.read(REQUIREMENTS), old);
    scene
        .studio(["plan", "--new", "wish.md"])
        .exits(3)
        .output_contains("archived the earlier plan: g3-plan/dropped_");
    let kept = |kind: &str| {
        let names = std::fs::read_dir(scene.repo.path().join("g3-plan")).expect("there");
        let mut names = names.flatten().map(|it| it.file_name().to_string_lossy().into_owned());
        let name = names.find(|name| name.starts_with(kind)).unwrap_or_else(|| panic!("no {kind}"));
        scene.repo.read(&format!("g3-plan/{name}"))
    };
    assert_eq!((kept("dropped_requirements"), kept("dropped_tasks")), (old, list));
    scene.repo.write(TASKS, tasks(&[("d", "write d 1", &["R1"], &[])]));
    scene.studio(["plan", "--yes", "wish.md"]).exits(0);
    assert_eq!(scene.repo.read("d"), "1\n");
    scene.repo.write("next.md", refined(&["R1: an e"]));
    scene.studio(["plan", "next.md"]).exits(3).output_contains("g3-plan/completed_");
}

#[test]
fn a_failed_task_is_retried_and_blocks_only_its_dependents() {
    let scene = scene();
    scene.repo.write(
        TASKS,
        tasks(&[
            ("first", "exit 1", &["R1"], &[]),
            ("second", "write b 1", &["R2"], &[]),
            ("third", "write c 1", &["R3"], &["first"]),
        ]),
    );
    let ran = scene.studio(["plan", "--yes", "--json"]);
    ran.exits(1);
    let told = states(&ran);
    let of = |id: &str| told.iter().find(|(task, _)| task == id).map(|(_, state)| state.as_str());
    assert_eq!(
        (of("first"), of("second"), of("third")),
        (Some("failed"), Some("accepted"), Some("to do"))
    );
    let turns = |it: &Value| {
        scene
            .journal(it["id"].as_str().unwrap_or_default())
            .iter()
            .filter(|line| line["entry"] == "turn")
            .count()
    };
    let failed =
        sessions(&scene).into_iter().find(|it| it["state"] == "failed").expect("it failed");
    assert_eq!(turns(&failed), 8, "a bounded number of tries");
    let people = scene.studio(["plan"]);
    people.exits(1).output_contains("third: waiting for first").output_contains("not landed");
}

#[test]
fn a_discarded_session_is_restarted_and_ctrl_c_keeps_everything() {
    let scene = scene();
    scene.repo.write(TASKS, tasks(&[("one", "write a 1; gate go", &["R1", "R2", "R3"], &[])]));
    let args = ["plan", "--yes", "--json"];
    let mut first = scene.env.start(studio(), scene.repo.path(), args);
    until("the agent works", || (sessions(&scene).first()?["state"] == "working").then_some(()));
    let pid = rustix::process::Pid::from_child(&first.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it hears");
    let ended = until("it ends", || first.child.try_wait().expect("a child"));
    assert_eq!(ended.code(), Some(130));
    let stopped = sessions(&scene).remove(0);
    assert_eq!(stopped["state"], "stopped");
    scene.studio(["discard", stopped["id"].as_str().expect("an id")]).exits(0);
    let mut again = scene.env.start(studio(), scene.repo.path(), args);
    let id = until("another works", || {
        let second = sessions(&scene).into_iter().nth(1)?;
        (second["state"] == "working").then(|| second["id"].as_str().unwrap_or_default().to_owned())
    });
    scene.worktree(&id).write("go", "");
    assert!(until("it ends", || again.child.try_wait().expect("a child")).success());
    assert_eq!(scene.repo.read("a"), "1\n");
}

#[test]
fn a_plan_killed_at_any_step_can_be_continued() {
    for step in [
        "plan.written",
        "plan.saved:1",
        "plan.saved:2",
        "plan.saved:3",
        "plan.saved:4",
        "run.supervisor",
        "run.supervisor:2",
    ] {
        let scene = Scene::new();
        scene.repo.write("wish.md", refined(&["an a", "a b"]));
        scene.repo.write(
            TASKS,
            tasks(&[("a", "write a 1", &["R1"], &[]), ("b", "write b 1", &["R2"], &["a"])]),
        );
        let plan = |kill: Option<&str>| {
            let job =
                scene.env.command(studio(), scene.repo.path()).args(["plan", "--yes", "wish.md"]);
            let job = match kill {
                Some(step) => job.env("G3_TEST_KILL_AT", step),
                None => job,
            };
            scene.env.run_command(job)
        };
        let mut ran = plan(Some(step));
        if step == "run.supervisor:2" && ran.code == 0 {
            // The supervisor of the first session started the second one: nothing was killed.
        } else {
            assert_ne!(ran.code, 0, "{step}");
            ran = plan(None);
            if ran.code == 3 {
                // Killed after writing the text and before recording it.
                ran.output_contains("another plan is active");
                ran = scene.studio(["plan", "--yes"]);
            }
        }
        ran.exits(0);
        assert_eq!(
            (scene.repo.read("a"), scene.repo.read("b")),
            ("1\n".into(), "1\n".into()),
            "{step}"
        );
        let landed = sessions(&scene).iter().filter(|it| it["state"] == json!("accepted")).count();
        assert_eq!(landed, 2, "{step}");
        scene.repo.is_sound();
    }
}

#[test]
fn a_plan_killed_while_archiving_loses_no_text() {
    for step in ["plan.set_aside", "plan.set_aside:2", "plan.written", "plan.saved"] {
        let scene = scene();
        scene.studio(["plan"]).exits(3);
        let texts = [scene.repo.read(REQUIREMENTS), scene.repo.read(TASKS)];
        scene.repo.write("wish.md", refined(&["an x"]));
        let job = scene.env.command(studio(), scene.repo.path()).args(["plan", "--new", "wish.md"]);
        let killed = scene.env.run_command(job.env("G3_TEST_KILL_AT", step));
        assert_eq!(killed.code, 137, "{step}: {killed}");
        let entries = std::fs::read_dir(scene.repo.path().join("g3-plan")).expect("there");
        let kept: Vec<String> = entries
            .flatten()
            .map(|it| std::fs::read_to_string(it.path()).expect("a text"))
            .collect();
        assert!(texts.iter().all(|text| kept.contains(text)), "{step}: {kept:?}");
        let again = scene.studio(["plan", "--new", "wish.md"]);
        again.exits(3).output_contains("R1: an x").output_contains("not approved");
    }
}

#[test]
fn changes_of_the_files_during_execution_are_not_used() {
    let scene = scene();
    let list = tasks(&[
        ("one", "write a 1; gate go", &["R1", "R2"], &[]),
        ("two", "write b 1", &["R3"], &["one"]),
    ]);
    scene.repo.write(TASKS, &list);
    let mut run = scene.env.start(studio(), scene.repo.path(), ["plan", "--yes"]);
    let id = until("the agent works", || {
        let first = sessions(&scene).into_iter().next()?;
        (first["state"] == "working").then(|| first["id"].as_str().unwrap_or_default().to_owned())
    });
    scene.repo.write(TASKS, list.replace("write b 1", "write b 2") + "[[task]\n");
    scene.worktree(&id).write("go", "");
    let ended = until("it ends", || run.child.try_wait().expect("a child"));
    assert_eq!(scene.repo.read("b"), "1\n", "what the user said yes to");
    assert_eq!(ended.code(), Some(2), "and the mistake is told at the end");
}

#[test]
fn an_undone_landing_is_not_repeated_without_confirmation() {
    let scene = scene();
    scene.repo.write(TASKS, tasks(&[("one", "write a 1", &["R1", "R2", "R3"], &[])]));
    scene.studio(["plan", "--yes"]).exits(0);
    scene.studio(["undo"]).exits(0);
    assert!(!scene.repo.path().join("a").exists());
    let id = sessions(&scene)[0]["id"].as_str().expect("an id").to_owned();
    for _ in 0..2 {
        let ran = scene.studio(["plan", "--yes"]);
        ran.exits(1)
            .output_contains("its landing was undone")
            .output_contains(&format!("studio accept {id}"));
        assert!(!scene.repo.path().join("a").exists(), "{ran}");
    }
    scene.studio(["accept", &id]).exits(0);
    scene.studio(["plan", "--yes"]).exits(0);
    assert_eq!(scene.repo.read("a"), "1\n");
}

#[test]
fn a_digest_approves_one_text_and_the_plan_continues_in_the_background_until_it_is_stopped() {
    let scene = scene();
    let empty = Scene::new();
    empty.studio(["plan", "--status"]).exits(0).output_contains("no plan; start one with");
    empty.studio(["plan", "--stop"]).exits(3).output_contains("no `studio plan` is running");
    let status = || scene.studio(["plan", "--status", "--json"]).exits(0).json()["plan"].clone();
    let digest = |name: &str| status()[name]["digest"].as_str().expect("a digest").to_owned();
    let list = tasks(&[("one", "write a 1; gate go", &["R1", "R2"], &[])]);
    scene.repo.write(TASKS, &list);
    scene.studio(["plan", "--status"]).exits(0).output_contains("approve: 0 of 1 task done");
    assert!(!scene.repo.path().join(".git/studio/plan.json").exists(), "it only reads");
    let first = digest("requirements_file");
    scene.studio(["plan", "--approve", "0", "--detach"]).exits(3).output_contains("not approved");
    scene.repo.write(REQUIREMENTS, refined(&["R1: an a", "R2: a b", "R3: more"]));
    scene
        .studio(["plan", "--approve", &first, "--detach"])
        .exits(3)
        .output_contains("not approved");
    // Without a task for R3, the list is split again, unless the user approves it as it is.
    scene.repo.write(REQUIREMENTS, refined(&["R1: an a", "R2: a b", "R3: a c"]));
    assert_eq!(digest("requirements_file"), first);
    scene.studio(["plan", "--yes", "--approve", &first]).exits(2);
    let ran = scene.studio(["plan", "--approve", &first]);
    ran.exits(3).output_contains("the tasks are not approved");
    scene.repo.write(TASKS, &list);
    assert_eq!(status()["stage"], "split");
    let tasks_digest = digest("tasks_file");
    scene
        .studio(["plan", "--approve", &tasks_digest, "--detach"])
        .exits(0)
        .output_contains("in the background");
    until("the agent works", || (sessions(&scene).first()?["state"] == "working").then_some(()));
    assert_eq!(
        (status()["running"].clone(), status()["stage"].clone()),
        (json!(true), json!("work"))
    );
    scene.studio(["plan", "--detach"]).exits(3).output_contains("already running");
    scene.studio(["plan", "--stop"]).exits(0).output_contains("continue with: studio plan");
    assert_eq!(
        (status()["running"].clone(), sessions(&scene)[0]["state"].clone()),
        (json!(false), json!("stopped"))
    );
    assert_eq!(scene.repo.read(TASKS), list);
}
