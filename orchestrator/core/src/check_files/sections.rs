//! The parts of package files that decide what checks say. The rest (dependencies, versions,
//! descriptions) changes with ordinary work.

use serde_json::Value;

/// The parts of `Cargo.toml`.
pub(super) const CARGO: &[&str] = &[
    "profile",
    "lints",
    "patch",
    "replace",
    "cargo-features",
    "package.build",
    "package.autotests",
    "package.autobins",
    "package.autobenches",
    "package.autoexamples",
    "package.metadata",
    "lib",
    "bin",
    "test",
    "bench",
    "example",
    "workspace.members",
    "workspace.exclude",
    "workspace.default-members",
    "workspace.lints",
    "workspace.metadata",
];

/// The parts of `package.json`.
pub(super) const NPM: &[&str] = &[
    "scripts",
    "config",
    "workspaces",
    "overrides",
    "resolutions",
    "packageManager",
    "pnpm",
    "type",
    "imports",
    "jest",
    "vitest",
    "mocha",
    "ava",
    "tap",
    "nyc",
    "c8",
    "babel",
    "eslintConfig",
    "wireit",
    "nx",
    "husky",
    "lint-staged",
    "pre-commit",
    "simple-git-hooks",
];

/// The parts of `pyproject.toml`.
pub(super) const PYTHON: &[&str] = &["tool", "build-system"];

/// Returns the parts that differ. All are returned if a state cannot be parsed: then nothing is
/// known about it.
pub(super) fn changed<'s>(
    path: &str,
    old: Option<&str>,
    new: Option<&str>,
    sections: &[&'s str],
) -> Vec<&'s str> {
    let is_toml = path.ends_with(".toml");
    let (Some(old), Some(new)) = (parse(is_toml, old), parse(is_toml, new)) else {
        return sections.to_vec();
    };
    let part = |of: &Value, section: &str| {
        section.split('.').try_fold(of.clone(), |value, key| value.get(key).cloned())
    };
    let differs = |section: &&&str| part(&old, section) != part(&new, section);
    sections.iter().filter(differs).copied().collect()
}

/// Parses a file; one that does not exist is empty.
fn parse(is_toml: bool, text: Option<&str>) -> Option<Value> {
    let Some(text) = text else { return Some(Value::Null) };
    match is_toml {
        true => serde_json::to_value(text.parse::<toml::Table>().ok()?).ok(),
        false => serde_json::from_str(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parts_that_decide_count() {
        let before = "[package]\nname = \"a\"\nversion = \"1.0.0\"\n[dependencies]\na = \"1\"\n";
        let of = |new: &str| changed("cargo.toml", Some(before), Some(new), CARGO);
        assert_eq!(of(&before.replace("1.0.0", "1.1.0")), Vec::<&str>::new());
        assert_eq!(of(&format!("{before}b = \"2\"\n")), Vec::<&str>::new());
        let profile = "[profile.test]\ndebug-assertions = false\n";
        assert_eq!(of(&format!("{before}{profile}")), ["profile"]);
        let harness = "[[test]]\nname = \"t\"\nharness = false\n";
        assert_eq!(of(&format!("{before}{harness}")), ["test"]);
        let build = before.replace("version", "build = \"x.rs\"\nversion");
        assert_eq!(of(&build), ["package.build"]);
        assert_eq!(of("not toml ["), CARGO, "a file that cannot be parsed");
    }

    #[test]
    fn a_new_file_counts_if_it_has_such_a_part() {
        let of = |new: &str| changed("package.json", None, Some(new), NPM);
        assert_eq!(of(r#"{"name": "a", "dependencies": {"b": "1"}}"#), Vec::<&str>::new());
        assert_eq!(of(r#"{"scripts": {"test": "true"}}"#), ["scripts"]);
        let of = |old: &str, new: &str| changed("pyproject.toml", Some(old), Some(new), PYTHON);
        let old = "[tool.pytest.ini_options]\naddopts = \"-q\"\n";
        assert_eq!(of(old, &old.replace("-q", "-q --co")), ["tool"]);
    }
}
