//! Changes that need no attention by themselves: a review shows them folded, at its end.

use std::path::Path;

use studio_git::hunks::{DiffHunk, FilePatch, LineOrigin};

use crate::review::risk::{extension, lower_name};

/// Why a change is mechanical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MechanicalChange {
    /// Only the name of the file changes.
    Rename,
    /// Only white space changes, where it has no meaning.
    Formatting,
    /// The file is generated.
    Generated,
    /// The file is written by a package manager.
    LockFile,
}

impl MechanicalChange {
    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            MechanicalChange::Rename => "rename",
            MechanicalChange::Formatting => "formatting",
            MechanicalChange::Generated => "generated",
            MechanicalChange::LockFile => "lock_file",
        }
    }

    /// Returns the reason for display.
    pub fn text(self) -> &'static str {
        match self {
            MechanicalChange::Rename => "rename only",
            MechanicalChange::Formatting => "formatting only",
            MechanicalChange::Generated => "generated file",
            MechanicalChange::LockFile => "lock file",
        }
    }
}

/// Returns why a hunk is mechanical. `is_marked` tells whether the file before the change says that
/// it is generated: a marker that the change itself adds does not count, because it could hide the
/// change.
pub fn classify(file: &FilePatch, hunk: &DiffHunk, is_marked: bool) -> Option<MechanicalChange> {
    // A new mode or kind is a change of its own, not a mechanical one.
    let keeps_mode = file.old.is_none() || file.new.is_none() || file.mode_change().is_none();
    if !keeps_mode {
        return None;
    }
    if is_lock_file(&file.path) {
        return Some(MechanicalChange::LockFile);
    }
    if is_marked || is_generated_path(&file.path) {
        return Some(MechanicalChange::Generated);
    }
    if hunk.lines.is_empty() {
        let is_only_renamed = file.is_renamed() && !file.binary;
        return is_only_renamed.then_some(MechanicalChange::Rename);
    }
    is_formatting(&file.path, hunk).then_some(MechanicalChange::Formatting)
}

const LOCK_FILES: &[&str] = &[
    "bun.lock",
    "cargo.lock",
    "composer.lock",
    "deno.lock",
    "flake.lock",
    "gemfile.lock",
    "go.sum",
    "mix.lock",
    "npm-shrinkwrap.json",
    "package-lock.json",
    "package.resolved",
    "pdm.lock",
    "pipfile.lock",
    "pnpm-lock.yaml",
    "podfile.lock",
    "poetry.lock",
    "pubspec.lock",
    "uv.lock",
    "yarn.lock",
];

fn is_lock_file(path: &Path) -> bool {
    LOCK_FILES.contains(&lower_name(path).as_str())
}

/// Ends of names of generated files, as GitHub's linguist has them.
const GENERATED_ENDS: &[&str] = &[
    ".designer.cs",
    ".g.dart",
    ".generated.cs",
    ".generated.go",
    ".generated.ts",
    ".js.map",
    ".css.map",
    ".min.css",
    ".min.js",
    ".pb.cc",
    ".pb.go",
    ".pb.h",
    "_generated.go",
    "_pb2.py",
    "_pb2_grpc.py",
];

fn is_generated_path(path: &Path) -> bool {
    let name = lower_name(path);
    let in_directory = path.components().any(|part| part.as_os_str() == "__generated__");
    in_directory || GENERATED_ENDS.iter().any(|end| name.ends_with(end))
}

/// The number of lines at the start of a file in which a marker counts.
const MARKER_LINES: usize = 10;

/// Returns whether a file says at its start that it is generated.
pub fn has_generated_marker(content: &[u8]) -> bool {
    let mut lines = content.split(|byte| *byte == b'\n').take(MARKER_LINES);
    lines.any(|line| {
        let line = String::from_utf8_lossy(line);
        line.contains("@generated") || line.to_uppercase().contains("DO NOT EDIT")
    })
}

/// Languages in which the indentation, or white space between words, has a meaning.
const SPACE_SENSITIVE: &[&str] = &[
    "bash", "coffee", "fish", "haml", "hs", "md", "mk", "nim", "py", "pug", "sass", "sh", "txt",
    "yaml", "yml", "zsh",
];

