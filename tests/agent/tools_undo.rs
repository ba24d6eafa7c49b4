//! Tests of `g3 tool undo`: each write of a tool leaves a record that can undo it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use testkit::env::CommandRun;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::tools_support::{Bench, G3};

fn undo(bench: &Bench, more: &[&str]) -> CommandRun {
    bench.env.run(G3, &bench.dir, [&["tool", "undo"], more].concat())
}

fn undone(bench: &Bench) -> Value {
    undo(bench, &["--json"]).json()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Returns all files below a directory except g3's own, with content and mode.
fn tree(dir: &Path) -> Vec<(String, Vec<u8>, u32)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_name() == ".g3" {
            continue;
        }
        if path.is_dir() {
            all.push((path.display().to_string(), Vec::new(), 0));
            all.extend(tree(&path));
        } else {
            all.push((path.display().to_string(), fs::read(&path).unwrap(), mode(&path)));
        }
    }
    all.sort();
    all
}

const PATCH: &str = "*** Begin Patch
*** Add File: new/deep/a
+made
*** Update File: changed
@@
-one
+two
*** Update File: moved
*** Move to: new/moved
@@
-here
+there
*** Delete File: gone
*** End Patch";

fn with_files(profile: &'static str) -> Bench {
    let bench = Bench::new(profile);
    bench.write("changed", "one\n");
    bench.write("moved", "here\n");
    bench.write("gone", b"\xffno text\n");
    fs::set_permissions(bench.dir.join("gone"), fs::Permissions::from_mode(0o741)).unwrap();
    fs::set_permissions(bench.dir.join("moved"), fs::Permissions::from_mode(0o700)).unwrap();
    bench
}

#[test]
fn every_write_tool_can_be_undone_byte_for_byte() {
    let edit =
        |old: &str, new: &str| json!({"filePath": "changed", "oldString": old, "newString": new});
    let both = json!([
        {"filePath": "changed", "oldString": "one", "newString": "two"},
        {"filePath": "moved", "oldString": "here", "newString": "there"},
    ]);
    let line = format!("apply_patch <<'EOF'\n{PATCH}\nEOF");
    for (profile, tool, args) in [
        ("g3", "write_file", json!({"file_path": "new/deep/a", "content": "x"})),
        ("g3", "write_file", json!({"file_path": "gone", "content": "x"})),
        ("g3", "str_replace", json!({"file_path": "changed", "diff": "-one\n+two\n"})),
        ("tools-api", "write", json!({"filePath": "changed", "content": ""})),
        ("tools-api", "edit", edit("one", "two")),
        ("tools-api", "edit", json!({"filePath": "n/e/w", "oldString": "", "newString": "x"})),
        ("tools-api", "multiedit", json!({ "edits": both })),
        ("tools-api", "patch", json!({ "patch_text": PATCH })),
        ("g3", "shell", json!({ "command": line })),
        ("egirl", "edit_file", json!({"path": "changed", "old_text": "one", "new_text": "two"})),
    ] {
        let bench = with_files(profile);
        let before = tree(&bench.dir);
        bench.call(tool, args.clone()).works();
        assert_ne!(tree(&bench.dir), before, "{tool} {args}");
        let told = undone(&bench);
        assert_eq!((&told["tool"], &told["was_made"]), (&json!(tool), &json!(true)), "{told}");
        assert_eq!(tree(&bench.dir), before, "{tool} {args}");
        assert_eq!(undo(&bench, &[]).code, 1, "there is no second write");
    }
}

#[test]
fn writes_are_undone_one_by_one_and_are_listed() {
    let bench = with_files("tools-api");
    let write = |text: &str| bench.call("write", json!({"filePath": "changed", "content": text}));
    write("two\n").works();
    write("two\n").works();
    write("three\n").works();
    bench
        .call(
            "patch",
            json!({ "patch_text": "*** Begin Patch\n*** Delete File: gone\n*** End Patch" }),
        )
        .works();
    let list: Value = undo(&bench, &["--list", "--json"]).json();
    let rows: Vec<&Value> =
        list.as_array().unwrap().iter().map(|row| &row["files"][0]["change"]).collect();
    assert_eq!(rows, ["deleted", "changed", "changed"], "what changes nothing leaves no record");
    undo(&bench, &["--list"])
        .ok()
        .lines()
        .next()
        .map(|it| assert!(it.contains("patch: deleted")))
        .unwrap();
    assert!(undo(&bench, &[]).ok().contains("undid `patch`\nrestored"));
    assert!(bench.has("gone"));
    undone(&bench);
    assert_eq!(bench.read("changed"), "two\n");
    // The session's own content is no longer there, so it has to read the file before it writes.
    write("other\n").says("changed since").fails("failed");
    bench.call("write", json!({"filePath": "fresh", "content": "x"})).works();
    undone(&bench);
    undone(&bench);
    assert!(!bench.has("fresh") && bench.read("changed") == "one\n");
    let none = undo(&bench, &[]);
    assert!(none.code == 1 && none.err.contains("nothing to undo"), "{none:?}");
    // The undone content is not lost either.
    let state = bench.session().join("undo");
    let kept = fs::read_to_string(state.join("000001.undone/0.after")).unwrap();
    assert_eq!(kept, "two\n");
}

