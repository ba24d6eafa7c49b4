//! Tests of the edit tools of all profiles.

use serde_json::{Value, json};

use crate::tools_support::{Bench, Called};

fn str_replace(bench: &Bench, diff: &str) -> Called {
    bench.call("str_replace", json!({ "file_path": "f", "diff": diff }))
}

#[test]
fn a_diff_changes_the_file_and_reports_the_number_of_lines() {
    let bench = Bench::new("g3");
    bench.write("f", "fn main() {\r\n    old();\r\n}\r\n");
    let done = str_replace(
        &bench,
        "@@ -1,3 +1,4 @@\n fn main() {\n-    old();\n+    new();\n+    more();\n }",
    );
    done.says("2 insertions, 1 deletion").works();
    assert_eq!(bench.read("f"), "fn main() {\r\n    new();\r\n    more();\r\n}\r\n");
}

#[test]
fn a_diff_that_does_not_match_leaves_the_file_unchanged() {
    let bench = Bench::new("g3");
    bench.write("f", "a\nb\na\n");
    for (diff, words) in [
        ("@@\n-a\n+x\n", "2 places (lines 1, 3)"),
        ("@@\n-b\n+x\n@@\n-q\n+y\n", "hunk 2 is not found"),
        ("@@\n+x\n", "neither context nor removed lines"),
    ] {
        str_replace(&bench, diff).says(words).says("Nothing was written").fails("failed");
        assert_eq!(bench.read("f"), "a\nb\na\n");
    }
    str_replace(&bench, " a\n b\n").says("changes nothing").fails("validation");
    str_replace(&bench, "").says("changes nothing").fails("validation");
    let range = json!({ "file_path": "f", "diff": "@@\n-a\n+x\n", "start": 2, "end": 6 });
    bench.call("str_replace", range).works();
    assert_eq!(bench.read("f"), "a\nb\nx\n");
    let gone = bench.call("str_replace", json!({ "file_path": "gone", "diff": "@@\n-a\n+b\n" }));
    gone.says("tried: ").fails("not_found");
}

#[test]
fn lines_that_start_like_a_header_are_not_lost() {
    let bench = Bench::new("g3");
    bench.write("f", "select 1;\n-- old\nselect 2;\n");
    str_replace(&bench, "@@ -1,3 +1,3 @@\n select 1;\n--- old\n+-- new\n select 2;\n").works();
    assert_eq!(bench.read("f"), "select 1;\n-- new\nselect 2;\n");
    str_replace(&bench, "--- a/f\n+++ b/f\n@@\n--- new\n+++ plus\n").works();
    assert_eq!(bench.read("f"), "select 1;\n++ plus\nselect 2;\n");
}

#[test]
fn a_diff_can_create_and_delete_a_file() {
    let bench = Bench::new("g3");
    str_replace(&bench, "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n").works();
    assert_eq!(bench.read("f"), "a\nb\n");
    str_replace(&bench, "--- a/f\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n").works();
    assert!(!bench.has("f"));
}

fn edit(bench: &Bench, old: &str, new: &str) -> Called {
    bench.call("edit", json!({ "filePath": "f", "oldString": old, "newString": new }))
}

#[test]
fn an_edit_shows_its_diff_and_matching_strategy() {
    let bench = Bench::new("tools-api");
    bench.write("f", "one\ntwo\nthree\n");
    let done = edit(&bench, "two", "2");
    done.says("Edit applied successfully")
        .says("@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n")
        .works();
    let expected = json!({ "additions": 1, "deletions": 1, "replaced": 1, "strategy": "exact" });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&done.metadata[key], value);
    }
    bench.write("g", "  if a {\n      b();\n  }\n");
    let args = json!({ "filePath": bench.at("g"), "oldString": "if a {\n    b();\n}", "newString": "if a {\n    c();\n}" });
    let done = bench.call("edit", args);
    done.says("was not found exactly").works();
    assert_ne!(done.metadata["strategy"], "exact");
    assert!(bench.read("g").contains("c();"));
}

