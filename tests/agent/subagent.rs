//! Tests of the tool `task`: a subagent does a part of the work within a session.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::process::{self, exit_code};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::env::until;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;

use crate::agent_env::{Stage, journal, of_type};

/// Returns a call of the tool.
fn task(prompt: &str) -> ScriptedReply {
    ScriptedReply::call("task", json!({ "description": "a part", "prompt": prompt }))
}

/// The main agent delegates `part` and finishes; the subagent uses these replies.
fn lead_and(part: ScriptedReply, worker: Vec<ScriptedReply>) -> Script {
    let lead = vec![part, ScriptedReply::says("all is done"), ScriptedReply::says("again")];
    Script::by_task([("lead the work".to_owned(), lead), ("do the part".to_owned(), worker)])
}

/// Returns the requests of the subagent with this task.
fn asked_by(stage: &Stage, order: &str) -> Vec<ReceivedRequest> {
    stage.asked().into_iter().filter(|it| it.first_user().contains(order)).collect()
}

/// Returns the results of the main agent's calls.
fn results(stage: &Stage) -> Vec<String> {
    let asked = asked_by(stage, "lead the work");
    let results = asked.last().expect("the lead was asked").tool_results();
    results.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn a_subagent_has_its_own_conversation_and_returns_a_report() {
    let write = json!({"file_path": "part.txt", "content": "part\n"});
    let worker = vec![
        ScriptedReply::call("write_file", write).usage(100, 7),
        ScriptedReply::says("I wrote part.txt").usage(120, 3),
    ];
    let stage = Stage::new(lead_and(task("do the part").usage(50, 5), worker));
    let ran = stage.g3(["--json", "lead the work"]);
    ran.ok();
    assert_eq!(stage.repo.read("part.txt"), "part\n");
    assert_eq!(results(&stage), ["I wrote part.txt"]);
    let [lead, worker] = ["lead the work", "do the part"].map(|order| asked_by(&stage, order));
    assert!(!worker[0].text().contains("lead the work"), "{}", worker[0].text());
    assert!(!lead[1].text().contains("part.txt with"), "its calls are not ours");
    assert!(lead[0].tool_names().contains(&"task".to_owned()));
    assert!(!worker[0].tool_names().contains(&"task".to_owned()));
    // Its text and calls are output of the one call that the user sees.
    let events = ran.json_lines();
    assert_eq!(of_type(&events, "tool_start").len(), 1);
    let shown = of_type(&events, "tool_output")[0]["text"].as_str().unwrap().to_owned();
    assert!(shown.starts_with("write_file part.txt"), "{shown}");
    // Its cost is counted in events, in total and per model.
    let told: u64 = of_type(&events, "usage").iter().map(|it| it["input"].as_u64().unwrap()).sum();
    let end = events.last().unwrap();
    assert_eq!((told, &end["usage"]["input"]), (280, &json!(280)));
    let dir = stage.session_dir();
    let picture: Value =
        serde_json::from_slice(&std::fs::read(dir.join("session.json")).unwrap()).unwrap();
    let calls: u64 = picture["by_model"]
        .as_object()
        .unwrap()
        .values()
        .map(|it| it["calls"].as_u64().unwrap())
        .sum();
    assert_eq!((calls, &picture["usage"]["input"]), (4, &json!(280)));
    assert!(journal(&dir.join("task-1")).iter().any(|it| it["entry"] == "reply"));
    stage.g3(["sessions", "list"]).output_lacks("task-1").ok();
    assert_eq!(
        stage.g3(["--resume", "--json", "lead the work again"]).json_lines().last().unwrap()["usage"]
            ["input"],
        290,
        "a bill is taken up again"
    );
}

#[test]
fn a_read_only_subagent_is_offered_and_runs_only_read_tools() {
    let part = json!({"prompt": "do the part", "read_only": "true"});
    let write = json!({"file_path": "part.txt", "content": "part\n"});
    let worker = vec![
        ScriptedReply::call("write_file", write).calls("shell", json!({"command": "touch made"})),
        ScriptedReply::says("I could not"),
    ];
    let stage = Stage::new(lead_and(ScriptedReply::call("task", part), worker));
    stage.g3(["lead the work"]).ok();
    assert!(
        !stage.repo.path().join("part.txt").exists() && !stage.repo.path().join("made").exists()
    );
    let asked = asked_by(&stage, "do the part");
    let offered = asked[0].tool_names();
    for name in ["write_file", "str_replace", "multiedit", "patch", "shell", "remember", "task"] {
        assert!(!offered.iter().any(|offered| offered == name), "{offered:?}");
    }
    assert!(offered.iter().any(|name| name == "read_file"));
    assert!(asked[1].tool_results().iter().all(|(_, text)| text.contains("denied")));
}

#[test]
fn read_only_subagents_run_concurrently() {
    static THERE: AtomicUsize = AtomicUsize::new(0);
    let stage = Stage::new(Script::by(|request| {
        if request.first_user().contains("lead the work") {
            let part = |name: &str| json!({"prompt": format!("part {name}"), "read_only": true});
            return match request.assistant_messages() {
                0 => ScriptedReply::new().calls("task", part("a")).calls("task", part("b")),
                _ => ScriptedReply::says("done"),
            };
        }
        THERE.fetch_add(1, Ordering::SeqCst);
        until("the other one is there", || (THERE.load(Ordering::SeqCst) == 2).then_some(()));
        ScriptedReply::says(format!("report of {}", request.first_user().lines().next().unwrap()))
    }));
    stage.g3(["lead the work"]).ok();
    assert_eq!(results(&stage), ["report of part a", "report of part b"]);
}

#[test]
fn the_limits_of_a_run_include_its_subagents() {
    let look = || ScriptedReply::call("shell", json!({"command": "date +%N"})).usage(100, 0);
    for limit in [["--max-turns", "3"], ["--max-tokens", "250"]] {
        let stage =
            Stage::new(lead_and(task("do the part").usage(60, 0), vec![look(), look(), look()]));
        let args = [limit[0], limit[1], "--json", "lead the work"];
        let ran = stage.g3(args);
        ran.exits(3);
        assert_eq!(asked_by(&stage, "do the part").len(), 2, "{limit:?}");
        assert_eq!(ran.json_lines().last().unwrap()["status"], "limit");
        let all = journal(&stage.session_dir());
        let result = all.iter().find(|it| it["entry"] == "result").unwrap();
        let text = result["result"]["text"].as_str().unwrap();
        assert!(text.contains("limit of"), "{text}");
    }
}

#[test]
fn the_gate_and_the_hooks_apply_to_subagents() {
    let run = |line: &str| ScriptedReply::call("shell", json!({ "command": line }));
    let worker = vec![
        run("echo forbidden > one"),
        run("cat /etc/hostname"),
        run("echo hooked > two"),
        ScriptedReply::says("none went"),
    ];
    let stage = Stage::new(lead_and(task("do the part"), worker));
    let hook = json!(["sh", "-c", "grep -q hooked && echo no >&2 && exit 2; exit 0"]);
    stage.env.config(&format!(
        "{}\n[[gate.rules]]\ntool = \"shell\"\ncommand = \"*forbidden*\"\naction = \"deny\"\n\
         [[gate.rules]]\ncommand = \"cat *\"\naction = \"ask\"\n\
         [[hooks]]\nevent = \"before_tool\"\nmatch = \"shell\"\ncommand = {hook}\n\
         [[hooks]]\nevent = \"session_start\"\ncommand = [\"sh\", \"-c\", \"echo x >> begun\"]\n",
        stage.model.config_toml("anthropic")
    ));
    stage.g3(["lead the work"]).ok();
    let asked = asked_by(&stage, "do the part");
    let told: Vec<String> = asked[3].tool_results().into_iter().map(|(_, text)| text).collect();
    assert!(told[0].contains("a rule says so"), "{told:?}");
    assert!(told[1].contains("no terminal to ask on"), "{told:?}");
    assert!(told[2].contains("denied"), "{told:?}");
    for name in ["one", "two"] {
        assert!(!stage.repo.path().join(name).exists());
    }
    assert_eq!(stage.repo.read("begun"), "x\n", "a part begins no session");
}

#[test]
fn a_named_persona_is_used() {
    let part =
        |agent: &str| ScriptedReply::call("task", json!({"prompt": "do the part", "agent": agent}));
    let stage = Stage::new(lead_and(part("scout"), vec![ScriptedReply::says("found")]));
    stage.g3(["lead the work"]).ok();
    assert!(asked_by(&stage, "do the part")[0].system().contains("You are scout."));
    let stage = Stage::new(lead_and(part("nobody"), Vec::new()));
    stage.g3(["lead the work"]).ok();
    assert!(results(&stage)[0].contains("no such agent: `nobody`"), "{:?}", results(&stage));
    // A subagent cannot be used to leave a persona's write scope.
    let stage = Stage::new(lead_and(part("carmack"), Vec::new()));
    stage.g3(["--agent", "breaker", "lead the work"]).ok();
    assert!(results(&stage)[0].contains("only agents like itself"), "{:?}", results(&stage));
    let write = json!({"file_path": "src.rs", "content": ""});
    let worker = vec![ScriptedReply::call("write_file", write), ScriptedReply::says("no")];
    let stage = Stage::new(lead_and(task("do the part"), worker));
    stage.g3(["--agent", "breaker", "lead the work"]).ok();
    assert!(!stage.repo.path().join("src.rs").exists(), "the fence holds for the same role");
}

#[test]
fn a_subagent_cannot_start_another() {
    let worker = vec![task("do the part of the part"), ScriptedReply::says("alone then")];
    let stage = Stage::new(lead_and(task("do the part"), worker));
    stage.g3(["lead the work"]).ok();
    let asked = asked_by(&stage, "do the part");
    assert_eq!(asked.len(), 2);
    assert!(
        asked[1].tool_results()[0].1.contains("no other agent"),
        "{:?}",
        asked[1].tool_results()
    );
    stage.g3(["tool", "exec", "--name", "task", "--args", "{\"prompt\": \"x\"}"]).exits(1);
    let stage = Stage::new(lead_and(task(" "), Vec::new()));
    stage.g3(["lead the work"]).ok();
    assert!(results(&stage)[0].contains("must say what is to be done"));
}

#[test]
fn a_failed_subagent_is_reported_and_the_run_continues() {
    let stage = Stage::new(lead_and(task("do the part"), vec![ScriptedReply::status(400)]));
    stage.g3(["lead the work"]).ok();
    assert!(results(&stage)[0].contains("did not get to its end"), "{:?}", results(&stage));
}

#[test]
fn cancellation_stops_all_subagents() {
    let sleep = "echo $$ > pid; exec sleep 1000";
    let worker = vec![ScriptedReply::call("shell", json!({ "command": sleep }))];
    let stage = Stage::new(lead_and(task("do the part"), worker));
    let mut g3 = stage.start(["lead the work"]);
    let pid = until("its command runs", || {
        std::fs::read_to_string(stage.repo.path().join("pid")).ok()?.trim().parse::<i32>().ok()
    });
    process::signal_group(g3.id(), Signal::INT);
    let status = until("g3 ended", || g3.child.try_wait().unwrap());
    assert_eq!(exit_code(status), 130);
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    until("its command ended", || rustix::process::test_kill_process(pid).is_err().then_some(()));
}

#[test]
fn a_session_killed_within_a_subagent_can_be_resumed() {
    let script = || {
        Script::by(|request| {
            let lead = request.first_user().contains("lead the work");
            match (lead, request.assistant_messages()) {
                (true, 0) => task("do the part"),
                (true, 1) if request.text().contains("interrupted") => task("do the part"),
                (true, _) => ScriptedReply::says("all is done"),
                (false, 0) => ScriptedReply::call("shell", json!({"command": "echo x >> made"})),
                (false, _) => ScriptedReply::says("made it"),
            }
        })
    };
    for step in
        ["g3.journal.opened:2", "g3.journal.reply:2", "g3.journal.result:1", "g3.journal.noted:1"]
    {
        let stage = Stage::new(script());
        let job = stage.job(["lead the work"]).env("G3_TEST_KILL_AT", step);
        stage.env.run_command(job).exits(137);
        let ran = stage.g3(["--resume"]);
        assert!(ran.ok().ends_with("all is done"), "killed at {step}: {ran}");
        assert!(stage.session_dir().join("task-2").is_dir(), "it begins afresh");
        assert!(stage.repo.read("made").starts_with("x\n"));
    }
}
