//! What of a repository a session cannot see: the main checkout and every other worktree. A program
//! that searches the directories above its own finds nothing there that is not in the session.

use std::path::{Path, PathBuf};

use crate::git::names;
use crate::git::private::Place;
use crate::git::repo::Repository;
use crate::git::worktree;

/// Directories without which no program runs. A repository that contains one stays readable.
const NEEDED: &[&str] =
    &["/usr/bin", "/usr/lib", "/usr/local/bin", "/bin", "/lib", "/etc", "/dev", "/proc", "/sys"];

/// The trees that are closed for the processes of a session or of a check.
pub fn closed(repository: &Repository, place: &Place, home: &Path) -> Vec<PathBuf> {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let can_close = |tree: &Path| {
        !home.starts_with(tree) && !NEEDED.iter().any(|needed| Path::new(needed).starts_with(tree))
    };
    let mut trees = vec![repository.common_dir.clone()];
    trees.extend(repository.main_checkout.clone());
    trees
        .extend(place.worktree.parent().filter(|dir| is_ours(repository, dir)).map(Path::to_owned));
    let admins = worktree::admin_dirs(repository).unwrap_or_default();
    trees.extend(admins.iter().map(|admin| worktree::named_by(admin)));
    trees.retain(|tree| can_close(tree));
    trees.sort();
    trees.dedup();
    trees
}

/// Whether a directory holds worktrees of this repository and nothing else: sessions', or those of
/// checks.
fn is_ours(repository: &Repository, directory: &Path) -> bool {
    let mut directories = directory.ancestors().take(2);
    directories.any(|directory| names::is_for_worktrees(repository, directory))
}
