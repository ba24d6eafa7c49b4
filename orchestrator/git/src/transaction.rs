//! Carries out operations, and finishes or rolls back those that a crash interrupted. Every step is
//! idempotent.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use base::failure::{Failure, OrFail, Result};
use base::files::step;

use crate::checkout::{self, Checkout, FileChange, IndexLock};
use crate::checkout_update::CheckoutIndex;
use crate::file_swap::SeenFiles;
use crate::oplog::{
    DirectoryMove, Intent, LogLine, OperationKind, OperationLog, OperationOutcome, TargetUpdate,
};
use crate::refs::{self, RefChange, SwapResult};
use crate::repo::Repository;
use crate::{checkout_conflicts, checkout_update, move_worktree, moved_repository, receipt, trial};

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransactionResult {
    /// It was carried out.
    Yes,
    /// The target moved at the last moment and nothing was changed. This is its current value.
    TargetMoved(Option<String>),
}

/// Carries out an operation completely or not at all. The intent is durable before anything
/// changes.
pub(crate) fn execute(
    repository: &Repository,
    log: &mut OperationLog,
    intent: &Intent,
) -> Result<TransactionResult> {
    if let Some(landing) = &intent.landing {
        let begun = lock_checkouts(repository, landing, &intent.id).and_then(|locked| {
            mark_step(log, intent, "locked")?;
            write_intent(log, intent)?;
            Ok(locked)
        });
        let mut locked = begun.inspect_err(|_| remove_new_indexes(log, landing, &intent.id))?;
        match land(repository, log, intent, landing, &mut locked) {
            Ok(TransactionResult::Yes) => {}
            Ok(result @ TransactionResult::TargetMoved(_)) => {
                write_outcome(log, intent, false)?;
                return Ok(result);
            }
            Err(failure) => {
                drop(locked);
                if log.confirm().is_ok() {
                    // What fails here as well is left to the next command.
                    let _ = recover_with(repository, log);
                }
                return Err(failure);
            }
        }
    } else {
        write_intent(log, intent)?;
    }
    finish(repository, log, intent)?;
    write_outcome(log, intent, true)?;
    Ok(TransactionResult::Yes)
}

/// Finishes or rolls back interrupted operations, and returns one sentence for each. Every command
/// that changes something calls it first.
pub fn recover(repository: &Repository) -> Result<Vec<String>> {
    if !repository.common_dir.join("studio/operations.jsonl").exists() {
        return Ok(Vec::new());
    }
    let mut log = OperationLog::open(repository)?;
    recover_with(repository, &mut log)
}

/// Like [`recover`], for a caller that holds the operation lock.
pub(crate) fn recover_with(repository: &Repository, log: &mut OperationLog) -> Result<Vec<String>> {
    let mut messages = Vec::new();
    for mut intent in log.open_intents() {
        if let Some(target) = &intent.trial {
            let done = trial::recover(repository, log, &intent, target, &mut messages)?;
            write_outcome(log, &intent, done)?;
            trial::forget(repository, &intent);
            let result = if done { "finished" } else { "rolled back" };
            messages.push(format!("interrupted operation `{}` was {result}", intent.id));
            continue;
        }
        let has_landed = match &intent.landing {
            Some(landing) => resolve(repository, &intent, landing, &mut messages)?,
            None => true,
        };
        if !has_landed {
            revert_refs(repository, log, &intent)?;
        } else {
            for change in foreign_changes(repository, &intent)? {
                messages.push(format!(
                    "{} was changed by someone else and was left unchanged",
                    change.name
                ));
                intent.refs_first.retain(|planned| *planned != change);
                intent.refs_last.retain(|planned| *planned != change);
            }
            finish(repository, log, &intent)?;
        }
        write_outcome(log, &intent, has_landed)?;
        let result = if has_landed { "finished" } else { "rolled back" };
        messages.push(format!("interrupted operation `{}` was {result}", intent.id));
    }
    trial::remove_leftovers(repository, log);
    for checkout in checkout::all(repository)? {
        checkout_update::remove_stale_indexes(&checkout);
        if checkout::remove_stale_lock(&checkout) {
            messages.push(format!("removed a stale index.lock in {}", checkout.git_dir.display()));
        }
    }
    Ok(messages)
}

