//! Tests of the positions of changes.

use super::*;
use crate::edit::apply_patch::{self, FileStep};

/// Applies the changes of an update section.
fn made(before: &str, parts: &str) -> Result<ChangedText, String> {
    let patch = format!("*** Begin Patch\n*** Update File: x\n{parts}\n*** End Patch");
    let steps = apply_patch::read(&patch).unwrap().steps;
    let FileStep::Update { chunks, .. } = &steps[0] else { panic!("{steps:?}") };
    apply(before, chunks)
}

fn text(before: &str, parts: &str) -> String {
    made(before, parts).unwrap().text
}

#[test]
fn changes_are_applied_from_top_to_bottom() {
    let before = "a\nx\nb\nx\nc\n";
    assert_eq!(text(before, "@@\n-x\n+1\n@@\n-x\n+2"), "a\n1\nb\n2\nc\n");
    let reason = made(before, "@@\n-c\n+1\n@@\n-a\n+2").unwrap_err();
    assert!(reason.contains("part 2") && reason.contains("line 1"), "{reason}");
}

#[test]
fn a_line_after_the_marker_selects_the_position() {
    let before = "fn a() {\n    x\n}\nfn b() {\n    x\n}\n";
    assert_eq!(
        text(before, "@@ fn b() {\n-    x\n+    y"),
        "fn a() {\n    x\n}\nfn b() {\n    y\n}\n"
    );
    // It may also be one of the lines, or only a part of a line.
    assert_eq!(
        text(before, "@@ fn b() {\n fn b() {\n-    x\n+    y"),
        "fn a() {\n    x\n}\nfn b() {\n    y\n}\n"
    );
    let part = made(before, "@@ fn b\n-    x\n+    y").unwrap();
    assert!(part.text.ends_with("fn b() {\n    y\n}\n") && !part.notes.is_empty());
    let nested = "class A\n  def f\n    1\nclass B\n  def f\n    1\n";
    assert_eq!(
        text(nested, "@@ class B\n@@   def f\n-    1\n+    2"),
        "class A\n  def f\n    1\nclass B\n  def f\n    2\n"
    );
    assert!(made(before, "@@ fn c()\n-x\n+y").unwrap_err().contains("`fn c()`"));
}

#[test]
fn pure_insertions_go_after_the_context_or_to_the_end() {
    assert_eq!(text("a\nb\n", "@@ a\n+new"), "a\nnew\nb\n");
    assert_eq!(text("a\nb\n", "+new"), "a\nb\nnew\n");
    assert_eq!(text("a\nb", "+new"), "a\nb\nnew\n");
    assert_eq!(text("", "+new"), "new\n");
}

#[test]
fn a_change_marked_as_at_the_end_is_searched_there_first() {
    assert_eq!(text("x\na\nx\n", "@@\n-x\n+y\n*** End of File"), "x\na\ny\n");
    assert_eq!(text("x\na\n", "@@\n-x\n+y\n*** End of File"), "y\na\n", "a wrong sign is forgiven");
}

#[test]
fn tolerated_deviations_are_noted_and_the_files_text_is_kept() {
    let made = made("  it’s — one\n  two\n", "@@\n it's - one\n-two\n+three").unwrap();
    assert_eq!(made.text, "  it’s — one\n  three\n");
    assert!(made.notes[0].contains("typographic"), "{:?}", made.notes);
    let several = self::made("x\nx\n", "@@\n-x\n+y").unwrap();
    assert_eq!((several.text.as_str(), several.notes.len()), ("y\nx\n", 1));
}

#[test]
fn an_extra_empty_line_at_the_end_is_dropped() {
    assert_eq!(text("a\nb\n", "@@\n a\n-b\n+c\n \n*** End of File"), "a\nc\n");
}

#[test]
fn line_endings_and_the_byte_order_mark_are_kept() {
    assert_eq!(text("\u{feff}a\r\nb\r\n", "@@\n a\n-b\n+c\n+d"), "\u{feff}a\r\nc\r\nd\r\n");
    assert_eq!(text("a\r\nb", "@@\n-b\n+c"), "a\r\nc\r\n");
}

#[test]
fn a_missing_block_is_reported_with_the_most_similar_one() {
    let reason = made("fn main() {\n    run();\n}\n", "@@\n fn main() {\n-    go();\n+    x();")
        .unwrap_err();
    assert!(reason.contains("most similar") && reason.contains("run();"), "{reason}");
    let reason = made("new\n", "@@\n-old\n+new").unwrap_err();
    assert!(reason.contains("already applied"), "{reason}");
}
