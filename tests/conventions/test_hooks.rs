//! Test hooks exist in test builds only: one file names the variables, behind a feature.

use crate::source::{read, rust_files};

const HOOKS: &str = "base/src/test_hooks.rs";
const GUARD: &str = "#[cfg(all(feature = \"test-hooks\", debug_assertions))]\nmod environment {";
const PREFIX: &str = concat!("G3_", "TEST_");

#[test]
fn release_builds_have_no_test_hooks() {
    for file in rust_files().iter().filter(|file| file.is_production()) {
        let names_one = file.production().contains(PREFIX);
        assert!(
            !names_one || file.name == HOOKS,
            "{} names a variable of tests: add it to {HOOKS}",
            file.name
        );
    }
    let text = read(HOOKS);
    let (before, guarded) = text.split_once(GUARD).expect("the module that names the variables");
    let (guarded, after) = guarded.split_once("\n}\n").expect("its end");
    assert!(guarded.contains(PREFIX), "the module names the variables");
    assert!(!before.contains(PREFIX) && !after.contains(PREFIX), "only the guarded module does");
    assert!(!read("Cargo.toml").contains("debug-assertions"), "release builds have none");
}

#[test]
fn only_the_tests_enable_test_hooks() {
    let feature = "\"test-hooks\"";
    for folder in ["agent", "agent/desktop", "agent/model", "orchestrator", "planner"] {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        assert!(!manifest.contains("test-hooks"), "{folder}/Cargo.toml switches test hooks on");
    }
    assert!(!read("Cargo.toml").contains("test-hooks"), "the workspace switches test hooks on");
    assert!(!read("base/Cargo.toml").contains("default ="), "test hooks are on by default");
    assert!(read("tests/Cargo.toml").contains(feature), "the tests would run without their hooks");
}
