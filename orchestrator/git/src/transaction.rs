//! Carries out operations, and finishes or rolls back those that a crash interrupted. Every step is
//! idempotent.

use std::fs;
use std::path::Path;

use base::failure::{Failure, OrFail, Result};
use base::files::step;

use crate::checkout::{self, FileChange, IndexLock};
use crate::oplog::{
    DirectoryMove, Intent, LogLine, OperationKind, OperationLog, OperationOutcome, TargetUpdate,
};
use crate::refs::{self, RefChange, SwapResult};
use crate::repo::Repository;
use crate::{checkout_conflicts, checkout_update, move_worktree, moved_repository, receipt};

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
pub(crate) fn carry_out(
    repository: &Repository,
    log: &mut OperationLog,
    intent: &Intent,
) -> Result<TransactionResult> {
    if let Some(landing) = &intent.landing {
        let ready = ready(repository, landing, &intent.id)?;
        mark(intent, "locked");
        begin(log, intent)?;
        match land(repository, intent, landing, &ready)? {
            TransactionResult::Yes => {}
            moved @ TransactionResult::TargetMoved(_) => {
                end(log, intent, false)?;
                return Ok(moved);
            }
        }
    } else {
        begin(log, intent)?;
    }
    follow(repository, intent)?;
    end(log, intent, true)?;
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
    let mut said = Vec::new();
    for mut intent in log.open_intents() {
        let landed = match &intent.landing {
            Some(landing) => settle(repository, &intent, landing, &mut said)?,
            None => true,
        };
        if !landed {
            take_back_refs(repository, &intent)?;
        } else {
            for change in stray(repository, &intent)? {
                said.push(format!(
                    "{} was changed by someone else and was left unchanged",
                    change.name
                ));
                intent.refs_first.retain(|other| *other != change);
                intent.refs_last.retain(|other| *other != change);
            }
            follow(repository, &intent)?;
        }
        end(log, &intent, landed)?;
        let how = if landed { "finished" } else { "rolled back" };
        said.push(format!("interrupted operation `{}` was {how}", intent.id));
    }
    for checkout in checkout::all(repository)? {
        if checkout::drop_stale_lock(&checkout) {
            said.push(format!("removed a stale index.lock in {}", checkout.git_dir.display()));
        }
    }
    Ok(said)
}

fn begin(log: &mut OperationLog, intent: &Intent) -> Result<()> {
    mark(intent, "intent");
    log.write(LogLine::Intent(Box::new(intent.clone())))?;
    mark(intent, "intended");
    Ok(())
}

fn end(log: &mut OperationLog, intent: &Intent, done: bool) -> Result<()> {
    mark(intent, "outcome");
    log.write(LogLine::Outcome(OperationOutcome { id: intent.id.clone(), done }))
}

/// Marks a durable step, named after the kind of operation.
fn mark(intent: &Intent, name: &str) {
    let kind = match intent.kind {
        OperationKind::Accept => "accept",
        OperationKind::Discard => "discard",
        OperationKind::Undo => "undo",
        OperationKind::Relocate => "relocate",
    };
    step(&format!("{kind}.{name}"));
}

/// Checkouts with a locked index in which nothing is in the way.
struct Ready {
    changes: Vec<FileChange>,
    locks: Vec<IndexLock>,
}

fn ready(repository: &Repository, landing: &TargetUpdate, operation: &str) -> Result<Ready> {
    let changes = checkout::changes(&repository.open()?, &landing.before, &landing.after)?;
    let mut locks = Vec::new();
    for checkout in &landing.checkouts {
        locks.push(checkout::lock_index(checkout, operation)?);
    }
    for checkout in &landing.checkouts {
        checkout_conflicts::refuse(checkout, &changes)?;
    }
    Ok(Ready { changes, locks })
}

