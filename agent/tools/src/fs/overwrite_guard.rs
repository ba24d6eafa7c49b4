//! Blocks a small model's write once if lines of the file would be lost, since such a model often
//! writes only the new part.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// Minimum similarity of a changed line to the line that it replaces.
const MIN_SIMILARITY: f64 = 0.55;
/// Number of lost lines from which a write is blocked; a single line is usually dropped on purpose.
const MIN_LOST_LINES: usize = 2;
/// Maximum number of lines shown to the model.
const MAX_SHOWN_LINES: usize = 12;

/// Extensions of programs, which are rewritten line by line when they are fixed.
const CODE_EXTENSIONS: &[&str] =
    &["c", "cpp", "go", "h", "java", "js", "kt", "php", "py", "rb", "rs", "sh", "swift", "ts"];

/// Returns the message for the model if a write is blocked, or `None` if it may proceed. An
/// identical second write may proceed.
pub fn check_write(session: &Path, path: &Path, before: &str, after: &str) -> Option<String> {
    let lost = lost_lines(before, after);
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let is_blocked = lost.len() >= MIN_LOST_LINES
        && (!CODE_EXTENSIONS.contains(&extension) || is_full_replacement(before, &lost));
    if !is_blocked || !record_block(session, path, after) {
        return None;
    }
    let mut lines = lost.iter().take(MAX_SHOWN_LINES).copied().collect::<Vec<_>>().join("\n");
    if lost.len() > MAX_SHOWN_LINES {
        lines.push_str("\n...");
    }
    Some(format!(
        "not written: the file would lose these lines:\n{lines}\nCall write_file again with the \
         whole file, the old lines and the new ones. Only if these lines must go, repeat the same \
         call."
    ))
}

/// Whether a program is replaced entirely. A program with named parts is checked by the guide
/// instead, which knows the task.
fn is_full_replacement(before: &str, lost: &[&str]) -> bool {
    let lines = before.lines().filter(|line| !line.trim().is_empty()).count();
    lost.len() == lines && !before.lines().any(|line| part_name(line).is_some())
}

/// Returns the name of the program part that a line defines.
pub fn part_name(line: &str) -> Option<&str> {
    let mut words = line.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_');
    let keywords = ["class", "def", "fn", "func", "function", "struct"];
    let modifiers = ["async", "export", "pub", "static"];
    let first = words.find(|word| !modifiers.contains(word))?;
    if !keywords.contains(&first) {
        return None;
    }
    words.next().filter(|name| !name.is_empty())
}

/// Returns the removed lines that no similar new line replaces.
fn lost_lines<'a>(before: &'a str, after: &str) -> Vec<&'a str> {
    let old: Vec<&str> = before.lines().map(str::trim).collect();
    let mut new: Vec<&str> =
        after.lines().map(str::trim).filter(|line| !old.contains(line)).collect();
    let new_lines: Vec<&str> = after.lines().map(str::trim).collect();
    let mut lost = Vec::new();
    for line in before.lines().filter(|line| !line.trim().is_empty()) {
        let text = line.trim();
        if new_lines.contains(&text) {
            continue;
        }
        let is_similar =
            |other: &&str| strsim::normalized_levenshtein(text, other) >= MIN_SIMILARITY;
        match new.iter().position(is_similar) {
            // Each new line replaces at most one old line.
            Some(index) => drop(new.remove(index)),
            None => lost.push(line),
        }
    }
    lost
}

/// Records that this write was blocked. Returns false if it was blocked before.
fn record_block(session: &Path, path: &Path, after: &str) -> bool {
    let mut hash = DefaultHasher::new();
    (path, after).hash(&mut hash);
    let dir = session.join("tools");
    let file = dir.join(format!("held-{:016x}", hash.finish()));
    // If nothing can be recorded, the write must proceed, or it would be blocked forever.
    !file.exists() && fs::create_dir_all(&dir).and_then(|()| fs::write(&file, "")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_of_only_the_new_part_is_blocked_once() {
        let dir = tempfile::tempdir().unwrap();
        let before = "# Guide\n\nRead this first.\n";
        let after = "## License\n\nMIT\n";
        let told = check_write(dir.path(), Path::new("guide.md"), before, after).unwrap();
        assert!(told.contains("Read this first.\n"), "{told}");
        assert_eq!(check_write(dir.path(), Path::new("guide.md"), before, after), None);
    }

    #[test]
    fn a_program_may_be_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let before = "def leap(y):\n    if y % 4 == 0:\n        return True\n    return False\n";
        let after = "def leap(y):\n    return not y % 4 and (y % 100 != 0 or not y % 400)\n";
        assert_eq!(check_write(dir.path(), Path::new("a.py"), before, after), None);
    }

    #[test]
    fn changed_lines_are_not_lost_lines() {
        let dir = tempfile::tempdir().unwrap();
        let before = "class Box:\n    def area(self):\n        return self.w * self.h\n";
        let after = "class Rectangle:\n    def area(self):\n        return self.w * self.height\n";
        assert_eq!(check_write(dir.path(), Path::new("a.md"), before, after), None);
        let more = format!("{before}\nextra = 1\n");
        assert_eq!(check_write(dir.path(), Path::new("a.md"), before, &more), None);
        assert!(check_write(dir.path(), Path::new("a.md"), before, "extra = 1\n").is_some());
    }

    #[test]
    fn replacing_a_program_without_named_parts_is_blocked() {
        let dir = tempfile::tempdir().unwrap();
        let before = "say() {\n    echo \"$1\"\n}\nsay \"$@\"\n";
        let hold = |after: &str| check_write(dir.path(), Path::new("a.sh"), before, after);
        assert!(hold("leave() { exit 1; }\n").is_some());
        assert_eq!(hold("say() {\n    printf %s \"$1\"\n}\n"), None);
    }
}
