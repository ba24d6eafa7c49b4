//! One meaning for one type name: a name is defined once in the workspace.

use std::collections::BTreeMap;

use crate::source::rust_files;

/// Names that several types may have: the arguments of each command and the command line of each
/// program, the error and the result of a crate, the state of a machine.
const SHARED: &[&str] = &["Args", "Cli", "Error", "Result", "State"];

/// Types that exist once for each system or feature, of which a build has one.
const ALTERNATIVES: &[&str] = &["Export", "Watched"];

#[test]
fn a_type_name_has_one_meaning() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in rust_files().iter().filter(|file| file.is_production()) {
        for name in file.production().lines().filter_map(defined) {
            found.entry(name).or_default().push(file.name.clone());
        }
    }
    let may_repeat = |name: &str| SHARED.contains(&name) || ALTERNATIVES.contains(&name);
    found.retain(|name, files| files.len() > 1 && !may_repeat(name));
    assert!(found.is_empty(), "type names with more than one meaning: {found:#?}");
}

/// The type that a line defines for other modules.
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
