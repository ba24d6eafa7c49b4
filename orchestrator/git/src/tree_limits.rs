//! Rejects trees that no file system or memory can hold: an agent can write them as objects without
//! creating the files.

use std::collections::HashMap;

use base::failure::{Failure, OrFail, Result};

use crate::refs;

/// Maximum length of a file name on Linux and macOS.
const NAME_BYTES: usize = 255;
/// Maximum length of a path that a program can open.
const PATH_BYTES: usize = 4095;
/// Maximum depth of a tree; in a path of one-letter names, half of the bytes are directories.
const DEPTH: usize = PATH_BYTES / 2;
/// Maximum number of files in a tree, unless the target has many itself.
const FILES: u64 = 2_000_000;
/// Maximum ratio of files in the merged work to files in the target.
const GROWTH: u64 = 4;

/// Refuses (3) a commit whose tree cannot be checked out, or that expands to unreasonably many
/// files, compared with `target`. Every directory is read once, however often the tree refers to
/// it.
pub fn refuse(repo: &git2::Repository, commit: &str, target: &git2::Tree<'_>) -> Result<()> {
    let mut walk = Walk { repo, known: HashMap::new() };
    let allowed = match walk.measure(target.id(), 0) {
        Ok(size) => FILES.max(size.files.saturating_mul(GROWTH)),
        // The target is the user's own: it is never a reason to refuse the work.
        Err(_) => FILES,
    };
    let tree = repo
        .find_commit(refs::oid(commit)?)
        .map(|commit| commit.tree_id())
        .or_fail(|| "cannot read the session's work")?;
    let problem = match walk.measure(tree, 0) {
        Err(problem) => problem,
        Ok(size) if size.files > allowed => {
            format!("it expands to {} files; the most is {allowed}", size.files)
        }
        Ok(size) if size.longest > PATH_BYTES => {
            format!("a path has {} bytes; the most is {PATH_BYTES}", size.longest)
        }
        Ok(_) => return Ok(()),
    };
    Err(Failure::refused("the session's work cannot be checked out")
        .because(format!("{problem}, in commit {}", base::text::head(commit, 12)))
        .hint("undo that commit in the session's worktree, e.g. `git reset --hard HEAD~1`"))
}

/// The size of a tree with everything below it.
#[derive(Clone, Copy, Default)]
struct Size {
    files: u64,
    longest: usize,
}

struct Walk<'a> {
    repo: &'a git2::Repository,
    known: HashMap<git2::Oid, Size>,
}

impl Walk<'_> {
    /// Measures a tree; the error describes what is wrong with it.
    fn measure(&mut self, id: git2::Oid, depth: usize) -> std::result::Result<Size, String> {
        if let Some(size) = self.known.get(&id) {
            return Ok(*size);
        }
        if depth > DEPTH {
            return Err(format!("its directories are nested more than {DEPTH} deep"));
        }
        let tree = self.repo.find_tree(id).map_err(|why| why.message().to_owned())?;
        let mut size = Size::default();
        for entry in &tree {
            let name = entry.name_bytes();
            if name.len() > NAME_BYTES {
                let shown = String::from_utf8_lossy(&name[..32]);
                let shown = base::text::printable(&shown);
                let bytes = name.len();
                return Err(format!(
                    "the name `{shown}…` has {bytes} bytes; the most is {NAME_BYTES}"
                ));
            }
            let below = match entry.kind() {
                Some(git2::ObjectType::Tree) => self.measure(entry.id(), depth + 1)?,
                _ => Size { files: 1, longest: 0 },
            };
            size.files = size.files.saturating_add(below.files);
            let slash = usize::from(below.longest > 0);
            size.longest = size.longest.max(name.len() + slash + below.longest);
        }
        self.known.insert(id, size);
        Ok(size)
    }
}