fn is_formatting(path: &Path, hunk: &DiffHunk) -> bool {
    let text = |origin| {
        let lines = hunk.lines.iter().filter(move |line| line.origin == origin);
        lines.map(|line| line.text.as_str()).collect::<Vec<_>>()
    };
    let (old, new) = (text(LineOrigin::Removed), text(LineOrigin::Added));
    let name = lower_name(path);
    let is_sensitive = SPACE_SENSITIVE.contains(&extension(path).as_str())
        || matches!(name.as_str(), "makefile" | "dockerfile" | "justfile");
    if is_sensitive {
        return without_blank(&old, str::trim_end) == without_blank(&new, str::trim_end);
    }
    let has_quote = |lines: &[&str]| lines.iter().any(|line| line.contains(['"', '\'', '`']));
    if has_quote(&old) || has_quote(&new) {
        // White space in a string has a meaning: only the indentation may change.
        return without_blank(&old, str::trim) == without_blank(&new, str::trim);
    }
    // A line comment must not swallow the code of the next line.
    let has_comment = |lines: &[&str]| lines.iter().any(|it| it.contains("//") || it.contains('#'));
    if has_comment(&old) || has_comment(&new) {
        return without_blank(&old, str::trim) == without_blank(&new, str::trim);
    }
    condensed(&old) == condensed(&new)
}

fn without_blank<'a>(lines: &[&'a str], trim: fn(&'a str) -> &'a str) -> Vec<&'a str> {
    lines.iter().map(|line| trim(line)).filter(|line| !line.is_empty()).collect()
}

/// Returns a text without white space, except for a space between two words.
fn condensed(lines: &[&str]) -> String {
    let mut text = String::new();
    for word in lines.iter().flat_map(|line| line.split_whitespace()) {
        // Two operators that white space separates are not one.
        let is_joined = |c: char| c.is_alphanumeric() || c == '_';
        let is_operator = |c: char| "+-*/<>=&|!.:%^~?$@\\".contains(c);
        let (last, first) = (text.chars().next_back(), word.chars().next());
        let is_needed = match (last, first) {
            (Some(a), Some(b)) => is_joined(a) && is_joined(b) || is_operator(a) && is_operator(b),
            (_, _) => false,
        };
        if is_needed {
            text.push(' ');
        }
        text.push_str(word);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use studio_git::hunks::{DiffLine, LineSpan};

    fn formatting(path: &str, old: &[&str], new: &[&str]) -> bool {
        let line = |origin| {
            move |text: &&str| DiffLine {
                origin,
                old: None,
                new: None,
                text: (*text).to_owned(),
                has_newline: true,
            }
        };
        let removed = old.iter().map(line(LineOrigin::Removed));
        let none = LineSpan::default();
        let lines = removed.chain(new.iter().map(line(LineOrigin::Added))).collect();
        let hunk =
            DiffHunk { id: String::new(), old: none, new: none, heading: String::new(), lines };
        is_formatting(Path::new(path), &hunk)
    }

    #[test]
    fn only_white_space_without_a_meaning_is_formatting() {
        assert!(formatting("a.rs", &["f(a,b)"], &["f(", "    a,", "    b)"]));
        assert!(formatting("a.py", &["x = 1  "], &["x = 1"]));
        assert!(formatting("a.c", &["  print(\"a b\");"], &["\tprint(\"a b\");"]));
        // These change what the code does.
        assert!(!formatting("a.py", &["    return 1"], &["return 1"]));
        assert!(!formatting("a.sh", &["rm -rf /tmp"], &["rm -rf / tmp"]));
        assert!(!formatting("Makefile", &["\tcc"], &["    cc"]));
        assert!(!formatting("a.c", &["print(\"a b\");"], &["print(\"a  b\");"]));
        assert!(!formatting("a.c", &["// done", "run();"], &["// done run();"]));
        assert!(!formatting("a.c", &["a - -b"], &["a --b"]));
        assert!(!formatting("a.rs", &["let ab = 1"], &["let a b = 1"]));
        assert!(!formatting("a.rs", &["f(a, b)"], &["f(a, c)"]));
    }

    #[test]
    fn a_marker_counts_at_the_start_of_a_file() {
        assert!(has_generated_marker(b"// Code generated by x. DO NOT EDIT.\n"));
        assert!(has_generated_marker(b"\n\n/* @generated */"));
        let late = "\n".repeat(MARKER_LINES) + "@generated";
        assert!(!has_generated_marker(late.as_bytes()));
    }
}
