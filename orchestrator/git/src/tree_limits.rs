//! Rejects trees that no file system or memory can hold: an agent can write them as objects without
//! creating the files.

use std::collections::BTreeMap;

use base::failure::{Failure, OrFail, Result};

use crate::refs;

/// Maximum length of a file name on Linux and macOS.
const MAX_NAME_BYTES: usize = 255;
/// Maximum length of a path that a program can open.
const MAX_PATH_BYTES: usize = 4095;
/// Maximum depth of a tree; in a path of one-letter names, half of the bytes are directories.
const MAX_DEPTH: usize = MAX_PATH_BYTES / 2;
/// Maximum number of files in a tree, unless the target has many itself.
const MAX_FILES: u64 = 2_000_000;
/// Maximum ratio of files in the merged work to files in the target.
const MAX_GROWTH: u64 = 4;
/// Number of files that can be added to any target: below [`MAX_FILES`] to a small one, below
/// [`MAX_GROWTH`] to a large one.
const MAX_ADDED_FILES: u64 = MAX_FILES / 2;

/// Refuses (3) a commit whose tree cannot be checked out, or that expands to unreasonably many
/// files, compared with `target`. Every directory is read once, however often the tree refers to
/// it; directories that the target has too are not read.
pub fn refuse(repo: &git2::Repository, commits: &[&str], target: &git2::Tree<'_>) -> Result<()> {
    let mut walk = Walk { repo, sizes: BTreeMap::new() };
    if commits.iter().all(|commit| walk.adds_little(commit, target.id())) {
        return Ok(());
    }
    let max_files = match walk.measure(target.id(), 0) {
        Ok(size) => MAX_FILES.max(size.files.saturating_mul(MAX_GROWTH)),
        // The target is the user's own: it is never a reason to refuse the work.
        Err(_) => MAX_FILES,
    };
    commits.iter().try_for_each(|commit| walk.refuse(commit, max_files))
}

/// The size of a tree with everything below it.
#[derive(Clone, Copy, Default)]
struct Size {
    files: u64,
    max_path_bytes: usize,
}

impl Size {
    /// Adds an entry of a directory, with everything below it.
    fn add(&mut self, name: &[u8], below: Size) {
        self.files = self.files.saturating_add(below.files);
        let separator_bytes = usize::from(below.max_path_bytes > 0);
        let path_bytes = name.len() + separator_bytes + below.max_path_bytes;
        self.max_path_bytes = self.max_path_bytes.max(path_bytes);
    }
}

/// The size of a file.
const ONE_FILE: Size = Size { files: 1, max_path_bytes: 0 };

struct Walk<'a> {
    repo: &'a git2::Repository,
    sizes: BTreeMap<git2::Oid, Size>,
}

impl Walk<'_> {
    fn refuse(&mut self, commit: &str, max_files: u64) -> Result<()> {
        let tree = self
            .repo
            .find_commit(refs::oid(commit)?)
            .map(|commit| commit.tree_id())
            .or_fail(|| "cannot read the session's work")?;
        let problem = match self.measure(tree, 0) {
            Err(problem) => problem,
            Ok(size) if size.files > max_files => {
                format!("it expands to {} files; the most is {max_files}", size.files)
            }
            Ok(size) if size.max_path_bytes > MAX_PATH_BYTES => {
                format!("a path has {} bytes; the most is {MAX_PATH_BYTES}", size.max_path_bytes)
            }
            Ok(_) => return Ok(()),
        };
        Err(Failure::refused("the session's work cannot be checked out")
            .because(format!("{problem}, in commit {}", base::text::head(commit, 12)))
            .hint("undo that commit in the session's worktree, e.g. `git reset --hard HEAD~1`"))
    }

    /// Returns whether a commit can be checked out wherever the target can.
    fn adds_little(&mut self, commit: &str, target: git2::Oid) -> bool {
        let commit = refs::oid(commit).ok().and_then(|id| self.repo.find_commit(id).ok());
        let added = commit.and_then(|commit| self.measure_added(commit.tree_id(), target, 0));
        added.is_some_and(|it| it.files <= MAX_ADDED_FILES && it.max_path_bytes <= MAX_PATH_BYTES)
    }

    /// Measures what differs from the target in a tree; `None` if something is wrong with it.
    fn measure_added(&mut self, id: git2::Oid, target: git2::Oid, depth: usize) -> Option<Size> {
        let mut added = Size::default();
        if id == target {
            return Some(added);
        }
        if depth > MAX_DEPTH {
            return None;
        }
        let (tree, target) = (self.repo.find_tree(id).ok()?, self.repo.find_tree(target).ok()?);
        for entry in &tree {
            let name = entry.name_bytes();
            let is_tree = entry.kind() == Some(git2::ObjectType::Tree);
            let counterpart = target.get_name_bytes(name).filter(|it| it.kind() == entry.kind());
            let below = match counterpart {
                Some(counterpart) if counterpart.id() == entry.id() => continue,
                _ if name.len() > MAX_NAME_BYTES => return None,
                _ if !is_tree => ONE_FILE,
                Some(counterpart) => self.measure_added(entry.id(), counterpart.id(), depth + 1)?,
                None => self.measure(entry.id(), depth + 1).ok()?,
            };
            added.add(name, below);
        }
        Some(added)
    }

    /// Measures a tree; the error describes what is wrong with it.
    fn measure(&mut self, id: git2::Oid, depth: usize) -> std::result::Result<Size, String> {
        if let Some(size) = self.sizes.get(&id) {
            return Ok(*size);
        }
        if depth > MAX_DEPTH {
            return Err(format!("its directories are nested more than {MAX_DEPTH} deep"));
        }
        let tree = self.repo.find_tree(id).map_err(|error| error.message().to_owned())?;
        let mut size = Size::default();
        for entry in &tree {
            let name = entry.name_bytes();
            if name.len() > MAX_NAME_BYTES {
                let excerpt = String::from_utf8_lossy(&name[..32]);
                let excerpt = base::text::printable(&excerpt);
                let bytes = name.len();
                return Err(format!(
                    "the name `{excerpt}…` has {bytes} bytes; the most is {MAX_NAME_BYTES}"
                ));
            }
            let subtree = match entry.kind() {
                Some(git2::ObjectType::Tree) => self.measure(entry.id(), depth + 1)?,
                _ => ONE_FILE,
            };
            size.add(name, subtree);
        }
        self.sizes.insert(id, size);
        Ok(size)
    }
}