/// Makes an intent durable.
pub(crate) fn write_intent(log: &mut OperationLog, intent: &Intent) -> Result<()> {
    mark_step(log, intent, "intent")?;
    log.write(LogLine::Intent(Arc::new(intent.clone())))?;
    mark_step(log, intent, "intended")
}

/// Makes the result of an operation durable.
pub(crate) fn write_outcome(log: &mut OperationLog, intent: &Intent, done: bool) -> Result<()> {
    mark_step(log, intent, "outcome")?;
    log.write(LogLine::Outcome(OperationOutcome { id: intent.id.clone(), done }))
}

/// Marks a durable step, named after the kind of operation. Refuses (3) to go on if another process
/// may have taken the operation over.
pub(crate) fn mark_step(log: &OperationLog, intent: &Intent, name: &str) -> Result<()> {
    let kind = match intent.kind {
        OperationKind::Accept => "accept",
        OperationKind::AcceptHunks => "hunks",
        OperationKind::Discard => "discard",
        OperationKind::Undo => "undo",
        OperationKind::Relocate => "relocate",
        OperationKind::Try => "try",
    };
    step(&format!("{kind}.{name}"));
    log.confirm()
}

/// Checkouts in which nothing is in the way of the changes.
struct LockedCheckouts {
    changes: Vec<FileChange>,
    checkouts: Vec<LockedCheckout>,
}

/// A checkout whose index is locked.
struct LockedCheckout {
    checkout: Checkout,
    index: CheckoutIndex,
    seen: SeenFiles,
    _lock: IndexLock,
}

fn lock_checkouts(
    repository: &Repository,
    landing: &TargetUpdate,
    operation: &str,
) -> Result<LockedCheckouts> {
    let changes = checkout::changes(&*repository.open()?, &landing.before, &landing.after)?;
    let mut locks = Vec::new();
    for checkout in &landing.checkouts {
        locks.push(checkout::lock_index(checkout, operation)?);
    }
    let mut checkouts = Vec::new();
    for (checkout, lock) in landing.checkouts.iter().zip(locks) {
        let mut index = CheckoutIndex::read(checkout, &changes)?;
        let seen = SeenFiles::read(&checkout.worktree, &changes)?;
        checkout_conflicts::refuse_with(checkout, &mut index.entries, &changes)?;
        checkouts.push(LockedCheckout { checkout: checkout.clone(), index, seen, _lock: lock });
    }
    Ok(LockedCheckouts { changes, checkouts })
}

/// Removes the new indexes of a landing that did not begin, unless another process may have started an
/// operation with the same id.
fn remove_new_indexes(log: &OperationLog, landing: &TargetUpdate, operation: &str) {
    if log.confirm().is_ok() {
        for checkout in &landing.checkouts {
            checkout_update::remove_new_index(checkout, operation);
        }
    }
}

/// Updates the files, then the ref, then the index: `spec/worktrees.md` 11 has the reasons for this
/// order.
fn land(
    repository: &Repository,
    log: &OperationLog,
    intent: &Intent,
    landing: &TargetUpdate,
    locked: &mut LockedCheckouts,
) -> Result<TransactionResult> {
    debug_assert_eq!(locked.checkouts.len(), landing.checkouts.len());
    let result = prepare_files(log, intent, landing, locked).and_then(|()| {
        mark_step(log, intent, "files")?;
        swap(repository, log, intent, landing)
    });
    if !matches!(result, Ok(SwapResult::Done)) {
        // Another process that took the operation over has reverted the files itself.
        log.confirm()?;
    }
    match result {
        Ok(SwapResult::Done) => {}
        Ok(SwapResult::Lost { actual, .. }) => {
            revert(intent, landing, &locked.changes)?;
            return Ok(TransactionResult::TargetMoved(actual));
        }
        Err(failure) => {
            revert(intent, landing, &locked.changes)?;
            return Err(failure);
        }
    }
    mark_step(log, intent, "moved")?;
    for checkout in &landing.checkouts {
        checkout_update::install_index(checkout, &intent.id)?;
        mark_step(log, intent, "index")?;
    }
    Ok(TransactionResult::Yes)
}

