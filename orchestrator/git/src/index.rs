//! Reads a copy of an agent's index; git rewrites the copy if libgit2 cannot read it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use base::process::OutputLimits;
use git2::build::TreeUpdateBuilder;
use tempfile::NamedTempFile;

use crate::checkout::FileEntry;
use crate::entry_mode;
use crate::object_quarantine::Quarantine;
use crate::safe_open::SafeDir;
use crate::sparse::{self, SparsePatterns};
use crate::stored_index::StoredIndex;

/// git's `CE_VALID` (assume-unchanged) in an entry's flags.
pub(crate) const ASSUME_UNCHANGED: u16 = 0x8000;
/// git's `CE_SKIP_WORKTREE` in an entry's extended flags.
pub(crate) const SKIP_WORKTREE: u16 = 1 << 14;

/// Maximum size of an index that is read, in bytes; an index of a million files has about a tenth
/// of it.
const MAX_INDEX_BYTES: u64 = 1 << 30;
/// Maximum number of copied parts of a split index: git keeps one or two.
const MAX_SHARED_PARTS: usize = 8;

/// Copies the index of a private git directory to a scratch directory, so that the agent cannot
/// change what is read. A missing index, one that is not a regular file, and one that is larger
/// than any repository needs are not copied.
pub(crate) fn copy(scratch: &Quarantine, git_dir: &Path) -> Result<()> {
    let copy = || -> std::io::Result<()> {
        let safe_git_dir = SafeDir::open(git_dir)?;
        if !safe_git_dir.copy("index", MAX_INDEX_BYTES, &scratch.path().join("index"))? {
            return Ok(());
        }
        let names = safe_git_dir.names()?.into_iter();
        let shared_parts = names.filter(|name| name.to_string_lossy().starts_with("sharedindex."));
        for name in shared_parts.take(MAX_SHARED_PARTS) {
            safe_git_dir.copy(&name, MAX_INDEX_BYTES, &scratch.path().join(&name))?;
        }
        Ok(())
    };
    copy().or_fail(cannot)
}

/// Opens the copied index. A missing one is replaced by that of HEAD, with the sparse patterns of
/// the scratch directory.
pub(crate) fn open(scratch: &Path, head: &git2::Commit<'_>) -> Result<git2::Index> {
    let (path, format) = (scratch.join("index"), head.id().object_format());
    if !path.exists() {
        let mut index = git2::Index::open_ext(&path, format).or_fail(cannot)?;
        index.read_tree(&head.tree().or_fail(cannot)?).or_fail(cannot)?;
        if let Some(patterns) = SparsePatterns::read(&scratch.join(sparse::PATTERNS_FILE), false)? {
            mark_left_out(&mut index, &patterns)?;
        }
        index.write().or_fail(cannot)?;
        return Ok(index);
    }
    match git2::Index::open_ext(&path, format) {
        Ok(index) => Ok(index),
        Err(_) => rewrite(&Git::at(scratch).without_user_config(), &path, format),
    }
}

/// Rewrites a copied index of a repository in a form that libgit2 reads, and opens it: an index may be
/// split, have directories of a sparse checkout, or have unknown extensions.
pub(crate) fn rewrite(git: &Git, copy: &Path, format: git2::ObjectFormat) -> Result<git2::Index> {
    let settings = ["core.splitIndex=false", "index.sparse=false", "index.skipHash=false"];
    let args = settings.into_iter().flat_map(|setting| ["-c", setting]);
    let args = args.chain(["update-index", "--no-split-index", "--force-write-index"]);
    let output = git
        .command(args)
        .env("GIT_INDEX_FILE", copy)
        .output(OutputLimits::seconds(120))
        .or_fail(|| "cannot start git")?;
    if !output.ok() {
        return Err(Failure::failed(cannot()).because(output.error_text()));
    }
    git2::Index::open_ext(copy, format).or_fail(cannot)
}

