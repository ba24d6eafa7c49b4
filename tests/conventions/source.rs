//! The source files of this project, for the rules.

use std::fs;
use std::path::{Path, PathBuf};

/// A Rust file of the project.
pub struct File {
    /// The path relative to the root, with `/`.
    pub name: String,
    /// The content.
    pub text: String,
}

impl File {
    /// Returns the content without its `#[cfg(test)]` modules.
    pub fn production(&self) -> String {
        let mut kept = Vec::new();
        let mut lines = self.text.lines().peekable();
        while let Some(line) = lines.next() {
            let opens = line.trim_start().starts_with("#[cfg(test)]");
            if !opens || !lines.peek().is_some_and(|next| next.trim_start().starts_with("mod ")) {
                kept.push(line);
                continue;
            }
            let indent = &line[..line.len() - line.trim_start().len()];
            if lines.next().is_some_and(|open| open.trim_end().ends_with(';')) {
                continue;
            }
            let close = format!("{indent}}}");
            lines.by_ref().find(|line| *line == close);
        }
        kept.join("\n")
    }

    /// Returns whether it is part of the programs rather than of the tests.
    pub fn is_production(&self) -> bool {
        let aside = ["tests/", "benches/"].iter().any(|folder| self.name.starts_with(folder));
        !aside
            && !self.name.contains("/tests/")
            && !self.name.ends_with("_tests.rs")
            && !self.name.ends_with("/tests.rs")
    }
}

/// Returns the root of the project.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the crate lies in the project").to_owned()
}

/// Returns the content of a text file.
pub fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns all Rust files of the project.
pub fn rust_files() -> Vec<File> {
    let mut files = Vec::new();
    for top in ["agent", "base", "orchestrator", "planner", "tests", "benches"] {
        walk(&root().join(top), &mut files);
    }
    assert!(files.len() > 30, "the walk found only {} files", files.len());
    files
}

fn walk(dir: &Path, files: &mut Vec<File>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.expect("the directory can be read").path();
        if path.is_dir() {
            if !path.ends_with("target") && !path.ends_with("fixtures") {
                walk(&path, files);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            let name = path.strip_prefix(root()).expect("below the root");
            let name = name.to_string_lossy().into_owned();
            files.push(File { name, text: fs::read_to_string(&path).expect("it is text") });
        }
    }
}
