//! Commands for running sessions: stop, resume, send, answer, logs, explain, shell.

use std::os::unix::fs::PermissionsExt;

use base::lock::Lock;
use base::process::is_alive;
use rustix::process::{Pid, Signal};
use testkit::env::{built, process_in, processes_in, sandbox_of, until};

use crate::fixtures::{Scene, studio};

/// Returns whether a process is running; a zombie is not.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    is_alive(pid) && !stat.contains(") Z ")
}

fn kill(pid: u64) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    rustix::process::kill_process(pid, Signal::KILL).expect("the process is ours");
}

/// Returns the id of a process whose id in its sandbox is in a file of the worktree.
fn written_pid(scene: &Scene, id: &str, file: &str) -> u32 {
    let worktree = scene.worktree(id);
    until("the process", || {
        let text = std::fs::read_to_string(worktree.path().join(file)).ok()?;
        process_in(worktree.path(), text.trim().parse().ok()?)
    })
}

/// Returns the children of a process that run.
fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("readable").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields.to_owned()).unwrap_or_default();
        fields.split_whitespace().nth(1) == Some(&parent.to_string()) && runs(*id)
    };
    ids.filter(is_child).collect()
}

/// Starts a session whose setup waits for a file named `go`, and returns its id and the processes of
/// the sandbox that waits for its agent.
fn session_in_setup(scene: &Scene) -> (String, [u32; 2]) {
    scene.configure("setup = \"touch begun; until [ -e go ]; do sleep 0.01; done\"");
    let id = scene.exec(["--agent", "loads", "write a 1"]);
    until("the setup", || scene.worktree(&id).path().join("begun").exists().then_some(()));
    let supervisor = u32::try_from(scene.supervisor(&id)).expect("a process id");
    let sandbox = until("a sandbox without a program", || {
        children(supervisor).into_iter().find_map(|guard| match children(guard)[..] {
            [init] if children(init).is_empty() => Some([guard, init]),
            _ => None,
        })
    });
    (id, sandbox)
}

#[test]
fn a_sandbox_that_is_killed_before_it_has_a_program_is_replaced() {
    let scene = Scene::new();
    let (id, [guard, init]) = session_in_setup(&scene);
    kill(guard.into());
    until("the end of the sandbox", || (!runs(guard) && !runs(init)).then_some(()));
    scene.worktree(&id).write("go", "");
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
}

#[test]
fn stop_ends_a_setup_and_resume_runs_it_again() {
    let scene = Scene::new();
    let (id, sandbox) = session_in_setup(&scene);
    scene.studio(["status", &id]).exits(0).output_contains("running the setup `touch begun;");
    scene.studio(["stop", &id]).exits(0).output_contains("stopped");
    scene.studio(["logs", &id]).exits(0).output_contains("setup: touch begun;");
    scene.await_free(&id);
    assert!(!sandbox.into_iter().any(runs), "a process of the sandbox is left");
    scene.configure("setup = \"test -e begun && touch complete\"");
    scene.studio(["resume", &id]).exits(0);
    scene.await_state(&id, "ready");
    assert!(scene.worktree(&id).path().join("complete").exists());
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
}

#[test]
fn a_setup_that_failed_or_was_killed_runs_again_and_a_complete_one_does_not() {
    let scene = Scene::new();
    let (id, _) = session_in_setup(&scene);
    kill(scene.supervisor(&id));
    scene.await_state(&id, "crashed");
    scene.configure("setup = [\"echo run >> runs\", \"test -e repaired\"]");
    scene.studio(["resume", &id]).exits(0);
    scene.await_state(&id, "failed");
    scene.await_free(&id);
    scene.worktree(&id).write("repaired", "");
    scene.studio(["resume", &id]).exits(0);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene.studio(["send", &id, "write", "b", "2"]).exits(0);
    until("the second turn", || scene.worktree(&id).path().join("b").exists().then_some(()));
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("runs"), "run\nrun\n");
}

