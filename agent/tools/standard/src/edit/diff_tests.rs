//! Tests of applying diffs to texts.

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn patched(before: &str, diff: &str) -> Result<AppliedDiff, ToolError> {
    apply(before, &hunks::read(diff, Path::new("a.sql")), None, None)
}

fn text(before: &str, diff: &str) -> String {
    patched(before, diff).unwrap().text
}

fn error(before: &str, diff: &str) -> String {
    patched(before, diff).unwrap_err().text
}

#[test]
fn windows_line_endings_are_kept() {
    assert_eq!(
        text("a\r\nb\r\nc\r\n", "@@ -1,3 +1,4 @@\n a\n-b\n+B\n+B2\n c\n"),
        "a\r\nB\r\nB2\r\nc\r\n"
    );
    assert_eq!(text("a\nb\n", "@@\r\n a\r\n-b\r\n+c\r\n"), "a\nc\n");
}

#[test]
fn a_fence_around_a_diff_is_no_part_of_it() {
    for counts in ["@@ -1,9 +1,9 @@", "@@ -1,2 +1,2 @@", "@@"] {
        let diff = format!("\n```diff\n{counts}\n a\n-b\n+c\n```\n");
        assert_eq!(text("a\nb\n", &diff), "a\nc\n", "{counts}");
    }
    assert_eq!(text("```\nb\n```\n", "@@ -1,3 +1,3 @@\n ```\n-b\n+c\n ```\n"), "```\nc\n```\n");
}

#[test]
fn lines_that_look_like_headers_are_treated_as_content() {
    assert_eq!(
        text("a\n-- old\nb\n", "@@ -1,3 +1,3 @@\n a\n--- old\n+-- new\n b\n"),
        "a\n-- new\nb\n"
    );
    assert_eq!(text("-- x\n", "--- x\n+++ y\n"), "++ y\n");
}

#[test]
fn an_ambiguous_hunk_is_an_error_unless_its_line_number_decides() {
    let file = format!("x\na\ny\n{}a\n", "pad\n".repeat(20));
    let reason = error(&file, "@@\n-a\n+b\n");
    assert!(
        reason.contains("2 places (lines 2, 24)") && reason.contains("Nothing was written"),
        "{reason}"
    );
    let decided = text(&file, "@@ -24 +24 @@\n-a\n+b\n");
    assert!(decided.ends_with("pad\nb\n") && decided.starts_with("x\na\n"));
    assert!(text(&file, "@@ -23 +23 @@\n-a\n+b\n").ends_with("pad\nb\n"));
    assert!(error(&file, "@@ -12 +12 @@\n-a\n+b\n").contains("2 places"));
}

#[test]
fn a_range_of_characters_limits_the_search() {
    let diff = hunks::read("@@\n-a\n+b\n", Path::new("x"));
    let within = |start, end| apply("a\na\na\n", &diff, start, end).map(|applied| applied.text);
    assert_eq!(within(Some(2), Some(4)).unwrap(), "a\nb\na\n");
    assert_eq!(within(Some(2), Some(3)).unwrap(), "a\nb\na\n");
    assert_eq!(within(Some(4), None).unwrap(), "a\na\nb\n");
    assert!(within(None, Some(9)).unwrap_err().text.contains("past the end"));
    assert!(within(Some(4), Some(2)).unwrap_err().text.contains("past `end`"));
}

#[test]
fn wrong_whitespace_is_tolerated_and_reported() {
    let applied =
        patched("if x:\n    a()  \n    b()\n", "@@\n if x:\n-    a()\n+    c()\n").unwrap();
    assert_eq!(applied.text, "if x:\n    c()\n    b()\n");
    assert!(applied.notes[0].contains("blanks at the ends"), "{:?}", applied.notes);
    let shifted = patched("if x:\n    a()\n", "@@\n-a()\n+c()\n+d()\n").unwrap();
    assert_eq!(shifted.text, "if x:\n    c()\n    d()\n");
    assert!(shifted.notes[0].contains("indentation"), "{:?}", shifted.notes);
}

