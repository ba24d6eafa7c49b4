//! Rules for every file: its length, its first sentence, and which files may print and start
//! processes.

use crate::source::{File, read, rust_files};

/// Maximum lines of production code in one file. A file is one concept; the number only detects
/// files that grew too large.
const MAX_LINES: usize = 800;

#[test]
fn no_file_is_too_long() {
    let files = rust_files();
    let mut lengths: Vec<(usize, &str)> = files
        .iter()
        .filter(|file| file.is_production())
        .map(|file| (file.production().lines().count(), file.name.as_str()))
        .collect();
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2].0;
    let short = lengths.iter().filter(|(lines, _)| *lines < 60).count();
    println!("{} production files, median {median} lines, {short} below 60", lengths.len());
    for (lines, name) in lengths.iter().filter(|(lines, _)| *lines > 500) {
        println!("{lines:5} {name}");
    }
    let (lines, longest) = lengths.last().expect("there are production files");
    assert!(*lines <= MAX_LINES, "{longest} has {lines} lines: split it where the subject changes");
}

#[test]
fn every_file_starts_with_a_sentence() {
    for file in rust_files() {
        let first = file.text.lines().next().unwrap_or_default();
        let head: Vec<&str> =
            file.text.lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(
            first.starts_with("//! ") && head.join(" ").contains('.'),
            "{} must open with `//!` and a sentence, not with `{first}`",
            file.name
        );
    }
}

#[test]
fn only_the_process_module_starts_processes() {
    each_production_line(|file, line| {
        let starts = (line.contains("std::process::") && line.contains("Command"))
            || line.contains("tokio::process::Command");
        assert!(
            !starts || file.name.starts_with("base/src/process"),
            "{} starts a process by itself: go through base::process: {line}",
            file.name
        );
    });
}

/// Folders and files that may print; see docs/architecture.md, Layers.
const MAY_PRINT: &[&str] =
    &["/ui/", "/report/", "main.rs", "/src/cli", "agent/model/src/", "/bin/"];

/// Files that write to stdout or stderr themselves, and why.
const WRITERS: &[(&str, &str)] = &[
    ("agent/desktop/src/cancel.rs", "the helper's stdout carries its protocol"),
    ("agent/src/modes/mcp.rs", "stdout carries MCP"),
    ("orchestrator/core/src/place/node.rs", "stdout carries the answers of a place"),
    ("orchestrator/core/src/place/node/check.rs", "stdout carries the answers of a place"),
    ("orchestrator/src/commands/mcp/mod.rs", "stdout carries MCP"),
    ("orchestrator/src/dashboard/terminal.rs", "it draws the dashboard"),
    ("orchestrator/core/src/sandbox/mod.rs", "a box that cannot be made has no interface above it"),
    ("orchestrator/core/src/sandbox/terminal.rs", "it passes on what a shell in a box writes"),
    (
        "orchestrator/core/src/sandbox/reaper.rs",
        "the guard outlives the process whose words it passes on",
    ),
    ("orchestrator/core/src/sandbox/init.rs", "inside a box stderr belongs to what runs there"),
];

#[test]
fn only_the_user_interface_writes_to_stdout_and_stderr() {
    let mut seen = std::collections::BTreeSet::new();
    each_production_line(|file, line| {
        let opens = ["stdout()", "stderr()"].iter().any(|word| line.contains(word));
        let writes = opens && !line.contains("is_terminal");
        if !writes || MAY_PRINT.iter().any(|place| file.name.contains(place)) {
            return;
        }
        let listed = WRITERS.iter().find(|(name, _)| *name == file.name);
        let (name, _) = listed.unwrap_or_else(|| {
            panic!("{} writes by itself: hand the text up to ui/ or report/: {line}", file.name)
        });
        seen.insert(*name);
    });
    assert_eq!(seen.len(), WRITERS.len(), "a listed file writes nothing: {seen:?}");
}

#[test]
fn only_the_user_interface_prints() {
    each_production_line(|file, line| {
        let prints = ["println!(", "eprintln!(", "print!(", "eprint!("];
        let prints = prints.iter().any(|word| line.contains(word));
        assert!(
            !prints || MAY_PRINT.iter().any(|place| file.name.contains(place)),
            "{} prints: hand the text up to ui/ or report/: {line}",
            file.name
        );
    });
}

#[test]
fn every_trace_target_can_be_filtered_and_is_documented() {
    let table = read("agent/src/trace/mod.rs");
    let table = table.split_once("const TARGETS").expect("the table of targets").1;
    let table = table.split_once("];").expect("its end").0;
    let docs = read("docs/tracing.md");
    let mut seen = std::collections::BTreeSet::new();
    for file in rust_files().iter().filter(|file| file.is_production()) {
        let text = file.production();
        let literals = text.split("target: \"").skip(1).filter_map(|rest| rest.split('"').next());
        for target in literals.filter(|target| target.starts_with("g3::")) {
            let listed = table.contains(&format!("\"{target}\""));
            assert!(listed, "{}: `{target}` is not in trace::TARGETS", file.name);
            let row = format!("| `{target}` |");
            assert!(docs.contains(&row), "`{target}` is not in docs/tracing.md");
            seen.insert(target.to_owned());
        }
    }
    assert_eq!(seen.len(), table.matches("\"g3::").count(), "no target is listed without use");
}

#[test]
fn no_work_is_left_for_later() {
    let words = ["todo!(", "unimplemented!(", concat!("TO", "DO:"), concat!("FIX", "ME")];
    for file in rust_files().iter().filter(|file| !file.name.starts_with("tests/conventions/")) {
        for word in words {
            assert!(!file.text.contains(word), "{} holds `{word}`", file.name);
        }
    }
}

#[test]
fn modules_do_not_import_past_their_parent() {
    for file in rust_files() {
        assert!(
            !file.text.contains(concat!("super::", "super")),
            "{}: use a crate path",
            file.name
        );
    }
}

fn each_production_line(mut check: impl FnMut(&File, &str)) {
    for file in rust_files().iter().filter(|file| file.is_production()) {
        for line in file.production().lines().filter(|line| !line.trim_start().starts_with("//")) {
            check(file, line);
        }
    }
}