#[test]
fn a_time_limit_ends_a_setup() {
    let scene = Scene::new();
    scene.configure("setup = \"sleep 300\"");
    let ran = scene.studio(["run", "--agent", "fake", "--timeout", "1", "write a 1"]);
    ran.exits(1).output_contains("it reached its limit of 1 second");
}

#[test]
fn stop_keeps_everything_and_resume_continues() {
    let scene = Scene::new();
    let id = scene.exec(["write a 1; gate go; write b 2"]);
    until("the first file", || scene.worktree(&id).path().join("a").exists().then_some(()));
    scene.studio(["stop", &id]).exits(0).output_contains("stopped");
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
    scene.worktree(&id).write("go", "");
    scene.studio(["resume", &id]).exits(0).output_contains("resumed");
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("b"), "2\n");
    scene.studio(["stop", &id]).exits(3).output_contains("is not running");
}

#[test]
fn send_resumes_a_session_with_its_conversation() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "loads", "say first; write a 1"]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene.studio(["send", &id, "write", "b", "2"]).exits(0);
    until("the second turn", || scene.worktree(&id).path().join("b").exists().then_some(()));
    scene.await_state(&id, "ready");
    let turns: Vec<_> = scene
        .journal(&id)
        .into_iter()
        .filter(|line| line["entry"] == "turn")
        .map(|line| line["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(turns, ["say first; write a 1", "write b 2"], "the conversation was loaded");
}

#[test]
fn a_message_to_a_working_agent_is_delivered_after_its_turn() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "write a 1; gate go"]);
    scene.await_state(&id, "working");
    scene
        .studio(["send", &id, "write", "b", "2"])
        .exits(0)
        .output_contains("at the end of its turn");
    scene.worktree(&id).write("go", "");
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("b"), "2\n");
}

#[test]
fn a_message_to_a_working_command_agent_includes_its_task_and_diff() {
    let scene = Scene::new();
    let id = scene.exec(["write a 1; say so far; gate go"]);
    scene.await_state(&id, "working");
    scene
        .studio(["send", &id, "write", "b", "2"])
        .exits(0)
        .output_contains("at the end of its turn");
    scene.worktree(&id).write("go", "");
    scene.await_state(&id, "ready");
    let logged = std::fs::read_to_string(scene.session_file(&id, "agent.log")).unwrap();
    assert!(logged.matches("so far").count() > 1, "it got its task again: {logged}");
    let turns: Vec<_> =
        scene.journal(&id).into_iter().filter(|line| line["entry"] == "turn").collect();
    let text = turns[1]["text"].as_str().unwrap();
    for part in ["You have worked on this task", "gate go", "so far", "write b 2"] {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

#[test]
fn send_waits_until_the_supervisor_listens() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "loads", "write a 1; gate go"]);
    scene.await_state(&id, "working");
    until("its file", || scene.worktree(&id).path().join("a").exists().then_some(()));
    kill(scene.supervisor(&id));
    scene.await_free(&id);
    // The test acts as the next supervisor: it holds the lock, and a token shows when a request
    // arrives.
    let lock = Lock::try_take(&scene.session_file(&id, "lock")).unwrap().expect("it is free");
    let token = scene.control_file(&id, "token");
    std::fs::remove_file(&token).unwrap();
    scene.env.run("mkfifo", scene.repo.path(), [&token]).ok();
    let args = ["send", id.as_str(), "write b 2"];
    let mut send = scene.env.start(studio(), scene.repo.path(), args);
    let asked = || {
        let mut options = std::fs::OpenOptions::new();
        let nobody_blocks = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        std::os::unix::fs::OpenOptionsExt::custom_flags(options.write(true), nobody_blocks)
            .open(&token)
            .ok()
    };
    drop(until("the first try", asked));
    let second = until("the second try", asked);
    std::fs::remove_file(&token).unwrap();
    drop(lock);
    drop(second);
    assert!(send.wait_until(None).unwrap().expect("it ends").success());
    scene.await_state(&id, "ready");
    until("the second turn", || scene.worktree(&id).path().join("b").exists().then_some(()));
}

