//! Tests of commands: output, limits, environment, access, and background processes.

use serde_json::{Value, json};
use testkit::env::until;

use crate::tools_support::{Bench, G3};

fn shell(bench: &Bench, command: &str) -> crate::tools_support::Called {
    bench.call("shell", json!({ "command": command }))
}

#[test]
fn both_streams_and_the_exit_code_are_always_reported() {
    let bench = Bench::new("g3");
    let called = shell(&bench, "echo out; echo err >&2; exit 3");
    assert_eq!(called.fails("failed"), "out\n[stderr]\nerr\n[exit code 3]");
    assert_eq!(called.metadata["exit_code"], 3);
    assert_eq!(shell(&bench, "true").works(), "[no output]\n[exit code 0]");
    assert_eq!(shell(&bench, "kill -9 $$").metadata["exit_code"], 137);
    shell(&bench, "printf 'a\\377b'").says("a\u{fffd}b").works();
    shell(&bench, "  ").says("`command` is empty").fails("validation");
}

#[test]
fn stdin_is_closed() {
    let bench = Bench::new("g3");
    assert_eq!(shell(&bench, "cat; read x || echo none").works(), "none\n[exit code 0]");
}

#[test]
fn a_long_output_is_saved_to_a_file_whose_path_is_reported() {
    let bench = Bench::new("g3");
    let called = shell(&bench, "seq 1 20000");
    let text = called.works();
    assert!(text.starts_with("1\n2\n") && text.contains("\n20000\n[exit code 0]"), "{text}");
    assert!(text.len() < 20_000);
    let log = called.metadata["stdout_log"].as_str().unwrap();
    assert!(text.contains(&format!("bytes are in {log}]")), "{text}");
    let all: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(std::fs::read_to_string(log).unwrap(), all);
    bench
        .call("read_file", json!({ "file_path": log, "start": 0, "end": 4 }))
        .says("\n1\n2\n")
        .works();
}

#[test]
fn a_timeout_kills_the_whole_group_and_keeps_the_output() {
    let bench = Bench::new("egirl");
    let args = json!({ "command": "echo early; sleep 300 & echo $! > pid; wait", "timeout": 300 });
    let called = bench.call("execute_command", args);
    called.says("timed out after 300 ms").says("early").fails("timeout");
    let pid: u32 = bench.read("pid").trim().parse().unwrap();
    until("the sleeping child to end", || (!base::process::is_alive(pid)).then_some(()));
}

#[test]
fn a_process_that_holds_the_output_open_does_not_block() {
    let bench = Bench::new("g3");
    let called = shell(&bench, "sleep 600 & echo $! > pid; echo done");
    called.says("done").says("holds its output open").works();
    let pid: u32 = bench.read("pid").trim().parse().unwrap();
    assert!(base::process::is_alive(pid), "what was left running on purpose was ended");
    base::process::signal_group(pid, rustix::process::Signal::KILL);
    shell(&bench, &format!("kill {pid}")).works();
}

#[test]
fn secrets_do_not_reach_commands() {
    let mut bench = Bench::new("g3");
    bench.env.set("ANTHROPIC_API_KEY", "key-canary");
    bench.env.set("MY_TOKEN", "token-canary");
    bench.env.set("HARMLESS", "h-1");
    let env = shell(&bench, "env").works().to_owned();
    assert!(env.contains("HARMLESS=h-1") && !env.contains("canary"), "{env}");
    bench.profile = "core";
    let env = bench.call("execute_cli", json!({ "command": "env" })).text;
    assert!(env.contains("HOME=") && !env.contains("HARMLESS"), "{env}");
}

#[test]
fn each_profile_formats_the_outcome_in_its_own_way() {
    let bench = Bench::new("egirl");
    let run = |command: &str| bench.call("execute_command", json!({ "command": command }));
    assert_eq!(run("echo a; echo b >&2").works(), "a\n\n\nstderr:\nb\n");
    assert_eq!(run("true").works(), "Command completed with exit code 0");
    run("exit 2").says("exit code 2").fails("failed");
    let gone = bench.call("execute_command", json!({ "command": "ls", "working_dir": "gone" }));
    gone.says("Failed to execute command").fails("not_found");

    let bench = Bench { profile: "tools-api", ..bench };
    let run = |args: Value| bench.call("bash", args);
    let failed = run(json!({ "command": "echo a; echo b >&2; exit 3" }));
    assert_eq!(failed.works(), "a\n--- stderr ---\nb\n[exit code 3]");
    assert_eq!(
        (&failed.metadata["exit_code"], &failed.metadata["truncated"]),
        (&json!(3), &json!(false))
    );
    run(json!({ "command": "echo $TERM $NO_COLOR $GIT_TERMINAL_PROMPT" })).says("dumb 1 0");
    run(json!({ "command": "ls", "workdir": "/etc" })).says("outside").fails("denied");
    run(json!({ "command": "ls", "workdir": "gone" })).says("does not exist").fails("validation");
    run(json!({ "command": "" })).says("empty").fails("validation");
    run(json!({ "command": "echo x; sleep 9", "timeout": 200 }))
        .says("timed out after 200 ms")
        .says("x");
    run(json!({ "command": "seq 1 9999" })).says("[truncated ").says("\n9999").works();
}

