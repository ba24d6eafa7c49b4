//! Tests of g3 on a real terminal, created by `script` (Debian's bsdutils, which is always
//! installed).

use serde_json::json;
use testkit::env::CommandRun;
use testkit::model_server::reply::ScriptedReply;
use testkit::tmux::TmuxTerminal;

use crate::agent_env::{G3, Stage, of_type};
use crate::web_support::Site;

/// Runs g3 on a terminal.
fn on_a_terminal(stage: &Stage, args: &str) -> CommandRun {
    let job = stage.env.command("script", stage.repo.path());
    let job = job.env("TERM", "xterm-256color").env("SHELL", "/bin/sh");
    let line = format!("{G3} {args}");
    stage.env.run_command(job.args(["-qec", &line, "/dev/null"]).input(""))
}

/// Runs a task on a terminal and answers its question. Returns the terminal output.
pub fn answered(stage: &Stage, task: &str, answer: &str) -> String {
    let terminal = TmuxTerminal::start(&stage.env, stage.repo.path(), (120, 40), [G3, task]);
    terminal.shows("[N]o:");
    terminal.enters(answer);
    terminal.ends()
}

#[test]
fn text_is_colored_and_each_call_has_a_line() {
    let stage = Stage::new([
        ScriptedReply::says("# Plan\n\nI **list** files.\n")
            .calls("shell", json!({"command": "echo out"})),
        ScriptedReply::says("Done."),
    ]);
    let ran = on_a_terminal(&stage, "'list files'");
    ran.exits(0);
    ran.output_contains("\u{1b}[1;35m# Plan")
        .output_contains("\u{1b}[1mlist")
        .output_contains("● shell echo out")
        .output_contains("2 turns");
}

#[test]
fn without_a_terminal_there_are_no_colors_and_no_spinner() {
    let stage = Stage::new([
        ScriptedReply::says("# Plan").calls("shell", json!({"command": "echo out"})),
        ScriptedReply::says("Done."),
    ]);
    let ran = stage.g3(["list files"]);
    assert_eq!(ran.ok(), "# Plan\nDone.");
    ran.output_lacks("\u{1b}").output_lacks("thinking");
}

#[test]
fn without_a_user_to_ask_it_is_denied_and_the_rule_is_named() {
    let stage = Stage::new([
        ScriptedReply::call("write_file", json!({"file_path": "../outside.txt", "content": "x"})),
        ScriptedReply::says("done"),
    ]);
    let ran = stage.g3(["write outside"]);
    ran.exits(0);
    assert!(!stage.env.home().join("outside.txt").exists());
    let shown = ran.err.lines().skip_while(|line| !line.contains("failed: denied: "));
    let rule = ["[[gate.rules]]", "tool = \"write_file\"", "path = ", "action = \"allow\""];
    for (line, words) in shown.skip(1).zip(rule) {
        assert!(line.contains(words), "the rule is not shown whole:\n{ran}");
    }
    assert!(ran.err.contains("action = \"allow\""), "{ran}");
    assert!(stage.asked()[1].tool_results()[0].1.contains("[[gate.rules]]"));
}

#[test]
fn only_permission_allows_a_page_of_this_machine() {
    for (answer, reached) in [("y", true), ("n", false)] {
        let site = Site::new();
        site.page("/", "text/plain", "inside");
        let call = ScriptedReply::call("webfetch", json!({ "url": site.url("/") }));
        let stage = Stage::new([call, ScriptedReply::says("done")]);
        let shown = answered(&stage, "look it up", answer);
        assert!(shown.contains("is this machine"), "{shown}");
        assert_eq!(shown.matches("Allow?").count(), 1, "{shown}");
        let told = stage.asked()[1].tool_results()[0].1.clone();
        assert_eq!(told.contains("inside"), reached, "{told}");
        assert_eq!(site.asked().len(), usize::from(reached));
    }
}

#[test]
fn always_is_stored_for_a_host_and_applies_to_web_tools_and_commands() {
    let fetch = || ScriptedReply::call("webfetch", json!({ "url": "https://docs.invalid/x" }));
    let curl =
        || ScriptedReply::call("shell", json!({ "command": "curl -sS https://docs.invalid/y" }));
    let stage = Stage::new([
        fetch(),
        ScriptedReply::says("done"),
        fetch(),
        curl(),
        ScriptedReply::says("done"),
    ]);
    let shown = answered(&stage, "look it up", "a");
    assert!(shown.contains("`docs.invalid` is asked over"), "{shown}");
    stage.g3(["look it up"]).ok();
    let results = stage.asked()[4].tool_results();
    for (_, told) in &results {
        assert!(!told.contains("denied"), "{told}");
    }
}

#[test]
fn a_command_that_names_a_host_asks_as_the_web_tools_do() {
    let curl =
        |url: &str| ScriptedReply::call("shell", json!({ "command": format!("curl -sS {url}") }));
    let stage = Stage::new([
        curl("https://docs.invalid/y"),
        curl("http://127.0.0.1:9/"),
        ScriptedReply::says("done"),
    ]);
    stage.g3(["look it up"]).ok();
    let results = stage.asked()[2].tool_results();
    let rule = "tool = \"shell\"\nhost = \"docs.invalid\"\naction = \"allow\"";
    assert!(results[0].1.contains(rule), "{}", results[0].1);
    assert!(!results[1].1.contains("denied"), "a command may ask its own machine");
}

#[test]
fn events_contain_the_diff_of_a_write() {
    let diff = "--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-new\n";
    let stage = Stage::new([
        ScriptedReply::call("write_file", json!({"file_path": "a.txt", "content": "new\n"})),
        ScriptedReply::call("read_file", json!({"file_path": "a.txt"})),
        ScriptedReply::call("str_replace", json!({"file_path": "a.txt", "diff": diff})),
        ScriptedReply::says("done"),
    ]);
    let events = stage.g3(["--json", "write and delete"]).json_lines();
    let ends = of_type(&events, "tool_end");
    assert_eq!(ends[0]["diff"], "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+new\n");
    assert!(ends[1].get("diff").is_none(), "nothing was written: {}", ends[1]);
    assert_eq!(ends[2]["diff"], "--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-new\n");
    assert!(!stage.repo.path().join("a.txt").exists());
    // Undo restores what an edit deleted.
    let session = stage.session_dir();
    let id = session.file_name().unwrap().to_str().unwrap();
    stage.g3(["tool", "undo", "--session", id]).ok();
    assert_eq!(stage.repo.read("a.txt"), "new\n");
}