#[test]
fn a_request_waits_for_an_answer() {
    let scene = Scene::new();
    for (word, found) in [("allow", "allowed"), ("deny", "denied")] {
        let id = scene.exec(["--agent", "talk", "--ask", "ask delete the database"]);
        let waiting = scene.await_state(&id, "waiting");
        assert_eq!(waiting["why"], "permission 1: delete the database");
        scene
            .studio(["answer", &id, "7", word])
            .exits(3)
            .output_contains("no open permission request 7");
        scene.studio(["answer", &id, "1", word]).exits(0).output_contains(found);
        scene.await_state(&id, "ready");
        assert_eq!(scene.worktree(&id).read("answer.txt"), found);
        scene.studio(["answer", &id, "allow"]).exits(3);
    }
}

#[test]
fn without_a_terminal_a_request_is_denied_immediately() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "ask delete the database"]);
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("answer.txt"), "denied");
}

#[test]
fn usage_comes_from_the_agents_events_and_limits_apply() {
    let scene = Scene::new();
    let usage = r#"event {"seq":1,"time":"t","type":"usage","input":70,"output":40,"cache_read":0,"cache_write":0,"cost_usd":0.5}"#;
    let script = format!("write a 1; {usage}");
    let id = scene.exec(["--agent", "talk", &script]);
    let ready = scene.await_state(&id, "ready");
    assert_eq!(ready["usage"]["input"], 70, "{ready}");
    assert_eq!(ready["usage"]["cost_usd"], 0.5);
    let id = scene.exec(["--agent", "talk", "--budget", "0.1", &format!("{script}; hang")]);
    let failed = scene.await_state(&id, "failed");
    assert_eq!(failed["why"], "it reached its limit of a budget of $0.1");
    let id = scene.exec(["--timeout", "1", "write a 1; hang"]);
    assert_eq!(scene.await_state(&id, "failed")["why"], "it reached its limit of 1 second");
}

#[test]
fn events_of_an_agent_that_is_not_g3_are_ignored() {
    let scene = Scene::new();
    let usage = r#"event {"seq":1,"time":"t","type":"usage","input":1,"output":1,"cache_read":0,"cache_write":0,"cost_usd":-5.0}"#;
    let end = r#"event {"seq":2,"time":"t","type":"end","status":"failed","exit":1,"turns":1,"usage":{"input":0,"output":0,"cache_read":0,"cache_write":0,"cost_usd":null}}"#;
    let id = scene.exec(["--agent", "stranger", &format!("{usage}; {end}; say hello; write a 1")]);
    let ready = scene.await_state(&id, "ready");
    assert_eq!(ready["usage"], serde_json::Value::Null, "{ready}");
    scene.studio(["logs", &id]).exits(0).output_contains("hello");
}

#[test]
fn implausible_numbers_are_ignored_by_the_supervisor() {
    let scene = Scene::new();
    let usage = |input: u64, usd: &str| {
        format!(
            r#"event {{"seq":1,"time":"t","type":"usage","input":{input},"output":{input},"cache_read":0,"cache_write":0,"cost_usd":{usd}}}"#
        )
    };
    let script = format!(
        "{}; {}; {}; write a 1",
        usage(u64::MAX, "0.5"),
        usage(1, "-100.0"),
        usage(7, "0.5")
    );
    let id = scene.exec(["--agent", "talk", "--budget", "1", &script]);
    let ready = scene.await_state(&id, "ready");
    assert_eq!((&ready["usage"]["input"], &ready["usage"]["cost_usd"]), (&7.into(), &0.5.into()));
    scene.studio(["logs", &id]).exits(0).output_contains("ignored an implausible usage");
}