/// The index of a worktree, in which its changes are staged in memory.
pub(crate) struct WorktreeIndex {
    /// All entries; or of a large index only those that may change.
    pub entries: git2::Index,
    /// The staged tree; `None` during a merge with conflicts, and if staged content is lost.
    pub staged: Option<git2::Oid>,
    selection: Option<Selection>,
}

/// The entries that may change, before they do.
struct Selection {
    before: BTreeMap<Vec<u8>, FileEntry>,
    tree: git2::Oid,
    _file: NamedTempFile,
}

impl WorktreeIndex {
    /// Opens the copied index.
    pub(crate) fn open(
        repo: &git2::Repository,
        scratch: &Path,
        head: &git2::Commit<'_>,
    ) -> Result<WorktreeIndex> {
        let mut entries = open(scratch, head)?;
        // Intent-to-add entries name the empty blob, which may not exist yet.
        repo.blob(b"").or_fail(cannot)?;
        let staged = match entries.has_conflicts() {
            true => None,
            false => match entries.write_tree_to(repo) {
                Ok(tree) => Some(tree),
                Err(_) if forget_lost(&mut entries, repo).or_fail(cannot)? => None,
                Err(error) => return Err(error).or_fail(cannot),
            },
        };
        Ok(WorktreeIndex { entries, staged, selection: None })
    }

    /// Opens only those entries of the copied index that may change, at these paths; `None` if its tree
    /// is not known.
    pub(crate) fn open_few<'a>(
        repo: &git2::Repository,
        scratch: &Path,
        stored: &StoredIndex,
        paths: impl IntoIterator<Item = &'a Path>,
    ) -> Result<Option<WorktreeIndex>> {
        let Some(tree) = stored.tree().filter(|tree| repo.find_tree(*tree).is_ok()) else {
            return Ok(None);
        };
        let file = stored.selection(scratch, paths).or_fail(cannot)?;
        let entries = git2::Index::open_ext(file.path(), repo.object_format()).or_fail(cannot)?;
        let selection = Selection { before: files_of(&entries), tree, _file: file };
        Ok(Some(WorktreeIndex { entries, staged: Some(tree), selection: Some(selection) }))
    }

    /// Writes the tree of all entries.
    pub(crate) fn write_tree(
        &mut self,
        repo: &git2::Repository,
        scratch: &Path,
        head: &git2::Commit<'_>,
    ) -> Result<git2::Oid> {
        let Some(selection) = &self.selection else {
            return self.entries.write_tree_to(repo).or_fail(cannot);
        };
        let after = files_of(&self.entries);
        let changed = |path: &&Vec<u8>| selection.before.get(*path) != after.get(*path);
        let paths: BTreeSet<&Vec<u8>> = selection.before.keys().chain(after.keys()).collect();
        let paths: Vec<&Vec<u8>> = paths.into_iter().filter(changed).collect();
        let removed = paths.iter().filter(|path| !after.contains_key(**path));
        if removed.count() == 0 {
            let mut update = TreeUpdateBuilder::new();
            for path in &paths {
                let FileEntry { id, mode } = after[*path];
                update.upsert(path.as_slice(), id, entry_mode::for_libgit2(mode));
            }
            let tree = repo.find_tree(selection.tree).or_fail(cannot)?;
            if let Ok(updated) = update.create_updated(repo, &tree) {
                return Ok(updated);
            }
        }
        // A directory may be empty now, or have the place of a file.
        let mut index = open(scratch, head)?;
        for path in paths {
            let path = Path::new(OsStr::from_bytes(path));
            match self.entries.get_path(path, 0) {
                Some(entry) => index.add(&entry).or_fail(cannot)?,
                None => index.remove_path(path).or_fail(cannot)?,
            }
        }
        index.write_tree_to(repo).or_fail(cannot)
    }
}

