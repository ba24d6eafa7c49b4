//! The difference between two commits, as numbers and as text. Runs no program that a repository
//! names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use base::failure::{OrFail, Result};
use serde::{Deserialize, Serialize};

use crate::object_format;
use crate::refs;
use crate::repo::Repository;
use crate::stage::is_g3s_own;
use crate::tree_diff;

/// The size of a difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffStats {
    /// The number of changed files.
    pub files: usize,
    /// The number of inserted lines.
    pub insertions: usize,
    /// The number of deleted lines.
    pub deletions: usize,
    /// The changed files, as relative paths; bytes that are not UTF-8 are replaced.
    pub paths: Vec<String>,
}

/// The distance between two commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitDistance {
    /// Number of commits that only the first one has.
    pub ahead: usize,
    /// Number of commits that only the second one has.
    pub behind: usize,
}

/// Returns the size of the difference between two commits.
pub fn stats(repository: &Repository, from: &str, to: &str) -> Result<DiffStats> {
    stats_in(&*repository.open()?, from, to)
}

/// Returns the size of the difference between two commits or trees, read from a given repository.
pub fn stats_in(repo: &git2::Repository, from: &str, to: &str) -> Result<DiffStats> {
    stats_of(&diff_trees(repo, from, to)?)
}

/// Returns the size of a difference.
pub(crate) fn stats_of(diff: &git2::Diff<'_>) -> Result<DiffStats> {
    let mut stats = DiffStats::default();
    for delta in diff.deltas() {
        if let Some(path) = path_of(&delta).filter(|path| !is_g3s_own(path)) {
            stats.paths.push(path.to_string_lossy().into_owned());
        }
    }
    stats.files = stats.paths.len();
    let mut count =
        |delta: git2::DiffDelta<'_>, _: Option<git2::DiffHunk<'_>>, line: git2::DiffLine<'_>| {
            if path_of(&delta).is_some_and(|path| !is_g3s_own(path)) {
                match line.origin() {
                    '+' => stats.insertions += 1,
                    '-' => stats.deletions += 1,
                    _ => {}
                }
            }
            true
        };
    diff.foreach(&mut |_, _| true, None, None, Some(&mut count)).or_fail(cannot)?;
    Ok(stats)
}

/// Returns the difference as a patch for a model; bytes that are not UTF-8 are replaced.
pub fn patch(repository: &Repository, from: &str, to: &str) -> Result<String> {
    let repo = repository.open()?;
    let diff = diff_trees(&repo, from, to)?;
    let mut text = Vec::new();
    diff.print(git2::DiffFormat::Patch, |delta, _, line| {
        if path_of(&delta).is_some_and(|path| !is_g3s_own(path)) {
            if matches!(line.origin(), '+' | '-' | ' ') {
                text.push(u8::try_from(line.origin()).unwrap_or(b' '));
            }
            text.extend_from_slice(line.content());
        }
        true
    })
    .or_fail(cannot)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns an id of the changed lines of the difference. It does not depend on lines around them, so
/// that the same work has the same id on another state of the target.
pub fn change_id(repository: &Repository, from: &str, to: &str) -> Result<String> {
    let repo = repository.open()?;
    let mut options = git2::DiffOptions::new();
    options.include_typechange(true).context_lines(0);
    let diff = compare_trees(&repo, from, to, options)?;
    let text = std::cell::RefCell::new(Vec::new());
    let is_counted = |delta: &git2::DiffDelta<'_>| path_of(delta).is_some_and(|it| !is_g3s_own(it));
    let mut on_file = |delta: git2::DiffDelta<'_>, _: f32| {
        if is_counted(&delta) {
            let (old, new) = (delta.old_file(), delta.new_file());
            let header = format!("\0{:?} {:?} {:?}\0", delta.status(), old.mode(), new.mode());
            let mut text = text.borrow_mut();
            text.extend_from_slice(header.as_bytes());
            text.extend_from_slice(new.path_bytes().unwrap_or_default());
        }
        true
    };
    let mut on_binary = |delta: git2::DiffDelta<'_>, _: git2::DiffBinary<'_>| {
        if is_counted(&delta) {
            let ids = format!("\0{} {}", delta.old_file().id(), delta.new_file().id());
            text.borrow_mut().extend_from_slice(ids.as_bytes());
        }
        true
    };
    let mut on_line =
        |delta: git2::DiffDelta<'_>, _: Option<git2::DiffHunk<'_>>, line: git2::DiffLine<'_>| {
            if is_counted(&delta) && matches!(line.origin(), '+' | '-') {
                let mut text = text.borrow_mut();
                text.push(u8::try_from(line.origin()).unwrap_or(b' '));
                text.extend_from_slice(line.content());
            }
            true
        };
    diff.foreach(&mut on_file, Some(&mut on_binary), None, Some(&mut on_line)).or_fail(cannot)?;
    // Not an object of the repository: the same in each format.
    let id = object_format::hash_blob(&text.borrow(), git2::ObjectFormat::Sha1);
    Ok(id.or_fail(cannot)?.to_string())
}

/// Returns how many commits the first is ahead of and behind the second.
pub fn commit_distance(
    repository: &Repository,
    first: &str,
    second: &str,
) -> Result<CommitDistance> {
    commit_distance_in(&*repository.open()?, first, second)
}

/// Returns how many commits the first is ahead of and behind the second, read from a given
/// repository.
pub fn commit_distance_in(
    repo: &git2::Repository,
    first: &str,
    second: &str,
) -> Result<CommitDistance> {
    let (ahead, behind) =
        repo.graph_ahead_behind(refs::oid(first)?, refs::oid(second)?).or_fail(cannot)?;
    Ok(CommitDistance { ahead, behind })
}

/// Returns the difference, with rename detection.
pub(crate) fn diff_trees<'repo>(
    repo: &'repo git2::Repository,
    from: &str,
    to: &str,
) -> Result<git2::Diff<'repo>> {
    let mut options = git2::DiffOptions::new();
    options.include_typechange(true);
    let mut diff = compare_trees(repo, from, to, options)?;
    diff.find_similar(None).or_fail(cannot)?;
    Ok(diff)
}

fn compare_trees<'repo>(
    repo: &'repo git2::Repository,
    from: &str,
    to: &str,
    options: git2::DiffOptions,
) -> Result<git2::Diff<'repo>> {
    let tree = |id: &str| -> Result<git2::Tree<'_>> {
        let object = repo.find_object(refs::oid(id)?, None).or_fail(cannot)?;
        object.peel_to_tree().or_fail(cannot)
    };
    tree_diff::diff_trees(repo, Some(&tree(from)?), Some(&tree(to)?), options).or_fail(cannot)
}

fn path_of<'a>(delta: &git2::DiffDelta<'a>) -> Option<&'a Path> {
    delta.new_file().path().or_else(|| delta.old_file().path())
}

fn cannot() -> &'static str {
    "cannot compare the commits"
}

/// Returns the difference between two contents of a file with this name, as a patch.
pub fn between(name: &[u8], before: &[u8], after: &[u8]) -> Result<String> {
    let name = Path::new(OsStr::from_bytes(name));
    let create = || -> std::result::Result<String, git2::Error> {
        let patch = git2::Patch::from_buffers(before, Some(name), after, Some(name), None);
        Ok(String::from_utf8_lossy(&patch?.to_buf()?).into_owned())
    };
    create().or_fail(|| "cannot compare the files")
}
