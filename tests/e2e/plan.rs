//! `studio plan` end to end: a feature with eight requirements becomes landed and traced work,
//! although two tasks conflict, a check fails twice, and a session is killed.

use serde_json::{Value, json};
use testkit::env::until;
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;

use crate::fixtures::Scene;

const WISH: &str = "I want eight things: files, a shared list with two and three, and a bell.\n";

/// The tasks: name, requirements, dependencies, check.
const TASKS: [(&str, &[&str], &[&str], &str); 7] = [
    ("one", &["R1"], &[], "test -f one.txt"),
    ("two", &["R2"], &[], "grep -qx two shared.txt"),
    ("three", &["R3"], &[], "grep -qx three shared.txt"),
    ("four", &["R4"], &[], "test \"$(cat four.txt)\" = 3"),
    ("five", &["R5"], &[], "test -f five.txt"),
    ("six", &["R6", "R7"], &["one", "two"], "test -f six.txt -a -f one.txt"),
    ("seven", &["R8"], &["six"], "test -f seven.txt -a -f six.txt"),
];

/// A model for every step of the plan; the call for task `five` waits at the gate.
fn model(gate: &ReplyGate) -> Script {
    let gate = gate.clone();
    Script::by(move |request| {
        let tools = request.tool_names();
        let offers = |name: &str| tools.iter().any(|tool| tool == name);
        if request.asks_for_commit_message() {
            ScriptedReply::says("Do a part of the plan\n\nIt was asked for.")
        } else if offers("requirements") {
            let list: String = (1..=8).map(|n| format!("- R{n}: thing {n} is there\n")).collect();
            after_a_call(request, ScriptedReply::call("requirements", json!({"text": list})))
        } else if offers("tasks") {
            after_a_call(request, ScriptedReply::call("tasks", json!({"tasks": rows()})))
        } else if offers("verdict") {
            after_a_call(request, verdict(request))
        } else {
            player(request, &gate)
        }
    })
}

fn after_a_call(request: &ReceivedRequest, call: ScriptedReply) -> ScriptedReply {
    if request.assistant_messages() == 0 { call } else { ScriptedReply::says("That is all.") }
}

fn rows() -> Vec<Value> {
    let row = |(id, requirements, after, check): &(&str, &[&str], &[&str], &str)| {
        json!({"id": id, "text": format!("Do the part called <{id}>."), "requirements": requirements,
               "after": after, "checks": [check]})
    };
    TASKS.iter().map(row).collect()
}

/// Returns the verdict of a coach that approves unless a check failed.
fn verdict(request: &ReceivedRequest) -> ScriptedReply {
    let text = request.text();
    let red = text.contains("failed");
    let met = if red { "unmet" } else { "met" };
    let ids =
        (1..=8).map(|n| format!("R{n}")).filter(|id| text.contains(&format!("- {id}: thing")));
    let judged: Vec<Value> =
        ids.map(|id| json!({"id": id, "status": met, "evidence": "the check"})).collect();
    let feedback = if red { "the check fails" } else { "" };
    ScriptedReply::call(
        "verdict",
        json!({"approved": !red, "requirements": judged, "feedback": feedback}),
    )
}

/// Works on the task that the prompt names.
fn player(request: &ReceivedRequest, gate: &ReplyGate) -> ScriptedReply {
    let task = TASKS
        .iter()
        .map(|(id, ..)| *id)
        .find(|id| request.first_user().contains(&format!("<{id}>")))
        .expect("a task of the plan");
    let said = request.assistant_messages();
    if said % 2 == 1 {
        return ScriptedReply::says("It is done.");
    }
    let last = request.last();
    if let Some((_, merge)) = last.split_once("run `git merge ") {
        let tip = merge.split('`').next().unwrap_or_default();
        let command = format!(
            "git add -A; git commit -qm mine; git merge -q {tip}; \
             printf 'two\\nthree\\n' > shared.txt; git add -A; git commit -qm both"
        );
        return ScriptedReply::call("shell", json!({"command": command}));
    }
    let write = |name: &str, content: String| {
        ScriptedReply::call("write_file", json!({"file_path": name, "content": content}))
    };
    match task {
        "two" | "three" => write("shared.txt", format!("{task}\n")),
        "four" => write("four.txt", format!("{}\n", said / 2 + 1)),
        "five" => write("five.txt", "five\n".to_owned()).gate(gate),
        other => write(&format!("{other}.txt"), format!("{other}\n")),
    }
}