#[test]
fn limits_include_all_runs_and_resume_raises_them() {
    let scene = Scene::new();
    let turn = r#"event {"seq":1,"time":"t","type":"turn","n":1}"#;
    let script = format!("write a 1; {turn}; {turn}; {turn}; hang");
    let id = scene.exec(["--agent", "loads", "--max-turns", "2", &script]);
    assert_eq!(scene.await_state(&id, "failed")["why"], "it reached its limit of 2 turns");
    scene.await_free(&id);
    let refused = scene.studio(["resume", &id]);
    refused
        .exits(3)
        .output_contains("has reached its limit of 2 turns")
        .output_contains("--max-turns N");
    scene.studio(["send", &id, "write", "b", "2"]).exits(3).output_contains("--max-turns N");
    scene.studio(["resume", &id, "--max-turns", "9"]).exits(0);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene.studio(["logs", &id]).exits(0).output_contains("from now on: 9 turns");
    let more = format!("{turn}; {turn}; {turn}; {turn}; {turn}; {turn}; {turn}; hang");
    scene.studio(["send", &id, &more]).exits(0);
    assert_eq!(scene.await_state(&id, "failed")["why"], "it reached its limit of 9 turns");

    let busy = scene.exec(["-j", "1", "gate go; write a 1"]);
    scene.await_state(&busy, "working");
    let waits = scene.exec(["-j", "1", "--agent", "loads", "write a 1"]);
    scene
        .studio(["resume", &waits, "--max-turns", "7"])
        .exits(0)
        .output_contains("waiting for a free slot");
    scene.worktree(&busy).write("go", "");
    scene.await_state(&waits, "ready");
    let turns = scene.journal(&waits).iter().filter(|line| line["entry"] == "turn").count();
    assert_eq!(turns, 1, "its settings were changed, and nothing else");

    let id = scene.exec(["--agent", "loads", "--timeout", "2", "write a 1; hang"]);
    scene.await_state(&id, "failed");
    scene.await_free(&id);
    scene.studio(["resume", &id]).exits(3).output_contains("--timeout SECONDS");
    scene.studio(["run", "--timeout", "0", "x"]).exits(2);
    scene
        .studio(["run", "--budget", "1", "x"])
        .exits(2)
        .output_contains("the output of its command contains no");
}

#[test]
fn a_failed_agent_reports_why() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "write a 1; fail the model is gone"]);
    assert_eq!(scene.await_state(&id, "failed")["why"], "the model is gone");
    let id = scene.exec(["--agent", "talk", "write a 1; exit 9"]);
    assert_eq!(scene.await_state(&id, "failed")["why"], "the agent exited with code 7");
}

#[test]
fn a_session_waits_for_the_retry_of_a_provider() {
    let scene = Scene::new();
    let retry = r#"event {"seq":1,"time":"t","type":"retry","why":"cannot reach 127.0.0.1:9: Connection refused","after_ms":1,"attempt":1}"#;
    let id = scene.exec(["--agent", "talk", &format!("write a 1; {retry}; gate go")]);
    let waiting = scene.await_state(&id, "waiting");
    assert_eq!(waiting["why"], "retrying: cannot reach 127.0.0.1:9: Connection refused");
    scene.worktree(&id).write("go", "");
    scene.await_state(&id, "ready");
}

