//! Tests of a user turn with the real binary: events, calls, faults, signals.

use std::io::Read;

use base::event::Event;
use base::process::{self, exit_code};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::env::until;
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::{Stage, journal, of_type};

#[test]
fn a_task_is_done_with_tools_and_reported_on_stdout() {
    let stage = Stage::new([
        ScriptedReply::new()
            .then_says("I write it.")
            .calls("write_file", json!({"file_path": "hello.txt", "content": "hi\n"})),
        ScriptedReply::says("Wrote hello.txt."),
    ]);
    let ran = stage.g3(["write hello.txt"]);
    assert_eq!(ran.ok(), "I write it.\nWrote hello.txt.");
    assert_eq!(stage.repo.read("hello.txt"), "hi\n");
    ran.output_contains("write_file hello.txt").output_contains("2 turns");
}

#[test]
fn events_have_the_documented_form() {
    let stage = Stage::new([
        ScriptedReply::new()
            .thinks("hm")
            .then_says("I ")
            .then_says("look. ")
            .calls("shell", json!({"command": "echo out"}))
            .usage(100, 7),
        ScriptedReply::says(" Done.\n").usage(120, 3),
    ]);
    let ran = stage.g3(["--json", "look around"]);
    ran.ok();
    let events = ran.json_lines();
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], at + 1);
        assert!(event["time"].as_str().unwrap().starts_with("2026-01-02T10:00:00"));
        assert!(Event::parse(&event.to_string()).is_some(), "not of the contract: {event}");
    }
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.first(), Some(&"start"));
    assert_eq!(kinds.last(), Some(&"end"));
    for kind in ["turn", "text", "reasoning", "tool_start", "tool_end", "usage", "context"] {
        assert!(kinds.contains(&kind), "no `{kind}` in {kinds:?}");
    }
    let text: String =
        of_type(&events, "text").iter().map(|e| e["text"].as_str().unwrap()).collect();
    assert_eq!(text, "I look.  Done.\n", "the model's text, untrimmed");
    let start = of_type(&events, "tool_start")[0];
    assert_eq!(start["name"], "shell");
    assert_eq!(start["args"], json!({"command": "echo out"}));
    let end = of_type(&events, "tool_end")[0];
    assert_eq!((&end["ok"], &end["id"]), (&json!(true), &start["id"]));
    assert!(end["text"].as_str().unwrap().contains("out"));
    let last = events.last().unwrap();
    assert_eq!((&last["status"], &last["exit"]), (&json!("done"), &json!(0)));
    assert_eq!(last["turns"], 2);
    assert_eq!(last["usage"]["output"], 10);
}

#[test]
fn events_can_be_written_to_a_file() {
    let stage = Stage::new([ScriptedReply::says("hi")]);
    let ran = stage.g3(["--events", "../events.jsonl", "say hi"]);
    assert_eq!(ran.ok(), "hi");
    let text = std::fs::read_to_string(stage.env.home().join("events.jsonl")).unwrap();
    assert!(text.lines().all(|line| Event::parse(line).is_some()));
    assert!(text.lines().last().unwrap().contains("\"end\""));
}

#[test]
fn calls_of_one_reply_run_concurrently_and_are_answered_in_order() {
    // The first call can only end after the second one has written its file.
    let wait = "while [ ! -e made ]; do sleep 0.01; done; echo first";
    let stage = Stage::new([
        ScriptedReply::new()
            .calls("shell", json!({"command": wait}))
            .calls("write_file", json!({"file_path": "made", "content": "x"})),
        ScriptedReply::says("done"),
    ]);
    stage.g3(["both"]).ok();
    let results = stage.asked()[1].tool_results();
    assert_eq!(results.len(), 2);
    assert!(results[0].1.contains("first"), "{results:?}");
}

#[test]
fn a_call_repeated_in_one_reply_is_answered_but_not_run() {
    let append = json!({"command": "echo x >> log"});
    let stage = Stage::new([
        ScriptedReply::new().calls("shell", append.clone()).calls("shell", append.clone()),
        ScriptedReply::call("shell", append),
        ScriptedReply::says("done"),
    ]);
    stage.g3(["append"]).ok();
    assert_eq!(stage.repo.read("log"), "x\nx\n", "once in the first reply, once in the second");
    assert!(stage.asked()[1].tool_results()[1].1.contains("identical"));
}