fn core(bench: &Bench, command: &str) -> Value {
    let called = bench.call("execute_cli", json!({ "command": command }));
    assert_eq!(called.metadata.to_string(), called.text);
    called.metadata
}

#[test]
fn the_core_tool_answers_with_a_status() {
    let bench = Bench::new("core");
    let result = core(&bench, "echo out; echo err >&2");
    assert_eq!((&result["status"], &result["exit_code"]), (&json!("success"), &json!(0)));
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("out\n"), &json!("err\n")));
    assert!(result["duration_ms"].is_u64() && result["voice_message"].is_string());
    assert!(result.get("note").is_none() && core(&bench, "true")["note"].is_string());
    assert_eq!(core(&bench, "exit 4")["status"], "error");
    assert_eq!(core(&bench, "grep -r nothing_like_this .")["status"], "success");
    assert_eq!(core(&bench, "sh -c 'exit 1'")["status"], "error");
    let long = core(&bench, "yes é | head -c 60000");
    let stdout = long["stdout"].as_str().unwrap();
    assert!(stdout.len() < 51_300 && stdout.ends_with("\n[truncated]"));
}

#[test]
fn the_core_tool_keeps_the_directory_of_the_last_command() {
    let bench = Bench::new("core");
    core(&bench, "mkdir -p 'a b/c' && cd 'a b/c'");
    assert_eq!(core(&bench, "pwd")["stdout"], format!("{}\n", bench.at("a b/c")));
    core(&bench, "cd / && false");
    assert_eq!(core(&bench, "pwd")["stdout"], format!("{}\n", bench.at("a b/c")), "left the root");
    core(&bench, "cd ..");
    std::fs::remove_dir_all(bench.dir.join("a b/c")).unwrap();
    assert_eq!(core(&bench, "pwd")["stdout"], format!("{}\n", bench.at("a b")));
    let other = bench.env.run(
        G3,
        &bench.dir,
        [
            "tool",
            "exec",
            "--profile",
            "core",
            "--name",
            "execute_cli",
            "--session",
            "other",
            "--args",
            r#"{"command":"pwd"}"#,
            "--json",
        ],
    );
    assert_eq!(other.json()["metadata"]["stdout"], format!("{}\n", bench.dir.display()));
}

#[test]
fn prompts_are_answered_and_pagers_closed() {
    let bench = Bench::new("core");
    let asked = core(&bench, "printf 'Install? [Y/n] '; read x; echo \"got $x\"");
    assert_eq!(asked["stdout"], "Install? [Y/n] got Y\n");
    let paged = core(&bench, "printf 'lines 1-20/40'; cat; echo ended");
    assert_eq!(paged["stdout"], "lines 1-20/40ended\n");
}

#[test]
fn destructive_commands_need_a_user_to_ask() {
    let bench = Bench::new("core");
    bench.write("keep.txt", "x");
    let denied = bench.call("execute_cli", json!({ "command": "rm keep.txt" }));
    denied.says("destructive_command").says("[[gate.rules]]").fails("denied");
    assert_eq!(denied.metadata["status"], "rejected");
    assert!(bench.has("keep.txt"));
    bench.env.config(
        "[[gate.rules]]\ntool = \"execute_cli\"\ncommand = \"rm *.txt\"\naction = \"allow\"\n",
    );
    bench.call("execute_cli", json!({ "command": "rm keep.txt" })).works();
    assert!(!bench.has("keep.txt"));
    let ruin = bench.call("execute_cli", json!({ "command": "true || rm -rf /" }));
    ruin.says("forbidden_command").fails("denied");
}

#[test]
fn commands_that_write_outside_are_denied_and_the_reason_names_the_rule() {
    let bench = Bench::new("g3");
    let denied = shell(&bench, "echo x > /etc/studio-test");
    denied.says("outside the working directory").says("tool = \"shell\"").fails("denied");
    shell(&bench, "echo x > inside && mv inside there && cat there").says("x").works();
}

