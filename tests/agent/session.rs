//! Tests of sessions on disk: kill -9 at every durable step, then `--resume` continues.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;
use testkit::env::until;
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::{G3, Stage, journal};

/// A model that creates `one`, then `two`, then is done. Its replies depend only on the request, so
/// that it continues correctly after any interruption.
fn two_files() -> Script {
    Script::by(|request| {
        let seen = request.text();
        let make = |name: &str| {
            ScriptedReply::new().then_says(format!("making {name}")).calls(
                "shell",
                json!({"command": format!("echo {name} > {name}; echo made-{name}")}),
            )
        };
        if !seen.contains("made-one") {
            make("one")
        } else if !seen.contains("made-two") {
            make("two")
        } else {
            ScriptedReply::says("both are made")
        }
    })
}

#[test]
fn resume_completes_a_session_killed_at_any_durable_step() {
    let stage = Stage::new(two_files());
    let steps_file = stage.env.home().join("steps");
    let job = stage.job(["make two files"]).env("G3_TEST_STEPS", &steps_file);
    stage.env.run_command(job).ok();
    let passes = passes(&steps_file);
    let names: BTreeSet<&str> = passes.iter().filter_map(|step| step.split(':').next()).collect();
    for name in ["g3.session.create", "g3.journal.reply", "g3.journal.result", "g3.journal.ended"] {
        assert!(names.contains(name), "no step `{name}` in {names:?}");
    }
    for step in passes {
        let stage = Stage::new(two_files());
        let ran =
            stage.env.run_command(stage.job(["make two files"]).env("G3_TEST_KILL_AT", &step));
        ran.exits(137);
        let again = match stage.session_dirs().first().map(|dir| journal(dir)) {
            // Nothing was started, so there is nothing to resume.
            None => stage.g3(["make two files"]),
            Some(entries) if !entries.iter().any(|entry| entry["entry"] == "request") => {
                stage.g3(["make two files"])
            }
            Some(_) => stage.g3(["--resume"]),
        };
        assert!(again.ok().ends_with("both are made"), "killed at {step}:\n{again}");
        for name in ["one", "two"] {
            assert_eq!(stage.repo.read(name), format!("{name}\n"), "killed at {step}");
        }
        assert_every_call_is_answered(&stage);
    }
}

/// Returns the steps of a run as `NAME:PASS`.
fn passes(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let names: Vec<&str> = text.lines().filter(|name| name.starts_with("g3.")).collect();
    let pass = |at: usize| names[..=at].iter().filter(|name| **name == names[at]).count();
    let all = (0..names.len()).map(|at| format!("{}:{}", names[at], pass(at)));
    // Snapshots in quick succession are merged, so only the first is certain.
    all.filter(|step| !step.starts_with("g3.session.snapshot") || step.ends_with(":1")).collect()
}

fn assert_every_call_is_answered(stage: &Stage) {
    for request in stage.asked() {
        let calls = request.body["messages"].to_string().matches("\"tool_use\"").count();
        let results = request.tool_results().len();
        assert_eq!(calls, results, "a call without its result: {}", request.body);
    }
}

#[test]
fn a_session_is_resumed_in_place_by_its_id_prefix() {
    let stage = Stage::new([
        ScriptedReply::says("one"),
        ScriptedReply::says("two"),
        ScriptedReply::says("three"),
    ]);
    stage.g3(["remember the word plum"]).ok();
    let dir = stage.session_dir();
    let id = dir.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(stage.g3(["--resume", &id[..8], "--", "which word?"]).ok(), "two");
    assert_eq!(stage.session_dirs(), [dir], "no second directory");
    let asked = stage.asked();
    assert_eq!(asked[1].system(), asked[0].system());
    assert!(asked[1].text().contains("plum") && asked[1].text().contains("which word?"));
    assert_eq!(stage.g3(["something else"]).ok(), "three");
    assert_eq!(stage.session_dirs().len(), 2, "a task without --resume begins anew");
    stage.g3(["--resume", "zzz", "--", "go"]).exits(2).output_contains("no such session: `zzz`");
}

#[test]
fn the_journal_survives_an_incomplete_last_line() {
    let stage = Stage::new([ScriptedReply::says("one"), ScriptedReply::says("two")]);
    stage.g3(["first"]).ok();
    let path = stage.session_dir().join("session.jsonl");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"entry\":\"reply\",\"mess");
    std::fs::write(&path, text).unwrap();
    assert_eq!(stage.g3(["--resume", "--", "second"]).ok(), "two");
    assert!(stage.asked()[1].text().contains("first"));
}

#[test]
fn state_is_private_and_git_does_not_see_it() {
    let stage = Stage::new([ScriptedReply::says("done")]);
    stage.g3(["task"]).ok();
    assert_eq!(stage.repo.git(["status", "--porcelain"]).trim(), "");
    let dir = stage.session_dir();
    for file in ["session.jsonl", "session.json"] {
        let meta = std::fs::metadata(dir.join(file)).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions());
        assert_eq!(mode & 0o077, 0, "{file} can be read by others");
    }
    let seen: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.join("session.json")).unwrap()).unwrap();
    assert_eq!((&seen["status"], &seen["task"]), (&json!("done"), &json!("task")));
    stage.g3(["sessions", "list"]).output_contains("task").output_contains("done");
    stage.g3(["sessions", "show"]).output_contains("turns    1");
}

