//! Agents without ACP whose output is JSON lines: their events, limits and conversations.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base::text::CONTINUE_PROMPT;
use testkit::env::{built, until};

use crate::fixtures::Scene;

/// The conversation in the recorded output.
const CONVERSATION: &str = "d563beb1-f184-4e81-abd5-49d17c218359";

/// Returns the recorded output of this name.
fn recorded(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/agent_output");
    format!("{folder}/{name}.jsonl")
}

/// A scene with a program `claude`: a shell script that gets its arguments and its prompt in the
/// worktree's files `args` and `prompt`.
struct ClaudeScene {
    scene: Scene,
    _programs: tempfile::TempDir,
}

impl ClaudeScene {
    fn new(script: &str) -> ClaudeScene {
        let mut scene = Scene::new();
        let fake = built("fake-agent");
        let programs = tempfile::tempdir_in(fake.parent().unwrap()).unwrap();
        let program = programs.path().join("claude");
        let turn = std::fs::read_to_string(recorded("claude-turn")).unwrap();
        let resumed = std::fs::read_to_string(recorded("claude-resumed")).unwrap();
        std::fs::write(programs.path().join("turn"), turn).unwrap();
        std::fs::write(programs.path().join("resumed"), resumed).unwrap();
        let text = format!(
            "#!/bin/sh\ncd \"$PWD\"\nturn='{turn}' resumed='{resumed}'\n\
             echo \"$*\" >> args; cat >> prompt; echo >> prompt\n{script}\n",
            turn = programs.path().join("turn").display(),
            resumed = programs.path().join("resumed").display(),
        );
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        scene.env.set("PATH", format!("{}:{path}", programs.path().display()));
        ClaudeScene { scene, _programs: programs }
    }

    fn exec(&self, task: &str) -> String {
        self.scene.exec(["--agent", "claude", task])
    }

