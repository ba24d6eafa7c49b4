//! An agent's index, read as it is or, where libgit2 cannot, rewritten on a copy by git.

use std::fs;
use std::path::Path;

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use base::process::Limits;

use crate::git::scratch::Scratch;

/// git's `CE_VALID` (assume-unchanged) among an entry's flags.
const ASSUME_UNCHANGED: u16 = 0x8000;
/// git's `CE_SKIP_WORKTREE` among an entry's extended flags.
const SKIP_WORKTREE: u16 = 1 << 14;

/// The index of a private git directory. It must never be written: it lies in the agent's hands. A
/// missing one is taken as that of the head.
pub fn open(scratch: &Scratch, git_dir: &Path, head: &git2::Commit<'_>) -> Result<git2::Index> {
    let path = git_dir.join("index");
    let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
    if !is_file {
        let mut index = git2::Index::new().or_fail(cannot)?;
        index.read_tree(&head.tree().or_fail(cannot)?).or_fail(cannot)?;
        return Ok(index);
    }
    match git2::Index::open(&path) {
        Ok(index) => Ok(index),
        Err(_) => rewritten(scratch, git_dir),
    }
}

/// A plain copy of an index in a form that only git reads: split, with unknown extensions.
fn rewritten(scratch: &Scratch, git_dir: &Path) -> Result<git2::Index> {
    for entry in fs::read_dir(git_dir).or_fail(cannot)?.flatten() {
        let name = entry.file_name();
        let wanted = name == "index" || name.to_string_lossy().starts_with("sharedindex.");
        if wanted && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            fs::copy(entry.path(), scratch.path().join(&name)).or_fail(cannot)?;
        }
    }
    let args = ["-c", "core.splitIndex=false", "-c", "index.skipHash=false", "update-index"];
    let args = args.into_iter().chain(["--no-split-index", "--force-write-index"]);
    let output = Git::at(scratch.path())
        .job(args)
        .env("GIT_INDEX_FILE", scratch.path().join("index"))
        .output(Limits::seconds(120))
        .or_fail(|| "cannot start git")?;
    if !output.ok() {
        return Err(Failure::failed(cannot()).because(output.error_text()));
    }
    git2::Index::open(&scratch.path().join("index")).or_fail(cannot)
}

/// What is staged, as a tree; none while a merge has left conflicts in it. Flags that hide changes
/// are taken off entries whose file is there.
pub fn staged_tree(repo: &git2::Repository, index: &mut git2::Index) -> Result<Option<git2::Oid>> {
    // Intent-to-add entries name the empty blob, which nobody may have written yet.
    repo.blob(b"").or_fail(cannot)?;
    if index.has_conflicts() {
        return Ok(None);
    }
    index.write_tree_to(repo).map(Some).or_fail(cannot)
}

/// Makes libgit2 look at files that the agent told its git not to look at.
pub fn unhide(index: &mut git2::Index, worktree: &Path) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let hidden: Vec<git2::IndexEntry> = index
        .iter()
        .filter(|entry| {
            entry.flags & ASSUME_UNCHANGED != 0 || entry.flags_extended & SKIP_WORKTREE != 0
        })
        .collect();
    for mut entry in hidden {
        let path = worktree.join(std::ffi::OsStr::from_bytes(&entry.path));
        if path.symlink_metadata().is_ok() {
            entry.flags &= !ASSUME_UNCHANGED;
            entry.flags_extended &= !SKIP_WORKTREE;
            index.add(&entry).or_fail(cannot)?;
        }
    }
    Ok(())
}

/// Whether a path is left out of a sparse checkout: its entry says so, and no file is there. Only
/// the entry changes when it lands.
pub fn is_left_out(index: &git2::Index, worktree: &Path, path: &Path) -> bool {
    let skipped = |entry: git2::IndexEntry| entry.flags_extended & SKIP_WORKTREE != 0;
    index.get_path(path, 0).is_some_and(skipped) && worktree.join(path).symlink_metadata().is_err()
}

/// Marks an entry as left out of a sparse checkout.
pub fn leave_out(entry: &mut git2::IndexEntry) {
    entry.flags_extended |= SKIP_WORKTREE;
}

/// Whether an entry is one that git is told not to look at.
pub fn is_hidden(entry: &git2::IndexEntry) -> bool {
    entry.flags & ASSUME_UNCHANGED != 0 || entry.flags_extended & SKIP_WORKTREE != 0
}

fn cannot() -> &'static str {
    "cannot read the session's index"
}
