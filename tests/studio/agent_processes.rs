//! The start and the end of agents: when a session's lock is free, no process is left, and output
//! outside the protocol does no harm.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use base::process::is_alive;
use testkit::env::{built, process_in, until};

use crate::fixtures::Scene;

/// Configures a script in the repository's git directory as the ACP agent `NAME`, and returns its
/// path.
fn configure(scene: &Scene, name: &str, script: &str) -> PathBuf {
    let path = scene.repo.path().join(".git").join(name);
    let fake = built("fake-agent");
    std::fs::write(&path, script.replace("FAKE", &format!("'{}'", fake.display())))
        .and_then(|()| std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)))
        .expect("the repository is writable");
    let read = fake.parent().expect("it lies in a directory");
    scene.configure(&format!(
        "[studio.agents.{name}]\ncommand = [\"{}\"]\nread = [\"{}\"]\n",
        path.display(),
        read.display()
    ));
    path
}

fn pid(scene: &Scene, id: &str, name: &str) -> u32 {
    until("the process", || {
        let worktree = scene.worktree(id);
        let text = std::fs::read_to_string(worktree.path().join(".g3").join(name)).ok()?;
        process_in(worktree.path(), text.trim().parse().ok()?)
    })
}

#[test]
fn an_agent_that_does_not_exit_is_gone_when_the_lock_is_free() {
    let scene = Scene::new();
    let script = "#!/bin/sh\nmkdir -p .g3; echo $$ > .g3/pid\nFAKE acp\ntrap '' TERM\n\
                  while :; do sleep 1; done\n";
    configure(&scene, "stays", script);
    let id = scene.exec(["--agent", "stays", "write a 1"]);
    let agent = pid(&scene, &id, "pid");
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    assert!(!is_alive(agent), "it outlived its session's lock");

    let id = scene.exec(["--agent", "stays", "--accept", "write b 1"]);
    let agent = pid(&scene, &id, "pid");
    until("the landing", || scene.repo.path().join("b").exists().then_some(()));
    assert!(!is_alive(agent), "its work landed while it was alive");
    scene.await_free(&id);
}

#[test]
fn cancelled_checks_are_gone_when_the_lock_is_free() {
    let scene = Scene::new();
    let check = "mkdir -p .g3; echo $$ > .g3/check; trap '' TERM; while :; do sleep 1; done";
    let id = scene.exec(["--check", check, "write a 1"]);
    let check = pid(&scene, &id, "check");
    scene.studio(["stop", &id]).exits(0).output_contains("stopped");
    assert!(!is_alive(check), "it outlived its session's lock");
}

#[test]
fn an_agent_may_print_a_banner_and_start_slowly() {
    let scene = Scene::new();
    let script = "#!/bin/sh\necho Welcome\nread -r hello\n\
                  id() { expr \"$1\" : '.*\"id\":\\(\"[^\"]*\"\\|[0-9]*\\)'; }\n\
                  answer() { echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$(id \"$1\"),\\\"result\\\":$2}\"; }\n\
                  answer \"$hello\" '{\"protocolVersion\":1,\"agentCapabilities\":{}}'\n\
                  read -r open; sleep 6; answer \"$open\" '{\"sessionId\":\"s\"}'\n\
                  read -r prompt; echo 1 > a; answer \"$prompt\" '{\"stopReason\":\"end_turn\"}'\n";
    configure(&scene, "greets", script);
    let id = scene.exec(["--agent", "greets", "write a 1"]);
    scene.await_state(&id, "ready");
    let log = std::fs::read_to_string(scene.session_file(&id, "agent.log")).unwrap();
    assert_eq!(log, "Welcome\n", "what is no JSON is in the log");
}

#[test]
fn output_outside_the_protocol_is_limited() {
    let scene = Scene::new();
    configure(&scene, "floods", "#!/bin/sh\nyes 'no JSON' | head -c 3000000\nexec FAKE acp\n");
    let more = std::fs::read_to_string(scene.env.home().join(".config/g3/config.toml")).unwrap();
    scene.env.config(
        &more.replace("agent = \"fake\"", "agent = \"fake\"\nlimits = { output_bytes = 100000 }"),
    );
    let id = scene.exec(["--agent", "floods", "write a 1"]);
    scene.await_state(&id, "ready");
    let size = |name| std::fs::metadata(scene.session_file(&id, name)).map_or(0, |meta| meta.len());
    assert!(size("agent.log") > 0 && size("agent.log") + size("agent.log.1") <= 100_000);
}

#[test]
fn accept_waits_for_an_agent_that_exits_slowly() {
    let scene = Scene::new();
    let script = "#!/bin/sh\nFAKE acp\ntrap '' TERM\nwhile :; do sleep 1; done\n";
    configure(&scene, "stays", script);
    let id = scene.exec(["--agent", "stays", "write a 1"]);
    scene.await_state(&id, "ready");
    scene.studio(["accept", &id]).exits(0);
    assert_eq!(scene.repo.read("a"), "1\n");
}

#[test]
fn writable_directories_of_an_agent_are_created_before_its_first_start() {
    let scene = Scene::new();
    let script = "#!/bin/sh\nmkdir -p ~/.agent/state && echo 1 > ~/.agent/state/x || exit 9\n\
                  exec FAKE acp\n";
    let path = configure(&scene, "first", script);
    let fake = built("fake-agent");
    scene.configure(&format!(
        "[studio.agents.first]\ncommand = [\"{}\"]\nread = [\"{}\"]\n\
         write = [\"~/.agent\", \"~/.agent.json\"]\n",
        path.display(),
        fake.parent().expect("it is in a directory").display()
    ));
    let id = scene.exec(["--agent", "first", "write a 1"]);
    scene.await_state(&id, "ready");
    assert_eq!(std::fs::read_to_string(scene.env.home().join(".agent/state/x")).unwrap(), "1\n");
    assert!(!scene.env.home().join(".agent.json").exists(), "a file is not made as a directory");
}

#[test]
fn an_empty_session_names_failed_tool_calls() {
    let scene = Scene::new();
    let end = r#"event {"seq":1,"time":"2026-01-02T10:00:00Z","type":"tool_end","id":"c","name":"shell","ok":false,"text":"```sh\n\nno sandbox here\n```","ms":1}"#;
    let id = scene.exec(["--agent", "talk", end]);
    let status = scene.await_state(&id, "empty");
    let why = "the agent finished and changed nothing; a tool call failed: no sandbox here";
    assert_eq!(status["why"], why);
}
