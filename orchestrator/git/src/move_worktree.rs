//! Moves worktrees of sessions to another directory: those that an earlier version created inside
//! the main checkout.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};

use crate::oplog::{DirectoryMove, Intent, OperationKind, OperationLog};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::{moved_repository, transaction, worktree};

/// The file in a session's directory with its paths after a move of its worktree.
pub const PATHS_FILE: &str = "place.json";

/// A move of a session's worktree.
#[derive(Clone, Debug)]
pub struct Relocation {
    /// The current paths of the session.
    pub session_repo: SessionRepo,
    /// The new path of its worktree.
    pub new_worktree: PathBuf,
}

/// Moves worktrees in one operation and returns its id. The caller holds the locks of their
/// sessions.
pub fn relocate(repository: &Repository, relocations: &[Relocation], time: &str) -> Result<String> {
    for relocation in relocations {
        refuse(relocation)?;
    }
    let mut log = OperationLog::open(repository)?;
    transaction::recover_with(repository, &mut log)?;
    let new_paths = |it: &Relocation| SessionRepo {
        worktree: it.new_worktree.clone(),
        ..it.session_repo.clone()
    };
    let directory_move = |it: &Relocation| DirectoryMove {
        from: it.session_repo.worktree.clone(),
        to: it.new_worktree.clone(),
    };
    let sessions = relocations.iter().map(new_paths).collect();
    let intent = Intent {
        moves: relocations.iter().map(directory_move).collect(),
        ..Intent::new(log.next_id(), time, OperationKind::Relocate, sessions)
    };
    transaction::execute(repository, &mut log, &intent)?;
    Ok(intent.id)
}

/// Records the new paths of a session and registers its worktree there. Idempotent.
pub(crate) fn record_new_paths(repository: &Repository, session_repo: &SessionRepo) -> Result<()> {
    let file = repository.session_dir(&session_repo.id).join(PATHS_FILE);
    base::files::replace_json(&file, session_repo)
        .or_fail(|| format!("cannot write {}", file.display()))?;
    moved_repository::repair(repository, session_repo).map(drop)
}

/// Refuses (3) worktrees that could not be renamed.
fn refuse(relocation: &Relocation) -> Result<()> {
    let (source, target) = (&relocation.session_repo.worktree, &relocation.new_worktree);
    let message = || format!("cannot move {} to {}", source.display(), target.display());
    moved_repository::refuse_foreign(&relocation.session_repo)?;
    let parent = target.parent().unwrap_or(target);
    worktree::refuse_symlink(parent)?;
    if target.symlink_metadata().is_ok() {
        return Err(Failure::refused(message()).because("that exists"));
    }
    let device_of = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev());
    let existing_parent = parent.ancestors().find(|path| path.exists()).unwrap_or(parent);
    if device_of(source).or_fail(message)? != device_of(existing_parent).or_fail(message)? {
        return Err(Failure::refused(message()).because("they are on different file systems"));
    }
    Ok(())
}