#[test]
fn an_agent_that_does_not_start_reports_why() {
    let scene = Scene::new();
    let script = |name: &str, text: &str, mode: u32| {
        let path = scene.repo.path().join(".git").join(name);
        std::fs::write(&path, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, mode).unwrap();
        path.display().to_string()
    };
    let quits =
        script("quits", "#!/bin/sh\necho one >&2; echo you are not logged in >&2; exit 3\n", 0o755);
    let greets = script("greets", "#!/bin/sh\necho Welcome; exec cat > /dev/null\n", 0o755);
    let prints = script("prints", "#!/bin/sh\necho Usage: prints FILE\n", 0o755);
    let works = script("works", "#!/bin/sh\necho 1 > a\n", 0o755);
    let text = script("text", "just text\n", 0o644);
    let cases = [
        (
            "no-such-agent",
            "no such program in the sandbox, or its interpreter is missing: No such file",
        ),
        (&text, "it is not executable, or the sandbox denies it: Permission denied"),
        (&quits, "with code 3: one\nyou are not logged in"),
        (
            &prints,
            "it does not speak ACP: it printed `Usage: prints FILE`; a program without ACP needs `protocol",
        ),
        (&greets, "it does not speak ACP: it printed `Welcome`"),
        (&works, "it does not speak ACP: it exited without an answer; a program without ACP needs"),
    ];
    let row = |(n, (program, _)): (usize, &(&str, &str))| {
        let acp = format!("[studio.agents.a{n}]\ncommand = [\"{program}\", \"acp\"]\n");
        acp + &format!("[studio.agents.c{n}]\nprotocol = \"command\"\ncommand = [\"{program}\"]\n")
    };
    let rows: String = cases.iter().enumerate().map(row).collect();
    scene.configure(&rows);
    for (n, (program, why)) in cases.iter().enumerate() {
        let failed = |agent: String| {
            let id = scene.exec(["--agent", &agent, "write a 1"]);
            scene.await_state(&id, "failed")["why"].as_str().unwrap().to_owned()
        };
        let said = failed(format!("a{n}"));
        assert!(said.contains(why), "{program}: {said}");
        assert!(said.starts_with(&format!("cannot start the agent `{program}`: ")), "{said}");
        if n < 3 {
            let said = failed(format!("c{n}"));
            assert!(said.contains(why), "{program}: {said}");
        }
    }
}

#[test]
fn an_agent_that_fails_at_its_first_start_is_started_again() {
    let scene = Scene::new();
    let path = scene.env.home().join("twice");
    let agent = built("fake-agent");
    let agent = agent.display();
    std::fs::write(
        &path,
        format!("#!/bin/sh\n[ -e started ] || {{ touch started; exit 1; }}\nexec {agent} \"$@\"\n"),
    )
    .unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    scene.configure(&format!(
        "[studio.agents.twice]\ncommand = [\"{}\", \"acp\"]\n",
        path.display()
    ));
    let id = scene.exec(["--agent", "twice", "write a 1"]);
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
}

#[test]
fn a_killed_supervisor_leaves_no_process_and_a_resumable_session() {
    let scene = Scene::new();
    let id = scene.exec(["write a 1; daemon pid; gate go; write b 2"]);
    let pid = written_pid(&scene, &id, "pid");
    assert!(runs(pid));
    kill(scene.supervisor(&id));
    scene.await_state(&id, "crashed");
    until("the daemon to end", || (!runs(pid)).then_some(()));
    let status = scene.status(&id);
    assert_eq!((&status["files_changed"], &status["dirty"]), (&2.into(), &true.into()), "{status}");
    scene.studio(["list"]).exits(0).output_contains("+2 -0*");
    scene
        .studio(["explain", &id])
        .exits(0)
        .output_contains("no process works on it")
        .output_contains("crashed");
    scene.studio(["doctor"]).exits(1).output_contains("studio resume");
    scene.worktree(&id).write("go", "");
    scene.studio(["resume", "--all"]).exits(0);
    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("b"), "2\n");
}

#[test]
fn a_supervisor_ends_when_its_sessions_directory_is_deleted() {
    let scene = Scene::new();
    let id = scene.exec(["write a 1; daemon pid; hang"]);
    let pid = written_pid(&scene, &id, "pid");
    let supervisor = u32::try_from(scene.supervisor(&id)).unwrap();
    std::fs::remove_dir_all(scene.repo.path().join(".git/studio/sessions").join(&id)).unwrap();
    until("the supervisor to end", || (!runs(supervisor)).then_some(()));
    until("the daemon to end", || (!runs(pid)).then_some(()));
}

