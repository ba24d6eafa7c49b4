//! Rules about documents: docs/architecture.md is short and correct, the entry points exist.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use crate::source::{read, root, rust_files};

#[test]
fn the_architecture_page_is_short() {
    let words = read("docs/architecture.md").split_whitespace().count();
    assert!(words <= 1500, "docs/architecture.md has {words} words");
}

#[test]
fn every_test_that_the_architecture_page_names_exists() {
    let tests: BTreeSet<String> = rust_files()
        .iter()
        .flat_map(|file| {
            let names = file.text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next());
            names.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let map = read("docs/architecture.md");
    let named: Vec<&str> =
        map.split('`').skip(1).step_by(2).filter(|word| word.matches('_').count() >= 3).collect();
    assert!(named.len() >= 8, "the map names its tests in backticks");
    for name in named {
        let name = name.rsplit("::").next().unwrap_or(name);
        assert!(
            tests.contains(name),
            "docs/architecture.md names the test `{name}`: there is none"
        );
    }
}

#[test]
fn every_test_that_the_page_about_security_names_exists() {
    let files = rust_files();
    let text = read("docs/security.md");
    // Names of tests are sentences; those of files, keys and functions are shorter.
    let names = text.split('`').skip(1).step_by(2).filter(|word| {
        word.matches('_').count() >= 4
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    });
    for name in names {
        let test = format!("fn {name}(");
        let exists = files.iter().any(|file| file.text.contains(&test));
        assert!(exists, "docs/security.md names the test `{name}`, which does not exist");
    }
}

#[test]
fn every_module_of_the_architecture_page_exists() {
    let map = read("docs/architecture.md");
    let paths = map.split('`').skip(1).step_by(2).filter(|word| {
        word.contains('/')
            && !word.contains([' ', '<', '*', '$', '~', '{'])
            && !word.starts_with('.')
    });
    for path in paths.filter(|p| !p.starts_with("refs/") && !p.starts_with("studio/")) {
        assert!(root().join(path).exists(), "docs/architecture.md names `{path}`: it is not there");
    }
}

#[test]
fn the_entry_points_exist_and_are_executable() {
    for name in ["setup", "demo", "test", ".ci/run"] {
        let meta = std::fs::metadata(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(meta.permissions().mode() & 0o111 != 0, "{name} is not executable");
    }
}

#[test]
fn ci_only_runs_the_test_script() {
    let text = read(".ci/run");
    let code: Vec<&str> =
        text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).collect();
    assert!(code.iter().any(|line| line.contains("./test")), "{code:?}");
    assert!(code.len() <= 4, ".ci/run calls ./test and nothing else: {code:?}");
}
