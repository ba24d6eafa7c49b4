//! Lock files of a git that was killed. Git creates `NAME.lock`, writes to it and renames it; a
//! lock file that stays blocks every later command (git-scm.com/docs/api-lockfile).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use studio_git::repo::Repository;
use studio_git::session_repo::SessionRepo;

use crate::doctor::processes;

/// The minimum age of a lock file without a process: no command of studio holds one as long.
const MIN_AGE: Duration = Duration::from_secs(600);
/// The depth below `refs` to which lock files are searched.
const MAX_DEPTH: u32 = 8;

/// Removes old lock files from the private git directory of a session in which nothing runs; the
/// caller holds its locks. A git of the user in the worktree keeps its own. Returns one sentence
/// for each.
pub(super) fn remove_from_session(session_repo: &SessionRepo) -> Vec<String> {
    let stale = stale_locks(&session_repo.git_dir);
    if stale.is_empty() || processes::runs_in(&session_repo.worktree) {
        return Vec::new();
    }
    let removed = stale.into_iter().filter(|path| fs::remove_file(path).is_ok());
    removed.map(|path| format!("removed the stale {}", path.display())).collect()
}

/// Returns one sentence for each old lock file in the repository itself. A git that waits for an
/// editor holds one as well, so only the user can decide.
pub(super) fn of_repository(repository: &Repository) -> Vec<String> {
    let stale = stale_locks(&repository.common_dir);
    let sentence = |path: PathBuf| {
        format!(
            "{} is older than {} minutes; if no git runs there: rm '{}'",
            path.display(),
            MIN_AGE.as_secs() / 60,
            path.display()
        )
    };
    stale.into_iter().map(sentence).collect()
}

/// Returns the old lock files directly in a git directory, of its registered worktrees, and of its
/// refs.
fn stale_locks(git_dir: &Path) -> Vec<PathBuf> {
    let mut locks = Vec::new();
    find(git_dir, 0, &mut locks);
    find(&git_dir.join("worktrees"), 2, &mut locks);
    find(&git_dir.join("reftable"), 0, &mut locks);
    find(&git_dir.join("refs"), MAX_DEPTH, &mut locks);
    locks.sort();
    locks
}

fn find(dir: &Path, depth: u32, locks: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if metadata.is_dir() && depth > 0 {
            find(&path, depth - 1, locks);
        } else if metadata.is_file() && path.extension().is_some_and(|it| it == "lock") {
            let age = metadata.modified().ok().and_then(|time| time.elapsed().ok());
            if age.is_some_and(|age| age >= MIN_AGE) {
                locks.push(path);
            }
        }
    }
}