fn kill_9(pid: u64) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let signal = rustix::process::Signal::KILL;
    rustix::process::kill_process(pid.expect("a process id"), signal).expect("it can be killed");
}

/// Returns the supervisor of the session that works on a task.
fn supervisor(scene: &Scene, words: &str) -> Option<u64> {
    let session = scene.sessions().into_iter().find(|it| {
        it["task"].as_str().is_some_and(|task| task.contains(words)) && it["state"] == "working"
    })?;
    let id = session["id"].as_str()?;
    let journal = scene.repo.path().join(format!(".git/studio/sessions/{id}/journal.jsonl"));
    let text = std::fs::read_to_string(journal).ok()?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.rev().find(|line| line["entry"] == "spawned")?["pid"].as_u64()
}

#[test]
fn eight_requirements_land_and_are_traced_despite_failures() {
    let gate = ReplyGate::new();
    let scene = Scene::new("anthropic", model(&gate));
    scene.repo.write("shared.txt", "nothing\n");
    scene.repo.git(["add", "."]);
    scene.repo.git(["commit", "-qm", "Begin"]);
    scene.repo.write("wish.md", WISH);

    let run = scene.job(["plan", "--yes", "-j", "3", "--json", "wish.md"]);
    let mut running = run.stdout(base::process::Stream::Null).spawn().expect("studio is there");
    let killed = until("the fifth task is at work", || supervisor(&scene, "<five>"));
    kill_9(killed);
    gate.open_all();
    let ended = until("the plan is over", || running.child.try_wait().expect("a child"));
    let list = scene.studio(["list", "--all"]);
    assert!(ended.success(), "{list}");

    assert_eq!(scene.repo.read("shared.txt"), "two\nthree\n", "both sides of the conflict");
    assert_eq!(scene.repo.read("four.txt"), "3\n", "the third try passes its check");
    for name in ["one", "five", "six", "seven"] {
        assert_eq!(scene.repo.read(&format!("{name}.txt")), format!("{name}\n"));
    }
    let trace = scene.studio(["trace", "--json"]);
    trace.exits(0);
    let rows = trace.json()["requirements"].as_array().expect("rows").clone();
    assert_eq!(rows.len(), 8);
    for row in &rows {
        assert_eq!(row["state"], "shown", "{row:#}");
        assert_eq!(row["commits"].as_array().map(Vec::len), Some(1), "{row:#}");
        assert_eq!(
            (&row["coach"]["status"], &row["judged_earlier"]),
            (&json!("met"), &json!(false)),
            "{row:#}"
        );
        assert!(row["turns"].as_u64().is_some_and(|turns| turns > 1), "{row:#}");
    }
    scene.studio(["verify"]).exits(0);
    let order = scene.repo.git(["log", "--reverse", "--format=%(trailers:key=Task,valueonly)"]);
    let place = |task: &str| order.find(&format!("<{task}>")).unwrap_or_else(|| panic!("{order}"));
    assert!(
        place("one") < place("six") && place("two") < place("six") && place("six") < place("seven")
    );
    let plan = scene.repo.read("g3-plan/current_requirements.md");
    assert!(plan.contains("- R8: thing 8 is there") && plan.contains(WISH), "{plan}");
    scene.repo.is_sound();

    let again = scene.studio(["plan", "--json"]);
    again.exits(0);
    let summary = again.json_lines().pop().expect("a summary");
    let states: Vec<&Value> =
        summary["tasks"].as_array().expect("tasks").iter().map(|it| &it["state"]).collect();
    assert_eq!(states, ["accepted"; 7], "{summary:#}");
}

