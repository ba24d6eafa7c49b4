//! Skipped tests: a test that cannot run on a machine is skipped by the runner, with a reason, and
//! does not pass silently.

use std::collections::BTreeSet;

use crate::source::{File, read, rust_files};

/// The folder of these rules, whose source contains the words that they search for.
const HERE: &str = "tests/conventions/";

fn test_files() -> impl Iterator<Item = File> {
    let in_tests = |file: &File| file.name.starts_with("tests/") || !file.is_production();
    rust_files().into_iter().filter(move |file| in_tests(file) && !file.name.starts_with(HERE))
}

#[test]
fn an_ignored_test_is_in_a_module_that_names_what_it_needs() {
    let script = read("test");
    let list = script.split_once("needs=(").expect("the list of needs").1;
    let needs: BTreeSet<&str> =
        list.split_once(')').expect("its end").0.split_whitespace().collect();
    let mut used = BTreeSet::new();
    for file in rust_files().iter().filter(|file| !file.name.starts_with(HERE)) {
        let folder = file.name.split('/').rev().nth(1).unwrap_or_default();
        let mut module = folder;
        let mut lines = file.text.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("mod ").and_then(|it| it.strip_suffix(" {")) {
                module = name;
            } else if line == "}" {
                module = folder;
            }
            let attribute = line.trim_start();
            let is_child = lines.peek().is_some_and(|next| next.contains("fn child()"));
            if attribute.starts_with("#[ignore") && !is_child {
                let place = format!("{}: an ignored test in `{module}`", file.name);
                let need = module.strip_prefix("needs_").and_then(|need| needs.get(need));
                used.insert(*need.unwrap_or_else(|| panic!("{place}: ./test knows no such need")));
                assert!(attribute.starts_with("#[ignore = \"needs "), "{place} without a reason");
            }
        }
        let all = file.text.matches("#[test]").count();
        let ignored = file.text.matches("#[ignore").count();
        let whole = file.name.contains("/needs_");
        assert!(!whole || all == ignored, "{}: a test that is not ignored", file.name);
    }
    assert_eq!(used, needs, "./test lists a need that no test has");
}

#[test]
fn no_test_ends_early_to_say_that_it_was_skipped() {
    for file in test_files() {
        for word in ["\"skipped:", "\"skipping"] {
            assert!(
                !file.text.contains(word),
                "{} skips by itself: ignore the test in a module `needs_…`",
                file.name
            );
        }
    }
}

#[test]
fn no_test_has_an_upper_bound_on_elapsed_time() {
    for file in rust_files().iter().filter(|file| !file.name.starts_with(HERE)) {
        for line in file.text.lines().filter(|line| line.contains("assert")) {
            let bounded = line.split_once("elapsed()").is_some_and(|(before, after)| {
                after.contains(" < ") || after.contains(" <= ") || before.contains("> ")
            });
            assert!(!bounded, "{}: compare facts or ratios, not seconds: {line}", file.name);
        }
    }
}
