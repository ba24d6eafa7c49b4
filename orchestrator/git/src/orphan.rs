//! Finds what is left of sessions whose record is gone, for example because somebody deleted
//! `.git/studio`: worktrees, branches, registrations.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use base::failure::{OrFail, Result};
use base::id::Id;

use crate::names::{BranchTemplate, WorktreeTemplate};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::{self, SessionRepo};
use crate::{keepalive_refs, start_point, worktree};

/// The maximum time between the start of a session and its record: writing them takes milliseconds.
const CREATION_TIME: Duration = Duration::from_secs(60);

/// What is left of a session without a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The paths and the branch that the session had; its base is the branch's tip.
    pub session_repo: SessionRepo,
    /// Whether the worktree exists.
    pub has_worktree: bool,
    /// Whether the branch exists.
    pub has_branch: bool,
}

/// Returns the orphans, in the order of their ids. `is_known` returns whether a session has a
/// record.
pub fn find(
    repository: &Repository,
    branches: &BranchTemplate,
    worktrees: &WorktreeTemplate,
    is_known: impl Fn(&Id) -> bool,
) -> Result<Vec<Orphan>> {
    let repo = repository.open()?;
    let mut orphans = BTreeMap::new();
    for id in candidates(repository, &repo, worktrees)?.into_iter().filter(|id| !is_known(id)) {
        let branch = branches.branch(&id)?;
        // The user's own branch of such a name has no keepalive ref.
        let is_pinned = refs::read(&repo, &keepalive_refs::ref_name(&id))?.is_some();
        let tip = refs::read(&repo, &branch.full())?.filter(|_| is_pinned);
        let session_repo = SessionRepo {
            worktree: worktrees.worktree(repository, &id),
            git_dir: repository.session_dir(&id).join("git"),
            branch,
            base: tip.clone().unwrap_or_default(),
            id: id.clone(),
        };
        // The worktree of another repository points elsewhere.
        let pointer = worktree::pointer_in(&session_repo.worktree);
        let has_worktree = pointer.is_some_and(|it| it == session_repo::pointer(&session_repo));
        if has_worktree || tip.is_some() {
            orphans.insert(id, Orphan { session_repo, has_worktree, has_branch: tip.is_some() });
        }
    }
    Ok(orphans.into_values().collect())
}

/// Returns the ids that worktrees and keepalive refs name.
fn candidates(
    repository: &Repository,
    repo: &git2::Repository,
    worktrees: &WorktreeTemplate,
) -> Result<BTreeSet<Id>> {
    const PINS: &str = "refs/studio/pins/";
    let pins = refs::list(repo, PINS)?;
    let mut ids: BTreeSet<Id> =
        pins.keys().filter_map(|name| Id::parse(name.strip_prefix(PINS)?).ok()).collect();
    let entries = fs::read_dir(worktrees.parent(repository)).into_iter().flatten().flatten();
    ids.extend(entries.filter_map(|entry| Id::parse(entry.file_name().to_str()?).ok()));
    Ok(ids)
}

/// Removes the starts of sessions without a record, which a killed `run` or `fork` left behind. Returns
/// one sentence for each.
pub fn remove_starts(
    repository: &Repository,
    is_known: impl Fn(&Id) -> bool,
) -> Result<Vec<String>> {
    let starts = refs::list(&*repository.open()?, start_point::REF_PREFIX)?;
    let is_left = |name: &str| {
        let id = name.strip_prefix(start_point::REF_PREFIX).and_then(|id| Id::parse(id).ok());
        id.is_some_and(|id| !is_known(&id)) && !is_new(&refs::file_of(&repository.common_dir, name))
    };
    let left: Vec<_> = starts.into_iter().filter(|(name, _)| is_left(name)).collect();
    let changes: Vec<RefChange> = left
        .iter()
        .map(|(name, commit)| RefChange::new(name.clone(), Some(commit.clone()), None))
        .collect();
    refs::update_or_fail(repository, &changes, "studio: the session was not created")?;
    Ok(left
        .iter()
        .map(|(name, _)| format!("removed {name}, which belongs to no session"))
        .collect())
}

/// Returns whether a ref was written moments ago: its session may be in creation. In a reftable it may
/// have been another one.
fn is_new(file: &Path) -> bool {
    let written = file.symlink_metadata().and_then(|metadata| metadata.modified()).ok();
    let age = written.and_then(|written| written.elapsed().ok());
    age.is_some_and(|age| age < CREATION_TIME)
}

/// Removes registrations of studio's worktrees that no longer exist, of sessions without a record,
/// as `git worktree prune` does. Returns one sentence for each.
pub fn prune_registrations(
    repository: &Repository,
    worktrees: &WorktreeTemplate,
    is_known: impl Fn(&Id) -> bool,
) -> Result<Vec<String>> {
    let parent = worktrees.parent(repository);
    let _lock = worktree::lock(repository)?;
    let mut messages = Vec::new();
    for admin_dir in worktree::admin_dirs(repository)? {
        let path = worktree::worktree_of(&admin_dir);
        let id = path.file_name().and_then(|name| Id::parse(name.to_str()?).ok());
        let is_ours = path.parent() == Some(&parent)
            && id.as_ref().is_some_and(|id| worktrees.worktree(repository, id) == path);
        let is_missing = path.symlink_metadata().is_err() && parent.is_dir();
        if is_ours && is_missing && !id.is_some_and(|id| is_known(&id)) {
            let locked = admin_dir.join("locked").exists();
            if locked {
                continue;
            }
            fs::remove_dir_all(&admin_dir)
                .or_fail(|| format!("cannot remove {}", admin_dir.display()))?;
            messages.push(format!("removed the registration of the missing {}", path.display()));
        }
    }
    Ok(messages)
}
