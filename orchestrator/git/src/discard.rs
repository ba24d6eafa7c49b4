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
/// worktree) are skipped. Refuses (3) a session that has ended.
pub fn discard(
    repository: &Repository,
    session_repos: &[SessionRepo],
    time: &str,
) -> Result<String> {
    discard_if(repository, session_repos, time, |log| log.refuse_ended(session_repos))
}

/// Like [`discard`], for what is left of sessions without a record, which may have ended.
pub fn discard_orphans(
    repository: &Repository,
    session_repos: &[SessionRepo],
    time: &str,
) -> Result<String> {
    discard_if(repository, session_repos, time, |_| Ok(()))
}

/// Discards sessions unless the log, after the recovery, says otherwise.
fn discard_if(
    repository: &Repository,
    session_repos: &[SessionRepo],
    time: &str,
    check: impl FnOnce(&OperationLog) -> Result<()>,
) -> Result<String> {
    let mut log = OperationLog::open(repository)?;
    transaction::recover_with(repository, &mut log)?;
    check(&log)?;
    let operation = log.next_id();
    let mut intent =
        Intent::new(operation.clone(), time, OperationKind::Discard, session_repos.to_vec());
    for session_repo in session_repos {
        let plan = plan_drop(repository, session_repo, &operation)?;
        intent.refs_first.extend(plan.keep);
        intent.moves.extend(plan.moves);
        intent.refs_last.extend(plan.drop);
    }
    transaction::execute(repository, &mut log, &intent)?;
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
    operation.moves.iter().all(|directory_move| !is_lost(repository, operation, directory_move))
}

/// Returns whether a part that an operation moved is lost. A missing registration or worktree does
/// not count: snapshots and commits contain the work.
pub(crate) fn is_lost(
    repository: &Repository,
    operation: &Intent,
    directory_move: &DirectoryMove,
) -> bool {
    directory_move.to.symlink_metadata().is_err()
        && !is_registration(repository, directory_move)
        && !can_recreate(operation, directory_move)
}

pub(crate) fn is_registration(repository: &Repository, directory_move: &DirectoryMove) -> bool {
    directory_move.from.starts_with(repository.common_dir.join("worktrees"))
}

/// Returns the directory in the trash for the private parts of an operation.
pub fn private_trash(repository: &Repository, operation: &str) -> PathBuf {
    repository.common_dir.join("studio/trash").join(operation)
}

/// Plans the discarding of a session: its branch is kept under another name; its worktree, private
/// git directory and registration are renamed, each within its file system.
pub(crate) fn plan_drop(
    repository: &Repository,
    session_repo: &SessionRepo,
    operation: &str,
) -> Result<DropPlan> {
    moved_repository::refuse_foreign(session_repo)?;
    let repo = repository.open()?;
    let branch = session_repo.branch.full();
    let tip = refs::read(&repo, &branch)?;
    let kept_ref = format!("{}{}/branch", kept_prefix(operation), session_repo.id);
    let admin_dir = worktree::registration_of(repository, session_repo)?;
    let private_dir = private_trash(repository, operation).join(session_repo.id.as_str());
    let parent = session_repo.worktree.parent().unwrap_or(&session_repo.worktree);
    let trash = names::trash_of(repository, parent);
    worktree::refuse_symlink(&trash)?;
    let worktree_trash = trash.join(operation).join(session_repo.id.as_str());
    let mut moves = vec![
        DirectoryMove { from: session_repo.worktree.clone(), to: worktree_trash },
        DirectoryMove { from: session_repo.git_dir.clone(), to: private_dir.join("git") },
    ];
    if let Some(admin_dir) = admin_dir {
        moves.push(DirectoryMove { from: admin_dir, to: private_dir.join("admin") });
    }
    moves.retain(|directory_move| directory_move.from.symlink_metadata().is_ok());
    Ok(DropPlan {
        keep: vec![RefChange::new(kept_ref, None, tip.clone())],
        moves,
        drop: vec![RefChange::new(branch, tip, None)],
    })
}

/// Returns whether a directory is a worktree whose git directory still is in the trash, so that it
/// can be recreated.
fn can_recreate(undone: &Intent, directory_move: &DirectoryMove) -> bool {
    let session_repo =
        undone.sessions.iter().find(|session_repo| session_repo.worktree == directory_move.from);
    let git_dir_move =
        |place: &SessionRepo| undone.moves.iter().find(|candidate| candidate.from == place.git_dir);
    session_repo
        .and_then(git_dir_move)
        .is_some_and(|directory_move| directory_move.to.symlink_metadata().is_ok())
}
