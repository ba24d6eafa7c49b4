//! Tests of language servers in a session: one per root, notified of changes, stopped with it.

use base::process::{self, exit_code};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use testkit::env::until;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::lsp_support::{all_are_gone, lines, methods, stage as toys, with_method};
use crate::mcp_support::result;

fn asks(operation: &str, file: &str, line: usize, column: usize) -> (&'static str, Value) {
    ("lsp", json!({ "operation": operation, "file": file, "line": line, "column": column }))
}

fn call((name, args): (&str, Value)) -> ScriptedReply {
    ScriptedReply::call(name, args)
}

#[test]
fn an_agent_uses_one_server_that_is_notified_of_every_change() {
    let write = |text: &str| json!({ "file_path": "a.toy", "content": text });
    let stage = Stage::new([
        call(asks("definition", "b.toy", 1, 2)),
        ScriptedReply::call("write_file", write("\n\n def alpha\nalpha beta BAD\n")),
        call(asks("definition", "b.toy", 1, 2)),
        ScriptedReply::call("shell", json!({ "command": "printf 'def alpha\n' > a.toy" })),
        call(asks("definition", "b.toy", 1, 2)),
        ScriptedReply::call("shell", json!({ "command": "rm a.toy" })),
        call(asks("definition", "b.toy", 1, 2)),
        ScriptedReply::says("done"),
    ]);
    let log = toys(&stage, &[], "");
    stage.g3(["go"]).ok();
    assert_eq!(result(&stage, 1), "a.toy:1:5");
    let written = result(&stage, 2);
    assert!(written.contains("ERROR [4:12] BAD is not allowed on line 4"), "{written}");
    assert_eq!(result(&stage, 3), "a.toy:3:6", "the text that was written");
    assert_eq!(result(&stage, 5), "a.toy:1:5", "what a command wrote");
    assert_eq!(result(&stage, 7), "No definition found");

    let log = lines(&log);
    assert_eq!(log.iter().filter(|it| it["started"].is_u64()).count(), 1);
    let about_a = |it: &&&Value| {
        it["params"]["textDocument"]["uri"].as_str().is_some_and(|uri| uri.ends_with("/a.toy"))
    };
    let opened = with_method(&log, "textDocument/didOpen");
    let opened: Vec<_> = opened.iter().filter(about_a).collect();
    assert_eq!(opened[0]["params"]["textDocument"]["version"], 1);
    let changed = with_method(&log, "textDocument/didChange");
    let versions: Vec<&Value> =
        changed.iter().map(|it| &it["params"]["textDocument"]["version"]).collect();
    assert_eq!(versions, [2], "{changed:?}");
    assert_eq!(changed[0]["params"]["contentChanges"][0]["text"], "def alpha\n");
    let watched = with_method(&log, "workspace/didChangeWatchedFiles");
    let kinds: Vec<&Value> = watched.iter().map(|it| &it["params"]["changes"][0]["type"]).collect();
    assert_eq!(kinds, [1, 2, 3]);
    assert!(methods(&log).contains(&"textDocument/didSave".to_owned()));
    all_are_gone(&log);
}

#[test]
fn concurrent_queries_share_one_server_per_root() {
    let two = ScriptedReply::new();
    let (name, p) = asks("hover", "p/x.toy", 0, 5);
    let (_, same) = asks("symbols", "p/x.toy", 0, 5);
    let (_, q) = asks("hover", "q/deep/y.toy", 0, 5);
    let two = two.calls(name, p).calls(name, same).calls(name, q);
    let stage =
        Stage::new([two, call(asks("hover", "p/x.toy", 0, 4)), ScriptedReply::says("done")]);
    let log = toys(&stage, &[], "root_patterns = [\"toy.mod\"]");
    for (file, text) in
        [("p/toy.mod", ""), ("q/toy.mod", ""), ("p/x.toy", "def x\n"), ("q/deep/y.toy", "def y\n")]
    {
        let file = stage.repo.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    stage.g3(["go"]).ok();
    let log = lines(&log);
    let hello = with_method(&log, "initialize");
    let mut roots: Vec<&str> = hello
        .iter()
        .filter_map(|it| it["params"]["workspaceFolders"][0]["name"].as_str())
        .collect();
    roots.sort_unstable();
    assert_eq!(roots, ["p", "q"]);
    assert_eq!(result(&stage, 2), "`x` is a toy");
    all_are_gone(&log);
}

#[test]
fn a_failed_server_is_not_restarted() {
    let stage = Stage::new([
        call(asks("hover", "a.toy", 0, 5)),
        call(asks("hover", "a.toy", 0, 5)),
        ScriptedReply::says("done"),
    ]);
    let log = toys(&stage, &["--crash", "textDocument/hover"], "");
    stage.g3(["go"]).ok();
    assert!(result(&stage, 1).contains("I cannot go on"), "{}", result(&stage, 1));
    assert_eq!(result(&stage, 2), result(&stage, 1), "the reason is reported again");
    assert_eq!(with_method(&lines(&log), "initialize").len(), 1);
}

#[test]
fn only_calls_that_need_a_slow_server_wait_for_it() {
    let write = ScriptedReply::call("write_file", json!({ "file_path": "go", "content": "" }));
    let (name, hover) = asks("hover", "a.toy", 0, 5);
    let stage = Stage::new([write.calls(name, hover), ScriptedReply::says("done")]);
    toys(&stage, &["--wait", "go"], "");
    stage.g3(["go"]).ok();
    assert_eq!(result(&stage, 1), "`alpha` is a toy");
}

#[test]
fn a_server_dies_with_a_killed_g3_and_queries_can_be_cancelled() {
    for signal in [Signal::KILL, Signal::INT] {
        let stage = Stage::new([call(asks("hover", "a.toy", 0, 5)), ScriptedReply::says("done")]);
        let log = toys(&stage, &["--mute", "textDocument/hover"], "");
        let mut g3 = stage.start(["go"]);
        until("the question", || {
            methods(&lines(&log)).contains(&"textDocument/hover".to_owned()).then_some(())
        });
        let id = Pid::from_raw(g3.id().cast_signed()).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
        let ended = g3.wait_until(None).unwrap().unwrap();
        assert_ne!(exit_code(ended), 0);
        assert!(!process::is_alive(g3.id()));
        all_are_gone(&lines(&log));
    }
}
