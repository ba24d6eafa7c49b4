//! Tests of merging notes: additions, duplicates, and that nothing else changes.

use proptest::prelude::*;

use super::*;

const NOW: &str = "2026-01-02T10:00:00Z";

#[test]
fn the_first_notes_create_the_file() {
    let made = merge("", "### Build\n- `./test` runs all\n", NOW);
    assert_eq!(
        made.text,
        "# Workspace Memory\n> Updated: 2026-01-02T10:00:00Z | Size: 0.1k chars\n\n\
         ### Build\n- `./test` runs all\n"
    );
    assert_eq!((made.added, made.dropped), (1, 0));
}

#[test]
fn notes_go_below_their_heading_and_new_headings_to_the_end() {
    let before = "# Workspace Memory\n> Updated: x | Size: y\n\n### Build\n- one\n  - deep\n\n### Loop\n- two\n\n";
    let notes = "### build\n- three\n### New\nA paragraph\nof two lines.\n\n- four\nloose words stay with it\n";
    let made = merge(before, notes, NOW);
    let body = made.text.split_once("chars\n").unwrap().1;
    assert_eq!(
        body,
        "\n### Build\n- one\n  - deep\n- three\n\n### Loop\n- two\n\n### New\nA paragraph\n\
         of two lines.\n- four\nloose words stay with it\n"
    );
    assert_eq!(made.added, 3);
    assert!(made.changed_topics.contains(&"Build".to_owned()), "{:?}", made.changed_topics);
}

#[test]
fn duplicates_are_dropped_even_if_worded_slightly_differently() {
    let before = "### Loop\n- `turn.rs`: the loop asks, acts and observes\n- it waits 30 s\n- It never retries after a tool ran\n";
    let merged = |notes: &str| {
        let made = merge(before, &format!("### Loop\n{notes}\n"), NOW);
        (made.added, made.dropped)
    };
    assert_eq!(merged("-   `turn.rs`:  the loop asks, acts and observes"), (0, 1));
    assert_eq!(merged("* turn.rs: Loop asks, acts, and observes."), (0, 1), "filler and marks");
    assert_eq!(merged("- `turn.rs`: the loop ask, acts and observes"), (0, 1), "a letter");
    assert_eq!(merged("- it waits 60 s"), (1, 0), "another number is another note");
    assert_eq!(merged("- It retries after a tool ran"), (1, 0), "the opposite is not a duplicate");
    assert_eq!(merged("- `act.rs`: the loop asks, acts and observes"), (1, 0), "another name");
    assert_eq!(merged("- a\n- a"), (1, 1), "duplicate in one call");
    let elsewhere = merge(before, "### Other\n- it waits 30 s\n", NOW);
    assert_eq!((elsewhere.added, elsewhere.dropped), (0, 1));
}

#[test]
fn handwritten_text_is_unchanged() {
    let before = "Our notes, by hand.\r\n\r\n```sh\n### not a heading\n```\n\n# Workspace memory of ours\n\
                  <!-- keep -->\n### Build \t\n-  odd   spaces  \n\n\n\ttail without newline";
    let made = merge(before, "### Build\n- new\n### not a heading\n- x\n", NOW);
    let rest = made.text.split_once("chars\n\n").unwrap().1;
    let kept = rest.replacen("- new\n", "", 1).replacen("\n\n### not a heading\n- x\n", "", 1);
    assert!(rest.contains("tail without newline\n- new\n"), "{rest}");
    assert_eq!(kept.trim_end(), before.trim_end(), "{rest}");
    let again = merge(&made.text, "### Build\n- new\n", "later");
    assert_eq!((again.added, again.dropped), (0, 1));
    assert_eq!(
        again.text.split_once("chars\n").unwrap().1,
        made.text.split_once("chars\n").unwrap().1
    );
}

#[test]
fn two_headers_after_a_git_merge_become_one() {
    let before =
        "# Workspace Memory\n> Updated: a | Size: b\n> Updated: c | Size: d\n\n### A\n- x\n";
    let text = merge(before, "### A\n- y\n", NOW).text;
    assert_eq!(text.matches("> Updated:").count(), 1, "{text}");
    assert!(text.ends_with("\n\n### A\n- x\n- y\n"), "{text}");
}

#[test]
fn notes_without_a_heading_go_below_a_default_heading() {
    let once = merge("", "plain words\n", NOW).text;
    assert!(once.ends_with("### Notes\nplain words\n"), "{once}");
    let twice = merge(&once, "- more words\n", NOW).text;
    assert!(twice.ends_with("### Notes\nplain words\n- more words\n"), "{twice}");
}

proptest! {
    #[test]
    fn existing_lines_are_kept_in_order(
        before in "((#{1,3} [abc]|- [abc]|  [xy]|```|[abc ]{0,4}|\u{e4})\r?\n){0,12}[ab]{0,2}",
        notes in "((#{1,3} [abc]|- [abc]|  [xy]|```|[abc ]{0,4})\n){0,8}",
    ) {
        let made = merge(&before, &notes, NOW);
        let mut after = made.text.lines();
        for line in before.lines() {
            prop_assert!(after.any(|other| other == line), "{line:?} is lost\n{}", made.text);
        }
    }

    #[test]
    fn existing_notes_change_nothing(
        before in "((#{1,3} [abc]|- [abc]|  [xy]|[abc ]{0,4})\n){0,12}[ab]{0,2}",
        notes in "((#{1,3} [abc]|- [abc]|  [xy]|[abc ]{0,4})\n){0,8}",
    ) {
        let made = merge(&before, &notes, NOW);
        let again = merge(&made.text, &notes, NOW);
        prop_assert_eq!(again.added, 0, "{}\n---\n{}", made.text, again.text);
    }
}
