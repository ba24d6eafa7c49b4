//! The files that check lines name, and those that these scripts name.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use studio_git::entry_mode;

/// Maximum size of a script that is read, in bytes.
const MAX_SCRIPT_BYTES: usize = 256 << 10;
/// Maximum number of files that are followed.
const MAX_FILES: usize = 500;
/// How many scripts lie between a check line and a file at most.
const MAX_DEPTH: u32 = 4;

/// Extensions of scripts.
const SCRIPTS: &[&str] = &[
    "bash", "bats", "cjs", "fish", "js", "lua", "mjs", "pl", "ps1", "py", "rb", "sh", "ts", "zsh",
];
/// Extensions of sources: a script that names one builds or checks it.
const SOURCES: &[&str] = &[
    "c", "cc", "cpp", "cs", "css", "cxx", "go", "h", "hpp", "hs", "html", "java", "jsx", "kt", "m",
    "md", "ml", "php", "rs", "rst", "scala", "scss", "sql", "swift", "tsx", "vue", "zig",
];
/// Files of task runners, in lower case: what they name is run as well. They list sources, too, so
/// only programs count.
const RUNNERS: &[&str] = &[
    "makefile",
    "gnumakefile",
    "justfile",
    ".justfile",
    "package.json",
    "tox.ini",
    "noxfile.py",
    "taskfile.yml",
    "taskfile.yaml",
    "rakefile",
];

/// The files that check lines name, with the reason for each.
#[derive(Debug, Default)]
pub(super) struct NamedFiles {
    reasons: BTreeMap<PathBuf, String>,
}

/// A text that names files.
struct NamingText {
    text: String,
    /// What it is, in a reason.
    name: String,
    /// The directory that its relative paths may start from, besides the root.
    directory: PathBuf,
    depth: u32,
    only_programs: bool,
}

impl NamedFiles {
    /// Finds the files in the trees before and after a change. Of files that are not programs only
    /// those before the change count: a new one is more likely the result that a check examines.
    pub(super) fn of(
        repo: &git2::Repository,
        old: &git2::Tree<'_>,
        new: &git2::Tree<'_>,
        lines: &[String],
    ) -> NamedFiles {
        let trees = [old, new];
        let mut named = NamedFiles::default();
        let line = |line: &String| NamingText {
            text: line.clone(),
            name: format!("the check `{}`", base::text::head(line, 60)),
            directory: PathBuf::new(),
            depth: 0,
            only_programs: false,
        };
        let mut texts: Vec<NamingText> = lines.iter().map(line).collect();
        for runner in trees.iter().flat_map(|tree| tree.iter()) {
            let name = String::from_utf8_lossy(runner.name_bytes()).into_owned();
            if RUNNERS.contains(&name.to_lowercase().as_str()) {
                let path = PathBuf::from(&name);
                texts.extend(trees.iter().filter_map(|tree| read(repo, tree, &path, 1)));
            }
        }
        while let Some(text) = texts.pop() {
            for path in text.paths() {
                if named.reasons.contains_key(&path) || named.reasons.len() >= MAX_FILES {
                    continue;
                }
                let found = trees.iter().filter_map(|tree| tree.get_path(&path).ok());
                let found: Vec<git2::TreeEntry<'_>> =
                    found.filter(|entry| entry.kind() == Some(git2::ObjectType::Blob)).collect();
                let is_data =
                    !text.only_programs && !is_source(&path) && old.get_path(&path).is_ok();
                let is_wanted = is_data || found.iter().any(|entry| is_program(repo, entry, &path));
                if found.is_empty() || !is_wanted {
                    continue;
                }
                named.reasons.insert(path.clone(), format!("named by {}", text.name));
                if text.depth < MAX_DEPTH {
                    let depth = text.depth + 1;
                    texts.extend(trees.iter().filter_map(|tree| read(repo, tree, &path, depth)));
                }
            }
        }
        named
    }

    /// Returns why a file decides what the checks say.
    pub(super) fn reason(&self, path: &Path) -> Option<String> {
        self.reasons.get(path).cloned()
    }
}

impl NamingText {
    /// Returns the paths in the text, relative to the root of the tree.
    fn paths(&self) -> Vec<PathBuf> {
        let is_separator = |c: char| c.is_whitespace() || "\"'`=,;:()[]{}<>|&$#".contains(c);
        let words = self.text.split(is_separator).filter(|word| !word.is_empty());
        let from = |word: &str| {
            // `$ROOT/check.sh` names a file from a directory that is only known when it runs.
            let word = word.trim_start_matches('/');
            [normalize(Path::new(word)), normalize(&self.directory.join(word))]
        };
        let mut paths: Vec<PathBuf> = words.clone().flat_map(from).flatten().collect();
        // `$(dirname "$0")/lib.sh` leaves `/lib.sh`; `$ROOT/ci/lib.sh` leaves `ROOT/ci/lib.sh`.
        let inner: Vec<PathBuf> = paths.iter().filter_map(|path| without_first(path)).collect();
        paths.extend(inner.iter().filter_map(|path| normalize(&self.directory.join(path))));
        paths.extend(inner);
        // `python -m NAME` prefers a module of the current directory to an installed one.
        let modules = words.clone().zip(words.skip(1)).filter(|(option, _)| *option == "-m");
        for (_, module) in modules {
            let module = module.replace('.', "/");
            let files = ["", "/__init__", "/__main__"].map(|end| format!("{module}{end}.py"));
            paths.extend(files.iter().filter_map(|file| normalize(Path::new(file))));
        }
        paths.sort();
        paths.dedup();
        paths
    }
}

