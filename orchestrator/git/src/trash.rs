//! Discards sessions, and restores them byte for byte. Deletes nothing: directories are renamed,
//! commits are kept by refs.

use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use serde::{Deserialize, Serialize};

use crate::oplog::{DirectoryMove, Intent, OperationKind, OperationLog, TargetUpdate};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::transaction::{self, TransactionResult};
use crate::{checkout, moved_repository, names, worktree};

/// The steps of discarding a session.
pub(crate) struct DropPlan {
    /// Refs that keep its commits.
    pub keep: Vec<RefChange>,
    /// Renames of its directories.
    pub moves: Vec<DirectoryMove>,
    /// Refs that are deleted.
    pub drop: Vec<RefChange>,
}

/// The result of an undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoResult {
    /// The undo operation.
    pub operation: String,
    /// The operation that was undone.
    pub undone: String,
    /// The kind of the undone operation.
    pub kind: OperationKind,
    /// The restored sessions.
    pub sessions: Vec<SessionRepo>,
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

/// Undoes an operation; without an id, the last one that can be undone. An accept can be undone
/// while the target is still at the landed commit; otherwise the refusal (3) has the `git revert`
/// command. After that, the undo restores the session and does not change the target.
pub fn undo(repository: &Repository, id: Option<&str>, time: &str) -> Result<UndoResult> {
    let mut log = OperationLog::open(repository)?;
    transaction::recover_with(repository, &mut log)?;
    let undone = log.to_undo(id, |intent| is_kept(repository, intent))?;
    let operation = log.next_id();
    let landing = match &undone.landing {
        Some(landing) if is_reverted(repository, landing)? => None,
        Some(landing) => Some(back(repository, landing)?),
        None => None,
    };
    refuse_blocked(repository, &undone)?;
    let mut refs_first: Vec<RefChange> = undone.refs_last.iter().map(RefChange::reversed).collect();
    // The ref that kept the work during landing is not needed again.
    refs_first.retain(|change| !change.name.starts_with("refs/studio/landing/"));
    if let Some(landing) = &undone.landing {
        let name = format!("{}landed", kept_prefix(&operation));
        refs_first.push(RefChange::new(name, None, Some(landing.after.clone())));
    }
    let intent = Intent {
        undoes: Some(undone.id.clone()),
        landing,
        refs_first,
        moves: moves_back(repository, &undone),
        refs_last: undone.refs_first.iter().map(RefChange::reversed).collect(),
        ..Intent::new(operation.clone(), time, OperationKind::Undo, undone.sessions.clone())
    };
    match transaction::carry_out(repository, &mut log, &intent)? {
        TransactionResult::Yes => Ok(UndoResult {
            operation,
            undone: undone.id,
            kind: undone.kind,
            sessions: undone.sessions,
        }),
        TransactionResult::TargetMoved(found) => {
            let landing = undone.landing.as_ref().expect("only a landing has a target");
            Err(moved_on(repository, landing, found))
        }
    }
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
fn is_lost(repository: &Repository, operation: &Intent, moving: &DirectoryMove) -> bool {
    moving.to.symlink_metadata().is_err()
        && !is_registration(repository, moving)
        && !is_made_anew(operation, moving)
}

fn is_registration(repository: &Repository, moving: &DirectoryMove) -> bool {
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

/// Returns whether the target contains the landed commit and none of its changes: it was reverted.
/// Then an undo restores the session and does not change the target.
fn is_reverted(repository: &Repository, landing: &TargetUpdate) -> Result<bool> {
    let cannot = || "cannot compare the target with what landed";
    let Some(tip) = repository.tip(&landing.target)? else { return Ok(false) };
    let repo = repository.open()?;
    let (id, after) = (refs::oid(&tip)?, refs::oid(&landing.after)?);
    if tip == landing.after || !repo.graph_descendant_of(id, after).or_fail(cannot)? {
        return Ok(false);
    }
    let tree = checkout::tree_of(&repo, &tip)?;
    let held = |path: &Path| {
        let entry = tree.get_path(path).ok()?;
        Some(checkout::FileEntry { id: entry.id(), mode: u32::try_from(entry.filemode()).ok()? })
    };
    let changes = checkout::changes(&repo, &landing.before, &landing.after)?;
    Ok(changes.iter().all(|change| held(&change.path) == change.before))
}

/// Returns the reverse of a landing, for the current checkouts.
fn back(repository: &Repository, landing: &TargetUpdate) -> Result<TargetUpdate> {
    let tip = repository.tip(&landing.target)?;
    if tip.as_deref() != Some(landing.after.as_str()) {
        return Err(moved_on(repository, landing, tip));
    }
    Ok(TargetUpdate {
        target: landing.target.clone(),
        before: landing.after.clone(),
        after: landing.before.clone(),
        checkouts: checkout::of_branch(repository, &landing.target)?,
    })
}

fn moved_on(repository: &Repository, landing: &TargetUpdate, found: Option<String>) -> Failure {
    let parents = repository
        .open()
        .ok()
        .and_then(|repo| {
            let id = git2::Oid::from_str(&landing.after).ok()?;
            Some(repo.find_commit(id).ok()?.parent_ids().collect::<Vec<_>>())
        })
        .unwrap_or_default();
    let (before, after) = (&landing.before, &landing.after);
    let revert = match parents.as_slice() {
        [only] if only.to_string() == *before => format!("git revert {after}"),
        [_, _, ..] => format!("git revert -m 1 {after}"),
        _ => format!("git revert {before}..{after}"),
    };
    let found = found.unwrap_or_else(|| "nothing".to_owned());
    Failure::refused(format!("`{}` has changed since the work landed", landing.target))
        .because(format!("it is at {found}, not at {after}"))
        .hint(revert)
}

/// Refuses if a part cannot be restored because its path is taken, or because its trash was
/// deleted.
fn refuse_blocked(repository: &Repository, undone: &Intent) -> Result<()> {
    for moving in &undone.moves {
        if is_lost(repository, undone, moving) {
            return Err(Failure::refused(format!("`{}` cannot be undone", undone.id))
                .because(format!("{} was deleted by `studio gc`", moving.to.display()))
                .hint(format!(
                    "its commits may still exist: git log {}…",
                    kept_prefix(&undone.id)
                )));
        }
        if !is_registration(repository, moving) && moving.from.symlink_metadata().is_ok() {
            return Err(Failure::refused(format!("`{}` cannot be undone", undone.id))
                .because(format!("{} exists again", moving.from.display()))
                .hint("move it away, then try again"));
        }
    }
    Ok(())
}

/// Returns whether a directory is a worktree whose git directory still is in the trash, so that it
/// can be recreated.
fn is_made_anew(undone: &Intent, moving: &DirectoryMove) -> bool {
    let place = undone.sessions.iter().find(|place| place.worktree == moving.from);
    let private =
        |place: &SessionRepo| undone.moves.iter().find(|other| other.from == place.git_dir);
    place.and_then(private).is_some_and(|private| private.to.symlink_metadata().is_ok())
}

/// Returns the reverse moves. A registration whose name is taken gets another one.
fn moves_back(repository: &Repository, undone: &Intent) -> Vec<DirectoryMove> {
    let registrations = repository.common_dir.join("worktrees");
    let reversed = undone.moves.iter().rev().map(|moving| {
        let mut to = moving.from.clone();
        if to.starts_with(&registrations) && to.symlink_metadata().is_ok() {
            let id = undone.sessions.iter().find(|place| is_of(place, &moving.to));
            to = id.map_or(to, |place| worktree::free_admin_dir(repository, &place.id));
        }
        DirectoryMove { from: moving.to.clone(), to }
    });
    reversed.collect()
}

/// Returns whether a path in the trash belongs to a session.
fn is_of(place: &SessionRepo, path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|name| name == place.id.as_str())
}
