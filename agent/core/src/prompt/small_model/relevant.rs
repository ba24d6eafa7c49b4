//! Adds the files that a task is about to its text, because a small model does not look for them by
//! itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use super::task::{TaskFacts, file_name, runner};

/// Maximum number of files in a tree that is listed.
const MAX_LISTED: usize = 40;
/// Maximum number of files that are walked.
const MAX_WALKED: usize = 4_000;
/// Maximum size in bytes of a file that is shown. Longer files are not shown at all.
const MAX_FILE: u64 = 24_000;

/// Returns the task with information about its files, in at most `max_bytes` additional bytes.
pub(crate) fn with_files(task: &str, cwd: &Path, max_bytes: usize) -> String {
    let files = walk(cwd);
    let missing = missing(task, cwd);
    if files.is_empty() {
        return with_tips(task, &format!("{task}\n\nThe directory is empty.{missing}"));
    }
    let mut text = task.to_owned();
    if files.len() <= MAX_LISTED {
        text.push_str("\n\nFiles in the directory:\n");
        for file in &files {
            text.push_str(&format!("{}\n", file.display()));
        }
    }
    let end = text.len() + max_bytes;
    for file in by_relevance(task, &files) {
        let content = show(cwd, &file).filter(|content| text.len() + content.len() <= end);
        text.push_str(&content.unwrap_or_default());
    }
    text.push_str(&missing);
    with_tips(task, text.trim_end())
}

fn with_tips(task: &str, text: &str) -> String {
    let tips = TaskFacts::read(task).tips();
    let lines: String = tips.iter().map(|tip| format!("\n- {tip}")).collect();
    if lines.is_empty() { text.to_owned() } else { format!("{text}\n\nGood to know:{lines}") }
}

/// Lists files that the task names and that do not exist. Small models run such files before they
/// write them.
fn missing(task: &str, cwd: &Path) -> String {
    let names = task.split_whitespace().filter_map(file_name);
    let missing: Vec<&str> = names.filter(|name| !cwd.join(name).exists()).collect();
    let program = missing.iter().find(|name| runner(name).is_some());
    match program.or(missing.first()) {
        Some(name) => format!("\n\n{name} does not exist yet: first create it with write_file."),
        None => String::new(),
    }
}

/// Returns the files of a tree that are not ignored, shallow ones first.
fn walk(cwd: &Path) -> Vec<PathBuf> {
    files_of(WalkBuilder::new(cwd).require_git(false).follow_links(false), cwd)
}

fn files_of(walker: &WalkBuilder, cwd: &Path) -> Vec<PathBuf> {
    let files = walker
        .build()
        .flatten()
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let mut files: Vec<PathBuf> = files
        .take(MAX_WALKED)
        .filter_map(|entry| entry.path().strip_prefix(cwd).ok().map(Path::to_owned))
        .collect();
    files.sort_by_key(|path| (path.components().count(), path.clone()));
    files
}

/// Returns the files that a task may change, including hidden ones, but without the internal files
/// of git and test runners.
pub(crate) fn changeable_files(cwd: &Path) -> Vec<PathBuf> {
    let is_internal = |name: &std::ffi::OsStr| {
        [".git", "__pycache__", ".pytest_cache", ".mypy_cache", "node_modules"]
            .iter()
            .any(|internal| name == *internal)
    };
    let mut walker = WalkBuilder::new(cwd);
    walker.require_git(false).follow_links(false).hidden(false);
    files_of(walker.filter_entry(move |entry| !is_internal(entry.file_name())), cwd)
}