#[test]
fn an_edit_needs_a_unique_match_unless_all_are_requested() {
    let bench = Bench::new("tools-api");
    bench.write("f", "a b a\n");
    edit(&bench, "a", "x").says("found 2 times").says("replaceAll").fails("failed");
    edit(&bench, "q", "x").says("not found").fails("failed");
    edit(&bench, "q", "a b a").says("already applied").fails("failed");
    assert!(!edit(&bench, "q", "b").fails("failed").contains("already"), "a letter tells nothing");
    let one = json!({ "filePath": "f", "oldString": "q", "newString": "x" });
    let missed = bench.call("multiedit", json!({ "edits": [one] }));
    missed.says("`oldString` is not found").fails("failed");
    edit(&bench, "a", "a").says("identical").fails("validation");
    edit(&bench, "", "x").says("is empty").fails("validation");
    assert_eq!(bench.read("f"), "a b a\n");
    let all = json!({ "filePath": "f", "oldString": "a", "newString": "$1", "replaceAll": "true" });
    assert_eq!(bench.call("edit", all).metadata["replaced"], 2);
    assert_eq!(bench.read("f"), "$1 b $1\n");
    let gone =
        bench.call("edit", json!({ "filePath": "gone", "oldString": "a", "newString": "b" }));
    gone.says("tried: ").says(&bench.at("gone")).fails("not_found");
    let new = json!({ "filePath": "made/new", "oldString": "", "newString": "hi\n" });
    bench.call("edit", new).works();
    assert_eq!(bench.read("made/new"), "hi\n");
}

#[test]
fn line_endings_and_byte_order_mark_survive_an_edit() {
    let bench = Bench::new("tools-api");
    bench.write("f", "\u{feff}a\r\nb\r\nc\r\n");
    edit(&bench, "a\nb", "a\nB\nB").works();
    assert_eq!(bench.read("f"), "\u{feff}a\r\nB\r\nB\r\nc\r\n");
    bench.write("f", b"caf\xe9\n");
    bench.call("read_file", json!({ "path": "f" }));
    edit(&bench, "caf", "x").says("not valid UTF-8").fails("failed");
}

#[test]
fn the_exact_edit_escalates_if_the_text_is_not_found() {
    let bench = Bench::new("egirl");
    bench.write("f", "a\r\n  b\r\nc c\r\n");
    let edit = |old: &str, new: &str| -> Called {
        bench.call("edit_file", json!({ "path": "f", "old_text": old, "new_text": new }))
    };
    let lost = edit("a\nb", "x");
    lost.fails("failed");
    assert!(lost.escalate.is_some_and(|why| why.contains("not found")));
    let twice = edit("c", "x");
    twice.says("2 times").fails("failed");
    assert_eq!(twice.escalate, None);
    edit("", "x").fails("validation");
    edit("a\r\n  b", "$& $1 $$").says("Successfully edited f").works();
    assert_eq!(bench.read("f"), "$& $1 $$\r\nc c\r\n");
    let gone: Value = json!({ "path": "gone", "old_text": "a", "new_text": "b" });
    let gone = bench.call("edit_file", gone);
    gone.says("Failed to edit file").fails("not_found");
    assert_eq!(gone.escalate, None);
}

#[test]
fn a_brace_does_not_show_that_a_diff_was_applied() {
    let bench = Bench::new("g3");
    bench.write("a.rs", "fn a() {\n}\n");
    let replace =
        |diff: &str| bench.call("str_replace", json!({ "file_path": "a.rs", "diff": diff }));
    let missed = replace("-zzz\n+}\n");
    assert!(!missed.fails("failed").contains("applied"), "{missed:?}");
    let again = replace("-fn zzz() {\n+fn a() {\n }\n");
    again.says("its result is there (already applied?). Nothing").fails("failed");
}
