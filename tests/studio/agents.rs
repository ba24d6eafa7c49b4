//! `studio agents`, and the agents that need no configuration.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use base::process::find_program;
use serde_json::{Value, json};
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
        .output_contains("npm install -g @agentclientprotocol/codex-acp");
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

/// Returns an option with these values, the first one as the current one.
fn option(id: &str, category: &str, values: [&str; 2]) -> Value {
    let values = values.map(|value| json!({"value": value, "name": value.to_uppercase()}));
    json!({"id": id, "name": id, "category": category, "type": "select",
        "currentValue": values[0]["value"], "options": values})
}

/// Adds an agent that offers these settings of its sessions over ACP.
fn offering(scene: &Scene, offers: &Value, lines: &str) {
    let variable = json!(format!("FAKE_ACP_OFFERS={offers}"));
    let fake = built("fake-agent");
    scene.configure(&format!(
        "[studio.agents.offers]\ncommand = [\"{}\", \"acp-load\"]\nenv = [{variable}]\n{lines}\n",
        fake.display()
    ));
}

fn settings(scene: &Scene, id: &str) -> String {
    let text = scene.worktree(id).read("settings.txt");
    text.replace("\"sessionId\":\"ID\",", "")
}

#[test]
fn options_of_an_agent_are_set_in_each_of_its_processes() {
    let scene = Scene::new();
    let options = [
        option("effort", "thought_level", ["low", "high"]),
        option("llm", "model", ["small", "big"]),
    ];
    let offers = json!({ "configOptions": options });
    offering(&scene, &offers, "options = { effort = \"high\", model = \"BIG\" }");
    let id = scene.exec(["--agent", "offers", "write a 1"]);
    scene.await_state(&id, "ready");
    // The model comes first, and a name means its value.
    let both = "session/set_config_option {\"configId\":\"llm\",\"value\":\"big\"}\n\
                session/set_config_option {\"configId\":\"effort\",\"value\":\"high\"}\n";
    assert_eq!(settings(&scene, &id), both);
    scene.await_free(&id);
    scene.studio(["send", &id, "write b 1"]).exits(0);
    scene.await_state(&id, "ready");
    assert_eq!(settings(&scene, &id), both.repeat(2), "a loaded conversation has them as well");

    let id = scene.exec(["--agent", "offers", "--model", "small", "write a 1"]);
    scene.await_state(&id, "ready");
    assert!(settings(&scene, &id).contains("\"value\":\"small\""));
    scene.await_free(&id);
    scene.studio(["send", &id, "write b 1"]).exits(0);
    scene.await_state(&id, "ready");
    assert!(!settings(&scene, &id).contains("\"value\":\"big\""), "the session keeps its model");
}

#[test]
fn an_option_that_an_agent_does_not_have_names_those_that_it_has() {
    let scene = Scene::new();
    let offers = json!({ "configOptions": [option("model", "model", ["small", "big"])] });
    for (options, why) in [
        ("colour = \"red\"", "it has no option `colour`; it has: model"),
        ("model = \"huge\"", "its option `model` has no value `huge`; it has: small, big"),
    ] {
        offering(&scene, &offers, &format!("options = {{ {options} }}"));
        let id = scene.exec(["--agent", "offers", "write a 1"]);
        let said = scene.await_state(&id, "failed")["why"].as_str().unwrap().to_owned();
        assert!(said.contains(why), "{said}");
    }
    let row = "[studio.agents.plain]\nprotocol = \"command\"\ncommand = [\"true\"]\n\
               options = { model = \"m\" }\n";
    scene.configure(row);
    scene
        .studio(["run", "--agent", "plain", "x"])
        .exits(2)
        .output_contains("the option `model` of agent `plain` cannot be set");
    scene
        .studio(["run", "--agent", "fake", "--model", "m", "x"])
        .exits(2)
        .output_contains("--model cannot be used with agent `fake`");
}

#[test]
fn agents_without_options_get_their_mode_and_model_by_the_older_methods() {
    let scene = Scene::new();
    let mode = |id: &str| json!({"id": id, "name": id});
    let offers = json!({"modes": {"currentModeId": "ask",
        "availableModes": [mode("ask"), mode("yolo")]}});
    offering(&scene, &offers, "options = { mode = \"yolo\" }");
    let id = scene.exec(["--agent", "offers", "--model", "m1", "write a 1"]);
    scene.await_state(&id, "ready");
    assert_eq!(
        settings(&scene, &id),
        "session/set_model {\"modelId\":\"m1\"}\nsession/set_mode {\"modeId\":\"yolo\"}\n"
    );
    offering(&scene, &offers, "options = { mode = \"auto\" }");
    let id = scene.exec(["--agent", "offers", "write a 1"]);
    let said = scene.await_state(&id, "failed")["why"].as_str().unwrap().to_owned();
    assert!(said.contains("has no value `auto`; it has: ask, yolo"), "{said}");
}

#[test]
fn the_model_of_a_known_agent_without_acp_is_an_argument() {
    let scene = Scene::new();
    let programs = programs(&["claude"]);
    let script = "#!/bin/sh\necho \"$*\" > args.txt\n\
                  echo '{\"type\":\"result\",\"subtype\":\"success\",\"result\":\"done\"}'\n";
    std::fs::write(programs.path().join("claude"), script).unwrap();
    let args = ["run", "--agent", "claude", "--model", "opus", "write a 1"];
    run(&scene, programs.path(), args).exits(0);
    let id = scene.studio(["list", "--json"]).json()["sessions"][0]["id"].clone();
    let args = scene.worktree(id.as_str().unwrap()).read("args.txt");
    assert!(args.starts_with("--model opus -p --output-format stream-json"), "{args}");
}