/// Sorts files by relevance: those that the task names, then those that the named ones mention,
/// then, in a small tree, the rest.
fn by_relevance(task: &str, files: &[PathBuf]) -> Vec<PathBuf> {
    let names = |text: &str, path: &Path| {
        let full = path.to_string_lossy();
        let base = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        has_word(text, &full) || has_word(text, &base)
    };
    let named: Vec<&PathBuf> = files.iter().filter(|path| names(task, path)).collect();
    let rest: Vec<&PathBuf> = if files.len() <= MAX_LISTED {
        files.iter().collect()
    } else {
        let stems: BTreeSet<_> = named.iter().filter_map(|path| path.file_stem()).collect();
        let is_related = |path: &Path| {
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            stem.is_some_and(|stem| {
                stems.iter().any(|known| stem.contains(&*known.to_string_lossy()))
            })
        };
        files.iter().filter(|path| is_related(path)).collect()
    };
    let mut chosen: Vec<PathBuf> = Vec::new();
    for path in named.into_iter().chain(rest) {
        if !chosen.contains(path) {
            chosen.push(path.clone());
        }
    }
    chosen
}

/// Whether a text contains a name as a whole word.
pub(crate) fn has_word(text: &str, name: &str) -> bool {
    let is_word_char = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(name).any(|(index, _)| {
        let before = text[..index].chars().next_back().is_some_and(is_word_char);
        let after = text[index + name.len()..].chars().next().is_some_and(is_word_char);
        !before && !after
    })
}

/// Formats a file as a code block. Returns `None` for a long or binary file.
pub(crate) fn show(cwd: &Path, file: &Path) -> Option<String> {
    let text = read_text(&cwd.join(file))?;
    let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
    Some(format!("\n{}:\n```\n{text}{end}```\n", file.display()))
}

/// Reads a file that is short enough to be shown. Returns `None` for other file types.
pub(crate) fn read_text(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > MAX_FILE {
        return None;
    }
    let text = String::from_utf8(base::files::read(path).ok()?).ok()?;
    (!text.contains('\0')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_files_come_first_and_excess_files_are_omitted() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.py"), "A = 1\n").unwrap();
        fs::write(dir.path().join("zebra.py"), "Z = 1\n").unwrap();
        fs::write(dir.path().join("long.txt"), "x".repeat(5_000)).unwrap();
        fs::write(dir.path().join("image.png"), [0, 159, 146, 150]).unwrap();
        let text = with_files("Mend zebra.py.", dir.path(), 1_000);
        assert!(text.starts_with("Mend zebra.py.\n\nFiles in the directory:\na.py\n"), "{text}");
        assert!(text.find("Z = 1").unwrap() < text.find("A = 1").unwrap());
        assert!(!text.contains("xxx") && text.contains("image.png"));
    }

    #[test]
    fn in_a_large_tree_only_named_and_mentioned_files_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..60 {
            fs::write(dir.path().join(format!("f{n}.txt")), format!("text {n}\n")).unwrap();
        }
        fs::write(dir.path().join("calc.py"), "C = 1\n").unwrap();
        fs::write(dir.path().join("test_calc.py"), "T = 1\n").unwrap();
        let text = with_files("Look at ./calc.py", dir.path(), 10_000);
        assert!(text.contains("C = 1") && text.contains("T = 1"), "{text}");
        assert!(!text.contains("text 1\n") && !text.contains("Files in the directory"));
    }

    #[test]
    fn missing_named_files_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let text = with_files("Write do.py, save its output in out.txt.", dir.path(), 100);
        assert!(
            text.contains("\n\ndo.py does not exist yet: first create it with write_file.\n"),
            "{text}"
        );
        fs::write(dir.path().join("do.py"), "").unwrap();
        fs::write(dir.path().join("out.txt"), "").unwrap();
        let text = with_files("Write do.py, save its output in out.txt.", dir.path(), 100);
        assert!(!text.contains("does not exist"), "{text}");
        assert!(text.contains("Good to know:\n- To keep what a program prints"), "{text}");
    }

    #[test]
    fn partial_names_do_not_match() {
        assert!(has_word("see a.py, please", "a.py"));
        assert!(!has_word("see data.py", "a.py") && !has_word("a.pyc", "a.py"));
    }
}
