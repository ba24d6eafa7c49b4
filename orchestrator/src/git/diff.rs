//! What differs between two commits, in numbers and as text. Nothing a repository names is run.

use std::path::Path;

use base::failure::{OrFail, Result};
use serde::{Deserialize, Serialize};

use crate::git::gather::is_g3s_own;
use crate::git::refs;
use crate::git::repo::Repository;

/// How much differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Files that differ.
    pub files: usize,
    /// Lines that were added.
    pub insertions: usize,
    /// Lines that were taken away.
    pub deletions: usize,
    /// The files, relative paths; bytes that are not UTF-8 are replaced.
    pub paths: Vec<String>,
}

/// How many commits two commits are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apart {
    /// Commits only in the first.
    pub ahead: usize,
    /// Commits only in the second.
    pub behind: usize,
}

/// How much differs between two commits.
pub fn stats(repository: &Repository, from: &str, to: &str) -> Result<Stats> {
    let repo = repository.open()?;
    let mut stats = Stats::default();
    let diff = between(&repo, from, to)?;
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

/// One line per changed file, as `git diff --stat` has it.
pub fn stat(repository: &Repository, from: &str, to: &str, width: usize) -> Result<String> {
    let repo = repository.open()?;
    let stats = between(&repo, from, to)?.stats().or_fail(cannot)?;
    let text = stats.to_buf(git2::DiffStatsFormat::FULL, width).or_fail(cannot)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The difference as a patch that `git apply` takes; for people, bytes that are not UTF-8 are
/// replaced.
pub fn patch(repository: &Repository, from: &str, to: &str) -> Result<String> {
    let repo = repository.open()?;
    let diff = between(&repo, from, to)?;
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

/// How many commits the first is ahead of and behind the second.
pub fn apart(repository: &Repository, one: &str, other: &str) -> Result<Apart> {
    let repo = repository.open()?;
    let (ahead, behind) =
        repo.graph_ahead_behind(refs::oid(one)?, refs::oid(other)?).or_fail(cannot)?;
    Ok(Apart { ahead, behind })
}

/// The difference, with renames found.
fn between<'repo>(
    repo: &'repo git2::Repository,
    from: &str,
    to: &str,
) -> Result<git2::Diff<'repo>> {
    let tree = |id: &str| repo.find_commit(refs::oid(id)?).and_then(|it| it.tree()).or_fail(cannot);
    let mut options = git2::DiffOptions::new();
    options.include_typechange(true);
    let mut diff = repo
        .diff_tree_to_tree(Some(&tree(from)?), Some(&tree(to)?), Some(&mut options))
        .or_fail(cannot)?;
    diff.find_similar(None).or_fail(cannot)?;
    Ok(diff)
}

fn path_of<'a>(delta: &git2::DiffDelta<'a>) -> Option<&'a Path> {
    delta.new_file().path().or_else(|| delta.old_file().path())
}

fn cannot() -> &'static str {
    "cannot compare the commits"
}