fn prepare_files(
    log: &OperationLog,
    intent: &Intent,
    landing: &TargetUpdate,
    locked: &mut LockedCheckouts,
) -> Result<()> {
    let TargetUpdate { before, after, .. } = landing;
    let changes = &locked.changes;
    for LockedCheckout { checkout, index, seen, .. } in &mut locked.checkouts {
        checkout_update::apply(checkout, index, changes, seen, (before, after))?;
        mark_step(log, intent, "brought")?;
        checkout_update::write_index(checkout, index, changes, after, &intent.id)?;
    }
    Ok(())
}

/// Moves the target in one transaction with the refs that come first; if one of those has an
/// unexpected value, they follow one by one. Everything is durable before the result is.
fn swap(
    repository: &Repository,
    log: &OperationLog,
    intent: &Intent,
    landing: &TargetUpdate,
) -> Result<SwapResult> {
    let (before, after) = (landing.before.clone(), landing.after.clone());
    let target = RefChange::new(landing.target.full(), Some(before), Some(after));
    let reason = format!("studio: {}", intent.id);
    let changes: Vec<RefChange> =
        intent.refs_first.iter().chain(&intent.note).chain([&target]).cloned().collect();
    match refs::update_on_disk(repository, log.lock(), &changes, &reason)? {
        SwapResult::Lost { name, .. } if name != target.name => {
            refs::update_on_disk(repository, log.lock(), &[target], &reason)
        }
        result => Ok(result),
    }
}

/// Restores files and drops new indexes. Returns a sentence for each file that was changed in the
/// meantime.
fn revert(intent: &Intent, landing: &TargetUpdate, changes: &[FileChange]) -> Result<Vec<String>> {
    let mut messages = Vec::new();
    for checkout in &landing.checkouts {
        checkout_update::remove_new_index(checkout, &intent.id);
        if !checkout.worktree.is_dir() {
            continue;
        }
        let skipped = checkout_update::revert(checkout, changes, &landing.before, &landing.after)?;
        messages.extend(skipped.iter().map(|path| {
            let path = checkout.worktree.join(path);
            format!(
                "{} was changed, staged or committed in the meantime and was left unchanged",
                path.display()
            )
        }));
    }
    Ok(messages)
}

/// After a crash: finishes a landing whose ref moved, and rolls back one whose ref did not. Returns
/// whether it landed.
fn resolve(
    repository: &Repository,
    intent: &Intent,
    landing: &TargetUpdate,
    messages: &mut Vec<String>,
) -> Result<bool> {
    let repo = repository.open()?;
    let changes = checkout::changes(&repo, &landing.before, &landing.after)?;
    let has_landed = has_moved(&repo, landing)?;
    let existing = landing.checkouts.iter().filter(|checkout| checkout.worktree.is_dir());
    for checkout in existing {
        let _lock = checkout::relock_index(checkout, &intent.id)?;
        if has_landed {
            let mut index = CheckoutIndex::read(checkout, &changes)?;
            let (after, operation) = (&landing.after, &intent.id);
            checkout_update::write_index(checkout, &mut index, &changes, after, operation)?;
            checkout_update::install_index(checkout, &intent.id)?;
        } else {
            let single = TargetUpdate { checkouts: vec![checkout.clone()], ..landing.clone() };
            messages.extend(revert(intent, &single, &changes)?);
        }
    }
    Ok(has_landed)
}

/// Drops the refs of an operation that was not carried out: git was killed while it moved several.
fn revert_refs(repository: &Repository, log: &OperationLog, intent: &Intent) -> Result<()> {
    let repo = repository.open()?;
    let mut reverts = Vec::new();
    for change in &intent.refs_first {
        if change.after.is_some() && refs::read(&repo, &change.name)? == change.after {
            reverts.push(change.reversed());
        }
    }
    let reason = format!("studio: {} did not happen", intent.id);
    refs::refuse_lost(refs::update_in_operation(repository, log.lock(), &reverts, &reason)?)
}