#[test]
fn a_background_process_outlives_the_call_and_its_name_can_be_reused() {
    let bench = Bench::new("g3");
    let start = |name: &str| {
        let command = "echo up; echo bad >&2; sleep 300 & wait";
        bench.call("background_process", json!({ "name": name, "command": command }))
    };
    let first = start("dev/../server");
    first.says("pid: ").says("log: ").works();
    let log = first.metadata["log"].as_str().unwrap().to_owned();
    assert!(
        std::path::Path::new(&log).starts_with(bench.session()) && !log.contains("/../"),
        "{log}"
    );
    until("the log to have both streams", || {
        let text = std::fs::read_to_string(&log).unwrap();
        (text.contains("up\n") && text.contains("bad\n") && text.contains("name: dev"))
            .then_some(())
    });
    let pid = first.metadata["pid"].as_u64().unwrap() as u32;
    assert!(base::process::is_alive(pid));
    start("dev/../server").says("runs already").says(&pid.to_string()).fails("failed");
    shell(&bench, &format!("kill -- -{pid}")).works();
    let again = until("the name to be free", || Some(start("dev/../server")).filter(|c| c.ok));
    let pid = again.metadata["pid"].as_u64().unwrap();
    shell(&bench, &format!("kill -- -{pid}")).works();
    start("///").works();
    bench
        .call("background_process", json!({ "name": "..", "command": "true" }))
        .fails("validation");
}

#[test]
fn bash_in_the_background_returns_immediately_with_a_handle() {
    let bench = Bench::new("tools-api");
    let called = bench.call("bash", json!({ "command": "sleep 300", "run_in_background": true }));
    called.says("background").works();
    assert_eq!(called.metadata["background"], true);
    let pid = called.metadata["pid"].as_u64().unwrap();
    assert!(base::process::is_alive(pid as u32));
    bench.call("bash", json!({ "command": format!("kill -- -{pid}") })).works();
}

#[test]
fn waiting_is_limited() {
    let bench = Bench::new("core");
    let waited = bench.call("wait", json!({ "seconds": 0.01 }));
    assert_eq!(waited.metadata, json!({ "status": "success", "waited_seconds": 0.5 }));
    bench.call("wait", json!({})).says("seconds").fails("validation");
}

#[test]
fn the_history_lists_actions_oldest_first() {
    let bench = Bench::new("core");
    for n in 0..3 {
        bench.call("execute_cli", json!({ "command": format!("echo {n}") }));
    }
    let told = bench.call("get_action_history", json!({ "last_n": 2 }));
    let actions = told.metadata.as_array().unwrap();
    assert_eq!(actions.len(), 2);
    assert_eq!(actions[1]["tool"], "execute_cli");
    assert_eq!(actions[1]["args"]["command"], "echo 2");
    assert_eq!(actions[1]["undoable_hint"], "check_command");
    assert!(actions[1]["result_summary"].as_str().unwrap().contains("2\\n"));
    assert_eq!(bench.call("get_action_history", json!({})).metadata.as_array().unwrap().len(), 3);
}

#[test]
fn a_rule_can_put_commands_in_the_sandbox() {
    let bench = Bench::new("g3");
    let rule = "[[gate.rules]]\ntool = \"shell\"\naction = \"box\"\n";
    bench.env.config(rule);
    let outside = bench.env.home().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let reads = "cat ~/.config/g3/config.toml";
    shell(&bench, reads).says("No such file").fails("failed");
    let writes = format!("echo x > '{}/a'", outside.display());
    shell(&bench, &writes).says("No such file").fails("failed");
    shell(&bench, "echo in > inside && cat inside && ls ~").says("in\n").works();
    bench.env.config("");
    assert_eq!(bench.read("inside"), "in\n");
    shell(&bench, "cat ~/.config/g3/config.toml")
        .says("does not let commands read")
        .fails("failed");
    bench.env.config("[[gate.rules]]\ntool = \"shell\"\naction = \"allow\"\n");
    shell(&bench, "cat ~/.config/g3/config.toml").works();
}

