//! Rules that hold for every file: length, first sentence, who prints, who spawns.

use crate::source::{File, rust_files};

/// Lines of production code in one file. A file is one concept; the number only detects a smell.
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
fn every_file_opens_with_a_sentence() {
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
fn only_the_process_door_spawns() {
    each_production_line(|file, line| {
        let spawns = line.contains("Command::new(") && !line.contains("clap::Command");
        assert!(
            !spawns || file.name == "agent/base/src/process.rs",
            "{} starts a process by itself: go through base::process: {line}",
            file.name
        );
    });
}

/// Folders and files that talk to people; see docs/architecture.md, Layers.
const MAY_PRINT: &[&str] =
    &["/ui/", "/report/", "main.rs", "/src/cli", "agent/model/src/", "/bin/"];

#[test]
fn only_the_surface_prints() {
    each_production_line(|file, line| {
        let prints = ["println!(", "eprintln!(", "print!(", "eprint!("];
        let prints = prints.iter().any(|word| line.trim_start().starts_with(word));
        assert!(
            !prints || MAY_PRINT.iter().any(|place| file.name.contains(place)),
            "{} prints: hand the text up to ui/ or report/: {line}",
            file.name
        );
    });
}

#[test]
fn nothing_is_left_for_later() {
    let words = ["todo!(", "unimplemented!(", concat!("TO", "DO:"), concat!("FIX", "ME")];
    for file in rust_files().iter().filter(|file| !file.name.starts_with("tests/house/")) {
        for word in words {
            assert!(!file.text.contains(word), "{} holds `{word}`", file.name);
        }
    }
}

#[test]
fn modules_do_not_reach_over_their_parent() {
    for file in rust_files() {
        assert!(
            !file.text.contains(concat!("super::", "super")),
            "{}: use a crate path",
            file.name
        );
    }
}

fn each_production_line(check: impl Fn(&File, &str)) {
    for file in rust_files().iter().filter(|file| file.is_production()) {
        for line in file.production().lines().filter(|line| !line.trim_start().starts_with("//")) {
            check(file, line);
        }
    }
}
