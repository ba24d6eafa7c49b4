//! Discards sessions. Deletes nothing: directories are renamed into the trash, commits are kept by
//! refs, and `undo` restores everything byte for byte.

use std::path::PathBuf;

use base::failure::Result;

use crate::oplog::{DirectoryMove, Intent, OperationKind, OperationLog};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::transaction::{self};
use crate::{moved_repository, names, worktree};

/// The steps of discarding a session.
pub(crate) struct DropPlan {
    /// Refs that keep its commits.
    pub keep: Vec<RefChange>,
    /// Renames of its directories.
    pub moves: Vec<DirectoryMove>,
    /// Refs that are deleted.
    pub drop: Vec<RefChange>,
}

/// Discards sessions in one operation and returns its id. Missing parts (an agent deleted its
/// worktree) are skipped.
pub fn discard(repository: &Repository, places: &[SessionRepo], time: &str) -> Result<String> {
    let mut log = OperationLog::open(repository)?;
    transaction::recover_with(repository, &mut log)?;
    let operation = log.next_id();
    let mut intent = Intent::new(operation.clone(), time, OperationKind::Discard, places.to_vec());
    for place in places {
        let dropping = dropping(repository, place, &operation)?;
        intent.refs_first.extend(dropping.keep);
        intent.moves.extend(dropping.moves);
        intent.refs_last.extend(dropping.drop);
    }
    transaction::carry_out(repository, &mut log, &intent)?;
    Ok(operation)
}

/// Returns the prefix of the refs that keep what an operation discarded.
pub(crate) fn kept_prefix(operation: &str) -> String {
    format!("refs/studio/kept/{operation}/")
}

/// Returns whether everything that an operation discarded can be restored. An operation that moved
/// no directory (of a session that never had any) has nothing in the trash, and can always be
/// undone.
pub fn is_kept(repository: &Repository, operation: &Intent) -> bool {
    operation.moves.iter().all(|moving| !is_lost(repository, operation, moving))
}

/// Returns whether a part that an operation moved is lost. A missing registration or worktree does
/// not count: snapshots and commits contain the work.
pub(crate) fn is_lost(repository: &Repository, operation: &Intent, moving: &DirectoryMove) -> bool {
    moving.to.symlink_metadata().is_err()
        && !is_registration(repository, moving)
        && !is_made_anew(operation, moving)
}

pub(crate) fn is_registration(repository: &Repository, moving: &DirectoryMove) -> bool {
    moving.from.starts_with(repository.common_dir.join("worktrees"))
}

/// Returns the directory in the trash for the private parts of an operation.
pub fn private_trash(repository: &Repository, operation: &str) -> PathBuf {
    repository.common_dir.join("studio/trash").join(operation)
}

/// Plans the discarding of a session: its branch is kept under another name; its worktree, private
/// git directory and registration are renamed, each within its file system.
pub(crate) fn dropping(
    repository: &Repository,
    place: &SessionRepo,
    operation: &str,
) -> Result<DropPlan> {
    moved_repository::refuse_another(place)?;
    let repo = repository.open()?;
    let branch = place.branch.full();
    let tip = refs::read(&repo, &branch)?;
    let kept = format!("{}{}/branch", kept_prefix(operation), place.id);
    let admin = worktree::registration_of(repository, place)?;
    let private = private_trash(repository, operation).join(place.id.as_str());
    let beside = place.worktree.parent().unwrap_or(&place.worktree);
    let trash = names::trash_of(repository, beside);
    worktree::refuse_symlink(&trash)?;
    let worktree_trash = trash.join(operation).join(place.id.as_str());
    let mut moves = vec![
        DirectoryMove { from: place.worktree.clone(), to: worktree_trash },
        DirectoryMove { from: place.git_dir.clone(), to: private.join("git") },
    ];
    if let Some(admin) = admin {
        moves.push(DirectoryMove { from: admin, to: private.join("admin") });
    }
    moves.retain(|moving| moving.from.symlink_metadata().is_ok());
    Ok(DropPlan {
        keep: vec![RefChange::new(kept, None, tip.clone())],
        moves,
        drop: vec![RefChange::new(branch, tip, None)],
    })
}

/// Returns whether a directory is a worktree whose git directory still is in the trash, so that it
/// can be recreated.
fn is_made_anew(undone: &Intent, moving: &DirectoryMove) -> bool {
    let place = undone.sessions.iter().find(|place| place.worktree == moving.from);
    let private =
        |place: &SessionRepo| undone.moves.iter().find(|other| other.from == place.git_dir);
    place.and_then(private).is_some_and(|private| private.to.symlink_metadata().is_ok())
}