#[test]
fn a_killed_sandbox_ends_the_turn_and_its_processes() {
    let scene = Scene::new();
    for agent in ["fake", "talk"] {
        let id =
            scene.exec(["--agent", agent, "write a 1; daemon pid; sh echo $PPID > fake; hang"]);
        let (daemon, fake) = (written_pid(&scene, &id, "pid"), written_pid(&scene, &id, "fake"));
        kill(sandbox_of(fake).expect("it runs in a sandbox").into());
        let failed = scene.await_state(&id, "failed");
        let why = failed["why"].as_str().unwrap();
        assert!(
            why.starts_with("the agent exited with code 137: studio: the sandbox was"),
            "{why}"
        );
        assert!(!runs(daemon), "something outlived its box");
        scene.await_free(&id);
    }
}

#[test]
fn a_killed_agent_is_distinguished_from_a_killed_sandbox() {
    let scene = Scene::new();
    for agent in ["fake", "talk"] {
        let id = scene.exec(["--agent", agent, "write a 1; sh kill -KILL $PPID; hang"]);
        let failed = scene.await_state(&id, "failed");
        assert_eq!(failed["why"], "the agent exited with code 137");
        scene.await_free(&id);
    }
}

#[test]
fn a_daemon_ends_with_its_agent() {
    let scene = Scene::new();
    let id = scene.ready("write a 1; daemon pid");
    assert!(scene.worktree(&id).path().join("pid").exists(), "the daemon was started");
    scene.await_free(&id);
    let worktree = scene.worktree(&id);
    until("the daemon to end", || processes_in(worktree.path()).is_empty().then_some(()));
}

#[test]
fn logs_follow_a_session_to_its_end() {
    let scene = Scene::new();
    let id = scene.exec(["say hello there; write a 1; gate go"]);
    let mut following =
        scene.env.start(studio(), scene.repo.path(), ["logs", id.as_str(), "--follow"]);
    scene.await_state(&id, "working");
    scene.worktree(&id).write("go", "");
    let mut text = String::new();
    let mut out = following.child.stdout.take().unwrap();
    std::io::Read::read_to_string(&mut out, &mut text).unwrap();
    for words in ["turn 1", "hello there", "ready"] {
        assert!(text.contains(words), "no `{words}` in:\n{text}");
    }
}

