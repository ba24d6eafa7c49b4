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
pub const PLACE: &str = "place.json";

/// A move of a session's worktree.
#[derive(Clone, Debug)]
pub struct Relocation {
    /// The current paths of the session.
    pub place: SessionRepo,
    /// The new path of its worktree.
    pub to: PathBuf,
}

/// Moves worktrees in one operation and returns its id. The caller holds the locks of their
/// sessions.
pub fn relocate(repository: &Repository, wanted: &[Relocation], time: &str) -> Result<String> {
    for relocation in wanted {
        refuse(relocation)?;
    }
    let mut log = OperationLog::open(repository)?;
    transaction::recover_with(repository, &mut log)?;
    let moved = |it: &Relocation| SessionRepo { worktree: it.to.clone(), ..it.place.clone() };
    let renamed =
        |it: &Relocation| DirectoryMove { from: it.place.worktree.clone(), to: it.to.clone() };
    let sessions = wanted.iter().map(moved).collect();
    let intent = Intent {
        moves: wanted.iter().map(renamed).collect(),
        ..Intent::new(log.next_id(), time, OperationKind::Relocate, sessions)
    };
    transaction::carry_out(repository, &mut log, &intent)?;
    Ok(intent.id)
}

/// Records the new paths of a session and registers its worktree there. Idempotent.
pub(crate) fn settle(repository: &Repository, place: &SessionRepo) -> Result<()> {
    let file = repository.session_dir(&place.id).join(PLACE);
    base::files::replace_json(&file, place)
        .or_fail(|| format!("cannot write {}", file.display()))?;
    moved_repository::repair(repository, place).map(drop)
}

/// Refuses (3) worktrees that could not be renamed.
fn refuse(relocation: &Relocation) -> Result<()> {
    let (from, to) = (&relocation.place.worktree, &relocation.to);
    let what = || format!("cannot move {} to {}", from.display(), to.display());
    moved_repository::refuse_another(&relocation.place)?;
    let parent = to.parent().unwrap_or(to);
    worktree::refuse_symlink(parent)?;
    if to.symlink_metadata().is_ok() {
        return Err(Failure::refused(what()).because("that exists"));
    }
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
    let existing = parent.ancestors().find(|path| path.exists()).unwrap_or(parent);
    if device(from).or_fail(what)? != device(existing).or_fail(what)? {
        return Err(Failure::refused(what()).because("they are on different file systems"));
    }
    Ok(())
}
