//! Rebases a session's commits, one by one, in memory.

use base::failure::{OrFail, Result};

use crate::conflict::{self, Conflict};
use crate::snapshot::Snapshot;
use crate::{merge, refs, tree_limits};

/// The tree of all of the work, and the replayed commits.
type ReplayedWork = (git2::Oid, Vec<git2::Oid>);

/// Replays the commits that the target and `base` do not have, oldest first, with author and
/// message; merge commits and empty commits are skipped. Uncommitted changes come last and are in the
/// tree only.
pub(crate) fn replay(
    repo: &git2::Repository,
    onto: &git2::Commit<'_>,
    snapshot: &Snapshot,
    base: Option<&str>,
    now: jiff::Timestamp,
) -> Result<std::result::Result<ReplayedWork, Vec<Conflict>>> {
    let target = onto.tree().or_fail(cannot)?;
    merge::set_attributes(repo, &target)?;
    let mut last = onto.clone();
    let mut hidden = vec![onto.id()];
    hidden.extend(base.map(refs::oid).transpose()?);
    for id in commits_to_replay(repo, &hidden, refs::oid(&snapshot.head)?).or_fail(cannot)? {
        let commit = repo.find_commit(id).or_fail(cannot)?;
        tree_limits::refuse(repo, &[&id.to_string()], &target)?;
        let tree = match pick(repo, &commit, &last, 0)? {
            Ok(tree) => tree,
            Err(conflicts) => return Ok(Err(conflicts)),
        };
        if tree != last.tree_id() {
            last = commit_on(repo, &commit, &last, tree, now).or_fail(cannot)?;
        }
    }
    if !snapshot.is_dirty() {
        return Ok(Ok((last.tree_id(), vec![last.id()])));
    }
    let work = repo.find_commit(refs::oid(&snapshot.work)?).or_fail(cannot)?;
    let mainline = u32::from(work.parent_count() > 1);
    Ok(pick(repo, &work, &last, mainline)?.map(|tree| (tree, vec![last.id()])))
}

fn commits_to_replay(
    repo: &git2::Repository,
    hidden: &[git2::Oid],
    head: git2::Oid,
) -> std::result::Result<Vec<git2::Oid>, git2::Error> {
    let mut walk = repo.revwalk()?;
    walk.set_sorting(git2::Sort::TOPOLOGICAL | git2::Sort::REVERSE)?;
    walk.push(head)?;
    for id in hidden {
        walk.hide(*id)?;
    }
    let mut commits = Vec::new();
    for id in walk {
        let id = id?;
        if repo.find_commit(id)?.parent_count() <= 1 {
            commits.push(id);
        }
    }
    Ok(commits)
}

fn pick(
    repo: &git2::Repository,
    commit: &git2::Commit<'_>,
    onto: &git2::Commit<'_>,
    mainline: u32,
) -> Result<std::result::Result<git2::Oid, Vec<Conflict>>> {
    let mut index = repo.cherrypick_commit(commit, onto, mainline, None).or_fail(cannot)?;
    let conflicts = conflict::resolve(repo, &mut index)?;
    if !conflicts.is_empty() {
        return Ok(Err(conflicts));
    }
    index.write_tree_to(repo).map(Ok).or_fail(cannot)
}

fn commit_on<'repo>(
    repo: &'repo git2::Repository,
    commit: &git2::Commit<'_>,
    onto: &git2::Commit<'_>,
    tree: git2::Oid,
    now: jiff::Timestamp,
) -> std::result::Result<git2::Commit<'repo>, git2::Error> {
    let signature = crate::repo::signature(repo, now)?;
    let message = String::from_utf8_lossy(commit.message_bytes()).into_owned();
    let tree = repo.find_tree(tree)?;
    let id = repo.commit(None, &commit.author(), &signature, &message, &tree, &[onto])?;
    repo.find_commit(id)
}

fn cannot() -> &'static str {
    "cannot replay the session's commits on the target"
}
