//! Updates the files and the index of a checkout to another commit, and reverts the update.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use tempfile::TempDir;

use crate::checkout::{self, Checkout, FileChange, FileEntry, WritableTree};
use crate::commit_attributes::{self, CommitAttributes};
use crate::file_swap::SeenFiles;
use crate::sparse::SparsePatterns;
use crate::stored_index::{Edits, StoredIndex};
use crate::{entry_mode, file_swap, filters, index, refs};

/// The prefix of the name of a new index; the operation's id follows.
const NEW_INDEX_PREFIX: &str = "index.studio-";

/// The index of a checkout during a landing.
pub(crate) struct CheckoutIndex {
    /// The entries of the landed paths and of attributes files, or all if only libgit2 or git can read
    /// the index; in a temporary file, which must exist as long as this: without it, libgit2 takes the
    /// checkout for a new one. It is not written.
    pub entries: git2::Index,
    stored: Option<StoredIndex>,
    _temporary: tempfile::NamedTempFile,
}

impl CheckoutIndex {
    /// Reads the index of a checkout for these changes.
    pub(crate) fn read(checkout: &Checkout, changes: &[FileChange]) -> Result<CheckoutIndex> {
        let path = checkout.git_dir.join("index");
        let fail = || format!("cannot read {}", path.display());
        let format = checkout.object_format()?;
        let Some(stored) = StoredIndex::read(&path, format).or_fail(fail)? else {
            let temporary = tempfile::NamedTempFile::with_prefix("index.").or_fail(fail)?;
            let entries = checkout::copy_index(checkout, temporary.path())?;
            return Ok(CheckoutIndex { entries, stored: None, _temporary: temporary });
        };
        let paths = changes.iter().map(|change| change.path.as_path());
        let temporary = stored.selection(&std::env::temp_dir(), paths).or_fail(fail)?;
        let entries = git2::Index::open_ext(temporary.path(), format).or_fail(fail)?;
        Ok(CheckoutIndex { entries, stored: Some(stored), _temporary: temporary })
    }

    /// Writes a copy with other entries for some paths.
    fn write(&self, path: &Path, checkout: &Checkout, edits: &Edits) -> Result<()> {
        match &self.stored {
            Some(stored) if !stored.collides(edits) => {
                stored.write(path, edits).or_fail(cannot_write)
            }
            Some(_) | None => write_edited_copy(path, checkout, edits),
        }
    }
}

/// Like [`CheckoutIndex::write`], with libgit2.
fn write_edited_copy(path: &Path, checkout: &Checkout, edits: &Edits) -> Result<()> {
    let mut index = checkout::copy_index(checkout, path)?;
    for (path, entry) in edits {
        match entry {
            Some(entry) => index.add(entry).or_fail(cannot_write)?,
            None => index.remove_path(Path::new(OsStr::from_bytes(path))).or_fail(cannot_write)?,
        }
    }
    index.write().or_fail(cannot_write)?;
    fs::File::open(path).and_then(|file| file.sync_all()).or_fail(cannot_write)
}

/// Writes the files of a commit where they differ, and nothing else. Fails before the first file if
/// something of the user's would be overwritten. After a failure in the middle (e.g. a full disk),
/// the caller has to revert the update. `index` is that of the checkout.
pub(crate) fn apply(
    checkout: &Checkout,
    index: &mut CheckoutIndex,
    changes: &[FileChange],
    seen: &SeenFiles,
    (before, after): (&str, &str),
) -> Result<()> {
    let _keep_alive = filters::keep_alive();
    let index = &mut index.entries;
    let changes = checkout::written_changes(checkout, index, changes)?;
    let (attributes, others) = commit_attributes::divide(&changes);
    if attributes.is_empty() {
        filters::check_smudges(&checkout::open_with(checkout, index)?, &others)?;
    } else {
        refuse_changed(checkout, &others, before)?;
        filters::check_smudges(&CommitAttributes::of(checkout, after)?.repo, &others)?;
    }
    let mut deleted_entries = Vec::new();
    for (first, changes) in [(true, &attributes), (false, &others)] {
        if changes.is_empty() {
            continue;
        }
        if !first {
            // Git looks for a missing attributes file in the index.
            for deleted in attributes.iter().filter(|change| change.after.is_none()) {
                deleted_entries.extend(index.get_path(&deleted.path, 0));
                let _ = index.remove_path(&deleted.path);
            }
        }
        // A new one for each, because it remembers attributes.
        let tree = WritableTree::open(&checkout.git_dir, &checkout.worktree, index)?;
        let repo = &tree.repo;
        let tree = checkout::tree_of(repo, after)?;
        let cannot_write = |error: git2::Error| {
            let what = format!("cannot write the files in {}", checkout.worktree.display());
            filters::failure(what, &error)
        };
        let staging = Staging::create(repo, checkout)?;
        if seen.can_swap(&checkout.worktree, &staging.files, changes) {
            staging.write(repo, &tree, changes).map_err(cannot_write)?;
            let changed = file_swap::swap(&checkout.worktree, &staging.files, changes, seen)?;
            match changed.first() {
                Some(path) => return Err(file_swap::changed(&checkout.worktree.join(path))),
                None => continue,
            }
        }
        let mut builder = git2::build::CheckoutBuilder::new();
        checkout::limit_paths(&mut builder, changes);
        match first || attributes.is_empty() {
            true => builder.safe(),
            // With other attributes, the files seem to be changed.
            false => builder.force(),
        };
        builder.overwrite_ignored(false).update_index(false);
        builder.refresh(first || attributes.is_empty());
        repo.checkout_tree(tree.as_object(), Some(&mut builder)).map_err(cannot_write)?;
    }
    deleted_entries.iter().try_for_each(|entry| index.add(entry)).or_fail(cannot_write)
}