    /// Returns the lines of a file that the program wrote.
    fn lines(&self, id: &str, file: &str) -> Vec<String> {
        let text = self.scene.worktree(id).read(file);
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn json_lines_become_events_and_a_message_continues_the_conversation() {
    let claude =
        ClaudeScene::new("case \"$*\" in *--resume*) cat \"$resumed\" ;; *) cat \"$turn\" ;; esac");
    let (scene, id) =
        (&claude.scene, claude.scene.exec(["--agent", "claude", "--", "--write a file"]));
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    let logs = scene.studio(["logs", &id]);
    logs.output_contains("I create the file.")
        .output_contains("> Bash echo 1 > one.txt && cat one.txt")
        .output_contains("Bash failed: Exit code 1")
        .output_lacks("\"type\":");
    assert_eq!(logs.out.matches("the agent runs").count(), 1, "{}", logs.out);
    let status = scene.status(&id);
    assert_eq!((&status["usage"]["input"], &status["usage"]["output"]), (&3900.into(), &70.into()));
    let cost = status["usage"]["cost_usd"].as_f64().unwrap();
    assert!((cost - 0.02825).abs() < 1e-9, "{cost}");
    assert_eq!(claude.lines(&id, "prompt"), ["--write a file"]);

    scene.studio(["send", &id, "go on"]).exits(0);
    until("its second turn", || (claude.lines(&id, "args").len() == 2).then_some(()));
    scene.await_state(&id, "ready");
    assert!(claude.lines(&id, "args")[1].ends_with(&format!("--resume {CONVERSATION}")));
    assert_eq!(claude.lines(&id, "prompt"), ["--write a file", "go on"]);
    scene.studio(["logs", &id]).output_contains("Second turn done.");
}

#[test]
fn a_conversation_that_is_lost_is_explained_to_a_new_one() {
    let claude = ClaudeScene::new(
        "case \"$*\" in *--resume*) echo 'No conversation found' >&2; exit 1 ;; esac; cat \"$turn\"",
    );
    let (scene, id) = (&claude.scene, claude.exec("write a file"));
    scene.await_state(&id, "ready");
    scene.studio(["send", &id, "make it longer"]).exits(0);
    until("its third start", || (claude.lines(&id, "args").len() == 3).then_some(()));
    scene.await_state(&id, "ready");
    let prompts = claude.scene.worktree(&id).read("prompt");
    assert!(prompts.contains("You have worked on this task in this directory"), "{prompts}");
    assert_eq!(prompts.matches("make it longer").count(), 2, "{prompts}");
    assert!(!claude.lines(&id, "args")[2].contains("--resume"));
    scene
        .studio(["logs", &id])
        .output_contains("note: the agent could not continue its conversation")
        .output_contains("turn 2 ended")
        .output_lacks("turn 3");
}

#[test]
fn a_killed_session_continues_its_conversation() {
    let claude = ClaudeScene::new(
        "case \"$*\" in *--resume*) cat \"$resumed\" ;; *) head -n 6 \"$turn\"; exec sleep 300 ;; esac",
    );
    let (scene, id) = (&claude.scene, claude.exec("write a file"));
    until("its first call", || {
        let entries = scene.journal(&id);
        entries.iter().any(|entry| entry["event"]["type"] == "tool_start").then_some(())
    });
    let journal = scene.journal(&id);
    let spawned = journal.iter().find(|entry| entry["entry"] == "spawned").unwrap();
    let pid = spawned["pid"].to_string();
    scene.env.run("/bin/kill", Path::new("/"), ["-9", &pid]).exits(0);
    scene.await_state(&id, "crashed");
    scene.studio(["resume", &id]).exits(0);
    scene.await_state(&id, "ready");
    assert!(claude.lines(&id, "args")[1].ends_with(&format!("--resume {CONVERSATION}")));
    assert_eq!(claude.lines(&id, "prompt"), ["write a file", CONTINUE_PROMPT]);
}

#[test]
fn limits_apply_to_what_the_output_reports() {
    let claude = ClaudeScene::new("cat \"$turn\"; exec sleep 300");
    let scene = &claude.scene;
    let id = scene.exec(["--agent", "claude", "--max-turns", "2", "x"]);
    assert_eq!(scene.await_state(&id, "failed")["why"], "it reached its limit of 2 turns");
    let id = scene.exec(["--agent", "claude", "--max-tokens", "2000", "x"]);
    assert_eq!(scene.await_state(&id, "failed")["why"], "it reached its limit of 2000 tokens");
    let id = scene.exec(["--agent", "claude", "--budget", "0.01", "x"]);
    assert_eq!(
        scene.await_state(&id, "failed")["why"],
        "it reached its limit of a budget of $0.01"
    );
    scene.configure(
        "[studio.agents.mine]\nprotocol = \"command\"\ncommand = [\"sh\", \"-c\", \"cat\"]\n\
         output = \"codex-json\"\n",
    );
    for (flag, value) in [("--max-turns", "turns"), ("--budget", "cost")] {
        scene
            .studio(["run", "--agent", "mine", flag, "5", "x"])
            .exits(2)
            .output_contains(&format!("{flag} cannot be used with agent `mine`"))
            .output_contains(&format!("contains no {value}"));
    }
}

#[test]
fn a_configured_agent_names_its_format_and_its_variables() {
    let scene = Scene::new();
    let codex = recorded("codex-turn");
    scene.configure(&format!(
        "[studio.agents.mine]\nprotocol = \"command\"\noutput = \"codex-json\"\n\
         command = [\"sh\", \"-c\", \"cat '{codex}'; echo $COLOR > a; ls -d \\\"$1\\\" >> a\", \"-\", \
         \"{{state}}\"]\nenv = [\"COLOR=blue green\"]\nread = [\"{codex}\"]\n",
    ));
    let id = scene.exec(["--agent", "mine", "x"]);
    scene.await_state(&id, "ready");
    let written = scene.worktree(&id).read("a");
    assert!(written.starts_with("blue green\n") && written.contains("/agent-state"), "{written}");
    let logs = scene.studio(["logs", &id]);
    logs.output_contains("> shell /bin/bash -lc 'echo 1").output_contains("The file is written.");
    assert_eq!(scene.status(&id)["usage"]["input"], 3900);
    scene.configure("[studio.agents.mine]\ncommand = [\"sh\"]\noutput = \"yaml\"\n");
    scene.studio(["run", "--agent", "mine", "x"]).exits(2).output_contains("claude-json");
}

#[test]
fn the_permissions_that_agents_remember_are_not_part_of_the_work() {
    let scene = Scene::new();
    let script = "write .claude/settings.local.json {}; write a 1; commit Add a; \
                  write .qwen/settings.json {}; write .qwen/settings.json.orig {}";
    let id = scene.ready(script);
    scene.await_free(&id);
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
    let files = scene.repo.git(["ls-files"]);
    assert!(!files.contains("claude") && !files.contains("qwen"), "{files}");
    assert_eq!(scene.repo.read("a"), "1\n");
}

#[test]
fn the_cache_of_aider_is_not_part_of_the_work() {
    let scene = Scene::new();
    scene.configure(
        "[studio.agents.mine]\nprotocol = \"command\"\ncommand = [\"sh\", \"-c\", \"mkdir \
         .aider.tags.cache.v4 && touch .aider.tags.cache.v4/cache.db && echo 1 > a\"]\n",
    );
    let id = scene.exec(["--agent", "mine", "x"]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene.studio(["accept", &id, "-m", "Add a"]).exits(0);
    assert!(!scene.repo.git(["ls-files"]).contains("aider"));
    assert_eq!(scene.repo.read("a"), "1\n");
}
