//! Agents of others, with the real programs and the scripted model: run, send, stop, resume, and
//! kill -9 of the supervisor.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use testkit::env::until;
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::request::{ReceivedRequest, RequestWire};
use testkit::model_server::script::Script;

use crate::fixtures::Scene;

/// The key of the model server.
const KEY: &str = "sk-canary-6fA0cV3nE1";
/// Writes what an agent has of its key.
const SEARCH: &str = "env > keys; cat /proc/[0-9]*/environ >> keys 2>/dev/null; echo searched";

/// Names of tools that run a command, with its argument.
const SHELL_TOOLS: [(&str, &str); 4] = [
    ("Bash", "command"),
    ("exec_command", "cmd"),
    ("bash", "command"),
    ("run_shell_command", "command"),
];

/// Returns the call that runs a command.
fn shell_call(request: &ReceivedRequest, command: &str) -> Option<ScriptedReply> {
    let tools = request.tool_names();
    let is_codex = request.wire() == Some(RequestWire::OpenaiResponses);
    let (name, argument) = SHELL_TOOLS
        .iter()
        .find(|(name, _)| tools.iter().any(|tool| tool == name))
        .or(SHELL_TOOLS.get(1).filter(|_| is_codex))?;
    let mut args = json!({"description": "d", (*argument): command});
    match *name {
        "run_shell_command" => args["is_background"] = Value::Bool(false),
        "exec_command" => {
            args["yield_time_ms"] = 30_000.into();
            args.as_object_mut()?.remove("description");
        }
        _ => {}
    }
    Some(ScriptedReply::says("Working.").calls(*name, args))
}

/// Returns the files that the prompts ask for: `WRITE:NAME`.
fn wanted_files(request: &ReceivedRequest) -> Vec<String> {
    let text = request.text();
    let names = text.split("WRITE:").skip(1).filter_map(|rest| rest.split(".txt").next());
    let mut files: Vec<String> = names.map(|name| format!("{name}.txt")).collect();
    files.dedup();
    files
}

/// Replies with a command for each file, then with text. `SLEEP` starts a command that does not end.
fn reply(request: &ReceivedRequest) -> ScriptedReply {
    let files = wanted_files(request);
    let written = request.tool_results().len();
    if request.last().contains("SLEEP")
        && let Some(call) = shell_call(request, "touch started; sleep 300")
    {
        return call;
    }
    if written == 0
        && request.text().contains("SEARCH")
        && let Some(call) = shell_call(request, SEARCH)
    {
        return call;
    }
    let is_mini = request.tool_names() == ["bash"] && request.text().contains("COMPLETE_TASK");
    match files.get(written) {
        Some(file) => shell_call(request, &format!("echo x > {file}"))
            // aider edits files by text.
            .unwrap_or_else(|| {
                let file = files.last().cloned().unwrap_or_default();
                ScriptedReply::says(format!("I write it.\n\n{file}\n```\nx\n```\n"))
            }),
        None if is_mini => {
            let end = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT";
            shell_call(request, end).unwrap()
        }
        None => ScriptedReply::says("All written."),
    }
}

/// A scene whose agents use the scripted model.
struct RealScene {
    scene: Scene,
    server: ModelServer,
}

impl RealScene {
    fn new() -> RealScene {
        RealScene::with("")
    }