/// A directory for files before they are put in their places.
struct Staging {
    files: PathBuf,
    _directory: TempDir,
}

impl Staging {
    /// Creates the directory where `doctor` removes what a kill leaves.
    fn create(repo: &git2::Repository, checkout: &Checkout) -> Result<Staging> {
        let fail = || format!("cannot write in {}", checkout.worktree.display());
        let scratch = repo.commondir().join("studio/scratch");
        fs::create_dir_all(&scratch).or_fail(fail)?;
        let directory = tempfile::Builder::new().prefix("f").tempdir_in(scratch).or_fail(fail)?;
        let files = directory.path().join("new");
        fs::create_dir(&files).or_fail(fail)?;
        Ok(Staging { files, _directory: directory })
    }

    /// Writes the files of a tree that the changes leave.
    fn write(
        &self,
        repo: &git2::Repository,
        tree: &git2::Tree<'_>,
        changes: &[FileChange],
    ) -> std::result::Result<(), git2::Error> {
        let left = changes.iter().filter(|change| change.after.is_some());
        let left: Vec<FileChange> = left.cloned().collect();
        if left.is_empty() {
            // Without paths, libgit2 writes all.
            return Ok(());
        }
        let mut builder = git2::build::CheckoutBuilder::new();
        checkout::limit_paths(&mut builder, &left);
        builder.force().update_index(false).target_dir(&self.files);
        repo.checkout_tree(tree.as_object(), Some(&mut builder))
    }
}

/// Refuses (3) files that are not as in a commit, with its attributes. A file that is missing may be
/// deleted.
fn refuse_changed(checkout: &Checkout, changes: &[FileChange], commit: &str) -> Result<()> {
    let attributes = CommitAttributes::of(checkout, commit)?;
    let mut differing = attributes.differing_paths(checkout, changes, commit)?;
    for change in changes.iter().filter(|change| change.after.is_none()) {
        if checkout.worktree.join(&change.path).symlink_metadata().is_err() {
            differing.remove(&change.path);
        }
    }
    let Some(path) = differing.first() else { return Ok(()) };
    Err(file_swap::changed(&checkout.worktree.join(path)))
}

