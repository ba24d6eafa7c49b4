//! Selects the changed files that a commit of planning mode excludes.

/// Directories of build products and dependencies.
const DIRECTORIES: &[&str] = &[
    "target",
    "node_modules",
    "__pycache__",
    ".venv",
    "tmp",
    "temp",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".g3",
    ".worktrees",
];
/// Suffixes of temporary files.
const SUFFIXES: &[&str] = &[".log", ".tmp", ".bak", ".pyc", ".swp", ".swo", "~"];
/// Names of files that operating systems create.
const FILE_NAMES: &[&str] = &[".DS_Store", "Thumbs.db"];
/// Names and suffixes of files with secrets.
const SECRETS: &[&str] = &[".env", ".netrc", ".npmrc", "id_rsa", "id_ed25519", "credentials.json"];
const SECRET_SUFFIXES: &[&str] = &[".pem", ".key", ".p12", ".pfx"];

/// Returns why a path, relative to the repository with `/`, is excluded; `None` if it is not.
pub fn exclusion_reason(path: &str) -> Option<&'static str> {
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    if parts.iter().any(|part| DIRECTORIES.contains(part)) {
        return Some("a build product or a dependency");
    }
    if FILE_NAMES.contains(&name) || SUFFIXES.iter().any(|ending| name.ends_with(ending)) {
        return Some("a temporary file of a program");
    }
    let holds_secret = SECRETS.contains(&name)
        || (name.starts_with(".env.") && !name.ends_with(".example") && !name.ends_with(".sample"))
        || SECRET_SUFFIXES.iter().any(|ending| name.ends_with(ending));
    holds_secret.then_some("it may hold a secret")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_temporary_and_secret_files_are_excluded() {
        for path in [
            "target/x",
            "a/node_modules/b/c.js",
            "src/__pycache__/x.py",
            "x.log",
            "a/b.swp",
            "a~",
            ".DS_Store",
            "a/Thumbs.db",
            "x.pyc",
            ".env",
            "a/.env.local",
            "server.pem",
            "id_rsa",
            ".g3/x",
        ] {
            assert!(exclusion_reason(path).is_some(), "{path}");
        }
        for path in [
            "src/target.rs",
            "src/log.rs",
            "a.env.rs",
            ".env.example",
            "temp.rs",
            "g3-plan/todo.g3.md",
            "ünï/é.txt",
            "logs.md",
        ] {
            assert_eq!(exclusion_reason(path), None, "{path}");
        }
    }
}