#[test]
fn invalid_calls_are_answered_and_the_run_continues() {
    let stage = Stage::new([
        ScriptedReply::call("fly_away", json!({})),
        ScriptedReply::new().calls_raw("shell", "{\"command\": \"ls"),
        ScriptedReply::call("read_file", json!({"file_path": {"name": "x"}})),
        ScriptedReply::says("done"),
    ]);
    let ran = stage.g3(["--json", "try"]);
    ran.ok();
    let events = ran.json_lines();
    assert_eq!(of_type(&events, "tool_start").len(), 3);
    let ends = of_type(&events, "tool_end");
    assert!(ends.iter().all(|end| end["ok"] == false), "{ends:?}");
    let results = stage.asked()[3].tool_results();
    assert!(results[0].1.contains("fly_away"), "{results:?}");
    assert!(results[1].1.contains("arguments break off"), "{results:?}");
    assert!(results[2].1.contains("file_path"), "{results:?}");
}

#[test]
fn a_quoted_call_is_not_run() {
    let quoted = "You would say:\n{\"tool\": \"shell\", \"args\": {\"command\": \"touch made\"}}\n\
                  <tool_call>\n{\"name\": \"shell\", \"arguments\": {\"command\": \"touch made\"}}\n\
                  </tool_call>\nand that is all.";
    let stage = Stage::new([ScriptedReply::says(quoted)]);
    assert_eq!(stage.g3(["how does one call a tool?"]).ok(), quoted, "its words are shown whole");
    assert!(!stage.repo.path().join("made").exists());
    assert_eq!(stage.asked().len(), 1);
}

