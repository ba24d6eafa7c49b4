//! The parts of a repository that are hidden from a session: the main checkout and all other
//! worktrees. A program that searches parent directories finds nothing that is not part of the
//! session.

use std::path::{Path, PathBuf};

use studio_git::repo::Repository;
use studio_git::session_repo::SessionRepo;
use studio_git::{check_worktree, names, worktree};

/// Directories that every program needs. A repository that contains one stays readable.
const NEEDED: &[&str] =
    &["/usr/bin", "/usr/lib", "/usr/local/bin", "/bin", "/lib", "/etc", "/dev", "/proc", "/sys"];

/// Returns the trees that are closed to the processes of a session or of a check.
pub(crate) fn hidden_trees(
    repository: &Repository,
    session_repo: &SessionRepo,
    home: &Path,
) -> Vec<PathBuf> {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let mut trees = vec![repository.common_dir.clone()];
    trees.extend(repository.main_checkout.clone());
    trees.extend(worktrees_directory(repository, &session_repo.worktree));
    let admin_dirs = worktree::admin_dirs(repository).unwrap_or_default();
    trees.extend(admin_dirs.iter().map(|admin| worktree::worktree_of(admin)));
    trees.extend(check_worktree::all(repository));
    trees.retain(|tree| can_hide(tree, &home));
    trees.sort();
    trees.dedup();
    trees
}

/// Returns the trees in which agents, checks or the repository's own content can place programs.
pub(crate) fn writable_trees(repository: &Repository, session_repo: &SessionRepo) -> Vec<PathBuf> {
    let mut trees = hidden_trees(repository, session_repo, &super::runner::home());
    trees.push(session_repo.worktree.clone());
    trees
}

/// Returns the trees that are closed to a program in a directory that belongs to no session: the
/// checkouts and worktrees of the repository that do not contain the directory.
pub(crate) fn other_trees(repository: &Repository, directory: &Path, home: &Path) -> Vec<PathBuf> {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let mut trees: Vec<PathBuf> = repository.main_checkout.clone().into_iter().collect();
    let admin_dirs = worktree::admin_dirs(repository).unwrap_or_default();
    trees.extend(admin_dirs.iter().map(|admin| worktree::worktree_of(admin)));
    trees.extend(check_worktree::all(repository));
    trees.retain(|tree| can_hide(tree, &home) && !directory.starts_with(tree));
    trees.sort();
    trees.dedup();
    trees
}

/// Returns whether a tree can be closed without closing what every program needs.
fn can_hide(tree: &Path, home: &Path) -> bool {
    !home.starts_with(tree) && !NEEDED.iter().any(|needed| Path::new(needed).starts_with(tree))
}

/// Returns the directory of this repository's worktrees that contains one of them; in a directory
/// with other contents, only the trash.
pub(super) fn worktrees_directory(repository: &Repository, worktree: &Path) -> Option<PathBuf> {
    let mut directories = worktree.ancestors().skip(1).take(2);
    let worktrees_dir =
        directories.find(|directory| names::is_for_worktrees(repository, directory));
    match worktrees_dir {
        Some(directory) => Some(directory.to_owned()),
        None => Some(names::trash_of(repository, worktree.parent()?)),
    }
}