/// Reverts [`apply`], even a partial one: files with the written content (or the start of it) get
/// their previous content. A file that was changed, staged or committed in between is left
/// unchanged and returned.
pub(crate) fn revert(
    checkout: &Checkout,
    changes: &[FileChange],
    before: &str,
    after: &str,
) -> Result<Vec<PathBuf>> {
    let _keep_alive = filters::keep_alive();
    let repo = checkout::open(checkout)?;
    let index = checkout::open_index(checkout)?;
    let changes = &checkout::written_changes(checkout, &index, changes)?;
    let seen = SeenFiles::read(&checkout.worktree, changes)?;
    let attributes = match changes.iter().any(commit_attributes::is_attributes_file) {
        true => Some(CommitAttributes::of(checkout, after)?),
        false => None,
    };
    let filtered = attributes.as_ref().map_or(&repo, |attributes| &attributes.repo);
    let differing = differing_paths(checkout, &repo, changes, after)?;
    let unchanged: BTreeSet<PathBuf> = {
        let differing_before = self::differing_paths(checkout, &repo, changes, before)?;
        changes
            .iter()
            .map(|change| change.path.clone())
            .filter(|path| !differing_before.contains(path))
            .collect()
    };
    let claimed_paths = find_claimed(&repo, &index, changes);
    let mut reverted = Vec::new();
    let mut skipped = Vec::new();
    for change in changes {
        if unchanged.contains(&change.path) {
            continue;
        }
        if checkout::find_obstacle(&checkout.worktree, &change.path).is_some() {
            skipped.push(change.path.clone());
            continue;
        }
        let is_as_written = !differing.contains(&change.path)
            || is_partial_write(filtered, &checkout.worktree, &change.path, change.after);
        let is_ours = is_as_written && !claimed_paths.contains(&change.path);
        match is_ours {
            false => skipped.push(change.path.clone()),
            true => reverted.push(change.reversed()),
        }
    }
    let (attributes, others) = commit_attributes::divide(&reverted);
    for changes in [attributes, others].iter().filter(|changes| !changes.is_empty()) {
        let mut index = checkout::open_index(checkout)?;
        let tree = WritableTree::open(&checkout.git_dir, &checkout.worktree, &mut index)?;
        let repo = &tree.repo;
        let tree = checkout::tree_of(repo, before)?;
        let cannot_revert = |error: git2::Error| {
            let what = format!("cannot put the files in {} back", checkout.worktree.display());
            filters::failure(what, &error)
        };
        let staging = Staging::create(repo, checkout)?;
        if seen.can_swap(&checkout.worktree, &staging.files, changes) {
            staging.write(repo, &tree, changes).map_err(cannot_revert)?;
            skipped.extend(file_swap::swap(&checkout.worktree, &staging.files, changes, &seen)?);
            continue;
        }
        let (deleted, written): (Vec<FileChange>, Vec<FileChange>) =
            changes.iter().cloned().partition(|change| change.after.is_none());
        deleted.iter().for_each(|change| remove(&checkout.worktree, &change.path));
        if written.is_empty() {
            // Without paths, libgit2 writes all.
            continue;
        }
        let mut builder = git2::build::CheckoutBuilder::new();
        checkout::limit_paths(&mut builder, &written);
        builder.force().update_index(false);
        repo.checkout_tree(tree.as_object(), Some(&mut builder)).map_err(cannot_revert)?;
    }
    Ok(skipped)
}

/// Returns the paths that were staged, or committed with the written content.
fn find_claimed(
    repo: &git2::Repository,
    index: &git2::Index,
    changes: &[FileChange],
) -> BTreeSet<PathBuf> {
    let head = refs::head(repo).ok().and_then(|head| head.id);
    let head = head.and_then(|id| repo.find_object(id, None).ok()?.peel_to_tree().ok());
    let entry_in = |head: &git2::Tree<'_>, path: &Path| {
        let entry = head.get_path(path).ok()?;
        Some(FileEntry { id: entry.id(), mode: u32::try_from(entry.filemode()).ok()? })
    };
    let mut claimed = BTreeSet::new();
    for change in changes {
        let staged = index.get_path(&change.path, 0);
        let staged = staged.map(|entry| FileEntry { id: entry.id, mode: entry.mode });
        let is_committed =
            head.as_ref().is_some_and(|head| entry_in(head, &change.path) == change.after);
        if staged != change.before || is_committed {
            claimed.insert(change.path.clone());
        }
    }
    claimed
}

/// Returns the paths among the changes whose file differs from a commit, with the attributes of that
/// commit.
fn differing_paths(
    checkout: &Checkout,
    repo: &git2::Repository,
    changes: &[FileChange],
    commit: &str,
) -> Result<BTreeSet<PathBuf>> {
    let (attributes, others): (Vec<FileChange>, Vec<FileChange>) =
        changes.iter().cloned().partition(commit_attributes::is_attributes_file);
    if attributes.is_empty() {
        return plain_differing_paths(repo, changes, commit);
    }
    let mut differing = plain_differing_paths(repo, &attributes, commit)?;
    let attributes = CommitAttributes::of(checkout, commit)?;
    differing.extend(attributes.differing_paths(checkout, &others, commit)?);
    Ok(differing)
}

/// Returns the paths among the changes whose file differs from a commit, with the attributes of the
/// working tree.
pub(crate) fn plain_differing_paths(
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
    let mut paths = BTreeSet::new();
    for delta in diff.deltas() {
        for file in [delta.old_file(), delta.new_file()] {
            paths.extend(file.path().map(Path::to_owned));
        }
    }
    Ok(paths)
}

