//! Rules that hold for every file: length, first sentence, who prints, who spawns, big structs.

use crate::source::{File, rust_files};

const LONGEST: usize = 400;
const MOST_FIELDS: usize = 12;

#[test]
fn no_file_is_too_long() {
    for file in rust_files() {
        let lines = file.production().lines().count();
        assert!(
            lines <= LONGEST,
            "{} has {lines} lines: cut it where the subject changes",
            file.name
        );
    }
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

#[test]
fn no_struct_grows_into_a_god_object() {
    for file in rust_files().iter().filter(|file| file.is_production()) {
        for (name, fields) in structs(&file.production()) {
            assert!(
                fields <= MOST_FIELDS,
                "{}: `{name}` has {fields} fields; split what changes from who helps",
                file.name
            );
        }
    }
}

/// Structs and their number of fields; those that are serialised or parsed from a command line
/// are records of a format and are left out.
fn structs(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let bare = line.trim_start().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
        let Some(rest) = bare.strip_prefix("struct ") else { continue };
        if !line.trim_end().ends_with('{') {
            continue;
        }
        let above = lines[..at].iter().rev().take_while(|l| !l.trim().is_empty());
        let record = above.clone().any(|l| {
            ["Serialize", "Deserialize", "Parser", "Args"].iter().any(|word| l.contains(word))
        });
        if record {
            continue;
        }
        let indent = " ".repeat(line.len() - line.trim_start().len() + 4);
        let fields = lines[at + 1..]
            .iter()
            .take_while(|l| !l.starts_with(&format!("{}}}", &indent[4..])))
            .filter(|l| l.starts_with(&indent) && !l[indent.len()..].starts_with([' ', '/', '#']))
            .filter(|l| l.contains(':'))
            .count();
        let name = rest.split([' ', '<', '{']).next().unwrap_or_default().to_owned();
        found.push((name, fields));
    }
    found
}

fn each_production_line(check: impl Fn(&File, &str)) {
    for file in rust_files().iter().filter(|file| file.is_production()) {
        for line in file.production().lines().filter(|line| !line.trim_start().starts_with("//")) {
            check(file, line);
        }
    }
}
