//! Updates the files and the index of a checkout to another commit, and reverts the update.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};

use crate::checkout::{self, Checkout, FileChange, FileEntry, open_index};
use crate::index;

/// The mode of a submodule's entry.
const GITLINK: u32 = 0o160_000;

/// Writes the files of a commit where they differ, and nothing else. Fails before the first file if
/// something of the user's would be overwritten. After a failure in the middle (e.g. a full disk),
/// the caller has to revert the update.
pub(crate) fn apply(checkout: &Checkout, changes: &[FileChange], after: &str) -> Result<()> {
    let index = open_index(&checkout.git_dir.join("index"))?;
    let changes = &checkout::written(checkout, &index, changes);
    if changes.is_empty() {
        return Ok(());
    }
    let repo = checkout::open(checkout)?;
    let tree = checkout::tree_of(&repo, after)?;
    let mut builder = git2::build::CheckoutBuilder::new();
    checkout::limit(&mut builder, changes);
    builder.safe().overwrite_ignored(false).update_index(false);
    repo.checkout_tree(tree.as_object(), Some(&mut builder))
        .or_fail(|| format!("cannot write the files in {}", checkout.worktree.display()))
}

/// Reverts [`apply`], even a partial one: files with the written content (or the start of it) get
/// their previous content. A file that was changed, staged or committed in between is left
/// unchanged and returned.
pub(crate) fn take_back(
    checkout: &Checkout,
    changes: &[FileChange],
    before: &str,
    after: &str,
) -> Result<Vec<PathBuf>> {
    let repo = checkout::open(checkout)?;
    let index = open_index(&checkout.git_dir.join("index"))?;
    let changes = &checkout::written(checkout, &index, changes);
    let differing = differing(&repo, changes, after)?;
    let same_as_before: BTreeSet<PathBuf> = {
        let not_before = self::differing(&repo, changes, before)?;
        changes.iter().map(|c| c.path.clone()).filter(|path| !not_before.contains(path)).collect()
    };
    let taken_over = taken_over(&repo, &index, changes);
    let mut rewritten = Vec::new();
    let mut left = Vec::new();
    for change in changes {
        if same_as_before.contains(&change.path) {
            continue;
        }
        if checkout::blocked_at(&checkout.worktree, &change.path).is_some() {
            left.push(change.path.clone());
            continue;
        }
        let path = checkout.worktree.join(&change.path);
        let as_written =
            !differing.contains(&change.path) || is_beginning(&repo, &path, change.after);
        let ours = as_written && !taken_over.contains(&change.path);
        match (ours, change.before) {
            (false, _) => left.push(change.path.clone()),
            (true, Some(_)) => rewritten.push(change.clone()),
            (true, None) => remove(&checkout.worktree, &change.path),
        }
    }
    if !rewritten.is_empty() {
        let tree = checkout::tree_of(&repo, before)?;
        let mut builder = git2::build::CheckoutBuilder::new();
        checkout::limit(&mut builder, &rewritten);
        builder.force().update_index(false);
        repo.checkout_tree(tree.as_object(), Some(&mut builder))
            .or_fail(|| format!("cannot put the files in {} back", checkout.worktree.display()))?;
    }
    Ok(left)
}

/// Returns the paths that were staged, or committed with the written content.
fn taken_over(
    repo: &git2::Repository,
    index: &git2::Index,
    changes: &[FileChange],
) -> BTreeSet<PathBuf> {
    let head = repo.head().and_then(|head| head.peel_to_tree()).ok();
    let committed = |head: &git2::Tree<'_>, path: &Path| {
        let entry = head.get_path(path).ok()?;
        Some(FileEntry { id: entry.id(), mode: u32::try_from(entry.filemode()).ok()? })
    };
    let mut found = BTreeSet::new();
    for change in changes {
        let staged = index.get_path(&change.path, 0);
        let staged = staged.map(|entry| FileEntry { id: entry.id, mode: entry.mode });
        let is_committed =
            head.as_ref().is_some_and(|head| committed(head, &change.path) == change.after);
        if staged != change.before || is_committed {
            found.insert(change.path.clone());
        }
    }
    found
}

/// Returns the paths among the changes whose file differs from a commit.
fn differing(
    repo: &git2::Repository,
    changes: &[FileChange],
    commit: &str,
) -> Result<BTreeSet<PathBuf>> {
    if changes.is_empty() {
        return Ok(BTreeSet::new());
    }
    let tree = checkout::tree_of(repo, commit)?;
    let mut options = git2::DiffOptions::new();
    options
        .include_untracked(true)
        .recurse_untracked_dirs(true)
        .include_ignored(true)
        .recurse_ignored_dirs(true)
        .include_typechange(true)
        .disable_pathspec_match(true);
    for change in changes {
        options.pathspec(change.path.as_os_str().as_bytes());
    }
    let diff = repo
        .diff_tree_to_workdir(Some(&tree), Some(&mut options))
        .or_fail(|| "cannot look at the checkout")?;
    let mut found = BTreeSet::new();
    for delta in diff.deltas() {
        for file in [delta.old_file(), delta.new_file()] {
            found.extend(file.path().map(Path::to_owned));
        }
    }
    Ok(found)
}

