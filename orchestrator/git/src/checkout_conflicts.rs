//! Finds the user's changes that a landing would overwrite, in the index and in the files, before
//! anything is written.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, Result};

use crate::checkout::{self, Checkout, FileChange, FileEntry};
use crate::checkout_update::CheckoutIndex;
use crate::filters;
use crate::index::is_hidden;

/// Paths, and why each of them may not be written.
type Reasons = BTreeMap<PathBuf, &'static str>;

/// Refuses (3), with paths and reasons, if the landing would overwrite something of the user's.
/// Changes nothing.
pub(crate) fn refuse(checkout: &Checkout, changes: &[FileChange]) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut index = CheckoutIndex::read(checkout, changes)?;
    refuse_with(checkout, &mut index.entries, changes)
}

/// Like [`refuse`], with the index of the checkout.
pub(crate) fn refuse_with(
    checkout: &Checkout,
    index: &mut git2::Index,
    changes: &[FileChange],
) -> Result<()> {
    let _keep_alive = filters::keep_alive();
    let written_changes = checkout::written_changes(checkout, index, changes)?;
    let mut reasons = find_staged(index, changes, &written_changes);
    add_changed(checkout, index, &written_changes, &mut reasons)?;
    add_occupied(checkout, &written_changes, &mut reasons);
    add_blocked(checkout, &written_changes, &mut reasons);
    if reasons.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> =
        reasons.iter().map(|(path, reason)| format!("{}: {reason}", path.display())).collect();
    let worktree = checkout.worktree.display();
    Err(Failure::refused(format!("your changes in {worktree} would be overwritten"))
        .because(lines.join("\n"))
        .hint(format!("commit, stash or move them; see: git -C '{worktree}' status --ignored")))
}

/// Returns paths whose index entry differs from the branch: something is staged, or git was told to
/// ignore changes there.
fn find_staged(
    index: &git2::Index,
    changes: &[FileChange],
    written_changes: &[FileChange],
) -> Reasons {
    let mut reasons = Reasons::new();
    for change in changes {
        let has_conflict = (1..=3).any(|stage| index.get_path(&change.path, stage).is_some());
        let entry = index.get_path(&change.path, 0);
        let staged = entry.as_ref().map(|entry| FileEntry { id: entry.id, mode: entry.mode });
        if has_conflict || staged != change.before {
            reasons.insert(change.path.clone(), "staged");
        } else if entry.is_some_and(|entry| is_hidden(&entry)) && written_changes.contains(change) {
            reasons.insert(change.path.clone(), "marked assume-unchanged or skip-worktree");
        }
    }
    reasons
}

/// Adds tracked paths whose file differs from the index.
fn add_changed(
    checkout: &Checkout,
    index: &mut git2::Index,
    changes: &[FileChange],
    reasons: &mut Reasons,
) -> Result<()> {
    let repo = checkout::open_with(checkout, index)?;
    if changes.is_empty() {
        return Ok(());
    }
    let mut options = git2::DiffOptions::new();
    options.include_typechange(true).ignore_submodules(true).disable_pathspec_match(true);
    for change in changes {
        options.pathspec(change.path.as_os_str().as_bytes());
    }
    let diff = repo.diff_index_to_workdir(Some(index), Some(&mut options)).map_err(|error| {
        let what = format!("cannot look at the files in {}", checkout.worktree.display());
        filters::failure(what, &error)
    })?;
    for delta in diff.deltas() {
        let Some(bytes) = delta.old_file().path_bytes() else { continue };
        let path = PathBuf::from(OsStr::from_bytes(bytes));
        let change = changes.iter().find(|change| change.path == path);
        let is_deleted_by_both = delta.status() == git2::Delta::Deleted
            && change.is_some_and(|change| change.after.is_none());
        if change.is_some() && !is_deleted_by_both {
            reasons.entry(path).or_insert("changed");
        }
    }
    Ok(())
}

/// Adds new paths at which something exists that the landing does not remove.
fn add_occupied(checkout: &Checkout, changes: &[FileChange], reasons: &mut Reasons) {
    let is_removed =
        |path: &Path| changes.iter().any(|change| change.path == path && change.after.is_none());
    for change in changes.iter().filter(|change| change.before.is_none()) {
        let parents = change.path.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty());
        let is_other = |dir: &&Path| {
            let metadata = checkout.worktree.join(dir).symlink_metadata();
            metadata.is_ok_and(|entry| !entry.is_dir())
        };
        let others: Vec<&Path> = parents.filter(is_other).collect();
        for dir in others.iter().filter(|dir| !is_removed(dir)) {
            reasons.entry(dir.to_path_buf()).or_insert("a file where a directory is needed");
        }
        if !others.is_empty() {
            // What a symlink leads to is somewhere else.
            continue;
        }
        let path = checkout.worktree.join(&change.path);
        let is_unreported = |path: &Path| !reasons.keys().any(|file| path.starts_with(file));
        match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => {
                for file in files_in(&checkout.worktree, &change.path) {
                    if !is_removed(&file) {
                        reasons.entry(file).or_insert("in a directory where a file is needed");
                    }
                }
            }
            Ok(_) if is_unreported(&change.path) => {
                reasons.insert(change.path.clone(), "untracked or ignored");
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// Adds paths that lead through something other than a directory: following a symlink there would
/// write or delete files elsewhere.
fn add_blocked(checkout: &Checkout, changes: &[FileChange], reasons: &mut Reasons) {
    for change in changes.iter().filter(|change| change.before.is_some()) {
        if let Some(dir) = checkout::find_obstacle(&checkout.worktree, &change.path) {
            reasons.entry(dir).or_insert("not a directory");
        }
    }
}

/// Returns everything in a directory that is not a directory, as paths relative to the working
/// tree.
fn files_in(worktree: &Path, dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(worktree.join(dir)).into_iter().flatten().flatten() {
        let path = dir.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files.extend(files_in(worktree, &path));
        } else {
            files.push(path);
        }
    }
    files
}