/// Updates the files, then the ref, then the index: `spec/worktrees.md` 11 has the reasons for this
/// order.
fn land(
    repository: &Repository,
    intent: &Intent,
    landing: &TargetUpdate,
    ready: &Ready,
) -> Result<TransactionResult> {
    debug_assert_eq!(ready.locks.len(), landing.checkouts.len());
    let swapped = prepare_files(intent, landing, ready).and_then(|()| {
        mark(intent, "files");
        swap(repository, intent, landing)
    });
    match swapped {
        Ok(SwapResult::Done) => {}
        Ok(SwapResult::Lost { found, .. }) => {
            take_back(intent, landing, &ready.changes)?;
            return Ok(TransactionResult::TargetMoved(found));
        }
        Err(failure) => {
            take_back(intent, landing, &ready.changes)?;
            return Err(failure);
        }
    }
    mark(intent, "moved");
    for checkout in &landing.checkouts {
        checkout_update::install_index(checkout, &intent.id)?;
        mark(intent, "index");
    }
    Ok(TransactionResult::Yes)
}

fn prepare_files(intent: &Intent, landing: &TargetUpdate, ready: &Ready) -> Result<()> {
    for checkout in &landing.checkouts {
        checkout_update::apply(checkout, &ready.changes, &landing.after)?;
        mark(intent, "brought");
        checkout_update::write_index(checkout, &ready.changes, &landing.after, &intent.id)?;
    }
    Ok(())
}

/// Moves the target in one transaction with the refs that come first; if one of those has an
/// unexpected value, they follow one by one. Everything is durable before the result is.
fn swap(repository: &Repository, intent: &Intent, landing: &TargetUpdate) -> Result<SwapResult> {
    let (before, after) = (landing.before.clone(), landing.after.clone());
    let target = RefChange::new(landing.target.full(), Some(before), Some(after));
    let why = format!("studio: {}", intent.id);
    let all: Vec<RefChange> =
        intent.refs_first.iter().chain(&intent.note).chain([&target]).cloned().collect();
    match refs::update_on_disk(repository, &all, &why)? {
        SwapResult::Lost { name, .. } if name != target.name => {
            refs::update_on_disk(repository, &[target], &why)
        }
        swapped => Ok(swapped),
    }
}

/// Restores files and drops new indexes. Returns a sentence for each file that was changed in the
/// meantime.
fn take_back(
    intent: &Intent,
    landing: &TargetUpdate,
    changes: &[FileChange],
) -> Result<Vec<String>> {
    let mut said = Vec::new();
    for checkout in &landing.checkouts {
        checkout_update::drop_index(checkout, &intent.id);
        if !checkout.worktree.is_dir() {
            continue;
        }
        let left = checkout_update::take_back(checkout, changes, &landing.before, &landing.after)?;
        said.extend(left.iter().map(|path| {
            let path = checkout.worktree.join(path);
            format!(
                "{} was changed, staged or committed in the meantime and was left unchanged",
                path.display()
            )
        }));
    }
    Ok(said)
}

/// After a crash: finishes a landing whose ref moved, and rolls back one whose ref did not. Returns
/// whether it landed.
fn settle(
    repository: &Repository,
    intent: &Intent,
    landing: &TargetUpdate,
    said: &mut Vec<String>,
) -> Result<bool> {
    let repo = repository.open()?;
    let changes = checkout::changes(&repo, &landing.before, &landing.after)?;
    let landed = has_moved(&repo, landing)?;
    let present = landing.checkouts.iter().filter(|checkout| checkout.worktree.is_dir());
    for checkout in present {
        let _lock = checkout::lock_again(checkout, &intent.id)?;
        if landed {
            checkout_update::write_index(checkout, &changes, &landing.after, &intent.id)?;
            checkout_update::install_index(checkout, &intent.id)?;
        } else {
            let one = TargetUpdate { checkouts: vec![checkout.clone()], ..landing.clone() };
            said.extend(take_back(intent, &one, &changes)?);
        }
    }
    Ok(landed)
}