/// Reads a program's output until it contains this text.
fn read_until(out: &mut impl std::io::Read, words: &str) -> String {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while !text.contains(words) {
        let n = out.read(&mut bytes).expect("the program can be read");
        assert!(n > 0, "no `{words}` in:\n{text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..n]));
    }
    text
}

#[test]
fn logs_follow_the_output_of_a_working_command_agent() {
    let scene = Scene::new();
    let id = scene.exec(["outcry half way; write a 1; gate go; outcry the end"]);
    let start = |more: &[&str]| {
        let args = [&["logs", id.as_str(), "-f"], more].concat();
        scene.env.start(studio(), scene.repo.path(), args)
    };
    let (mut journal, mut raw) = (start(&[]), start(&["--raw"]));
    let mut out = journal.child.stdout.take().unwrap();
    let said = read_until(&mut out, "| half way");
    assert!(said.contains("turn 1"), "{said}");
    let mut raw_out = raw.child.stdout.take().unwrap();
    read_until(&mut raw_out, "half way\n");
    scene.worktree(&id).write("go", "");
    let rest = read_until(&mut out, "ready");
    assert_eq!(rest.matches("the end").count(), 1, "{rest}");
    assert!(!rest.contains("half way"), "the last words are not said again:\n{rest}");
    read_until(&mut raw_out, "the end\n");
}

#[test]
fn logs_name_player_and_coach_and_the_round() {
    let scene = Scene::new();
    let plan = |state: &str| {
        format!(
            r#"event {{"seq":1,"time":"t","type":"plan","mode":"autonomous","state":"{state}","round":1,"rounds":5,"model":null}}"#
        )
    };
    let text =
        |text: &str| format!(r#"event {{"seq":1,"time":"t","type":"text","text":"{text}"}}"#);
    let script = [
        plan("playing"),
        text("I wrote it"),
        plan("judging"),
        text("It is good"),
        "write a 1".to_owned(),
    ];
    let id = scene.exec(["--agent", "talk", &script.join("; ")]);
    scene.await_state(&id, "ready");
    let logs = scene.studio(["logs", &id]);
    logs.output_contains("round 1 of 5: player").output_contains("player: I wrote it");
    logs.output_contains("round 1 of 5: coach").output_contains("coach: It is good");
}

#[test]
fn the_output_of_an_agent_is_limited() {
    let scene = Scene::new();
    scene.configure("limits = { output_bytes = 100000 }");
    let id = scene.ready("write a 1; flood 5000000; say the end");
    let size = |name| std::fs::metadata(scene.session_file(&id, name)).map_or(0, |meta| meta.len());
    assert!(size("agent.log") + size("agent.log.1") <= 100_000);
    assert!(size("journal.jsonl") < 300_000);
    scene.studio(["logs", &id]).exits(0).output_contains("the end");
}

#[test]
fn a_shell_runs_in_the_worktree_and_the_sandbox() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.studio(["shell", &id, "--", "cat", "a"]).exits(0).output_contains("1");
    let outside = scene.repo.path().join("README.md");
    let line = format!("echo bad >> '{}'", outside.display());
    let ran = scene.studio(["shell", &id, "--", "sh", "-c", &line]);
    assert_ne!(ran.code, 0, "the box holds:\n{ran}");
    assert_eq!(scene.repo.read("README.md"), "# A repository\n");
}

#[test]
fn an_open_shell_prevents_landing_and_discarding() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let script =
        "echo kept > \"$TMPDIR/f\"; echo > open; until test -e go; do :; done; cat \"$TMPDIR/f\"";
    let open = |marker: &str| {
        let args = ["shell", id.as_str(), "--", "sh", "-c", script];
        let shell = scene.env.start(studio(), scene.repo.path(), args);
        let marker = scene.worktree(&id).path().join(marker);
        until("the shell", || marker.exists().then_some(()));
        shell
    };
    let mut shell = open("open");
    let said = format!("a shell is open in it (pid {})", shell.id());
    scene.studio(["accept", &id, "-m", "x"]).exits(3).output_contains(&said);
    scene.studio(["discard", &id]).exits(3).output_contains(&said);
    scene.studio(["doctor"]).exits(0).output_contains(&said).output_lacks("repaired");
    let busy = scene.exec(["gate go; write b 1"]);
    scene.await_state(&busy, "working");
    scene.studio(["doctor"]).exits(0).output_lacks("repaired");
    scene.studio(["accept", "--dry-run", &id]).exits(0);
    scene.worktree(&id).write("go", "");
    let (mut out, mut text) = (shell.child.stdout.take().unwrap(), String::new());
    std::io::Read::read_to_string(&mut out, &mut text).unwrap();
    assert_eq!(text, "kept\n", "doctor left its temporary files alone");
    drop(shell);

    scene.studio(["doctor"]).exits(0).output_contains("no problems found").output_lacks("repaired");
    let killed = open("go");
    kill(killed.id().into());
    drop(killed);
    scene.studio(["discard", &id]).exits(0);
    scene.studio(["shell", &id, "--", "true"]).exits(3).output_contains("has no worktree");
}

#[test]
fn a_shell_waits_for_a_supervisor_that_is_ending() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    let file = scene.session_file(&id, "shell.lock");
    let ending = Lock::try_take(&file).unwrap().expect("it is free");
    let mut shell = scene.env.start(studio(), scene.repo.path(), ["shell", &id, "--", "cat", "a"]);
    for _ in 0..10 {
        studio_core::project::pause();
    }
    assert!(shell.child.try_wait().unwrap().is_none(), "it waits");
    drop(ending);
    assert!(shell.child.wait().unwrap().success());
}

