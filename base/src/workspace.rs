//! The workspace of a working directory: its repository, or only the directory outside of one. A
//! workspace's files for agents (AGENTS.md, notes, skills, personas) are searched for from the
//! working directory up to the workspace's root.

use std::path::{Path, PathBuf};

/// Returns the root of the git work tree that contains a directory; the directory itself outside of
/// one.
pub fn root(cwd: &Path) -> PathBuf {
    let tree = cwd.ancestors().find(|dir| dir.join(".git").exists());
    tree.unwrap_or(cwd).to_owned()
}

/// Returns the directories from the working directory up to the workspace's root, nearest first.
pub fn upward(cwd: &Path) -> Vec<&Path> {
    let root = cwd.ancestors().position(|dir| dir.join(".git").exists()).unwrap_or(0);
    cwd.ancestors().take(root + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_at_the_root_of_the_repository() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("repo/a/b");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!((root(&deep), upward(&deep)), (deep.clone(), vec![deep.as_path()]));
        let repo = dir.path().join("repo");
        std::fs::create_dir(repo.join(".git")).unwrap();
        assert_eq!(root(&deep), repo);
        let a = repo.join("a");
        assert_eq!(upward(&deep), [deep.as_path(), a.as_path(), repo.as_path()]);
    }
}