/// Drops the refs of an operation that was not carried out: git was killed while it moved several.
fn take_back_refs(repository: &Repository, intent: &Intent) -> Result<()> {
    let repo = repository.open()?;
    let mut made = Vec::new();
    for change in intent.refs_first.iter().filter(|change| change.before.is_none()) {
        if change.after.is_some() && refs::read(&repo, &change.name)? == change.after {
            made.push(change.reversed());
        }
    }
    refs::update_own(repository, &made, &format!("studio: {} did not happen", intent.id))
}

/// Returns whether the swap happened, even if either side has later commits.
fn has_moved(repo: &git2::Repository, landing: &TargetUpdate) -> Result<bool> {
    let Some(tip) = refs::read(repo, &landing.target.full())? else { return Ok(false) };
    if tip == landing.after || tip == landing.before {
        return Ok(tip == landing.after);
    }
    let id = refs::oid;
    let descends = |one: &str, other: &str| -> Result<bool> {
        repo.graph_descendant_of(id(one)?, id(other)?).or_fail(|| "cannot compare commits")
    };
    let forward = descends(&landing.after, &landing.before)?;
    let upper = if forward { &landing.after } else { &landing.before };
    Ok(descends(&tip, upper)? == forward)
}

/// Carries out the steps after the landing, or all steps of other operations: refs, directories,
/// refs.
fn follow(repository: &Repository, intent: &Intent) -> Result<()> {
    if let (Some(text), Some(landing)) = (&intent.receipt, &intent.landing) {
        receipt::write(repository, &landing.after, text)?;
        mark(intent, "receipt");
    }
    apply(repository, intent, &intent.refs_first)?;
    mark(intent, "kept");
    for moving in &intent.moves {
        rename(moving)?;
        mark(intent, "renamed");
    }
    if intent.kind == OperationKind::Undo {
        for moving in &intent.moves {
            // Removes the operation's directories in the trash, unless they are not empty.
            for dir in moving.from.ancestors().skip(1).take(2) {
                let _ = fs::remove_dir(dir);
            }
        }
        for place in &intent.sessions {
            // It may have been pruned, or be older than a move of the repository.
            moved_repository::repair(repository, place)?;
        }
        mark(intent, "registered");
    }
    if intent.kind == OperationKind::Relocate {
        for place in &intent.sessions {
            move_worktree::settle(repository, place)?;
            mark(intent, "settled");
        }
    }
    apply(repository, intent, &intent.refs_last)?;
    mark(intent, "refs");
    Ok(())
}

/// Applies the changes that have not been applied yet.
fn apply(repository: &Repository, intent: &Intent, changes: &[RefChange]) -> Result<()> {
    let repo = repository.open()?;
    let mut left = Vec::new();
    for change in changes {
        if refs::read(&repo, &change.name)? != change.after {
            left.push(change.clone());
        }
    }
    refs::update_own(repository, &left, &format!("studio: {}", intent.id))
}

/// Returns the changes of refs that have neither their old nor their new value.
fn stray(repository: &Repository, intent: &Intent) -> Result<Vec<RefChange>> {
    let repo = repository.open()?;
    let mut found = Vec::new();
    for change in intent.refs_first.iter().chain(&intent.refs_last) {
        let held = refs::read(&repo, &change.name)?;
        if held != change.before && held != change.after {
            found.push(change.clone());
        }
    }
    Ok(found)
}

/// Renames a directory, unless that is already done.
fn rename(moving: &DirectoryMove) -> Result<()> {
    if moving.from.symlink_metadata().is_err() {
        return Ok(());
    }
    let fail = || format!("cannot move {}", moving.from.display());
    let (from, to) = (parent(&moving.from), parent(&moving.to));
    fs::create_dir_all(to).or_fail(fail)?;
    if moving.to.symlink_metadata().is_ok() {
        return Err(Failure::refused(fail())
            .because(format!("{} exists", moving.to.display()))
            .hint("move that away, then try again"));
    }
    fs::rename(&moving.from, &moving.to).or_fail(fail)?;
    base::files::sync_dir(to).and_then(|()| base::files::sync_dir(from)).or_fail(fail)
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