/// Returns whether the swap happened, even if either side has later commits.
fn has_moved(repo: &git2::Repository, landing: &TargetUpdate) -> Result<bool> {
    let Some(tip) = refs::read(repo, &landing.target.full())? else { return Ok(false) };
    if tip == landing.after || tip == landing.before {
        return Ok(tip == landing.after);
    }
    let id = refs::oid;
    let is_descendant = |descendant: &str, ancestor: &str| -> Result<bool> {
        repo.graph_descendant_of(id(descendant)?, id(ancestor)?)
            .or_fail(|| "cannot compare commits")
    };
    let is_forward = is_descendant(&landing.after, &landing.before)?;
    let descendant = if is_forward { &landing.after } else { &landing.before };
    Ok(is_descendant(&tip, descendant)? == is_forward)
}

/// Carries out the steps after the landing, or all steps of other operations: refs, directories,
/// refs.
fn finish(repository: &Repository, log: &OperationLog, intent: &Intent) -> Result<()> {
    if let (Some(text), Some(landing)) = (&intent.receipt, &intent.landing) {
        receipt::write(repository, &landing.after, text)?;
        mark_step(log, intent, "receipt")?;
    }
    apply(repository, log, intent, &intent.refs_first)?;
    mark_step(log, intent, "kept")?;
    let mut changed_dirs = BTreeSet::new();
    for directory_move in &intent.moves {
        if rename(directory_move)? {
            changed_dirs.insert(parent(&directory_move.from).to_owned());
            changed_dirs.insert(parent(&directory_move.to).to_owned());
        }
        mark_step(log, intent, "renamed")?;
    }
    base::files::sync_dirs(&changed_dirs).or_fail(|| "cannot move the session's directories")?;
    if intent.kind == OperationKind::Undo {
        for directory_move in &intent.moves {
            // Removes the operation's directories in the trash, unless they are not empty.
            for dir in directory_move.from.ancestors().skip(1).take(2) {
                let _ = fs::remove_dir(dir);
            }
        }
        for session_repo in &intent.sessions {
            // It may have been pruned, or be older than a move of the repository.
            moved_repository::repair(repository, session_repo)?;
        }
        mark_step(log, intent, "registered")?;
    }
    if intent.kind == OperationKind::Relocate {
        for session_repo in &intent.sessions {
            move_worktree::record_new_paths(repository, session_repo)?;
            mark_step(log, intent, "settled")?;
        }
    }
    apply(repository, log, intent, &intent.refs_last)?;
    mark_step(log, intent, "refs")
}

/// Applies the changes that have not been applied yet.
fn apply(
    repository: &Repository,
    log: &OperationLog,
    intent: &Intent,
    changes: &[RefChange],
) -> Result<()> {
    let repo = repository.open()?;
    let mut pending = Vec::new();
    for change in changes {
        if refs::read(&repo, &change.name)? != change.after {
            pending.push(change.clone());
        }
    }
    let reason = format!("studio: {}", intent.id);
    refs::refuse_lost(refs::update_in_operation(repository, log.lock(), &pending, &reason)?)
}

/// Returns the changes of refs that have neither their old nor their new value.
fn foreign_changes(repository: &Repository, intent: &Intent) -> Result<Vec<RefChange>> {
    let repo = repository.open()?;
    let mut changes = Vec::new();
    for change in intent.refs_first.iter().chain(&intent.refs_last) {
        let current = refs::read(&repo, &change.name)?;
        if current != change.before && current != change.after {
            changes.push(change.clone());
        }
    }
    Ok(changes)
}

/// Renames a directory; returns `false` if that is already done. The caller makes it durable.
fn rename(directory_move: &DirectoryMove) -> Result<bool> {
    if directory_move.from.symlink_metadata().is_err() {
        return Ok(false);
    }
    let fail = || format!("cannot move {}", directory_move.from.display());
    fs::create_dir_all(parent(&directory_move.to)).or_fail(fail)?;
    if directory_move.to.symlink_metadata().is_ok() {
        return Err(Failure::refused(fail())
            .because(format!("{} exists", directory_move.to.display()))
            .hint("move that away, then try again"));
    }
    fs::rename(&directory_move.from, &directory_move.to).or_fail(fail)?;
    Ok(true)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