    /// Creates a scene with these lines of configuration.
    fn with(lines: &str) -> RealScene {
        let mut scene = Scene::new();
        let server = ModelServer::start(Script::by(reply));
        let (url, openai_url) = (server.url(), server.openai_url());
        for (name, value) in [
            ("ANTHROPIC_API_KEY", KEY),
            ("ANTHROPIC_BASE_URL", &url),
            ("OPENAI_API_KEY", KEY),
            ("OPENAI_API_BASE", &openai_url),
            ("OPENAI_BASE_URL", &openai_url),
            ("OPENAI_MODEL", "scripted"),
            ("GEMINI_API_KEY", KEY),
            ("GOOGLE_GEMINI_BASE_URL", &url),
            ("AIDER_MODEL", "openai/scripted"),
            ("MSWEA_MODEL_NAME", "openai/scripted"),
            ("MSWEA_COST_TRACKING", "ignore_errors"),
            ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
        ] {
            scene.env.set(name, value);
        }
        let file = |name: &str, text: &str| {
            let path = scene.env.home().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file(
            ".codex/config.toml",
            &format!(
                "model = \"scripted\"\nmodel_provider = \"local\"\n[model_providers.local]\n\
                 name = \"local\"\nbase_url = \"{openai_url}\"\nwire_api = \"responses\"\n\
                 env_key = \"OPENAI_API_KEY\"\n"
            ),
        );
        let provider = json!({
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": openai_url, "apiKey": "{env:OPENAI_API_KEY}"},
            "models": {"scripted": {"name": "scripted", "cost": {"input": 1, "output": 2}}},
        });
        let opencode = json!({"model": "local/scripted", "small_model": "local/scripted",
            "autoupdate": false, "provider": {"local": provider}});
        file(".config/opencode/opencode.json", &opencode.to_string());
        file(
            ".qwen/settings.json",
            "{\"security\": {\"auth\": {\"selectedType\": \"openai\"}},\n\
             \"model\": {\"name\": \"scripted\"}}",
        );
        // With `auto`, gemini asks a model which model to ask.
        file(".gemini/settings.json", "{\"model\": {\"name\": \"gemini-2.5-pro\"}}");
        // Their base URLs are in files that they can write.
        let host = url.trim_start_matches("http://");
        let hosts = format!("hosts = [\"{host}\"]\n");
        scene.configure(&format!(
            "{lines}[studio.agents.codex]\n{hosts}[studio.agents.opencode-run]\nprotocol = \"command\"\noutput = \"opencode-json\"\n\
             command = [\"opencode\", \"run\", \"--format\", \"json\", \"--auto\"]\n\
             resume = [\"opencode\", \"run\", \"--format\", \"json\", \"--auto\", \"--session\", \
             \"{{conversation}}\"]\n\
             write = [\"~/.local/share/opencode\", \"~/.local/state/opencode\", \
             \"~/.config/opencode\"]\nenv = [\"OPENAI_API_KEY\"]\n{hosts}\
             network = \"allow-list\"\nproxy_keys = [\"opencode\"]\n\
             [studio.agents.qwen-once]\nprotocol = \"command\"\noutput = \"qwen-json\"\n\
             command = [\"qwen\", \"--yolo\", \"--output-format\", \"stream-json\"]\n\
             resume = [\"qwen\", \"--yolo\", \"--output-format\", \"stream-json\", \"--resume\", \
             \"{{conversation}}\"]\n\
             write = [\"~/.qwen\"]\n\
             env = [\"OPENAI_API_KEY\", \"OPENAI_BASE_URL\", \"OPENAI_MODEL\"]\n\
             network = \"allow-list\"\nproxy_keys = [\"openai\"]\n",
        ));
        RealScene { scene, server }
    }

    /// Returns whether the model was asked with a recap.
    fn has_recap(&self) -> bool {
        let requests = self.server.requests();
        requests.iter().any(|request| request.text().contains("on this task in this directory"))
    }

    fn await_file(&self, id: &str, name: &str) {
        let path = self.scene.worktree(id).path().join(name);
        until(name, || path.exists().then_some(()));
    }

    fn await_ready(&self, id: &str) {
        self.scene.await_state(id, "ready");
        self.scene.await_free(id);
    }

    /// Runs a task and sends a message.
    fn runs_and_continues(&self, agent: &str) -> String {
        let id = self.scene.exec(["--agent", agent, "WRITE:one.txt"]);
        self.await_ready(&id);
        assert_eq!(self.scene.worktree(&id).read("one.txt"), "x\n");
        self.scene.studio(["send", &id, "WRITE:two.txt"]).exits(0);
        self.await_file(&id, "two.txt");
        self.await_ready(&id);
        id
    }

    /// Stops a session while a command runs, kills its supervisor, and resumes it after each.
    fn stops_and_survives_a_kill(&self, id: &str) {
        let started = self.scene.worktree(id).path().join("started");
        for is_killed in [false, true] {
            self.scene.studio(["send", id, "SLEEP"]).exits(0);
            self.await_file(id, "started");
            std::fs::remove_file(&started).unwrap();
            if is_killed {
                let journal = self.scene.journal(id);
                let spawned = journal.iter().rev().find(|line| line["entry"] == "spawned");
                let pid = i32::try_from(spawned.unwrap()["pid"].as_i64().unwrap()).unwrap();
                rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
                self.scene.await_state(id, "crashed");
            } else {
                self.scene.studio(["stop", id]).exits(0);
                self.scene.await_state(id, "stopped");
            }
            self.scene.await_free(id);
            self.scene.studio(["resume", id]).exits(0);
            self.await_ready(id);
        }
        self.scene.studio(["accept", id, "-m", "Add files"]).exits(0);
        let files = self.scene.repo.git(["ls-tree", "--name-only", "HEAD"]);
        assert!(files.contains("one.txt") && files.contains("two.txt"), "{files}");
    }

    /// Returns whether the events contain the calls and the tokens.
    fn reports(&self, id: &str) {
        self.scene.studio(["logs", id]).output_contains("echo x > one.txt");
        assert!(self.scene.status(id)["usage"]["input"].as_u64().unwrap() > 0);
        assert!(!self.has_recap(), "the conversation is continued");
    }
}

/// The agent gets a placeholder, and the model server the key.
fn the_key_stays_outside(agent: &str, prepare: impl Fn(&RealScene)) {
    let real = RealScene::new();
    prepare(&real);
    the_key_stays_outside_in(&real, agent);
}

/// Lets codex use OpenAI's own service, at the address of the scripted model.
fn use_openai_of(real: &RealScene) {
    let file = real.scene.env.home().join(".codex/config.toml");
    let url = real.server.openai_url();
    let text = format!("model = \"scripted\"\nopenai_base_url = \"{url}\"\n");
    std::fs::write(file, text).unwrap();
}

fn the_key_stays_outside_in(real: &RealScene, agent: &str) {
    let id = real.scene.exec(["--agent", agent, "SEARCH"]);
    real.await_ready(&id);
    let found = real.scene.worktree(&id).read("keys");
    assert!(found.contains("PATH=") && found.contains("placeholder"), "{found}");
    assert!(!found.contains(KEY), "{found}");
    let requests = real.server.requests();
    assert!(requests.len() > 1);
    for request in requests {
        let headers =
            ["x-api-key", "authorization", "x-goog-api-key"].map(|name| request.header(name));
        let key = headers.into_iter().flatten().next();
        assert!(key.is_some_and(|key| key.ends_with(KEY)), "{key:?}");
    }
}

/// An agent over ACP reports its calls; whether it reports tokens depends on the agent.
fn acp_agent_works(real: &RealScene, agent: &str) {
    let id = real.runs_and_continues(agent);
    real.scene.studio(["logs", &id]).output_contains("echo x > one.txt");
    real.stops_and_survives_a_kill(&id);
    assert!(!real.has_recap(), "the conversation is continued");
}

fn json_agent_works(agent: &str) {
    let real = RealScene::new();
    let id = real.runs_and_continues(agent);
    real.reports(&id);
    real.stops_and_survives_a_kill(&id);
    assert!(!real.has_recap(), "the conversation is continued");
}

mod needs_claude_cli {
    #[test]
    #[ignore = "needs the program `claude`"]
    fn claude_runs_and_continues_its_conversation() {
        super::json_agent_works("claude");
    }

