//! Tests of the patch parser.

use super::*;

fn steps(text: &str) -> Vec<FileStep> {
    read(text).unwrap().steps
}

fn wrong(text: &str) -> String {
    read(text).unwrap_err().message()
}

fn update(step: &FileStep) -> &[Chunk] {
    let FileStep::Update { chunks, .. } = step else { panic!("{step:?}") };
    chunks
}

#[test]
fn a_patch_is_parsed_file_by_file() {
    let patch = "*** Begin Patch\n*** Add File: a b.txt\n+one\n+\n*** Delete File: old\n\
                 *** Update File: src/x.rs\n*** Move to: src/y.rs\n@@ fn main() {\n-a\n+b\n keep\n\
                 @@ impl X\n@@     fn y()\n+z\n*** End of File\n*** End Patch\n";
    let steps = steps(patch);
    assert_eq!(steps[0], FileStep::Add { path: "a b.txt".into(), text: "one\n\n".into() });
    assert_eq!(steps[1], FileStep::Delete { path: "old".into() });
    assert_eq!(steps[2].paths(), ["src/x.rs", "src/y.rs"]);
    let chunks = update(&steps[2]);
    assert_eq!(chunks[0].context, ["fn main() {"]);
    assert_eq!(
        (chunks[0].hunk.before(), chunks[0].hunk.after()),
        (vec!["a", "keep"], vec!["b", "keep"])
    );
    assert_eq!(chunks[1].context, ["impl X", "    fn y()"]);
    assert!(chunks[1].at_end && !chunks[0].at_end);
}

#[test]
fn markers_and_headers_may_have_surrounding_whitespace() {
    let patch = "  *** Begin Patch \n  *** Update File: x  \n@@\n-a\n+b\n  *** End Patch  ";
    assert_eq!(update(&steps(patch)[0]).len(), 1);
    let fenced = "```\n*** Begin Patch\n*** Update File: x\n-a\n+b\n*** End Patch\n```\n";
    assert_eq!(update(&steps(fenced)[0])[0].hunk.before(), ["a"], "`@@` may be missing at first");
}

#[test]
fn missing_markers_are_ignored_with_a_note() {
    let found = read("```diff\n*** Update File: x\n@@\n-a\n+b\n```").unwrap();
    assert_eq!((found.steps.len(), found.notes.len()), (1, 2), "{found:?}");
}

#[test]
fn empty_lines_are_context_but_not_between_files() {
    let patch =
        "*** Begin Patch\n*** Update File: x\n@@\n a\n\n-b\n\n*** Add File: y\n+c\n\n*** End Patch";
    let found = steps(patch);
    assert_eq!(update(&found[0])[0].hunk.before(), ["a", "", "b"]);
    assert_eq!(found[1], FileStep::Add { path: "y".into(), text: "c\n".into() });
}

#[test]
fn line_numbers_after_the_marker_are_not_context() {
    let patch = "*** Begin Patch\n*** Update File: x\n@@ -1,2 +1,3 @@\n-a\n+b\n*** End Patch";
    assert!(update(&steps(patch)[0])[0].context.is_empty());
    assert_eq!(context_of(" -x +y"), Some("-x +y".to_owned()));
}

#[test]
fn content_that_looks_like_a_marker_is_content() {
    let patch = "*** Begin Patch\n*** Update File: x\n@@\n *** Begin Patch\n-*** End Patch\n+*** Add File: q\n*** End Patch";
    let found = steps(patch);
    assert_eq!(found.len(), 1);
    assert_eq!(update(&found[0])[0].hunk.before(), ["*** Begin Patch", "*** End Patch"]);
}

#[test]
fn parse_errors_give_the_line_and_the_reason() {
    for (text, words) in [
        ("", "neither"),
        ("hello", "neither"),
        ("*** Begin Patch\n*** End Patch", "empty patch"),
        ("*** Begin Patch\n*** Frob File: x\n*** End Patch", "line 2"),
        ("*** Begin Patch\n*** Update File: x\n*** End Patch", "has no lines"),
        ("*** Begin Patch\n*** Update File: x\n@@\n*** End Patch", "has no lines"),
        ("*** Begin Patch\n*** Update File: x\n@@\nfoo\n*** End Patch", "line 4"),
        ("*** Begin Patch\n*** Add File:\n+x\n*** End Patch", "names no file"),
        ("*** Begin Patch\n*** Add File: x\nno plus\n*** End Patch", "line 3"),
    ] {
        assert!(wrong(text).contains(words), "{text:?}: {}", wrong(text));
    }
    assert!(wrong("*** Begin Patch\n*** Frob File: x\n*** End Patch").contains("*** Delete File:"));
}
