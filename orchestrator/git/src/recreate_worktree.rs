//! Recreates a deleted worktree of a session: the files of the newest snapshot, on the session's
//! own commits.

use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use base::files::step;
use base::git::Git;

use crate::import;
use crate::repo::Repository;
use crate::safe_open::SafeDir;
use crate::session_repo::{Originals, SessionRepo};
use crate::snapshot::LastSeen;
use crate::{filters, moved_repository, snapshot, sparse, submodules, worktree, worktreeinclude};

/// The prefix of the name of an incomplete worktree; the session's id follows.
const TEMPORARY_PREFIX: &str = ".new-";

/// Removes the remains of an interrupted [`recreate_if_missing`] for these sessions, whose locks the caller
/// holds.
pub fn remove_leftovers(session_repos: &[SessionRepo]) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for temporary in session_repos
        .iter()
        .map(temporary_path)
        .filter(|temporary| temporary.symlink_metadata().is_ok())
    {
        std::fs::remove_dir_all(&temporary).or_fail(cannot)?;
        removed.push(format!("removed the incomplete {}", temporary.display()));
    }
    Ok(removed)
}

/// Returns the directory in which a session's worktree is created before it is renamed to its final
/// path.
fn temporary_path(session_repo: &SessionRepo) -> PathBuf {
    session_repo.worktree.with_file_name(format!("{TEMPORARY_PREFIX}{}", session_repo.id))
}

/// Whether a worktree was recreated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recreated {
    /// It exists.
    No,
    /// It was missing.
    Yes {
        /// A note for the user.
        note: Option<String>,
    },
}

/// Recreates the worktree of a session if it is missing, and registers it if it is not registered,
/// after a prune or a crash between the two. Ignored files are lost, except those that
/// `.worktreeinclude` names.
pub fn recreate_if_missing(
    repository: &Repository,
    session_repo: &SessionRepo,
) -> Result<Recreated> {
    if !worktree::is_finished(session_repo) {
        return Ok(Recreated::No);
    }
    if session_repo.worktree.symlink_metadata().is_ok() {
        moved_repository::refuse_foreign(session_repo)?;
        moved_repository::repair(repository, session_repo)?;
        submodules::repair(session_repo)?;
        return Ok(Recreated::No);
    }
    let imported = import::import(repository, session_repo)?;
    let head = || imported.head.clone();
    let (work, staged, note) =
        match snapshot::last_known_state(repository, session_repo, &imported)? {
            LastSeen::Committed => (head(), head(), None),
            LastSeen::Snapshot { work, staged, .. } => (work, staged.unwrap_or_else(head), None),
            LastSeen::Older { name } => {
                (head(), head(), Some(unused_snapshot_note(session_repo, &name)))
            }
        };
    let parent = session_repo.worktree.parent().unwrap_or(&session_repo.worktree);
    std::fs::create_dir_all(parent).or_fail(cannot)?;
    // Created beside its path and renamed: an incomplete worktree would look like one with deleted
    // files.
    let temporary = temporary_path(session_repo);
    let _ = std::fs::remove_dir_all(&temporary);
    std::fs::create_dir(&temporary).or_fail(cannot)?;
    let fill_result = fill(session_repo, &temporary, &work, &staged).and_then(|()| {
        submodules::recreate(repository, session_repo, &temporary)?;
        match &repository.main_checkout {
            Some(checkout) => worktreeinclude::ignore(
                session_repo,
                &worktreeinclude::copy(checkout, &temporary)?.copied,
            ),
            None => Ok(()),
        }
    });
    if let Err(failure) = fill_result {
        let _ = std::fs::remove_dir_all(&temporary);
        return Err(failure);
    }
    step("remake.filled");
    std::fs::rename(&temporary, &session_repo.worktree).or_fail(cannot)?;
    base::files::sync_dir(parent).or_fail(cannot)?;
    step("remake.renamed");
    moved_repository::repair(repository, session_repo)?;
    Ok(Recreated::Yes { note })
}

fn unused_snapshot_note(session_repo: &SessionRepo, snapshot: &str) -> String {
    format!(
        "the worktree was recreated from the last commit; {snapshot} is older and was not \
         used: git diff {} {snapshot} shows the difference",
        session_repo.branch
    )
}

/// Writes files, index and `.git` file.
fn fill(session_repo: &SessionRepo, temporary: &Path, work: &str, staged: &str) -> Result<()> {
    let git_dir = SafeDir::open(&session_repo.git_dir).or_fail(cannot)?;
    for name in ["index", "index.lock"] {
        git_dir.remove_all(name).or_fail(cannot)?;
    }
    let git = Git::at(&session_repo.git_dir).with_work_tree(temporary);
    sparse::read_trees(&git, work, staged, || {
        filters::smudge_files(&session_repo.git_dir, temporary, &session_repo.git_dir.join("index"))
    })?;
    let pointer = Originals::load(&session_repo.git_dir)?.pointer;
    base::files::replace_with_mode(&temporary.join(".git"), &pointer, 0o644).or_fail(cannot)
}

fn cannot() -> &'static str {
    "cannot recreate the worktree"
}