    #[test]
    #[ignore = "needs the program `claude`"]
    fn the_key_of_claude_stays_outside() {
        super::the_key_stays_outside("claude", |_| {});
    }
}

mod needs_claude_acp {
    use base::process::find_program;

    use super::RealScene;

    /// Selects the adapter although `claude` itself is installed, and a mode without its own
    /// classifier of calls, which would ask the scripted model.
    fn scene() -> RealScene {
        assert!(find_program("claude-agent-acp").is_some());
        RealScene::with("[studio.agents.claude]\noptions = { mode = \"bypassPermissions\" }\n")
    }

    #[test]
    #[ignore = "needs the program `claude-agent-acp`"]
    fn claude_over_acp_runs_and_continues_its_conversation() {
        super::acp_agent_works(&scene(), "claude");
    }

    #[test]
    #[ignore = "needs the program `claude-agent-acp`"]
    fn the_key_of_claude_over_acp_stays_outside() {
        super::the_key_stays_outside_in(&scene(), "claude");
    }
}

mod needs_codex_acp {
    use base::process::find_program;

    use super::RealScene;

    fn scene() -> RealScene {
        assert!(find_program("codex-acp").is_some());
        RealScene::new()
    }

    #[test]
    #[ignore = "needs the program `codex-acp`"]
    fn codex_over_acp_runs_and_continues_its_conversation() {
        super::acp_agent_works(&scene(), "codex");
    }

