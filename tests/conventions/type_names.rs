//! One meaning for one type name: a name is defined once in the workspace.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{numbers, rust_files};

/// Names that several types may have: the arguments of each command, the error and the result of
/// a crate, the state of a machine.
const SHARED: &[&str] = &["Args", "Error", "Result", "State"];

/// The names that are still to be changed, each with the number of its types. The numbers only go
/// down.
const KNOWN: &str = "tests/conventions/known_type_names.txt";

#[test]
fn a_type_name_has_one_meaning() {
    let known = numbers(KNOWN);
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in rust_files().iter().filter(|file| file.is_production()) {
        for name in file.production().lines().filter_map(defined) {
            found.entry(name).or_default().push(file.name.clone());
        }
    }
    found.retain(|name, files| files.len() > 1 && !SHARED.contains(&name.as_str()));
    let mut wrong = String::new();
    for name in known.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
        let most = known.get(name).copied().unwrap_or(1);
        let files = found.get(name).map_or(&[][..], Vec::as_slice);
        if files.len() > most {
            wrong.push_str(&format!("`{name}` is {} types: {}\n", files.len(), files.join(", ")));
        } else if files.len() < most && known.contains_key(name) {
            let now = match files.len() {
                0 => "remove its line from".to_owned(),
                count => format!("write {count} instead of {most} into"),
            };
            wrong.push_str(&format!("`{name}`: {now} {KNOWN}\n"));
        }
    }
    assert!(wrong.is_empty(), "type names with more than one meaning\n{wrong}");
}

/// Returns the type that a line defines for other modules.
fn defined(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => rest,
    };
    let (kind, rest) = rest.trim_start().split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&kind);
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    is_type.then(|| name.to_owned())
}

#[test]
fn the_reader_of_types_sees_every_form() {
    let lines = [
        "pub struct A;",
        "pub(crate) enum B {",
        "    pub(in crate::x) trait C<T> {",
        "pub type D = u8;",
        "pub fn type_of() {}",
        "struct E;",
        "pub use x::F;",
    ];
    let found: Vec<String> = lines.into_iter().filter_map(defined).collect();
    assert_eq!(found, ["A", "B", "C", "D"]);
}