#[test]
fn a_file_changed_since_prevents_the_whole_undo() {
    let bench = with_files("tools-api");
    bench.call("patch", json!({ "patch_text": PATCH })).works();
    bench.write("changed", "mine\n");
    let before = tree(&bench.dir);
    let refused = undo(&bench, &[]);
    assert!(refused.err.contains("files were changed after `patch` wrote them"), "{}", refused.err);
    assert!(refused.err.contains("changed (it has another content)"), "{}", refused.err);
    assert_eq!(tree(&bench.dir), before);
    fs::remove_file(bench.dir.join("changed")).unwrap();
    assert!(undo(&bench, &[]).err.contains("changed (it is gone)"));
    bench.write("changed", "two\n");
    bench.write("new/mine", "typed by the user\n");
    undo(&bench, &[]).ok();
    assert_eq!(
        (bench.read("moved"), bench.read("new/mine")),
        ("here\n".into(), "typed by the user\n".into())
    );
    assert!(!bench.has("new/deep"), "a directory that is empty goes");
}

#[test]
fn sessions_have_separate_writes_and_those_of_an_agent_can_be_undone() {
    let bench = with_files("g3");
    let args = ["tool", "exec", "--name", "write_file", "--session", "other", "--args"];
    let call = json!({"file_path": "changed", "content": "x"}).to_string();
    bench.env.run(G3, &bench.dir, [&args[..], &[&call]].concat()).ok();
    assert_eq!(undo(&bench, &[]).code, 1);
    undo(&bench, &["--session", "other"]).ok();
    assert_eq!(bench.read("changed"), "one\n");
    assert_eq!(undo(&bench, &["--session", "../x"]).code, 2);

    let call = ScriptedReply::call("write_file", json!({"file_path": "a.txt", "content": "x"}));
    let stage = Stage::new([call, ScriptedReply::says("done")]);
    stage.g3(["write a"]).ok();
    let session = stage.session_dir();
    let name = session.file_name().unwrap().to_str().unwrap();
    stage.g3(["tool", "undo", "--session", name]).ok();
    assert!(!stage.repo.path().join("a.txt").exists());
}

#[test]
fn undo_is_correct_after_a_write_or_undo_killed_anywhere() {
    let steps = ["g3.write.recorded", "g3.write.file", "g3.write.file:2", "g3.write.file:4"];
    for step in steps {
        let bench = with_files("tools-api");
        let before = tree(&bench.dir);
        let args = json!({ "patch_text": PATCH }).to_string();
        let args = ["tool", "exec", "--profile", "tools-api", "--name", "patch", "--args", &args];
        let job = bench.env.command(G3, &bench.dir).args(args).env("G3_TEST_KILL_AT", step);
        bench.env.run_command(job).exits(137);
        let told = undone(&bench);
        let made = !["g3.write.recorded", "g3.write.file"].contains(&step);
        assert_eq!(told["was_made"], made, "{step}: {told}");
        assert_eq!(tree(&bench.dir), before, "{step}");
        assert_eq!(undo(&bench, &[]).code, 1, "{step}");
    }
    for step in ["g3.undo.file", "g3.undo.file:3", "g3.undo.restored"] {
        let bench = with_files("tools-api");
        let before = tree(&bench.dir);
        bench.call("patch", json!({ "patch_text": PATCH })).works();
        let job =
            bench.env.command(G3, &bench.dir).args(["tool", "undo"]).env("G3_TEST_KILL_AT", step);
        bench.env.run_command(job).exits(137);
        undo(&bench, &[]).ok();
        assert_eq!(tree(&bench.dir), before, "{step}");
    }
}

#[test]
fn a_write_that_fails_leaves_no_record() {
    let bench = with_files("tools-api");
    fs::set_permissions(bench.dir.join("changed"), fs::Permissions::from_mode(0o444)).unwrap();
    bench.call("write", json!({"filePath": "changed", "content": "x"})).fails("failed");
    bench.call("patch", json!({ "patch_text": PATCH })).fails("failed");
    let list: Value = undo(&bench, &["--list", "--json"]).json();
    assert_eq!(list, json!([]));
    fs::remove_dir_all(bench.session().join("undo")).unwrap();
    fs::write(bench.session().join("undo"), "").unwrap();
    let write = bench.call("write", json!({"filePath": "moved", "content": "x"}));
    write.says("for an undo").fails("failed");
    assert_eq!(bench.read("moved"), "here\n", "nothing is written that could not be taken back");
}