#[test]
fn background_processes_are_listed_shown_and_killed_by_name() {
    let bench = Bench::new("g3");
    let control = |args: Value| bench.call("background_control", args);
    control(json!({})).says("nothing was started").works();
    let command = "seq 1 500; trap '' TERM; sleep 300 & sleep 301 & wait; wait";
    bench.call("background_process", json!({ "name": "counter", "command": command })).works();
    until("it has counted", || {
        Some(control(json!({"action": "log", "name": "counter", "lines": 2})))
            .filter(|it| it.text.contains("500"))
    });
    let log = control(json!({"action": "log", "handle": "counter", "lines": "2"}));
    assert!(log.works().ends_with("499\n500\n") && log.text.contains("left out"), "{log:?}");
    control(json!({})).says("counter: running").works();
    let status = control(json!({"action": "status", "name": "counter"}));
    status.says("running").says("log: ").works();
    // It ignores TERM, and its children are in its group.
    let ended = control(json!({"action": "kill", "name": "counter"}));
    assert_eq!(
        (ended.works().lines().next(), &ended.metadata["status"]),
        (Some("counter: ended"), &json!("ended"))
    );
    let pid = status.metadata["pid"].as_u64().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    control(json!({"action": "kill", "name": "counter"})).says("ended").works();
    control(json!({"action": "log", "name": "nobody"})).says("`counter`").fails("not_found");
    control(json!({"action": "log"})).says("`counter`").fails("validation");
    control(json!({"action": "jump", "name": "counter"})).fails("validation");
    // Children of an exited process still count.
    let command = "sleep 300 & echo left";
    bench.call("background_process", json!({ "name": "parent", "command": command })).works();
    until("its first process ended", || {
        control(json!({"action": "log", "name": "parent"})).text.contains("left").then_some(())
    });
    control(json!({"action": "status", "name": "parent"})).says("running").works();
    control(json!({"action": "kill", "name": "parent"})).says("ended").works();
}

#[test]
fn a_patch_on_a_command_line_is_applied_without_a_program() {
    let patch = "*** Begin Patch\n*** Add File: a $x.txt\n+one `two`\n*** End Patch";
    for (profile, tool) in [
        ("g3", "shell"),
        ("egirl", "execute_command"),
        ("tools-api", "bash"),
        ("core", "execute_cli"),
    ] {
        let bench = Bench::new(profile);
        bench.write("sub/x", "");
        let run = |head: &str, patch: &str| {
            let line = format!("{head}\n{patch}\nEOF\n");
            bench.call(tool, json!({ "command": line, "description": "patches" }))
        };
        run("apply_patch <<'EOF'", patch).says("A a $x.txt").works();
        assert_eq!(bench.read("a $x.txt"), "one `two`\n");
        run("cd sub && apply_patch <<EOF", patch).works();
        assert!(bench.has("sub/a $x.txt"));
        let wrong = run(
            "apply_patch <<'EOF'",
            "*** Begin Patch\n*** Update File: no\n@@\n-a\n+b\n*** End Patch",
        );
        assert!(
            wrong.text.contains("no such file") && (profile == "tools-api" || !wrong.ok),
            "{wrong:?}"
        );
        let outside =
            run("apply_patch <<'EOF'", "*** Begin Patch\n*** Add File: ../out\n+x\n*** End Patch");
        outside.fails("denied");
        assert!(!bench.env.home().join("out").exists());
    }
}

#[test]
fn a_prompt_on_stderr_is_answered_like_one_on_stdout() {
    let bench = Bench::new("core");
    let asked = core(&bench, "printf 'Continue? [y/N] ' >&2; read a; echo \"got $a\"");
    assert_eq!(asked["stdout"], "got y\n", "{asked}");
}

#[test]
fn a_gui_program_is_launched_and_not_waited_for() {
    let mut bench = Bench::new("core");
    let bin = bench.env.home().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    for (name, script) in [("xeyes", "exec sleep 600"), ("xclock", "echo no display; exit 1")] {
        let file = bin.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&file, mode).unwrap();
    }
    bench.env.set("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let launched = core(&bench, "xeyes");
    assert_eq!((&launched["status"], &launched["exit_code"]), (&json!("success"), &json!(0)));
    assert!(launched["stdout"].as_str().unwrap().starts_with("launched (pid "), "{launched}");
    let pid = u32::try_from(launched["pid"].as_u64().unwrap()).unwrap();
    assert!(base::process::is_alive(pid), "it lives on");
    base::process::signal_group(pid, rustix::process::Signal::TERM);
    let failed = core(&bench, "xclock");
    assert!(failed["stdout"].as_str().unwrap().contains("no display"), "{failed}");
}

#[test]
fn history_steps_are_counted_from_the_first_action() {
    let bench = Bench::new("core");
    let dir = bench.session().join("tools");
    std::fs::create_dir_all(&dir).unwrap();
    let action = json!({
        "tool": "wait", "args": {}, "ok": true, "result_summary": "", "duration_ms": 1,
        "timestamp": "2026-01-02T10:00:00Z", "undoable_hint": "no_op",
    });
    std::fs::write(dir.join("history.jsonl"), format!("{action}\n").repeat(55)).unwrap();
    let told = bench.call("get_action_history", json!({ "last_n": 2 })).metadata;
    let steps: Vec<&Value> =
        told.as_array().unwrap().iter().map(|action| &action["step"]).collect();
    assert_eq!(steps, [54, 55]);
}
