//! Tests that an agent with a scripted model can call each documented tool. The effects are checked
//! from outside: in the tree, at a server, in the next request to the model. Browser and desktop
//! tools are called in their own tests.

use serde_json::{Value, json};
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::lsp_support::stage as with_toys;
use crate::mcp_support::result;
use crate::web_support::Site;

/// A documented name, its arguments, and a part of the expected result.
type Call = (&'static str, Value, &'static str);

/// Runs the calls in order in a profile of this name and checks the results.
fn play(stage: &Stage, profile: &str, calls: &[Call]) {
    let ran = stage.g3(["--profile", profile, "use them all"]);
    ran.ok();
    for (at, (name, _, words)) in calls.iter().enumerate() {
        let told = result(stage, at + 1);
        assert!(told.contains(words), "{profile} {name}: {told}");
    }
    let offered = stage.asked()[0].tool_names();
    for (name, ..) in calls {
        assert!(offered.iter().any(|it| it == name), "{name} is not offered by {profile}");
    }
}

fn script(calls: &[Call]) -> Vec<ScriptedReply> {
    let replies = calls.iter().map(|(name, args, _)| ScriptedReply::call(*name, args.clone()));
    replies.chain([ScriptedReply::says("done")]).collect()
}

#[test]
fn the_documented_g3_tools_work() {
    let calls: &[Call] = &[
        ("shell", json!({"command": "echo out | tee s.txt"}), "out"),
        ("write_file", json!({"file_path": "w.txt", "content": "one\ntwo\n"}), "w.txt"),
        ("read_file", json!({"file_path": "w.txt", "start": 4, "end": 7}), "two"),
        ("str_replace", json!({"file_path": "w.txt", "diff": "@@\n-two\n+zwei\n"}), "w.txt"),
        ("todo_write", json!({"content": "- [ ] paint"}), ""),
        ("todo_read", json!({}), "- [ ] paint"),
        ("remember", json!({"notes": "the doors are blue"}), ""),
        (
            "background_process",
            json!({"name": "door", "command": "echo open > door.txt; exec sleep 60"}),
            "door",
        ),
        ("shell", json!({"command": "until [ -s door.txt ]; do :; done; cat door.txt"}), "open"),
        (
            "code_search",
            json!({"searches": [{"name": "f", "query": "(function_item name: (identifier) @n)", "language": "rust"}]}),
            "blue_door",
        ),
    ];
    let stage = Stage::new(script(calls));
    stage.repo.commit_file("door.rs", "fn blue_door() {}\n");
    play(&stage, "g3", calls);
    assert_eq!(
        (stage.repo.read("s.txt"), stage.repo.read("w.txt")),
        ("out\n".into(), "one\nzwei\n".into())
    );
    assert!(stage.repo.read("analysis/memory.md").contains("the doors are blue"));
}

#[test]
fn the_documented_egirl_tools_work() {
    let calls: &[Call] = &[
        ("write_file", json!({"path": "new/w.txt", "content": "one\ntwo\n"}), "w.txt"),
        ("read_file", json!({"path": "new/w.txt", "start_line": 2, "end_line": 2}), "2: two"),
        ("edit_file", json!({"path": "new/w.txt", "old_text": "two", "new_text": "deux"}), ""),
        ("execute_command", json!({"command": "pwd; echo $((6*7))", "working_dir": "new"}), "42"),
        ("glob_files", json!({"pattern": "**/*.txt"}), "new/w.txt"),
        ("memory_set", json!({"key": "door", "value": "the doors are blue"}), ""),
        ("memory_get", json!({"key": "door"}), "the doors are blue"),
        ("memory_search", json!({"query": "blue doors"}), "the doors are blue"),
    ];
    let stage = Stage::new(script(calls));
    let model = stage.model.config_toml("anthropic");
    stage.env.config(&format!("{model}\n[memory]\nenabled = true\n"));
    play(&stage, "egirl", calls);
    assert_eq!(stage.repo.read("new/w.txt"), "one\ndeux\n");
}

#[test]
fn the_documented_tools_api_tools_work() {
    let site = Site::new();
    site.page("/", "text/html", "<h1>Plums</h1>");
    let found = json!({"result": {"content": [{"type": "text", "text": "use plums;"}]}});
    site.page("/mcp", "application/json", found.to_string());
    let todo = json!({"id": "1", "content": "paint", "status": "pending", "priority": "low"});
    let edits = json!([{"filePath": "w.txt", "oldString": "a", "newString": "b"}, {"filePath": "v.txt", "oldString": "a", "newString": "c"}]);
    let patch =
        "*** Begin Patch\n*** Add File: p.txt\n+patched\n*** Delete File: v.txt\n*** End Patch\n";
    let calls: &[Call] = &[
        ("write", json!({"filePath": "w.txt", "content": "a\n"}), ""),
        ("write", json!({"filePath": "v.txt", "content": "a\n"}), ""),
        ("multiedit", json!({ "edits": edits }), ""),
        ("edit", json!({"filePath": "w.txt", "oldString": "b", "newString": "d"}), ""),
        ("grep", json!({"pattern": "^d$"}), "w.txt"),
        ("glob", json!({"pattern": "v.*"}), "v.txt"),
        ("patch", json!({ "patch_text": patch }), ""),
        ("bash", json!({"command": "cat p.txt", "description": "looks"}), "patched"),
        ("todowrite", json!({ "todos": [todo] }), "paint"),
        ("todoread", json!({}), "paint"),
        (
            "lsp",
            json!({"operation": "definition", "file": "b.toy", "line": 1, "column": 2}),
            "a.toy:1:5",
        ),
        ("webfetch", json!({"url": site.url("/")}), "Plums"),
        ("codesearch", json!({"query": "plums"}), "use plums;"),
    ];
    let stage = Stage::new(script(calls));
    let searching = format!("[tools.codesearch]\nendpoint = \"{}\"\n", site.url("/mcp"));
    let allowed = format!("[tools.webfetch]\nallow_hosts = [\"{}\"]\n", site.address);
    with_toys(&stage, &[], &format!("{searching}{allowed}"));
    play(&stage, "tools-api", calls);
    assert_eq!(
        (stage.repo.read("w.txt"), stage.repo.read("p.txt")),
        ("d\n".into(), "patched\n".into())
    );
    assert!(!stage.repo.path().join("v.txt").exists());
    let paths: Vec<String> = site.asked().into_iter().map(|asked| asked.path).collect();
    assert_eq!(paths, ["/", "/mcp"]);
}

#[test]
fn the_documented_core_tools_work_without_a_screen() {
    let calls: &[Call] = &[
        ("execute_cli", json!({"command": "mkdir -p sub; cd sub; echo out > c.txt"}), "success"),
        ("execute_cli", json!({"command": "cat c.txt"}), "out"),
        ("wait", json!({"seconds": 0.1}), "0.5"),
        ("get_action_history", json!({"last_n": 2}), "execute_cli"),
    ];
    let stage = Stage::new(script(calls));
    play(&stage, "core", calls);
    assert_eq!(stage.repo.read("sub/c.txt"), "out\n");
}