#[test]
fn ctrl_c_stops_the_agents_and_keeps_everything() {
    let scene = Scene::new();
    let mut run = scene.env.start(studio(), scene.repo.path(), ["run", "write a 1; hang"]);
    let id = until("a session at work", || {
        let list = scene.studio(["list", "--json"]).json();
        let session = &list["sessions"][0];
        (session["state"] == "working").then(|| session["id"].as_str().unwrap().to_owned())
    });
    let file = scene.worktree(&id).path().join("a");
    until("the agent's file", || (std::fs::read(&file).ok()? == b"1\n").then_some(()));
    let pid = Pid::from_raw(run.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let status = run.wait_until(Some(end)).unwrap().expect("it ends");
    assert_eq!(base::process::exit_code(status), 130);
    assert_eq!(scene.status(&id)["state"], "stopped");
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
}

#[test]
fn ctrl_c_before_the_notices_are_printed_stops_the_agents() {
    let mut scene = Scene::new();
    let programs = scene.env.home().join("programs");
    std::fs::create_dir(&programs).expect("writable");
    let git = programs.join("git");
    let path = std::env::var("PATH").unwrap_or_default();
    // Only the search for uncommitted changes asks for the status.
    let slow_git = format!(
        "#!/bin/sh\ncase \"$*\" in *status*) touch '{}'; sleep 1;; esac\nPATH='{path}' exec git \"$@\"\n",
        programs.join("searching").display()
    );
    std::fs::write(&git, slow_git).expect("writable");
    std::fs::set_permissions(&git, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    scene.env.set("PATH", format!("{}:{path}", programs.display()));
    scene.repo.write("README.md", "changed\n");
    let mut run = scene.env.start(studio(), scene.repo.path(), ["run", "write a 1; hang"]);
    until("the search", || programs.join("searching").exists().then_some(()));
    let pid = Pid::from_raw(run.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let status = run.wait_until(Some(end)).unwrap().expect("it ends");
    assert_eq!(base::process::exit_code(status), 130);
    let list = scene.studio(["list", "--json"]).json();
    assert_eq!(list["sessions"][0]["state"], "stopped", "{list}");
}

#[test]
fn a_sandbox_cannot_read_studios_data_of_another_repository() {
    let scene = Scene::new();
    let other = scene.env.repo_at("other");
    let working = scene.studio_in(other.path(), ["exec", "--agent", "talk", "write a 1; gate go"]);
    let working = working.ok().to_owned();
    let git = other.path().canonicalize().unwrap().join(".git");
    let state = scene.env.home().canonicalize().unwrap().join(".local/state/studio");
    let token = state.join(base::user_dirs::name_for_path(&git)).join(&working).join("token");
    until("the token of the other session", || token.exists().then_some(()));
    assert!(!git.join("studio/sessions").join(&working).join("token").exists());
    let journal = git.join("studio/sessions").join(&working).join("journal.jsonl");
    assert!(journal.exists());

    let readme = other.path().canonicalize().unwrap().join("README.md");
    scene.configure(&format!("[sandbox]\nread = [\"{}\"]\n", readme.display()));
    let readable = format!("cat '{}'", readme.display());
    let id = scene.exec(["write b 1", "--check", &readable]);
    scene.await_state(&id, "ready");
    for secret in [&token, &journal] {
        let check = format!("cat '{}'", secret.display());
        let id = scene.exec(["write b 1", "--check", &check]);
        until("the check to fail", || {
            let status = scene.status(&id);
            assert_ne!(status["state"], "ready", "{} was read", secret.display());
            (status["state"] == "failed").then_some(())
        });
        let name = secret.file_name().unwrap().to_string_lossy().into_owned();
        let logs = scene.studio(["logs", &id]);
        let logs = &logs.exits(0).out;
        let reasons = ["Permission denied", "No such file"];
        assert!(reasons.iter().any(|reason| logs.contains(reason)), "{name}: {logs}");
    }
    let stopped = scene.studio_in(other.path(), ["stop", &working]);
    stopped.ok();
    until("the token to be gone", || (!token.exists()).then_some(()));
}
