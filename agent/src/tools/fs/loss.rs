//! Holds a small model's write back once when lines of the file would be lost with it: such a
//! model often writes only what is new.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// A changed line is at least so much like the line that it stands for.
const ALIKE: f64 = 0.55;
/// One lost line is mostly meant.
const NOTABLE: usize = 2;
/// Lines that the model is shown.
const SHOWN: usize = 12;

/// Files whose parts begin with words like `def`.
const CODE: &[&str] =
    &["c", "cpp", "go", "h", "java", "js", "kt", "php", "py", "rb", "rs", "sh", "swift", "ts"];
/// How a line begins that opens a part of a program.
const OPENS: &[&str] = &["async ", "class ", "def ", "fn ", "func ", "function ", "impl ", "pub "];

/// What to tell the model instead of writing; `None` when the write may go on. A write that is
/// repeated unchanged is meant.
pub fn hold_back(session: &Path, path: &Path, before: &str, after: &str) -> Option<String> {
    let lost = lost(before, after);
    let notable = lost.len() >= NOTABLE && lost.iter().any(|line| is_frame(path, line));
    if !notable || !note(session, path, after) {
        return None;
    }
    let mut lines = lost.iter().take(SHOWN).copied().collect::<Vec<_>>().join("\n");
    if lost.len() > SHOWN {
        lines.push_str("\n...");
    }
    Some(format!(
        "not written: the file would lose these lines:\n{lines}\nCall write_file again with the \
         whole file, the old lines and the new ones. Only if these lines must go, repeat the same \
         call."
    ))
}

/// Whether a line holds up others: within a part of a program everything may be written anew.
fn is_frame(path: &Path, line: &str) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    !CODE.contains(&ending) || OPENS.iter().any(|word| line.trim_start().starts_with(word))
}

/// The lines that are gone and for which no like line has come.
fn lost<'a>(before: &'a str, after: &str) -> Vec<&'a str> {
    let old: Vec<&str> = before.lines().map(str::trim).collect();
    let mut new: Vec<&str> =
        after.lines().map(str::trim).filter(|line| !old.contains(line)).collect();
    let kept: Vec<&str> = after.lines().map(str::trim).collect();
    let mut lost = Vec::new();
    for line in before.lines().filter(|line| !line.trim().is_empty()) {
        let text = line.trim();
        if kept.contains(&text) {
            continue;
        }
        let like = |other: &&str| strsim::normalized_levenshtein(text, other) >= ALIKE;
        match new.iter().position(like) {
            // Each new line stands for one old line.
            Some(at) => drop(new.remove(at)),
            None => lost.push(line),
        }
    }
    lost
}

/// Notes that this write was held back; false when it was held back before.
fn note(session: &Path, path: &Path, after: &str) -> bool {
    let mut hash = DefaultHasher::new();
    (path, after).hash(&mut hash);
    let dir = session.join("tools");
    let file = dir.join(format!("held-{:016x}", hash.finish()));
    // Where nothing can be noted the write must go on, or it would be held back for ever.
    !file.exists() && fs::create_dir_all(&dir).and_then(|()| fs::write(&file, "")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_of_only_the_new_part_is_held_back_once() {
        let dir = tempfile::tempdir().unwrap();
        let before = "def double(x):\n    return 2 * x\n";
        let after = "def clamp(x, low, high):\n    return max(low, min(x, high))\n";
        let told = hold_back(dir.path(), Path::new("num.py"), before, after).unwrap();
        assert!(told.contains("    return 2 * x\n"), "{told}");
        assert_eq!(hold_back(dir.path(), Path::new("num.py"), before, after), None);
    }

    #[test]
    fn the_inside_of_a_function_may_be_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let before = "def leap(y):\n    if y % 4 == 0:\n        return True\n    return False\n";
        let after = "def leap(y):\n    return not y % 4 and (y % 100 != 0 or not y % 400)\n";
        assert_eq!(hold_back(dir.path(), Path::new("a.py"), before, after), None);
        assert!(hold_back(dir.path(), Path::new("a.md"), before, after).is_some());
        let class =
            "class A:\n    def one(self):\n        pass\n\n    def two(self):\n        x()\n";
        let told = hold_back(dir.path(), Path::new("a.py"), class, "class A:\n    pass\n").unwrap();
        assert!(told.contains("def two"), "{told}");
    }

    #[test]
    fn changed_lines_are_not_lost_lines() {
        let dir = tempfile::tempdir().unwrap();
        let before = "class Box:\n    def area(self):\n        return self.w * self.h\n";
        let after = "class Rectangle:\n    def area(self):\n        return self.w * self.height\n";
        assert_eq!(hold_back(dir.path(), Path::new("a.py"), before, after), None);
        let more = format!("{before}\nextra = 1\n");
        assert_eq!(hold_back(dir.path(), Path::new("a.py"), before, &more), None);
    }
}
