//! Conflicts of an in-memory merge that a merge by syntax resolves: both sides added an import, a
//! function or an entry of a list at the same place.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use base::failure::{OrFail, Result};

use crate::conflict::Conflict;
use crate::entry_mode;

/// The bits of an index entry's flags that are its stage.
const STAGE_BITS: u16 = 0x3000;

/// A file that was merged by syntax.
pub(crate) struct SyntaxMerge {
    entry: git2::IndexEntry,
    text: Vec<u8>,
}

/// Merges the files that conflict by their syntax, and marks the conflicts that this resolves. The
/// index stays as it is.
pub(crate) fn find(
    repo: &git2::Repository,
    index: &git2::Index,
    conflicts: &mut [Conflict],
) -> Result<Vec<SyntaxMerge>> {
    let mut merges = Vec::new();
    if conflicts.is_empty() || !index.has_conflicts() {
        return Ok(merges);
    }
    for conflict in index.conflicts().or_fail(cannot)? {
        let Some(merge) = merge(repo, &conflict.or_fail(cannot)?)? else { continue };
        let path = String::from_utf8_lossy(&merge.entry.path);
        if let Some(conflict) = conflicts.iter_mut().find(|conflict| conflict.path == path) {
            conflict.merges_by_syntax = true;
            merges.push(merge);
        }
    }
    Ok(merges)
}

/// Puts the merged files into the index, in place of their conflicts; returns their paths.
pub(crate) fn apply(
    repo: &git2::Repository,
    index: &mut git2::Index,
    merges: Vec<SyntaxMerge>,
) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for SyntaxMerge { mut entry, text } in merges {
        let path = Path::new(OsStr::from_bytes(&entry.path)).to_owned();
        entry.id = repo.blob(&text).or_fail(cannot)?;
        index.conflict_remove(&path).or_fail(cannot)?;
        index.add(&entry).or_fail(cannot)?;
        paths.push(path.to_string_lossy().into_owned());
    }
    paths.sort();
    Ok(paths)
}

/// Merges a file by its syntax; `None` if that is not possible.
fn merge(repo: &git2::Repository, conflict: &git2::IndexConflict) -> Result<Option<SyntaxMerge>> {
    let (Some(base), Some(ours), Some(theirs)) =
        (&conflict.ancestor, &conflict.our, &conflict.their)
    else {
        return Ok(None);
    };
    let all = [base, ours, theirs];
    let is_plain = |entry: &&git2::IndexEntry| entry_mode::is_file(entry.mode);
    let is_same = |entry: &&git2::IndexEntry| entry.path == base.path && entry.mode == base.mode;
    if !all.iter().all(is_plain) || !all.iter().all(is_same) {
        return Ok(None);
    }
    let path = Path::new(OsStr::from_bytes(&base.path));
    // The user chose how such a file is merged.
    let flags = git2::AttrCheckFlags::INDEX_ONLY;
    if repo.get_attr_bytes(path, "merge", flags).or_fail(cannot)?.is_some() {
        return Ok(None);
    }
    let blob = |entry: &git2::IndexEntry| repo.find_blob(entry.id).or_fail(cannot);
    let (old, our, their) = (blob(base)?, blob(ours)?, blob(theirs)?);
    let merged = syntax_merge::merge(path, old.content(), our.content(), their.content());
    let Some(text) = merged else { return Ok(None) };
    let flags = ours.flags & !STAGE_BITS;
    let entry = git2::IndexEntry { flags, path: ours.path.clone(), ..*ours };
    Ok(Some(SyntaxMerge { entry, text }))
}

fn cannot() -> &'static str {
    "cannot merge the conflicting files by their syntax"
}