    #[test]
    #[ignore = "needs the program `codex-acp`"]
    fn the_key_of_codex_over_acp_stays_outside() {
        let real = scene();
        super::the_key_stays_outside_in(&real, "codex");
        let without_provider = scene();
        super::use_openai_of(&without_provider);
        super::the_key_stays_outside_in(&without_provider, "codex");
    }
}

mod needs_codex_cli {
    #[test]
    #[ignore = "needs the program `codex`"]
    fn codex_runs_and_continues_its_conversation() {
        super::json_agent_works("codex");
    }

    #[test]
    #[ignore = "needs the program `codex`"]
    fn the_key_of_a_configured_provider_stays_outside() {
        super::the_key_stays_outside("codex", |_| {});
    }

    #[test]
    #[ignore = "needs the program `codex`"]
    fn the_key_of_openai_stays_outside() {
        super::the_key_stays_outside("codex", super::use_openai_of);
    }
}

mod needs_opencode_cli {
    #[test]
    #[ignore = "needs the program `opencode`"]
    fn opencode_runs_and_continues_its_conversation() {
        super::json_agent_works("opencode-run");
    }

    #[test]
    #[ignore = "needs the program `opencode`"]
    fn the_key_of_opencode_stays_outside() {
        super::the_key_stays_outside("opencode-run", |_| {});
    }
}

mod needs_qwen_cli {
    #[test]
    #[ignore = "needs the program `qwen`"]
    fn qwen_runs_and_continues_its_conversation() {
        super::json_agent_works("qwen-once");
    }

    #[test]
    #[ignore = "needs the program `qwen`"]
    fn the_key_of_qwen_stays_outside() {
        super::the_key_stays_outside("qwen-once", |_| {});
    }
}

mod needs_gemini_cli {
    use std::time::SystemTime;

    use testkit::env::poll;
    use testkit::model_server::request::ReceivedRequest;

    use super::RealScene;

    fn scene() -> RealScene {
        RealScene::with("[studio.agents.gemini]\noptions = { mode = \"yolo\" }\n")
    }

    #[test]
    #[ignore = "needs the program `gemini`"]
    fn gemini_runs_stops_and_survives_a_kill() {
        let real = scene();
        let id = real.runs_and_continues("gemini");
        real.scene.studio(["logs", &id]).output_contains("echo x > one.txt");
        real.stops_and_survives_a_kill(&id);
    }

    /// It cannot load a conversation in the minute in which it began (0.61.0).
    #[test]
    #[ignore = "needs the program `gemini`"]
    fn gemini_continues_its_conversation_in_a_later_minute() {
        let real = scene();
        let id = real.scene.exec(["--agent", "gemini", "WRITE:one.txt"]);
        real.await_ready(&id);
        let minute = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 60;
        let begin = minute();
        let is_over = || poll(|| (minute() > begin).then_some(()));
        is_over().or_else(is_over).unwrap();
        real.scene.studio(["send", &id, "WRITE:two.txt"]).exits(0);
        real.await_ready(&id);
        // It loads the conversation without its results.
        let is_continued = |request: &ReceivedRequest| {
            let text = request.text();
            text.contains("WRITE:one.txt") && text.contains("WRITE:two.txt")
        };
        assert!(real.server.requests().iter().any(is_continued) && !real.has_recap());
    }

    #[test]
    #[ignore = "needs the program `gemini`"]
    fn the_key_of_gemini_stays_outside() {
        super::the_key_stays_outside_in(&scene(), "gemini");
    }
}

mod needs_aider_cli {
    #[test]
    #[ignore = "needs the program `aider`"]
    fn aider_edits_files_and_leaves_none_of_its_own() {
        let real = super::RealScene::new();
        let id = real.runs_and_continues("aider");
        assert!(real.has_recap());
        real.scene.studio(["accept", &id, "-m", "Add files"]).exits(0);
        let files = real.scene.repo.git(["ls-tree", "-r", "--name-only", "HEAD"]);
        assert!(files.contains("one.txt") && files.contains("two.txt"), "{files}");
        assert!(!files.contains("aider") && !files.contains(".gitignore"), "{files}");
    }
}

mod needs_mini_swe_agent {
    #[test]
    #[ignore = "needs the program `mini-swe-agent`"]
    fn mini_swe_agent_works_with_a_recap() {
        let real = super::RealScene::new();
        let id = real.runs_and_continues("mini-swe-agent");
        assert!(real.has_recap());
        real.scene.studio(["accept", &id, "-m", "Add files"]).exits(0);
    }
}