/// Returns a path without its first part.
fn without_first(path: &Path) -> Option<PathBuf> {
    let mut parts = path.components();
    parts.next();
    let rest = parts.as_path();
    (!rest.as_os_str().is_empty()).then(|| rest.to_owned())
}

/// Resolves `.` and `..`; `None` for a path that leaves the tree or that names its root.
fn normalize(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !normal.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!normal.as_os_str().is_empty()).then_some(normal)
}

/// Reads a script or the file of a task runner; `None` for any other file.
fn read(
    repo: &git2::Repository,
    tree: &git2::Tree<'_>,
    path: &Path,
    depth: u32,
) -> Option<NamingText> {
    let entry = tree.get_path(path).ok()?;
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let is_runner = RUNNERS.contains(&name.as_str());
    if !is_runner && !is_program(repo, &entry, path) {
        return None;
    }
    let blob = repo.find_blob(entry.id()).ok()?;
    if blob.size() > MAX_SCRIPT_BYTES || blob.is_binary() {
        return None;
    }
    Some(NamingText {
        text: String::from_utf8_lossy(blob.content()).into_owned(),
        name: format!("`{}`", path.display()),
        directory: path.parent().unwrap_or(Path::new("")).to_owned(),
        depth,
        only_programs: is_runner,
    })
}

/// Returns whether a file is a source by its extension.
fn is_source(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    SOURCES.contains(&extension.as_str())
}

/// Returns whether a file of a tree is a program: executable, or a script by its extension or its
/// first bytes.
fn is_program(repo: &git2::Repository, entry: &git2::TreeEntry<'_>, path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    entry.filemode().cast_unsigned() == entry_mode::EXECUTABLE
        || SCRIPTS.contains(&extension.as_str())
        || repo.find_blob(entry.id()).is_ok_and(|blob| blob.content().starts_with(b"#!"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use studio_git::index;

    fn reasons(files: &[(&str, &str)], lines: &[&str]) -> BTreeMap<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let repo = git2::Repository::init_bare(dir.path()).unwrap();
        let mut index = git2::Index::new().unwrap();
        for (path, text) in files {
            let id = repo.blob(text.as_bytes()).unwrap();
            let entry = index::entry(path.as_bytes().to_vec(), id, entry_mode::FILE);
            index.add(&entry).unwrap();
        }
        let tree = repo.find_tree(index.write_tree_to(&repo).unwrap()).unwrap();
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let named = NamedFiles::of(&repo, &tree, &tree, &lines);
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        named.reasons.into_iter().map(|(path, reason)| (text(path), reason)).collect()
    }

    #[test]
    fn scripts_and_what_they_name_decide_and_sources_do_not() {
        let named = reasons(
            &[
                (
                    "ci/check.sh",
                    "#!/bin/sh\n. \"$(dirname \"$0\")/lib.sh\"\ndiff src/main.c want.txt\n",
                ),
                ("ci/lib.sh", "\"$ROOT/tools/run\"\n"),
                ("tools/run", "#!/usr/bin/env python3\n"),
                ("want.txt", "1\n"),
                ("src/main.c", "int main;\n"),
                ("Makefile", "all: src/main.c\n\t./ci/lint.py src/main.c\n"),
                ("ci/lint.py", ""),
                ("README.md", "run ci/other.sh\n"),
                ("ci/other.sh", ""),
                ("pytest.py", ""),
                ("check.py", ""),
            ],
            &["cd . && FOO=1 ./ci/check.sh --fast", "python3 -m pytest -q"],
        );
        let paths: Vec<&str> = named.keys().map(String::as_str).collect();
        assert_eq!(
            paths,
            ["ci/check.sh", "ci/lib.sh", "ci/lint.py", "pytest.py", "tools/run", "want.txt"]
        );
        assert_eq!(named["ci/lib.sh"], "named by `ci/check.sh`");
        assert_eq!(named["ci/lint.py"], "named by `Makefile`");
        assert!(named["ci/check.sh"].starts_with("named by the check `cd . &&"));
    }

    #[test]
    fn scripts_that_name_each_other_and_paths_outside_end() {
        let named = reasons(
            &[("a.sh", "./b.sh ../../etc/passwd /"), ("b.sh", "./a.sh . .. ./")],
            &["sh a.sh ../a.sh /etc/passwd ''"],
        );
        assert_eq!(named.len(), 2);
    }
}