/// Makes the entries whose content does not exist, after a loss of power, differ from their files, which
/// are read instead, and writes the index, for git; returns whether there are any. Hidden entries stay as
/// they are, because they may have no file.
fn forget_lost(
    index: &mut git2::Index,
    repo: &git2::Repository,
) -> std::result::Result<bool, git2::Error> {
    let (odb, empty) = (repo.odb()?, repo.blob(b"")?);
    let is_lost = |it: &git2::IndexEntry| {
        it.mode != entry_mode::GITLINK && !is_hidden(it) && !odb.exists(it.id)
    };
    let lost: Vec<git2::IndexEntry> = index.iter().filter(is_lost).collect();
    if lost.is_empty() {
        return Ok(false);
    }
    for it in lost {
        index.add(&entry(it.path, empty, it.mode))?;
    }
    index.write()?;
    Ok(true)
}

fn files_of(index: &git2::Index) -> BTreeMap<Vec<u8>, FileEntry> {
    index.iter().map(|it| (it.path, FileEntry { id: it.id, mode: it.mode })).collect()
}

/// Returns an entry without the times and the size of a file.
pub fn entry(path: Vec<u8>, id: git2::Oid, mode: u32) -> git2::IndexEntry {
    let time = git2::IndexTime::new(0, 0);
    git2::IndexEntry {
        ctime: time,
        mtime: time,
        dev: 0,
        ino: 0,
        mode,
        uid: 0,
        gid: 0,
        file_size: 0,
        id,
        flags: 0,
        flags_extended: 0,
        path,
    }
}

/// Clears the flags by which the agent hid existing files from its git, and returns their paths.
pub(crate) fn unhide(index: &mut git2::Index, worktree: &Path) -> Result<Vec<PathBuf>> {
    let hidden_entries: Vec<git2::IndexEntry> = index
        .iter()
        .filter(|entry| {
            entry.flags & ASSUME_UNCHANGED != 0 || entry.flags_extended & SKIP_WORKTREE != 0
        })
        .collect();
    let mut unhidden = Vec::new();
    for mut entry in hidden_entries {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&entry.path));
        if worktree.join(&path).symlink_metadata().is_ok() {
            entry.flags &= !ASSUME_UNCHANGED;
            entry.flags_extended &= !SKIP_WORKTREE;
            index.add(&entry).or_fail(cannot)?;
            unhidden.push(path);
        }
    }
    Ok(unhidden)
}

/// Returns whether the path of a change is excluded from a sparse checkout: its entry says so, or
/// the patterns do where it has none; and the file does not exist. Landing changes only the entry.
pub(crate) fn is_excluded(
    index: &git2::Index,
    worktree: &Path,
    patterns: Option<&SparsePatterns>,
    (path, new_mode): (&Path, Option<u32>),
) -> bool {
    let is_left_out = match (index.get_path(path, 0), patterns, new_mode) {
        (Some(entry), _, _) => entry.flags_extended & SKIP_WORKTREE != 0,
        (None, Some(patterns), Some(mode)) => patterns.leave_out(path, mode),
        (None, _, _) => false,
    };
    is_left_out && worktree.join(path).symlink_metadata().is_err()
}

/// Marks the entries that the patterns leave out, in an index that has the files of a commit.
fn mark_left_out(index: &mut git2::Index, patterns: &SparsePatterns) -> Result<()> {
    let is_left_out = |entry: &git2::IndexEntry| {
        patterns.leave_out(Path::new(std::ffi::OsStr::from_bytes(&entry.path)), entry.mode)
    };
    let entries: Vec<git2::IndexEntry> = index.iter().filter(is_left_out).collect();
    for mut entry in entries {
        mark_excluded(&mut entry);
        index.add(&entry).or_fail(cannot)?;
    }
    Ok(())
}

/// Marks an entry as excluded from a sparse checkout.
pub(crate) fn mark_excluded(entry: &mut git2::IndexEntry) {
    entry.flags_extended |= SKIP_WORKTREE;
}

/// Returns whether git is told to ignore changes of an entry.
pub(crate) fn is_hidden(entry: &git2::IndexEntry) -> bool {
    entry.flags & ASSUME_UNCHANGED != 0 || entry.flags_extended & SKIP_WORKTREE != 0
}

fn cannot() -> &'static str {
    "cannot read the session's index"
}
