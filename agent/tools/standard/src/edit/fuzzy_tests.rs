//! Tests of the matching strategies.

use proptest::prelude::*;

use super::*;

fn found<'t>(text: &'t str, wanted: &str) -> (&'t str, &'static str) {
    let hit = find(text, wanted, false).unwrap_or_else(|miss| panic!("{wanted:?}: {miss:?}"));
    (&text[hit.spans[0].clone()], hit.strategy.name())
}

#[test]
fn each_strategy_finds_what_stricter_ones_do_not() {
    assert_eq!(found("a b c", "b"), ("b", "exact"));
    assert_eq!(found("x\n  a();  \n\tb();\ny", "a();\nb();"), ("  a();  \n\tb();", "line_trimmed"));
    let text = "fn f() {\n    let total = one + two;\n    show(total);\n}\nrest\n";
    let (place, strategy) = found(text, "fn f() {\n    let total = one + 2;\n    show(total);\n}");
    assert_eq!(
        (place.starts_with("fn f()"), place.ends_with('}'), strategy),
        (true, true, "block_anchor")
    );
    assert_eq!(found("let  x =   1;", "let x = 1;"), ("let  x =   1;", "whitespace_normalized"));
    assert_eq!(found("if (a  &&  b) {", "a && b"), ("a  &&  b", "whitespace_normalized"));
    assert_eq!(found("say(\"a\tb\")", r#"say(\"a\tb\")"#), ("say(\"a\tb\")", "escape_normalized"));
    assert_eq!(found("x = call(1) + 2", "\n\n  call(1)  \n\n"), ("call(1)", "trimmed_boundary"));
}

#[test]
fn several_matches_are_rejected_unless_all_are_requested() {
    assert_eq!(find("a a", "a", false), Err(FuzzyMiss::Several(2)));
    assert_eq!(find("a a", "a", true).unwrap().spans, [0..1, 2..3]);
    assert_eq!(find("  x()\n    x()\n", "x() ", false), Err(FuzzyMiss::Several(2)));
    assert_eq!(find("aaa", "aa", true).unwrap().spans, vec![0..2]);
}

#[test]
fn a_block_that_shares_only_its_ends_does_not_match() {
    let text = "fn f() {\n    entirely_other(things);\n}\n";
    assert_eq!(find(text, "fn f() {\n    let x = 1 + 2;\n}", false), Err(FuzzyMiss::Nowhere));
    let long = format!("start\n{}end\n", "something quite long here\n".repeat(9));
    assert_eq!(find(&long, "start\nsomething quite long her\nend", false), Err(FuzzyMiss::Nowhere));
}

#[test]
fn a_match_includes_the_newline_only_if_requested() {
    let text = "  a\n  b\nc\n";
    let span = |wanted: &str| find(text, wanted, false).unwrap().spans[0].clone();
    assert_eq!(&text[span("a\nb")], "  a\n  b");
    assert_eq!(&text[span("a\nb\n")], "  a\n  b\n");
}

#[test]
fn a_shifted_block_has_its_indentation_shift() {
    let hit = find("    if a {\n        b\n    }\n", "if a {\n    b\n}", false).unwrap();
    assert_eq!(hit.shift, IndentShift::More("    ".into()));
}

proptest! {
    #[test]
    fn a_unique_part_of_a_text_is_found_exactly(
        text in "[ab\n é]{1,40}", start in 0usize..40, length in 1usize..10,
    ) {
        let part: String = text.chars().skip(start).take(length).collect();
        prop_assume!(!part.is_empty() && text.matches(&part).count() == 1);
        let hit = find(&text, &part, false).unwrap();
        prop_assert_eq!(&text[hit.spans[0].clone()], part);
    }

    #[test]
    fn spans_are_in_order_and_within_the_text(text in "[ab\n \t\\\\n]{0,40}", wanted in "[ab\n \\\\n]{1,12}") {
        let spans = find(&text, &wanted, true).map(|hit| hit.spans).unwrap_or_default();
        let mut end = 0;
        for span in spans {
            prop_assert!(span.start >= end && text.get(span.clone()).is_some());
            end = span.end;
        }
    }
}
