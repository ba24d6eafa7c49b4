//! Tests a long turn in which every step fails once: the outcome is the same as without failures.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;

use crate::agent_env::{Stage, journal};

/// Number of calls in the turn: a file and a command per step.
const STEPS: usize = 60;

/// The failures of steps. In the first group the provider fails and the request is retried, in the
/// second the reply is bad, in the third the call fails.
const FAULTS: [fn(usize) -> ScriptedReply; 20] = [
    |_| ScriptedReply::status(500),
    |_| ScriptedReply::status(429).retry_after(0),
    |_| ScriptedReply::status(529),
    |_| ScriptedReply::html(502),
    |_| ScriptedReply::reset(),
    |_| ScriptedReply::nothing(),
    |at| right(at).cut_after(60),
    |at| right(at).reset_after(200),
    |at| right(at).stall_after(120),
    |_| ScriptedReply::says("half a").error_event("overloaded_error", "Overloaded"),
    |_| ScriptedReply::new(),
    |_| ScriptedReply::says("this was cut o").stops("max_tokens"),
    |at| right(at).stops("max_tokens"),
    |at| ScriptedReply::new().calls_raw("shell", format!("{{\"command\": \"echo {at}")),
    |at| ScriptedReply::new().calls_raw("write_file", format!("[\"wrong-{at}\"]")),
    |_| ScriptedReply::call("no_such_tool", json!({"x": 1})),
    |_| ScriptedReply::call("shell", json!({"cmd": "echo missing"})),
    |at| ScriptedReply::call("shell", json!({"command": format!("echo failed-{at} >&2; exit 3")})),
    |at| {
        ScriptedReply::call(
            "shell",
            json!({"command": format!("rm -rf / --no-preserve-root # {at}")}),
        )
    },
    |at| {
        let diff = format!("@@ -1 +1 @@\n-never there {at}\n+else\n");
        ScriptedReply::call("str_replace", json!({"file_path": "log", "diff": diff}))
    },
];

/// Returns the correct step: the command needs the file, so both run in order.
fn right(at: usize) -> ScriptedReply {
    let file = json!({"file_path": format!("f{at}"), "content": format!("line {at}\n")});
    let line = json!({"command": format!("cat f{at} >> log && echo step-{at}-is-done")});
    ScriptedReply::new()
        .then_says(format!("step {at}"))
        .calls("write_file", file)
        .calls("shell", line)
}

/// Returns the step that the conversation has reached.
fn step(request: &ReceivedRequest) -> usize {
    let seen = request.text();
    (0..STEPS).find(|at| !seen.contains(&format!("step-{at}-is-done"))).unwrap_or(STEPS)
}

/// Whether one of the last calls was interrupted.
fn is_interrupted(request: &ReceivedRequest) -> bool {
    let results = request.tool_results();
    results.iter().rev().take(2).any(|(_, text)| text.contains("interrupted"))
}

fn assert_all_is_done_once(stage: &Stage) {
    let lines: Vec<String> = (0..STEPS).map(|at| format!("line {at}\n")).collect();
    assert_eq!(stage.repo.read("log"), lines.concat());
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(stage.repo.read(&format!("f{at}")), *line);
    }
}

#[test]
fn a_failure_at_every_step_does_not_change_the_outcome() {
    for wire in ["anthropic", "openai"] {
        let tries = Mutex::new(HashMap::<usize, usize>::new());
        let stage = Stage::new(Script::by(move |request| {
            let at = step(request);
            if at == STEPS {
                return ScriptedReply::says("all steps are done");
            }
            let mut tries = tries.lock().unwrap();
            let tried = tries.entry(at).or_default();
            *tried += 1;
            assert!(*tried <= 3, "step {at} was tried {tried} times: {}", request.last());
            if *tried == 1 { FAULTS[at % FAULTS.len()](at) } else { right(at) }
        }));
        let quick = "[agent]\ntimeout_seconds = 1\n";
        stage.env.config(&format!("{}\n{quick}", stage.model.config_toml(wire)));
        stage.repo.write("log", "");
        let job = stage.job(["take all steps"]).env("G3_TEST_RETRY_MS", "1");
        let ran = stage.env.run_command(job);
        assert!(ran.ok().ends_with("all steps are done"), "{wire}: {ran}");
        assert_all_is_done_once(&stage);
        for request in stage.asked() {
            let calls = request.body["messages"].to_string();
            let calls =
                calls.matches("\"tool_use\"").count() + calls.matches("\"function\":{").count();
            assert_eq!(calls, request.tool_results().len(), "a call without its result");
        }
        let entries = journal(&stage.session_dir());
        assert_eq!(entries.last().unwrap()["status"], "done");
    }
}

#[test]
fn a_turn_killed_at_every_step_completes() {
    // A model that is told that a command was interrupted checks before it repeats it.
    let stage = Stage::new(Script::by(|request| match step(request) {
        STEPS => ScriptedReply::says("all steps are done"),
        at if is_interrupted(request) => {
            let line = format!(
                "[ -e f{at} ] || echo 'line {at}' > f{at}; \
                 grep -qx 'line {at}' log || cat f{at} >> log; echo step-{at}-is-done"
            );
            ScriptedReply::call("shell", json!({ "command": line }))
        }
        at => right(at),
    }));
    stage.repo.write("log", "");
    let steps = ["g3.journal.reply:2", "g3.journal.result:2", "g3.journal.result:3"];
    let mut kills = 0;
    let mut args = vec!["take all steps"];
    loop {
        let job = stage.job([]).args(&args).env("G3_TEST_KILL_AT", steps[kills % steps.len()]);
        let ran = stage.env.run_command(job);
        if ran.code != 137 {
            assert!(ran.ok().ends_with("all steps are done"), "after {kills} kills: {ran}");
            break;
        }
        kills += 1;
        args = vec!["--resume"];
        assert!(kills < 3 * STEPS, "it gets nowhere");
    }
    assert!(kills >= STEPS / 2, "{kills} kills are too few");
    assert_all_is_done_once(&stage);
}