/// Returns whether a file is missing, or contains only the start of the written content.
fn is_beginning(repo: &git2::Repository, path: &Path, entry: Option<FileEntry>) -> bool {
    match path.symlink_metadata() {
        Err(_) => true,
        Ok(found) if !found.is_file() => false,
        Ok(_) => {
            let blob = entry.and_then(|entry| repo.find_blob(entry.id).ok());
            let content = fs::read(path).unwrap_or_default();
            content.is_empty() || blob.is_some_and(|blob| blob.content().starts_with(&content))
        }
    }
}

/// Removes a written file, and the directories that are empty without it.
fn remove(worktree: &Path, path: &Path) {
    let _ = fs::remove_file(worktree.join(path));
    for dir in path.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty()) {
        if fs::remove_dir(worktree.join(dir)).is_err() {
            break;
        }
    }
}

/// Writes the new index next to the old one: the entries of landed paths as in the commit, all
/// others unchanged. A path whose entry has changed in between is skipped.
pub(crate) fn write_index(
    checkout: &Checkout,
    changes: &[FileChange],
    after: &str,
    operation: &str,
) -> Result<()> {
    let side = side_index(checkout, operation);
    let write = || -> Result<()> {
        copy_with_times(&checkout.git_dir.join("index"), &side).or_fail(cannot_write)?;
        let mut index = open_index(&side)?;
        let stats: Vec<_> = changes.iter().map(|change| stat(checkout, change)).collect();
        // Compared after the stat: a file that was written to in between must not count as
        // unchanged.
        let differing = differing(&checkout::open(checkout)?, changes, after)?;
        for (change, stat) in changes.iter().zip(stats) {
            let held = index.get_path(&change.path, 0);
            let held = held.map(|entry| FileEntry { id: entry.id, mode: entry.mode });
            if held != change.before {
                continue;
            }
            match change.after {
                None => index.remove_path(&change.path).or_fail(cannot_write)?,
                Some(entry) => {
                    let stat = stat.filter(|_| !differing.contains(&change.path));
                    let mut fresh = fresh(&change.path, entry, stat.as_ref());
                    if index::is_left_out(&index, &checkout.worktree, &change.path) {
                        index::leave_out(&mut fresh);
                    }
                    index.add(&fresh).or_fail(cannot_write)?;
                }
            }
        }
        index.write().or_fail(cannot_write)?;
        fs::File::open(&side).and_then(|file| file.sync_all()).or_fail(cannot_write)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&side);
    })
}

/// Replaces the index with the new one.
pub(crate) fn install_index(checkout: &Checkout, operation: &str) -> Result<()> {
    let side = side_index(checkout, operation);
    fs::rename(&side, checkout.git_dir.join("index")).or_fail(cannot_write)?;
    base::files::sync_dir(&checkout.git_dir).or_fail(cannot_write)
}

/// Removes a new index that is not installed.
pub(crate) fn drop_index(checkout: &Checkout, operation: &str) {
    let side = side_index(checkout, operation);
    let _ = fs::remove_file(side.with_extension(format!("studio-{operation}.lock")));
    let _ = fs::remove_file(side);
}

fn side_index(checkout: &Checkout, operation: &str) -> PathBuf {
    checkout.git_dir.join(format!("index.studio-{operation}"))
}

/// Copies an index with its modification time, by which git knows which entries it must verify.
fn copy_with_times(from: &Path, to: &Path) -> std::io::Result<()> {
    match fs::copy(from, to) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    }
    let modified = fs::metadata(from)?.modified()?;
    fs::File::options().write(true).open(to)?.set_modified(modified)
}

fn stat(checkout: &Checkout, change: &FileChange) -> Option<fs::Metadata> {
    let is_file = change.after.is_some_and(|entry| entry.mode != GITLINK);
    is_file.then(|| checkout.worktree.join(&change.path).symlink_metadata().ok()).flatten()
}

/// Returns the index entry of a file on disk. Without a stat, git compares the file itself.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn fresh(
    path: &Path,
    entry: FileEntry,
    stat: Option<&fs::Metadata>,
) -> git2::IndexEntry {
    // The index has 32 bits for each of these; git truncates them as well.
    let time = |seconds: i64, nanos: i64| git2::IndexTime::new(seconds as i32, nanos as u32);
    git2::IndexEntry {
        ctime: stat.map_or(time(0, 0), |s| time(s.ctime(), s.ctime_nsec())),
        mtime: stat.map_or(time(0, 0), |s| time(s.mtime(), s.mtime_nsec())),
        dev: stat.map_or(0, |s| s.dev() as u32),
        ino: stat.map_or(0, |s| s.ino() as u32),
        uid: stat.map_or(0, MetadataExt::uid),
        gid: stat.map_or(0, MetadataExt::gid),
        file_size: stat.map_or(0, |s| s.size() as u32),
        mode: entry.mode,
        id: entry.id,
        flags: 0,
        flags_extended: 0,
        path: path.as_os_str().as_bytes().to_vec(),
    }
}

fn cannot_write() -> &'static str {
    "cannot write the index of the checkout"
}
