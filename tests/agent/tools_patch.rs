//! Tests of `patch`, `apply_patch` and `multiedit`: many files, all of them or none.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::tools_support::Bench;

/// Returns all files below a directory by relative path, without g3's own state.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            let below = path.strip_prefix(dir).unwrap().to_owned();
            if below.starts_with(".g3") {
                continue;
            }
            match path.is_dir() {
                true => left.push(path),
                false => drop(files.insert(below, fs::read(&path).unwrap())),
            }
        }
    }
    files
}

fn fill(bench: &Bench, from: &Path) {
    for (path, content) in tree(from) {
        bench.write(path.to_str().unwrap(), content);
    }
}

fn envelope(body: &str) -> String {
    format!("*** Begin Patch\n{body}\n*** End Patch\n")
}

#[test]
fn recorded_patches_produce_the_recorded_trees() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/patch");
    let mut seen = 0;
    for case in fs::read_dir(cases).unwrap().flatten().map(|entry| entry.path()) {
        let Ok(patch) = fs::read_to_string(case.join("patch.txt")) else { continue };
        let bench = Bench::new("tools-api");
        fill(&bench, &case.join("input"));
        let called = bench.call("apply_patch", json!({ "input": patch }));
        assert_eq!(tree(&bench.dir), tree(&case.join("expected")), "{case:?}: {called:?}");
        let rejects = tree(&case.join("input")) == tree(&case.join("expected"));
        assert_eq!(called.ok, !rejects, "{case:?}: {called:?}");
        seen += 1;
    }
    assert!(seen >= 8, "only {seen} cases");
}

#[test]
fn a_patch_is_applied_atomically_unless_sequential_is_requested() {
    let body = "*** Add File: new.txt\n+new\n*** Update File: a.txt\n@@\n-a\n+A\n*** Delete File: b.txt\n\
                *** Update File: c.txt\n@@\n-not there\n+x";
    let make = || {
        let bench = Bench::new("tools-api");
        for name in ["a", "b", "c"] {
            bench.write(&format!("{name}.txt"), format!("{name}\n"));
        }
        bench
    };
    let bench = make();
    let before = tree(&bench.dir);
    let called = bench.call("patch", json!({ "patch_text": envelope(body) }));
    assert!(called.fails("failed").contains("Nothing was written"));
    assert!(called.text.contains("c.txt"), "{called:?}");
    assert_eq!(tree(&bench.dir), before);
    let bench = make();
    let args = json!({ "patch_text": envelope(body), "mode": "sequential" });
    let called = bench.call("patch", args);
    called.says("A new.txt").says("M a.txt").says("D b.txt").fails("failed");
    assert_eq!((bench.read("a.txt"), bench.read("c.txt")), ("A\n".into(), "c\n".into()));
    assert!(bench.has("new.txt") && !bench.has("b.txt"));
}

