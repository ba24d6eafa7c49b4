//! Undoes operations: restores discarded and landed sessions byte for byte.

use std::path::Path;

use base::failure::{Failure, OrFail, Result};
use serde::{Deserialize, Serialize};

use crate::discard::{is_kept, is_lost, is_registration, kept_prefix};
use crate::oplog::{DirectoryMove, Intent, OperationKind, OperationLog, TargetUpdate};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::transaction::{self, TransactionResult};
use crate::trial::{self, ChangedFiles};
use crate::{accepted_hunks, checkout, object_format, worktree};

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

/// Undoes an operation; without an id, the last one that can be undone. An accept can be undone
/// while the target is still at the landed commit; otherwise the refusal (3) has the `git revert`
/// command. After that, the undo restores the session and does not change the target.
pub fn undo(repository: &Repository, id: Option<&str>, time: &str) -> Result<UndoResult> {
    let mut log = OperationLog::open(repository)?;
    transaction::recover_with(repository, &mut log)?;
    let undone = log.find_undoable(id, |intent| is_kept(repository, intent))?;
    if undone.kind == OperationKind::Try {
        let ended = trial::end_with(repository, &mut log, &undone, ChangedFiles::Refuse, time)?;
        return Ok(UndoResult {
            operation: ended.operation,
            undone: undone.id,
            kind: undone.kind,
            sessions: undone.sessions,
        });
    }
    let operation = log.next_id();
    let landing = match &undone.landing {
        Some(landing) if is_reverted(repository, landing)? => None,
        Some(landing) => Some(reverse(repository, landing)?),
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
    let repo = repository.open()?;
    let mut refs_last: Vec<RefChange> = undone.refs_first.iter().map(RefChange::reversed).collect();
    // The base of a session that `studio gc` has deleted since.
    let is_gone = |name: &str| Ok::<bool, Failure>(refs::read(&repo, name)?.is_none());
    if undone.kind == OperationKind::AcceptHunks && is_gone(&hunks_ref(&undone))? {
        refs_last.retain(|change| change.name != hunks_ref(&undone));
    }
    let intent = Intent {
        undoes: Some(undone.id.clone()),
        landing,
        refs_first,
        moves: reverse_moves(repository, &undone),
        refs_last,
        ..Intent::new(operation.clone(), time, OperationKind::Undo, undone.sessions.clone())
    };
    match transaction::execute(repository, &mut log, &intent)? {
        TransactionResult::Yes => Ok(UndoResult {
            operation,
            undone: undone.id,
            kind: undone.kind,
            sessions: undone.sessions,
        }),
        TransactionResult::TargetMoved(tip) => {
            let landing = undone.landing.as_ref().expect("only a landing has a target");
            Err(target_moved_failure(repository, landing, tip))
        }
    }
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
    let current_entry = |path: &Path| {
        let entry = tree.get_path(path).ok()?;
        Some(checkout::FileEntry { id: entry.id(), mode: u32::try_from(entry.filemode()).ok()? })
    };
    let changes = checkout::changes(&repo, &landing.before, &landing.after)?;
    Ok(changes.iter().all(|change| current_entry(&change.path) == change.before))
}

/// Returns the reverse of a landing, for the current checkouts.
fn reverse(repository: &Repository, landing: &TargetUpdate) -> Result<TargetUpdate> {
    let tip = repository.tip(&landing.target)?;
    if tip.as_deref() != Some(landing.after.as_str()) {
        return Err(target_moved_failure(repository, landing, tip));
    }
    let checkouts = checkout::of_branch(repository, &landing.target)?;
    trial::refuse_active(repository, &checkouts)?;
    Ok(TargetUpdate {
        target: landing.target.clone(),
        before: landing.after.clone(),
        after: landing.before.clone(),
        checkouts,
    })
}

fn target_moved_failure(
    repository: &Repository,
    landing: &TargetUpdate,
    tip: Option<String>,
) -> Failure {
    let parents = repository
        .open()
        .ok()
        .and_then(|repo| {
            let id = object_format::parse_id(&landing.after).ok()?;
            Some(repo.find_commit(id).ok()?.parent_ids().collect::<Vec<_>>())
        })
        .unwrap_or_default();
    let (before, after) = (&landing.before, &landing.after);
    let revert = match parents.as_slice() {
        [parent] if parent.to_string() == *before => format!("git revert {after}"),
        [_, _, ..] => format!("git revert -m 1 {after}"),
        _ => format!("git revert {before}..{after}"),
    };
    let tip = tip.unwrap_or_else(|| "nothing".to_owned());
    Failure::refused(format!("`{}` has changed since the work landed", landing.target))
        .because(format!("it is at {tip}, not at {after}"))
        .hint(revert)
}

/// Refuses if a part cannot be restored because its path is taken, or because its trash was
/// deleted.
fn refuse_blocked(repository: &Repository, undone: &Intent) -> Result<()> {
    if undone.kind == OperationKind::AcceptHunks {
        return refuse_later_hunks(repository, undone);
    }
    for directory_move in &undone.moves {
        if is_lost(repository, undone, directory_move) {
            return Err(Failure::refused(format!("`{}` cannot be undone", undone.id))
                .because(format!("{} was deleted by `studio gc`", directory_move.to.display()))
                .hint(format!(
                    "its commits may still exist: git log {}…",
                    kept_prefix(&undone.id)
                )));
        }
        if !is_registration(repository, directory_move)
            && directory_move.from.symlink_metadata().is_ok()
        {
            return Err(Failure::refused(format!("`{}` cannot be undone", undone.id))
                .because(format!("{} exists again", directory_move.from.display()))
                .hint("move it away, then try again"));
        }
    }
    Ok(())
}

/// Returns the ref of the base that a landing of hunks moved.
fn hunks_ref(undone: &Intent) -> String {
    let session = undone.sessions.first();
    session.map(|session_repo| accepted_hunks::ref_name(&session_repo.id)).unwrap_or_default()
}

/// Refuses if further hunks of the session landed since: the session's base is that of the last
/// landing.
fn refuse_later_hunks(repository: &Repository, undone: &Intent) -> Result<()> {
    let repo = repository.open()?;
    let current = refs::read(&repo, &hunks_ref(undone))?;
    for change in &undone.refs_first {
        let is_base = change.name == hunks_ref(undone);
        if is_base && current.is_some() && current != change.after {
            return Err(Failure::refused(format!("`{}` cannot be undone", undone.id))
                .because("further hunks of the session landed since")
                .hint("undo those first: studio operations"));
        }
    }
    Ok(())
}

/// Returns the reverse moves. A registration whose name is taken gets another one.
fn reverse_moves(repository: &Repository, undone: &Intent) -> Vec<DirectoryMove> {
    let registrations = repository.common_dir.join("worktrees");
    let reversed = undone.moves.iter().rev().map(|directory_move| {
        let mut target = directory_move.from.clone();
        if target.starts_with(&registrations) && target.symlink_metadata().is_ok() {
            let id = undone
                .sessions
                .iter()
                .find(|session_repo| belongs_to(session_repo, &directory_move.to));
            target = id.map_or(target, |session_repo| {
                worktree::free_admin_dir(repository, &session_repo.id)
            });
        }
        DirectoryMove { from: directory_move.to.clone(), to: target }
    });
    reversed.collect()
}

/// Returns whether a path in the trash belongs to a session.
fn belongs_to(session_repo: &SessionRepo, path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|name| name == session_repo.id.as_str())
}
