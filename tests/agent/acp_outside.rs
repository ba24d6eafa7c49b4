//! Tests of files and terminals of an editor.

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::editor::Editor;

#[test]
fn files_are_read_and_written_through_the_editor() {
    let edit = json!({"file_path": "a.txt", "diff": "-one\n+two\n"});
    let stage = Stage::new([
        ScriptedReply::call("read_file", json!({"file_path": "a.txt"})),
        ScriptedReply::call("str_replace", edit),
        ScriptedReply::says("done"),
    ]);
    stage.repo.write("a.txt", "on the disk\n");
    let able = json!({"fs": {"readTextFile": true, "writeTextFile": true}});
    let mut editor = Editor::offering(&stage, able);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "change a.txt");
    let unsaved = json!({"content": "one\nunsaved\n"});
    let read = editor.serve("fs/read_text_file", unsaved.clone());
    assert_eq!(read["path"], json!(stage.repo.path().join("a.txt")));
    editor.serve("fs/read_text_file", unsaved);
    let written = editor.serve("fs/write_text_file", json!({}));
    assert_eq!(written["content"], "two\nunsaved\n");
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    assert!(stage.asked()[1].tool_results()[0].1.contains("unsaved"));
    assert_eq!(stage.repo.read("a.txt"), "on the disk\n", "the editor decides when it saves");
}

#[test]
fn a_failed_editor_write_fails_the_call_and_binary_files_bypass_the_editor() {
    let write =
        |name: &str| ScriptedReply::call("write_file", json!({"file_path": name, "content": "x"}));
    let stage = Stage::new([write("a.txt"), write("raw"), ScriptedReply::says("done")]);
    stage.repo.write("raw", [0xff, 0xfe, b'\n']);
    let able = json!({"fs": {"readTextFile": true, "writeTextFile": true}});
    let mut editor = Editor::offering(&stage, able);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "write");
    let asked = editor.wait("read", |m| m["method"] == "fs/read_text_file");
    let error = json!({"code": -32000, "message": "no such file"});
    editor.send(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
    let asked = editor.wait("write", |m| m["method"] == "fs/write_text_file");
    let error = json!({"code": -32000, "message": "it is locked"});
    editor.send(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    let results = stage.asked()[1].tool_results();
    assert!(results[0].1.contains("it is locked"), "{results:?}");
    // Binary files bypass the editor.
    assert_eq!(stage.repo.read("raw"), "x");
    assert!(!editor.kept.iter().any(|m| m["params"]["path"].to_string().contains("raw")));
}

/// A terminal of the editor has no sandbox, so only commands that may leave the sandbox run in one.
fn allow_commands(stage: &Stage) {
    let provider = stage.model.config_toml("anthropic");
    let rule = "[[gate.rules]]\ntool = \"shell\"\naction = \"allow\"";
    stage.env.config(&format!("{provider}\n{rule}\n"));
}

#[test]
fn commands_run_in_the_editors_terminals() {
    let line = "echo from the terminal";
    let stage = Stage::new([
        ScriptedReply::call("shell", json!({"command": line})),
        ScriptedReply::says("done"),
    ]);
    allow_commands(&stage);
    let mut editor = Editor::offering(&stage, json!({"terminal": true}));
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "run it");
    let made = editor.serve("terminal/create", json!({"terminalId": "t1"}));
    assert_eq!((&made["command"], &made["args"]), (&json!("sh"), &json!(["-c", line])));
    editor.serve("terminal/wait_for_exit", json!({"exitCode": 3, "signal": null}));
    editor.serve("terminal/output", json!({"output": "from the terminal\n", "truncated": false}));
    editor.serve("terminal/release", json!({}));
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    let result = &stage.asked()[1].tool_results()[0].1;
    assert!(result.contains("from the terminal") && result.contains('3'), "{result}");
    let shown = editor.updates("tool_call_update");
    assert!(shown.iter().any(|update| update["content"][0]["terminalId"] == "t1"), "{shown:?}");
}

#[test]
fn a_cancel_kills_the_terminal() {
    let stage = Stage::new([ScriptedReply::call("shell", json!({"command": "sleep 600"}))]);
    allow_commands(&stage);
    let mut editor = Editor::offering(&stage, json!({"terminal": true}));
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "wait");
    editor.serve("terminal/create", json!({"terminalId": "t1"}));
    let waits = editor.wait("wait", |m| m["method"] == "terminal/wait_for_exit");
    editor.send(json!({"jsonrpc": "2.0", "method": "session/cancel",
        "params": {"sessionId": session}}));
    editor.serve("terminal/kill", json!({}));
    editor.send(json!({"jsonrpc": "2.0", "id": waits["id"],
        "result": {"exitCode": null, "signal": "SIGKILL"}}));
    editor.serve("terminal/output", json!({"output": "", "truncated": false}));
    editor.serve("terminal/release", json!({}));
    assert_eq!(editor.answer(id)["result"]["stopReason"], "cancelled");
}