#[test]
fn a_patch_reports_its_changes() {
    let bench = Bench::new("tools-api");
    bench.write("src/a.rs", "one\ntwo\n");
    bench.write("old.txt", "old\n");
    let body = "*** Update File: src/a.rs\n@@\n one\n-two\n+2\n+3\n*** Update File: old.txt\n\
                *** Move to: deep/er/new.txt\n@@\n-old\n+new";
    let called = bench.call("patch", json!({ "patch_text": envelope(body) }));
    called.says("M src/a.rs").says("A deep/er/new.txt").says("D old.txt").works();
    let told = &called.metadata;
    assert_eq!(
        (&told["added"], &told["modified"], &told["deleted"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!((&told["additions"], &told["deletions"]), (&json!(3), &json!(2)));
    assert_eq!(bench.read("deep/er/new.txt"), "new\n");
}

#[test]
fn a_moved_file_keeps_its_permissions() {
    let bench = Bench::new("tools-api");
    bench.write("run.sh", "echo a\n");
    fs::set_permissions(bench.dir.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let body = "*** Update File: run.sh\n*** Move to: bin/run.sh\n@@\n-echo a\n+echo b";
    bench.call("patch", json!({ "patch_text": envelope(body) })).works();
    let mode = fs::metadata(bench.dir.join("bin/run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    let only = "*** Update File: bin/run.sh\n*** Move to: run.sh";
    bench.call("patch", json!({ "patch_text": envelope(only) })).works();
    assert_eq!(bench.read("run.sh"), "echo b\n", "a move without a change");
}

#[test]
fn deleting_a_missing_file_is_skipped_or_an_error_by_profile() {
    let body = envelope("*** Delete File: gone.txt\n*** Add File: new.txt\n+x");
    let bench = Bench::new("tools-api");
    bench.call("patch", json!({ "patch_text": body })).says("Skipped").works();
    assert!(bench.has("new.txt"));
    let bench = Bench::new("tools-api");
    bench.call("apply_patch", json!({ "input": body })).fails("not_found");
    assert!(!bench.has("new.txt"));
}

#[test]
fn files_outside_are_not_changed() {
    let bench = Bench::new("tools-api");
    fs::write(bench.env.home().join("out.txt"), "safe\n").unwrap();
    symlink(bench.env.home(), bench.dir.join("link")).unwrap();
    for path in ["../out.txt", "link/out.txt", "/etc/g3-test"] {
        for body in [
            format!("*** Update File: {path}\n@@\n-safe\n+evil"),
            format!("*** Delete File: {path}"),
            format!("*** Add File: {path}\n+evil"),
            format!("*** Add File: in.txt\n+a\n*** Update File: in.txt\n*** Move to: {path}\n"),
        ] {
            bench.call("patch", json!({ "patch_text": envelope(&body) })).fails("denied");
        }
    }
    assert_eq!(fs::read_to_string(bench.env.home().join("out.txt")).unwrap(), "safe\n");
    assert!(!bench.has("in.txt"));
}

#[test]
fn invalid_patches_and_paths_are_rejected() {
    let bench = Bench::new("tools-api");
    bench.write("dir/x", "x\n");
    bench.write("bin", b"\0\x01\x02".as_slice());
    let call = |body: &str| bench.call("patch", json!({ "patch_text": envelope(body) }));
    call("").fails("validation");
    call("*** Frob File: x").says("line 2").fails("validation");
    call("*** Delete File: dir").says("directory").fails("failed");
    call("*** Add File: dir\n+x").says("directory").fails("failed");
    call("*** Update File: bin\n@@\n-a\n+b").fails("failed");
    call("*** Delete File: bin").works();
}

#[test]
fn a_later_step_sees_the_result_of_an_earlier_one() {
    let bench = Bench::new("tools-api");
    let body = "*** Add File: a\n+one\n*** Update File: a\n@@\n-one\n+two\n*** Update File: a\n@@\n-two\n+three";
    bench.call("patch", json!({ "patch_text": envelope(body) })).works();
    assert_eq!(bench.read("a"), "three\n");
}

#[test]
fn several_edits_are_applied_in_order_and_atomically() {
    let bench = Bench::new("tools-api");
    bench.write("a.txt", "one two one\n");
    bench.write("b/c.txt", "three\n");
    let edits = json!([
        {"filePath": "a.txt", "oldString": "two", "newString": "2"},
        {"filePath": "b/c.txt", "oldString": "three", "newString": "3"},
        {"filePath": "a.txt", "oldString": "one 2", "newString": "1 2"},
        {"file_path": "a.txt", "old_string": "2 one", "new_string": "2 1", "replace_all": "true"},
        {"filePath": "new.txt", "oldString": "", "newString": "made\n"},
    ]);
    let called = bench.call("multiedit", json!({ "edits": edits }));
    called.says("Edited 3 file(s) with 5 edit(s)").says("-three").says("+3").works();
    assert_eq!(bench.read("a.txt"), "1 2 1\n");
    assert_eq!((bench.read("b/c.txt"), bench.read("new.txt")), ("3\n".into(), "made\n".into()));
    assert_eq!((&called.metadata["files"], &called.metadata["edits"]), (&json!(3), &json!(5)));
}

#[test]
fn a_failed_edit_leaves_everything_unchanged() {
    let bench = Bench::new("tools-api");
    bench.write("a.txt", "one\n");
    bench.write("b.txt", "x x\n");
    let good = json!({"filePath": "a.txt", "oldString": "one", "newString": "1"});
    for (bad, kind, words) in [
        (json!({"filePath": "b.txt", "oldString": "x", "newString": "y"}), "failed", "Edit 2 of 2"),
        (json!({"filePath": "b.txt", "oldString": "z", "newString": "y"}), "failed", "not found"),
        (json!({"filePath": "no.txt", "oldString": "z", "newString": "y"}), "not_found", "no.txt"),
        (json!({"filePath": "a.txt", "oldString": "q", "newString": "q"}), "validation", "Edit 2"),
        (json!({"oldString": "q", "newString": "r"}), "validation", "filePath"),
        (json!("what"), "validation", "Edit 2"),
        (
            json!({"filePath": "/etc/passwd", "oldString": "q", "newString": "r"}),
            "denied",
            "outside",
        ),
    ] {
        let called = bench.call("multiedit", json!({ "edits": [good, bad] }));
        assert!(called.fails(kind).contains(words), "{called:?}");
        assert_eq!(bench.read("a.txt"), "one\n");
    }
    bench.call("multiedit", json!({ "edits": [] })).fails("validation");
    bench.call("multiedit", json!({})).fails("validation");
}

/// Divergence 12: the form for one file has its path outside of the edits.
#[test]
fn divergence_12_edits_of_one_file_may_name_it_once() {
    let bench = Bench::new("tools-api");
    bench.write("a.txt", "one two\n");
    let edits =
        json!([{"oldString": "one", "newString": "1"}, {"oldString": "two", "newString": "2"}]);
    bench.call("multiedit", json!({ "filePath": "a.txt", "edits": edits })).works();
    assert_eq!(bench.read("a.txt"), "1 2\n");
}

#[test]
fn a_failed_write_restores_the_other_files() {
    let bench = Bench::new("tools-api");
    bench.write("a.txt", "one\n");
    bench.write("z.txt", "one\n");
    fs::set_permissions(bench.dir.join("z.txt"), fs::Permissions::from_mode(0o444)).unwrap();
    let edit = |path: &str| json!({"filePath": path, "oldString": "one", "newString": "1"});
    let edits = json!([edit("a.txt"), edit("z.txt")]);
    bench.call("multiedit", json!({ "edits": edits })).says("Nothing was changed").fails("failed");
    assert_eq!(bench.read("a.txt"), "one\n");
    let body = envelope("*** Add File: n.txt\n+n\n*** Update File: z.txt\n@@\n-one\n+1");
    bench.call("patch", json!({ "patch_text": body })).fails("failed");
    assert!(!bench.has("n.txt"));
}

#[test]
fn an_agent_patches_and_edits_many_files() {
    let patch = envelope("*** Add File: a.txt\n+one\n*** Add File: b.txt\n+two");
    let edits = json!([{"filePath": "a.txt", "oldString": "one", "newString": "1"},
                       {"filePath": "b.txt", "oldString": "two", "newString": "2"}]);
    let stage = Stage::new([
        ScriptedReply::call("patch", json!({ "patch_text": patch })),
        ScriptedReply::call("multiedit", json!({ "edits": edits })),
        ScriptedReply::says("done"),
    ]);
    stage.g3(["--profile", "tools-api", "patch it"]).ok();
    assert_eq!((stage.repo.read("a.txt"), stage.repo.read("b.txt")), ("1\n".into(), "2\n".into()));
}
