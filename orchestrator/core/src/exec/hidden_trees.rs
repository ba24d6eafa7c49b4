//! What of a repository a session cannot see: the main checkout and every other worktree. A program
//! that searches the directories above its own finds nothing there that is not in the session.

use std::path::{Path, PathBuf};

use studio_git::repo::Repository;
use studio_git::session_repo::SessionRepo;
use studio_git::{check_worktree, names, worktree};

/// Directories without which no program runs. A repository that contains one stays readable.
const NEEDED: &[&str] =
    &["/usr/bin", "/usr/lib", "/usr/local/bin", "/bin", "/lib", "/etc", "/dev", "/proc", "/sys"];

/// Returns the trees that are closed for the processes of a session or of a check.
pub(crate) fn closed(repository: &Repository, place: &SessionRepo, home: &Path) -> Vec<PathBuf> {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let can_close = |tree: &Path| {
        !home.starts_with(tree) && !NEEDED.iter().any(|needed| Path::new(needed).starts_with(tree))
    };
    let mut trees = vec![repository.common_dir.clone()];
    trees.extend(repository.main_checkout.clone());
    trees.extend(worktrees_around(repository, &place.worktree));
    let admins = worktree::admin_dirs(repository).unwrap_or_default();
    trees.extend(admins.iter().map(|admin| worktree::named_by(admin)));
    trees.extend(check_worktree::all(repository));
    trees.retain(|tree| can_close(tree));
    trees.sort();
    trees.dedup();
    trees
}

/// Returns the directory of this repository's worktrees around one of them, or the trash in a
/// directory that holds other things as well.
fn worktrees_around(repository: &Repository, worktree: &Path) -> Option<PathBuf> {
    let mut directories = worktree.ancestors().skip(1).take(2);
    let own = directories.find(|directory| names::is_for_worktrees(repository, directory));
    match own {
        Some(own) => Some(own.to_owned()),
        None => Some(names::trash_of(repository, worktree.parent()?)),
    }
}
