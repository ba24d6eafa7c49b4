//! The commits of a branch, newest first: those of its own, not those of merged branches.

use base::failure::{OrFail, Result};

use crate::diff::{self, DiffStats};
use crate::refs;
use crate::repo::Repository;

/// A commit with the size of its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitSummary {
    /// The commit.
    pub id: String,
    /// The first line of its message; bytes that are not UTF-8 are replaced.
    pub subject: String,
    /// Its changes since its first parent.
    pub stats: DiffStats,
}

/// Returns the commits from `tip` along first parents that `since` does not have, at most `max` of
/// those that are listed.
pub fn first_parents(
    repository: &Repository,
    tip: &str,
    since: Option<&str>,
    is_listed: impl Fn(&str) -> bool,
    max: usize,
) -> Result<Vec<String>> {
    let repo = repository.open()?;
    let mut walk = repo.revwalk().or_fail(cannot)?;
    walk.simplify_first_parent().or_fail(cannot)?;
    walk.set_sorting(git2::Sort::TOPOLOGICAL).or_fail(cannot)?;
    walk.push(refs::oid(tip)?).or_fail(cannot)?;
    if let Some(since) = since {
        walk.hide(refs::oid(since)?).or_fail(cannot)?;
    }
    let mut commits = Vec::new();
    for id in walk {
        let id = id.or_fail(cannot)?.to_string();
        if commits.len() == max {
            break;
        }
        commits.extend(Some(id).filter(|id| is_listed(id)));
    }
    Ok(commits)
}

/// Returns the trees of at most `max` commits from `tip` along first parents, newest first.
pub fn trees(repository: &Repository, tip: &str, max: usize) -> Result<Vec<String>> {
    let repo = repository.open()?;
    let tip = repo.find_commit(refs::oid(tip)?).or_fail(cannot)?;
    // A shallow clone does not have the parents of its oldest commits.
    let commits = std::iter::successors(Some(tip), |commit| commit.parent(0).ok());
    Ok(commits.take(max).map(|commit| commit.tree_id().to_string()).collect())
}

/// Returns the first parent of a commit; `None` for the first commit of a history.
pub fn first_parent(repository: &Repository, commit: &str) -> Result<Option<String>> {
    let repo = repository.open()?;
    let commit = repo.find_commit(refs::oid(commit)?).or_fail(cannot)?;
    Ok(commit.parent_id(0).ok().map(|id| id.to_string()))
}

/// Returns whether a commit exists.
pub fn exists(repository: &Repository, commit: &str) -> Result<bool> {
    Ok(repository.open()?.find_commit(refs::oid(commit)?).is_ok())
}

/// Returns the first line and the size of a commit.
pub fn summary(repository: &Repository, id: &str) -> Result<CommitSummary> {
    let repo = repository.open()?;
    let commit = repo.find_commit(refs::oid(id)?).or_fail(cannot)?;
    let message = String::from_utf8_lossy(commit.message_bytes()).into_owned();
    let subject = message.lines().next().unwrap_or_default().to_owned();
    let parent = commit.parent(0).ok().map(|parent| parent.tree()).transpose().or_fail(cannot)?;
    let tree = commit.tree().or_fail(cannot)?;
    let difference = repo.diff_tree_to_tree(parent.as_ref(), Some(&tree), None).or_fail(cannot)?;
    let stats = diff::stats_of(&difference)?;
    Ok(CommitSummary { id: id.to_owned(), subject, stats })
}

fn cannot() -> &'static str {
    "cannot read the history"
}