/// Returns whether a file is missing, or contains only the start of the written content.
fn is_partial_write(
    repo: &git2::Repository,
    worktree: &Path,
    relative: &Path,
    entry: Option<FileEntry>,
) -> bool {
    let path = &worktree.join(relative);
    match path.symlink_metadata() {
        Err(_) => true,
        Ok(metadata) if !metadata.is_file() => false,
        Ok(_) => {
            let blob = entry.and_then(|entry| repo.find_blob(entry.id).ok());
            // A file that cannot be read may be the user's.
            let Ok(content) = fs::read(path) else { return false };
            content.is_empty()
                || blob.is_some_and(|blob| {
                    let smudged = filters::smudged(repo, relative, blob.content());
                    smudged.as_deref().unwrap_or(blob.content()).starts_with(&content)
                })
        }
    }
}

/// Removes a written file, and the directories that are empty without it.
fn remove(worktree: &Path, path: &Path) {
    let _ = fs::remove_file(worktree.join(path));
    file_swap::remove_empty_parents(worktree, path);
}

/// Writes the new index: the entries of landed paths as in the commit, all others unchanged. A path
/// whose entry has changed in between is skipped. The caller holds the lock of the index.
pub(crate) fn write_index(
    checkout: &Checkout,
    index: &mut CheckoutIndex,
    changes: &[FileChange],
    after: &str,
    operation: &str,
) -> Result<()> {
    let _keep_alive = filters::keep_alive();
    let patterns = SparsePatterns::of_checkout(&checkout.git_dir)?;
    let stats: Vec<_> = changes.iter().map(|change| stat_file(checkout, change)).collect();
    // Compared after the stat: a file that was written to in between must not count as unchanged.
    let repo = checkout::open_with(checkout, &mut index.entries)?;
    let differing = differing_paths(checkout, &repo, changes, after)?;
    let mut edits = Edits::new();
    for (change, stat) in changes.iter().zip(stats) {
        let current = index.entries.get_path(&change.path, 0);
        let current = current.map(|entry| FileEntry { id: entry.id, mode: entry.mode });
        if current != change.before {
            // What is left at other paths may be in the way of the landed ones: libgit2 removes it.
            index.stored = None;
            continue;
        }
        let new_entry = change.after.map(|entry| {
            let stat = stat.filter(|_| !differing.contains(&change.path));
            let mut new_entry = index_entry(&change.path, entry, stat.as_ref());
            let path = change.path_and_mode();
            let worktree = &checkout.worktree;
            if index::is_excluded(&index.entries, worktree, patterns.as_ref(), path) {
                index::mark_excluded(&mut new_entry);
            }
            new_entry
        });
        edits.insert(change.path.as_os_str().as_bytes().to_vec(), new_entry);
    }
    let new_index = new_index_path(checkout, operation);
    index.write(&new_index, checkout, &edits).inspect_err(|_| drop(fs::remove_file(&new_index)))
}

/// Replaces the index with the new one.
pub(crate) fn install_index(checkout: &Checkout, operation: &str) -> Result<()> {
    let new_index = new_index_path(checkout, operation);
    fs::rename(&new_index, checkout.git_dir.join("index")).or_fail(cannot_write)?;
    base::files::sync_dir(&checkout.git_dir).or_fail(cannot_write)
}

/// Removes a new index that is not installed.
pub(crate) fn remove_new_index(checkout: &Checkout, operation: &str) {
    let new_index = new_index_path(checkout, operation);
    let _ = fs::remove_file(new_index.with_extension(format!("studio-{operation}.lock")));
    let _ = fs::remove_file(new_index);
}

/// Removes new indexes that a killed studio left before its intent was durable. Only called under the
/// operation lock.
pub(crate) fn remove_stale_indexes(checkout: &Checkout) {
    for entry in fs::read_dir(&checkout.git_dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(NEW_INDEX_PREFIX) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn new_index_path(checkout: &Checkout, operation: &str) -> PathBuf {
    checkout.git_dir.join(format!("{NEW_INDEX_PREFIX}{operation}"))
}

fn stat_file(checkout: &Checkout, change: &FileChange) -> Option<fs::Metadata> {
    let is_file = change.after.is_some_and(|entry| entry.mode != entry_mode::GITLINK);
    is_file.then(|| checkout.worktree.join(&change.path).symlink_metadata().ok()).flatten()
}

/// Returns the index entry of a file on disk. Without a stat, git compares the file itself.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn index_entry(
    path: &Path,
    entry: FileEntry,
    stat: Option<&fs::Metadata>,
) -> git2::IndexEntry {
    // The index has 32 bits for each of these; git truncates them as well.
    let time = |seconds: i64, nanos: i64| git2::IndexTime::new(seconds as i32, nanos as u32);
    git2::IndexEntry {
        ctime: stat.map_or(time(0, 0), |metadata| time(metadata.ctime(), metadata.ctime_nsec())),
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