#[test]
fn a_full_context_is_summarized_and_the_run_continues() {
    let script = Script::by(|request| {
        let text = request.text();
        if text.contains("no longer fits") {
            return ScriptedReply::says("SUMMARY: made the file").usage(9_000, 20);
        }
        if text.contains("SUMMARY") {
            return ScriptedReply::says("all done").usage(500, 5);
        }
        let todo = json!({"content": "- [ ] paint the fence\n"});
        ScriptedReply::call("todo_write", todo)
            .calls("shell", json!({"command": "seq 1 400"}))
            .usage(9_000, 20)
    });
    let stage = Stage::new(script);
    let config = format!("{}context_length = 10000\n", stage.model.config_toml("anthropic"));
    stage.env.config(&config);
    let ran = stage.g3(["--json", "keep the word plum"]);
    ran.ok();
    ran.output_contains("\"type\":\"compacted\"");
    let last = stage.asked().pop().unwrap();
    assert_eq!(last.messages().len(), 1);
    assert!(last.text().contains("keep the word plum"), "the request is kept");
    assert!(last.text().contains("paint the fence"), "the todo list is kept");
    assert!(last.system().contains("You are g3"), "the system prompt is kept");
}

#[test]
fn a_resumed_session_with_a_full_context_is_summarized_first() {
    let stage = Stage::new([
        ScriptedReply::says("noted").usage(9_000, 20),
        ScriptedReply::says("SUMMARY: the word is plum").usage(9_000, 20),
        ScriptedReply::says("plum"),
    ]);
    stage.env.config(&format!("{}context_length = 10000\n", stage.model.config_toml("anthropic")));
    stage.g3(["the word is plum"]).ok();
    assert_eq!(stage.g3(["which word?", "--resume"]).ok(), "plum");
    let asked = stage.asked();
    assert!(asked[1].last().contains("no longer fits"), "{}", asked[1].last());
    let (last, text) = (asked[2].messages().len(), asked[2].text());
    assert!(last == 1 && text.contains("SUMMARY") && text.contains("which word?"), "{text}");
    assert_eq!(stage.session_dirs().len(), 1);
}

#[test]
fn a_corrupt_snapshot_is_rebuilt_from_the_journal() {
    let stage = Stage::new([ScriptedReply::says("one"), ScriptedReply::says("two")]);
    stage.g3(["the word is plum"]).ok();
    let picture = stage.session_dir().join("session.json");
    for damage in ["", "{\"usage\": ", "[]", "\u{0}"] {
        std::fs::write(&picture, damage).unwrap();
        stage
            .g3(["sessions", "list"])
            .output_contains("the word is plum")
            .output_contains("done")
            .ok();
        stage.g3(["sessions", "show"]).output_contains("turns    1").ok();
    }
    stage.g3(["--resume", "--", "and now?"]).ok();
    let text = std::fs::read_to_string(&picture).unwrap();
    let seen: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&seen["turns"], &seen["usage"]["output"]), (&json!(2), &json!(10)), "{seen}");
}

/// These tests need a separate mount namespace (unshare -rm).
mod needs_mount_namespace {
    use super::*;

    #[test]
    #[ignore = "needs a mount namespace of its own (unshare -rm)"]
    fn a_full_disk_is_reported_and_the_session_continues_when_there_is_space() {
        let stage = Stage::new([
            ScriptedReply::says("x".repeat(60_000)),
            ScriptedReply::says("there is room"),
        ]);
        let disk = stage.env.home().join("disk");
        std::fs::create_dir(&disk).unwrap();
        // A file system of 200 kB in a separate namespace, filled except for a few kB.
        let play = "mount -t tmpfs -o size=200k none \"$1\" || exit 99; cd \"$1\"; export XDG_STATE_HOME=\"$PWD/state\"
            dd if=/dev/zero of=filler bs=1k count=160 2>/dev/null
            \"$2\" 'fill the disk' >/dev/null; echo first $?
            rm filler; \"$2\" --resume -- 'go on'; echo second $?";
        let job = stage.env.command("unshare", stage.env.home());
        let ran =
            stage.env.run_command(job.args(["-rm", "sh", "-c", play, "sh"]).arg(&disk).arg(G3));
        ran.output_contains("first 1").output_contains("cannot write the session's journal");
        ran.output_contains("there is room").output_contains("second 0");
        assert!(stage.asked()[1].text().contains("fill the disk"), "the request was kept");
    }
}

#[test]
fn a_session_of_a_killed_g3_is_not_listed_as_running() {
    let gate = ReplyGate::new();
    let stage = Stage::new([
        ScriptedReply::says("a ").then_says("b").gate(&gate),
        ScriptedReply::says("done"),
    ]);
    let running = stage.start(["work for long"]);
    gate.wait_until_reached(1);
    let status = || {
        let list = stage.g3(["sessions", "list", "--json"]).json();
        let shown = stage.g3(["sessions", "show", "--json"]).json();
        assert_eq!(list[0]["status"], shown["status"]);
        shown["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status(), "running");
    let pid = rustix::process::Pid::from_raw(running.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    drop(running);
    until("the killed g3 has let go of its session", || (status() == "interrupted").then_some(()));
    gate.open_all();
    stage.g3(["--resume", "--", "go on"]).ok();
    assert_eq!(status(), "done");
}
