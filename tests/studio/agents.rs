//! `studio agents`, and the agents that need no configuration.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use base::process::find_program;
use testkit::env::{CommandRun, built};

use crate::fixtures::{Scene, studio};

/// Creates a directory with these programs, which are the fake agent with a version. It is beside the
/// fake agent: sandboxes close the directory of temporary files.
fn programs(names: &[&str]) -> tempfile::TempDir {
    let fake = built("fake-agent");
    let dir = tempfile::tempdir_in(fake.parent().unwrap()).unwrap();
    symlink(find_program("git").unwrap(), dir.path().join("git")).unwrap();
    for name in names {
        let path = dir.path().join(name);
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo \"{name} v1.2.3 (abc)\" && exit\n\
             exec '{}' \"$@\"\n",
            fake.display()
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

/// Runs studio with only these programs in its `PATH`.
fn run<const N: usize>(scene: &Scene, path: &Path, args: [&str; N]) -> CommandRun {
    let job = scene.env.command(studio(), scene.repo.path()).args(args).env("PATH", path);
    scene.env.run_command(job)
}

#[test]
fn installed_agents_are_listed_with_version_protocol_and_login() {
    let scene = Scene::new();
    let programs = programs(&["opencode", "qwen", "codex"]);
    let login = scene.env.home().join(".local/share/opencode/auth.json");
    std::fs::create_dir_all(login.parent().unwrap()).unwrap();
    std::fs::write(login, "{}").unwrap();

    let listed = run(&scene, programs.path(), ["agents", "--json"]).json();
    let agent = |name: &str| {
        let agents = listed["agents"].as_array().unwrap();
        agents.iter().find(|agent| agent["name"] == name).unwrap().clone()
    };
    assert_eq!(listed["default"], "fake");
    let opencode = agent("opencode");
    assert_eq!(opencode["version"], "1.2.3");
    assert_eq!(opencode["protocol"], "acp");
    assert_eq!(opencode["login"], "~/.local/share/opencode/auth.json");
    assert_eq!(opencode["install"], serde_json::Value::Null);
    // Without its ACP adapter, codex runs as a command.
    assert_eq!(agent("codex")["protocol"], "command");
    assert_eq!(agent("qwen")["login"], serde_json::Value::Null);
    assert_eq!(agent("gemini")["installed"], false);
    assert_eq!(agent("gemini")["install"], "npm install -g @google/gemini-cli");
    assert_eq!(agent("fake")["configured"], true);

    let listed = run(&scene, programs.path(), ["agents"]);
    listed
        .exits(0)
        .output_contains("\n fake (default)  fake-agent  -        command   -")
        .output_contains("~/.local/share/opencode/auth.json")
        .output_contains(
            "No login found:\n  codex: run `codex` once to log in, or set OPENAI_API_KEY",
        )
        .output_contains("\n  gemini          npm install -g @google/gemini-cli\n");
}

#[test]
fn a_known_agent_runs_without_configuration() {
    let scene = Scene::new();
    let programs = programs(&["opencode"]);
    let path =
        format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap_or_default());
    run(&scene, Path::new(&path), ["run", "--agent", "opencode", "write a 1"]).exits(0);
    let listed = scene.studio(["list", "--json"]).json();
    assert_eq!(listed["sessions"][0]["agent"], "opencode");
    assert_eq!(listed["sessions"][0]["state"], "ready");
}

#[test]
fn several_agents_take_the_tasks_in_turn() {
    let scene = Scene::new();
    let ran = scene.studio(["run", "--dry-run", "--json", "--agent", "fake,talk", "a", "b", "c"]);
    let agents: Vec<String> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["agent"].to_string())
        .collect();
    assert_eq!(agents, ["\"fake\"", "\"talk\"", "\"fake\""]);
    scene.studio(["run", "--agent", "fake,", "a"]).exits(2);
    scene
        .studio(["run", "--agent", "fake,missing", "a", "b"])
        .exits(2)
        .output_contains("no such agent: `missing`");
    scene.studio(["list", "--json"]).output_lacks("queued");
}

#[test]
fn a_missing_known_agent_names_the_command_that_installs_it() {
    let scene = Scene::new();
    let programs = programs(&[]);
    run(&scene, programs.path(), ["run", "--agent", "codex", "write a 1"])
        .exits(2)
        .output_contains("agent `codex` is not installed")
        .output_contains("`codex-acp`, `codex`")
        .output_contains("npm install -g @zed-industries/codex-acp");
}

#[test]
fn agents_are_listed_outside_of_repositories() {
    let scene = Scene::new();
    let outside = scene.env.home().join("tmp");
    scene.studio_in(&outside, ["agents"]).exits(0).output_contains("fake (default)");
}

/// Counts its starts in its own directory, then runs the rest of the script.
fn counting_agent(scene: &Scene, rest: &str) {
    let script = format!(
        "cd '{{state}}' && echo x >> starts && n=$(wc -l < starts) && cd '{{worktree}}'; {rest}"
    );
    scene.configure(&format!(
        "[studio.agents.counting]\nprotocol = \"command\"\ncommand = [\"sh\", \"-c\", {script:?}, \"{{prompt}}\"]\n"
    ));
}

fn starts(scene: &Scene, id: &str) -> usize {
    let file = scene.session_file(id, "agent-state/starts");
    std::fs::read_to_string(file).unwrap_or_default().lines().count()
}

#[test]
fn a_command_that_fails_at_its_start_is_started_again() {
    let scene = Scene::new();
    counting_agent(&scene, "test $n -ge 3 || { echo locked >&2; exit 1; }; echo 1 > a; echo done");
    let id = scene.exec(["--agent", "counting", "x"]);
    scene.await_state(&id, "ready");
    assert_eq!(starts(&scene, &id), 3);
    counting_agent(&scene, "echo locked >&2; exit 1");
    let failed = scene.exec(["--agent", "counting", "x"]);
    let why = scene.await_state(&failed, "failed")["why"].clone();
    assert_eq!(why, "the agent exited with code 1: locked (3 attempts)");
}

#[test]
fn a_command_that_did_something_or_is_missing_is_not_started_again() {
    let scene = Scene::new();
    scene.repo.commit_file("kept.txt", "kept\n");
    for rest in [
        "echo 1 > a; echo bad >&2; exit 1",
        "echo 1 >> kept.txt; touch -d 2001-01-01 kept.txt; echo bad >&2; exit 1",
        "rm kept.txt; echo bad >&2; exit 1",
        "echo hello; echo bad >&2; exit 1",
        "exit 1",
    ] {
        counting_agent(&scene, rest);
        let id = scene.exec(["--agent", "counting", "x"]);
        scene.await_state(&id, "failed");
        assert_eq!(starts(&scene, &id), 1, "{rest}");
    }
    counting_agent(&scene, "exec /no/such/program");
    let id = scene.exec(["--agent", "counting", "x"]);
    scene.await_state(&id, "failed");
    assert_eq!(starts(&scene, &id), 1);
}