/// A model whose first task implements one of two requirements only, and that compares by reading.
fn forgetful_model() -> Script {
    Script::by(|request| {
        let tools = request.tool_names();
        let offers = |name: &str| tools.iter().any(|tool| tool == name);
        if request.asks_for_commit_message() {
            ScriptedReply::says("Write a file\n\nIt was asked for.")
        } else if offers("findings") {
            match request.assistant_messages() {
                0 => ScriptedReply::call("read_file", json!({"file_path": "two.txt"})),
                1 => compared(request),
                _ => ScriptedReply::says("That is all."),
            }
        } else if offers("verdict") {
            let text = request.text();
            let judged: Vec<Value> = ["R1", "R2"]
                .iter()
                .filter(|id| text.contains(&format!("- {id}: ")))
                .map(|id| json!({"id": id, "status": "met", "evidence": "its file"}))
                .collect();
            let args = json!({"approved": true, "requirements": judged, "feedback": ""});
            after_a_call(request, ScriptedReply::call("verdict", args))
        } else {
            let file =
                if request.first_user().contains("<second>") { "two.txt" } else { "one.txt" };
            let args = json!({"file_path": file, "content": format!("content of {file}\n")});
            after_a_call(request, ScriptedReply::call("write_file", args))
        }
    })
}

/// Returns the findings of a model that has read `two.txt`. The check of the first task serves both
/// requirements.
fn compared(request: &ReceivedRequest) -> ScriptedReply {
    let has_two = request.last().contains("content of two.txt");
    let lacks_one = request.first_user().contains("- R1: the check `test -f one.txt` fails");
    let status = |is_met: bool| if is_met { "met" } else { "unmet" };
    let judged = json!([
        {"id": "R1", "status": status(!lacks_one), "evidence": "one.txt"},
        {"id": "R2", "status": status(has_two && !lacks_one), "evidence": "two.txt"},
    ]);
    let task = |id: &str, requirements: &[&str], check: &str| {
        json!({"id": id, "text": format!("Do the part called <{id}>."),
               "requirements": requirements, "checks": [check]})
    };
    let second = (!has_two).then(|| task("second", &["R2"], "test -f two.txt"));
    let third = lacks_one.then(|| task("third", &["R1", "R2"], "test -f one.txt"));
    let tasks: Vec<Value> = second.into_iter().chain(third).collect();
    ScriptedReply::call("findings", json!({"requirements": judged, "tasks": tasks}))
}

#[test]
fn a_plan_converges_when_the_code_meets_every_requirement_and_again_after_a_break() {
    let scene = Scene::new("anthropic", forgetful_model());
    scene.repo.write(
        "g3-plan/current_requirements.md",
        "{{CURRENT REQUIREMENTS}}\n\n- R1: one.txt is there\n- R2: two.txt is there\n",
    );
    scene.repo.write(
        "g3-plan/tasks.toml",
        "[[task]]\nid = \"first\"\ntext = \"Do the part called <first>.\"\n\
         requirements = [\"R1\", \"R2\"]\nchecks = [\"test -f one.txt\"]\n",
    );
    // What is missing is planned, and approved like any other task.
    let asked = scene.studio(["plan", "--yes"]);
    asked.exits(0);
    assert!(!scene.repo.path().join("two.txt").exists(), "{asked}");
    let tasks = scene.repo.read("g3-plan/tasks.toml");
    let planned = scene.studio(["plan", "--converge"]);
    planned.exits(3).output_contains("R2 unmet").output_contains("the tasks are not approved");
    let appended = scene.repo.read("g3-plan/tasks.toml");
    assert!(appended.starts_with(&tasks) && appended.contains("id = \"second\""), "{appended}");

    let converged = scene.studio(["plan", "--converge", "--yes"]);
    converged.exits(0).output_contains("R2 met").output_contains("every requirement is met at ");
    assert_eq!(scene.repo.read("two.txt"), "content of two.txt\n");
    let history = scene.repo.read("g3-plan/planner_history.txt");
    assert!(history.contains(" - NOT CONVERGED (SHA: ") && history.contains(" - CONVERGED (SHA: "));

    // A check that fails now decides, and the work is planned again.
    scene.repo.git(["rm", "-q", "one.txt"]);
    scene.repo.git(["commit", "-qm", "Remove it"]);
    let repaired = scene.studio(["plan", "--converge", "--yes", "--json"]);
    repaired.exits(0);
    let found: Vec<Value> =
        repaired.json_lines().into_iter().filter(|it| it["type"] == "convergence").collect();
    assert_eq!((&found[0]["met"], &found[1]["met"]), (&json!(false), &json!(true)), "{repaired}");
    assert_eq!(found[0]["requirements"][0]["status"], "unmet");
    assert_eq!(scene.repo.read("one.txt"), "content of one.txt\n");
    scene.repo.is_sound();
}