#[test]
fn pure_insertions_go_to_their_line_number() {
    assert_eq!(text("a\nb\n", "@@ -1,0 +2,1 @@\n+x\n"), "a\nx\nb\n");
    assert_eq!(text("a\nb\n", "@@ -2,0 +3,1 @@\n+x\n"), "a\nb\nx\n");
    assert_eq!(text("a\nb\n", "@@ -0,0 +1,1 @@\n+x\n"), "x\na\nb\n");
    assert_eq!(text("", "@@\n+x\n"), "x\n");
    assert!(error("a\n", "@@\n+x\n").contains("neither context nor removed lines"));
}

#[test]
fn empty_context_lines_need_no_space() {
    assert_eq!(text("a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n"), "a\n\nc\n");
    assert_eq!(text("a\nb\nc\n", "@@\n a\n-b\n+x\n\n"), "a\nx\nc\n");
}

#[test]
fn a_hunk_without_a_match_rejects_the_whole_diff() {
    let reason = error("a\nb\nc\n", "@@\n-a\n+x\n@@\n-q\n+y\n");
    assert!(
        reason.contains("hunk 2 is not found") && reason.contains("Nothing was written"),
        "{reason}"
    );
    let near = error(
        "fn a() {\n    one();\n    two();\n}\n",
        "@@\n fn a() {\n-    three();\n+    four();\n",
    );
    assert!(near.contains("most similar lines:\n1: fn a() {\n2:     one();"), "{near}");
    assert!(error("else\n", "@@\n-a\n+else\n").contains("already applied?"));
}

#[test]
fn hunks_match_the_original_file() {
    assert_eq!(text("a\nb\nc\nd\n", "@@ -1 +1 @@\n-a\n+c\n@@ -3 +3 @@\n-c\n+a\n"), "c\nb\na\nd\n");
    assert_eq!(text("d\nc\n", "@@\n-c\n+1\n@@\n-d\n+2\n"), "2\n1\n");
}

#[test]
fn the_final_newline_is_kept_or_follows_the_marker() {
    assert_eq!(text("a\nb", "@@\n a\n-b\n+c\n"), "a\nc");
    assert_eq!(text("a\nb", "@@\n b\n+c\n"), "a\nb\nc");
    let marked = "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n";
    assert_eq!(text("a", marked), "a\n");
    assert_eq!(text("a\n", "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n"), "a");
}

fn some_text() -> impl Strategy<Value = String> {
    let line = prop_oneof!["[ab ]{0,3}", "-- [ab]", "\\+\\+ [ab]", "@@ x", "é\t"];
    (prop::collection::vec(line, 0..25), any::<bool>()).prop_map(|(lines, ended)| {
        let mut text = lines.join("\n");
        if ended && !text.is_empty() {
            text.push('\n');
        }
        text
    })
}

proptest! {
    #[test]
    fn the_diff_of_two_texts_turns_one_into_the_other(old in some_text(), new in some_text()) {
        prop_assume!(old != new);
        let diff = similar::TextDiff::from_lines(&old, &new);
        let unified = diff.unified_diff().context_radius(3).header("a/a.sql", "b/a.sql").to_string();
        match patched(&old, &unified) {
            Ok(applied) => prop_assert_eq!(applied.text, new),
            Err(trouble) => prop_assert!(false, "{}\n{}", unified, trouble.text),
        }
    }

    #[test]
    fn the_diff_of_two_texts_with_windows_line_endings_turns_one_into_the_other(old in some_text(), new in some_text()) {
        let (old, new) = (format!("{}\n", old.trim_end_matches('\n')), format!("{}\n", new.trim_end_matches('\n')));
        prop_assume!(old != new);
        let unified = similar::TextDiff::from_lines(&old, &new).unified_diff().to_string();
        let crlf = |text: &str| text.replace('\n', "\r\n");
        prop_assert_eq!(patched(&crlf(&old), &unified).unwrap().text, crlf(&new));
    }

    #[test]
    fn no_diff_panics_and_a_rejected_one_changes_nothing(
        old in some_text(), diff in "([-+ @\\\\]|--- |\\+\\+\\+ |@@ -1,2 \\+1 @@|a|b|\n){0,30}",
        start in proptest::option::of(0usize..20), end in proptest::option::of(0usize..20),
    ) {
        let read = hunks::read(&diff, Path::new("a"));
        if let Ok(applied) = apply(&old, &read, start, end)
            && applied.insertions + applied.deletions == 0
        {
            prop_assert_eq!(applied.text, old);
        }
    }
}