#[test]
fn success_depends_on_the_outcome_and_not_on_its_text() {
    let stage = Stage::new([
        ScriptedReply::new()
            .calls("shell", json!({"command": "echo '❌ error: failed'"}))
            .calls("shell", json!({"command": "echo '✅ all fine'; exit 3"})),
        ScriptedReply::says("done"),
    ]);
    let events = stage.g3(["--json", "look"]).json_lines();
    let mut ends: Vec<(&str, bool)> = of_type(&events, "tool_end")
        .iter()
        .map(|end| (end["id"].as_str().unwrap(), end["ok"].as_bool().unwrap()))
        .collect();
    ends.sort_by_key(|(id, _)| {
        of_type(&events, "tool_start").iter().position(|it| it["id"] == *id)
    });
    assert_eq!(ends.iter().map(|(_, ok)| *ok).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn every_request_starts_with_the_bytes_of_the_previous_one() {
    let stage = Stage::new([
        ScriptedReply::call("shell", json!({"command": "echo 1"})),
        ScriptedReply::call("shell", json!({"command": "echo 2"})),
        ScriptedReply::says("done"),
    ]);
    stage.g3(["count"]).ok();
    let asked = stage.asked();
    for pair in asked.windows(2) {
        for part in ["system", "tools"] {
            assert_eq!(bare(&pair[0].body[part]), bare(&pair[1].body[part]), "`{part}` changed");
        }
        let (before, after) = (pair[0].messages(), pair[1].messages());
        assert_eq!(before.len() + 2, after.len());
        for (a, b) in before.iter().zip(after) {
            assert_eq!(bare(a), bare(b), "an old message changed");
        }
    }
}

/// Returns JSON text without the cache markers, which move from request to request.
fn bare(value: &Value) -> String {
    fn strip(value: &mut Value) {
        if let Some(object) = value.as_object_mut() {
            object.remove("cache_control");
            object.values_mut().for_each(strip);
        }
        if let Some(list) = value.as_array_mut() {
            list.iter_mut().for_each(strip);
        }
    }
    let mut value = value.clone();
    strip(&mut value);
    value.to_string()
}

#[test]
fn a_limit_ends_the_run_with_its_own_exit_code() {
    let stage = Stage::new(
        (0..9)
            .map(|n| ScriptedReply::call("shell", json!({"command": format!("echo {n}")})))
            .collect::<Vec<_>>(),
    );
    let ran = stage.g3(["--json", "--max-turns", "3", "loop"]);
    ran.exits(3).output_contains("limit of 3 turns").output_contains("g3 --resume");
    assert_eq!(ran.json_lines().last().unwrap()["status"], "limit");
    assert_eq!(stage.asked().len(), 3);
}

#[test]
fn tokens_cost_and_time_are_limits_too() {
    let usage = || ScriptedReply::call("shell", json!({"command": "date +%N"})).usage(40, 20);
    let prices = "price = { input = 1e6, output = 1e6 }\n";
    for (flag, most, words, asked) in [
        ("--max-tokens", "100", "limit of 100 tokens", 2),
        ("--budget", "61.5", "limit of 61.5 US dollars", 2),
    ] {
        let stage = Stage::new((0..9).map(|_| usage()).collect::<Vec<_>>());
        stage.env.config(&(stage.model.config_toml("anthropic") + prices));
        stage
            .g3([flag, most, "loop"])
            .exits(3)
            .output_contains(words)
            .output_contains("g3 --resume");
        assert_eq!(stage.asked().len(), asked, "{flag}");
    }
    let command = "echo $$ > child; sleep 1000";
    let stage = Stage::new([ScriptedReply::call("shell", json!({"command": command}))]);
    stage.g3(["--timeout", "1", "wait"]).exits(3).output_contains("limit of 1 s");
    let child = std::fs::read_to_string(stage.repo.path().join("child")).unwrap();
    assert!(!process::is_alive(child.trim().parse().unwrap()), "the command outlived the limit");
    let gate = ReplyGate::new();
    let stage = Stage::new([ScriptedReply::says("half a ").then_says("sentence").gate(&gate)]);
    stage.g3(["--timeout", "1", "talk"]).exits(3).output_contains("limit of 1 s");
    gate.open_all();
}

#[test]
fn a_rejected_key_is_a_failure_with_a_hint() {
    let stage = Stage::new([ScriptedReply::status(401)]);
    let ran = stage.g3(["--json", "hi"]);
    ran.exits(1).output_contains("try:");
    let events = ran.json_lines();
    assert_eq!(of_type(&events, "error").len(), 1);
    assert_eq!(events.last().unwrap()["status"], "failed");
}

#[test]
fn the_first_interrupt_cancels_a_stream_and_keeps_the_text() {
    let gate = ReplyGate::new();
    let stage = Stage::new([ScriptedReply::says("half a ").then_says("sentence").gate(&gate)]);
    let mut g3 = stage.start(["talk"]);
    gate.wait_until_reached(1);
    gate.open();
    let mut heard = [0; 6];
    g3.child.stdout.as_mut().unwrap().read_exact(&mut heard).unwrap();
    process::signal_group(g3.id(), Signal::INT);
    let status = g3.wait_until(None).unwrap().unwrap();
    assert_eq!(exit_code(status), 130);
    let entries = journal(&stage.session_dir());
    let reply = entries.iter().find(|entry| entry["entry"] == "reply").unwrap();
    assert!(reply["message"].to_string().contains("half a"), "{reply}");
    let mut talk = String::new();
    g3.child.stderr.as_mut().unwrap().read_to_string(&mut talk).unwrap();
    assert!(talk.contains("interrupted, 1 turn"), "{talk}");
    assert_eq!(entries.last().unwrap()["status"], "cancelled");
    gate.open_all();
}

#[test]
fn the_first_interrupt_kills_the_tools_processes_and_is_recorded() {
    let command = "sleep 1000 & echo $! > child; sleep 1000";
    let stage = Stage::new([ScriptedReply::call("shell", json!({"command": command}))]);
    let mut g3 = stage.start(["--json", "wait"]);
    let file = stage.repo.path().join("child");
    let child: u32 =
        until("the child's id", || std::fs::read_to_string(&file).ok()?.trim().parse().ok());
    // Only g3 itself: its children are in separate groups.
    let pid = rustix::process::Pid::from_raw(g3.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let status = g3.wait_until(None).unwrap().unwrap();
    assert_eq!(exit_code(status), 130);
    until("the child to be gone", || (!process::is_alive(child)).then_some(()));
    let entries = journal(&stage.session_dir());
    let result = entries.iter().find(|entry| entry["entry"] == "result").unwrap();
    assert_eq!(result["result"]["ok"], false, "{result}");
}

#[test]
fn the_second_interrupt_exits_immediately() {
    let command = "trap '' TERM; echo $$ > child; while :; do sleep 0.1; done";
    let stage = Stage::new([ScriptedReply::call("shell", json!({"command": command}))]);
    let mut g3 = stage.start(["--json", "wait"]);
    let file = stage.repo.path().join("child");
    let child: u32 =
        until("the child's id", || std::fs::read_to_string(&file).ok()?.trim().parse().ok());
    let pid = rustix::process::Pid::from_raw(g3.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let status = g3.wait_until(None).unwrap().unwrap();
    assert_eq!(exit_code(status), 130);
    until("the child to be gone", || (!process::is_alive(child)).then_some(()));
    let mut out = String::new();
    g3.child.stdout.as_mut().unwrap().read_to_string(&mut out).unwrap();
    assert!(out.lines().last().unwrap().contains("\"cancelled\""), "{out}");
}
