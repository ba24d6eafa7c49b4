//! Git attributes of a commit. Its `.gitattributes` files decide what its other files contain in a
//! checkout, also while a landing that changes them is half done.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};

use crate::checkout::{self, Checkout, FileChange};
use crate::checkout_update::plain_differing_paths;

/// The name of the files.
const NAME: &str = ".gitattributes";

/// A checkout's repository in which the attributes of a commit apply, and not those of the checkout.
pub(crate) struct CommitAttributes {
    /// The repository: its working tree is an empty directory, its index the tree of the commit.
    pub(crate) repo: git2::Repository,
    directory: tempfile::TempDir,
}

/// Returns whether a change is of an attributes file.
pub(crate) fn is_attributes_file(change: &FileChange) -> bool {
    change.path.file_name().is_some_and(|name| name == NAME)
}

/// Returns whether two commits have the same attributes files.
pub(crate) fn are_same(repo: &git2::Repository, first: &str, second: &str) -> bool {
    first == second
        || checkout::changes(repo, first, second)
            .is_ok_and(|changes| !changes.iter().any(is_attributes_file))
}

/// Divides changes into those that are written first (attributes files, and what is in their way) and
/// the others. Both are in the order of the changes.
pub(crate) fn divide(changes: &[FileChange]) -> (Vec<FileChange>, Vec<FileChange>) {
    let files: Vec<&Path> =
        changes.iter().filter(|it| is_attributes_file(it)).map(|it| it.path.as_path()).collect();
    let is_first = |change: &FileChange| {
        files.iter().any(|file| file.starts_with(&change.path) || change.path.starts_with(file))
    };
    changes.iter().cloned().partition(is_first)
}

/// Makes the attributes of a tree apply in a repository: git looks for them in the working tree, a
/// directory that has none of its own, and then in the index.
pub(crate) fn apply_to(
    repo: &git2::Repository,
    tree: &git2::Tree<'_>,
    directory: &Path,
) -> std::result::Result<(), git2::Error> {
    let mut index = git2::Index::new_ext(repo.object_format())?;
    index.read_tree(tree)?;
    repo.set_workdir(directory, false)?;
    repo.set_index(&mut index)
}

impl CommitAttributes {
    /// Opens the repository of a checkout with the attributes of a commit.
    pub(crate) fn of(checkout: &Checkout, commit: &str) -> Result<CommitAttributes> {
        let repo = checkout::open(checkout)?;
        let parent = repo.commondir().join("studio/scratch");
        let create = || {
            fs::create_dir_all(&parent)?;
            tempfile::Builder::new().prefix("a").tempdir_in(&parent)
        };
        let directory = create().or_fail(|| format!("cannot write in {}", parent.display()))?;
        apply_to(&repo, &checkout::tree_of(&repo, commit)?, directory.path())
            .or_fail(|| "cannot read the attributes of a commit")?;
        Ok(CommitAttributes { repo, directory })
    }

    /// Returns the paths among the changes whose file in a checkout differs from the commit. Compares
    /// copies: git would use the attributes beside the files.
    pub(crate) fn differing_paths(
        &self,
        checkout: &Checkout,
        changes: &[FileChange],
        commit: &str,
    ) -> Result<BTreeSet<PathBuf>> {
        for change in changes {
            if checkout::find_obstacle(&checkout.worktree, &change.path).is_none() {
                let copied = self.copy(&checkout.worktree, &change.path);
                copied.or_fail(|| format!("cannot read {}", change.path.display()))?;
            }
        }
        let differing = plain_differing_paths(&self.repo, changes, commit);
        for change in changes {
            let _ = fs::remove_file(self.directory.path().join(&change.path));
        }
        differing
    }

    fn copy(&self, worktree: &Path, path: &Path) -> std::io::Result<()> {
        let (source, target) = (worktree.join(path), self.directory.path().join(path));
        let Ok(metadata) = source.symlink_metadata() else { return Ok(()) };
        if !metadata.is_symlink() && !metadata.is_file() {
            return Ok(());
        }
        fs::create_dir_all(target.parent().unwrap_or(self.directory.path()))?;
        match metadata.is_symlink() {
            true => std::os::unix::fs::symlink(fs::read_link(&source)?, target),
            false => fs::copy(&source, target).map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkout::FileEntry;
    use crate::entry_mode;

    #[test]
    fn attributes_files_and_what_is_in_their_way_are_written_first() {
        let entry = Some(FileEntry { id: git2::Oid::ZERO_SHA1, mode: entry_mode::FILE });
        let change =
            |path: &str| FileChange { path: PathBuf::from(path), before: None, after: entry };
        let paths = ["!a", ".gitattributes", "d", "d/.gitattributes", "d/e", "dd/f"];
        let changes: Vec<FileChange> = paths.into_iter().map(change).collect();
        let (first, others) = divide(&changes);
        let names = |changes: &[FileChange]| -> Vec<String> {
            changes.iter().map(|it| it.path.display().to_string()).collect()
        };
        assert_eq!(names(&first), [".gitattributes", "d", "d/.gitattributes"]);
        assert_eq!(names(&others), ["!a", "d/e", "dd/f"]);
    }
}
