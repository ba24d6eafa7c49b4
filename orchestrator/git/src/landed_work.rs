//! Whether a session's work is in its target although studio did not land it: merged, rebased or
//! squashed by other means, such as a pull request.

use std::collections::BTreeMap;

use base::failure::{OrFail, Result};
use serde::{Deserialize, Serialize};

use crate::object_quarantine::Quarantine;
use crate::repo::Repository;
use crate::{merge, partial_clone, refs, tree_diff};

/// Maximum number of commits of the target whose changes are compared with those of the work.
const MAX_COMMITS: usize = 1_000;

/// How the target has the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LandedBy {
    /// The target is at the work's last commit.
    SameCommit,
    /// The target contains the work's last commit.
    Ancestor,
    /// The work's commits together change nothing.
    NoAddedChanges,
    /// The target has the same files.
    SameTree,
    /// A merge with the target would add nothing.
    MergeAddsNothing,
    /// Commits of the target make the same changes.
    PatchId,
}

/// Work that is in its target already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandedWork {
    /// How.
    pub by: LandedBy,
    /// The commit of the target that has it.
    pub commit: String,
}

/// The work of a session, to be searched for in a target.
#[derive(Clone, Copy, Debug)]
pub struct WorkCommits<'a> {
    /// The commit that the session started from.
    pub start: &'a str,
    /// The merge base with the target when the work was collected.
    pub base: &'a str,
    /// The session's last commit.
    pub head: &'a str,
    /// A commit with all of the work, uncommitted changes included.
    pub work: &'a str,
}

impl LandedBy {
    /// Returns the name in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            LandedBy::SameCommit => "same-commit",
            LandedBy::Ancestor => "ancestor",
            LandedBy::NoAddedChanges => "no-added-changes",
            LandedBy::SameTree => "same-tree",
            LandedBy::MergeAddsNothing => "merge-adds-nothing",
            LandedBy::PatchId => "patch-id",
        }
    }
}

impl LandedWork {
    /// Says how the target has the work, in one clause.
    pub fn clause(&self, target: &str) -> String {
        match self.by {
            LandedBy::SameCommit => format!("`{target}` is at its last commit"),
            LandedBy::Ancestor => format!("`{target}` contains its commits"),
            LandedBy::NoAddedChanges => "its commits together change nothing".to_owned(),
            LandedBy::SameTree => format!("`{target}` has the same files"),
            LandedBy::MergeAddsNothing => format!("`{target}` has all of its changes"),
            LandedBy::PatchId => {
                let commit = base::text::head(&self.commit, 12);
                format!("{commit} on `{target}` makes the same changes")
            }
        }
    }
}

/// Searches for the work in the target, whose tip is given. Work that landed and was reverted is not
/// found. Writes nothing to the repository.
pub fn find(
    repository: &Repository,
    commits: WorkCommits<'_>,
    tip: &str,
) -> Result<Option<LandedWork>> {
    let scratch = Quarantine::open(repository)?;
    let search = Search {
        scratch: &scratch,
        start: refs::oid(commits.start)?,
        base: refs::oid(commits.base)?,
        head: refs::oid(commits.head)?,
        work: refs::oid(commits.work)?,
        tip: refs::oid(tip)?,
    };
    let is_partial = partial_clone::is_partial(&*repository.open()?)?;
    match search.run() {
        // A file of a commit of the target may be missing. It is not fetched: this is asked often.
        Err(_) if is_partial => Ok(None),
        result => result,
    }
}

struct Search<'a> {
    scratch: &'a Quarantine,
    start: git2::Oid,
    base: git2::Oid,
    head: git2::Oid,
    work: git2::Oid,
    tip: git2::Oid,
}

impl Search<'_> {
    fn run(&self) -> Result<Option<LandedWork>> {
        let repo = &self.scratch.repo;
        let [work, head, tip] = [self.work, self.head, self.tip].map(|commit| self.tree(commit));
        let (work, head, tip) = (work?, head?, tip?);
        let has_commits = self.head != self.start;
        let is_committed = work == head;
        if !has_commits && is_committed {
            return Ok(None);
        }
        let found = |by| Ok(Some(LandedWork { by, commit: self.tip.to_string() }));
        if is_committed && self.head == self.tip {
            return found(LandedBy::SameCommit);
        }
        if is_committed && repo.graph_descendant_of(self.tip, self.head).or_fail(cannot)? {
            let base = self.tree(self.base)?;
            return match base != work && self.is_reverted(base, work, tip)? {
                true => Ok(None),
                false => found(LandedBy::Ancestor),
            };
        }
        let Ok(merge_base) = repo.merge_base(self.head, self.tip) else { return Ok(None) };
        let base = self.tree(merge_base)?;
        if base == work {
            return match is_committed {
                true => found(LandedBy::NoAddedChanges),
                false => Ok(None),
            };
        }
        if work == tip {
            return found(LandedBy::SameTree);
        }
        if merge_base == self.tip {
            // The target has nothing new in which the work could be.
            return Ok(None);
        }
        if self.merge_adds_nothing(tip)? && !self.is_reverted(base, work, tip)? {
            return found(LandedBy::MergeAddsNothing);
        }
        match self.same_patch(merge_base, (base, work), is_committed)? {
            Some(commit) if !self.is_reverted(base, work, tip)? => {
                Ok(Some(LandedWork { by: LandedBy::PatchId, commit: commit.to_string() }))
            }
            Some(_) | None => Ok(None),
        }
    }

    fn tree(&self, commit: git2::Oid) -> Result<git2::Oid> {
        let commit = self.scratch.repo.find_commit(commit).or_fail(cannot)?;
        Ok(commit.tree_id())
    }

    fn merge_adds_nothing(&self, tip_tree: git2::Oid) -> Result<bool> {
        let [tip, head, work] = [self.tip, self.head, self.work].map(|commit| commit.to_string());
        let merged = merge::merge_tree(self.scratch, &tip, &head, &work, None)?;
        Ok(merged.is_ok_and(|tree| tree == tip_tree))
    }

    /// Returns whether taking the changes from `base` to `work` out of the tip would change nothing:
    /// they are not there.
    fn is_reverted(&self, base: git2::Oid, work: git2::Oid, tip: git2::Oid) -> Result<bool> {
        let repo = &self.scratch.repo;
        let revert = || -> std::result::Result<bool, git2::Error> {
            let (ancestor, ours) = (repo.find_tree(work)?, repo.find_tree(tip)?);
            let theirs = repo.find_tree(base)?;
            let mut index = repo.merge_trees(&ancestor, &ours, &theirs, None)?;
            Ok(!index.has_conflicts() && index.write_tree_to(repo)? == tip)
        };
        revert().or_fail(cannot)
    }

    /// Returns the commit of the target that makes the same changes as the work as a whole, or the
    /// last of those that make the changes of its commits.
    fn same_patch(
        &self,
        merge_base: git2::Oid,
        (base, work): (git2::Oid, git2::Oid),
        is_committed: bool,
    ) -> Result<Option<git2::Oid>> {
        let mut of_target = BTreeMap::new();
        for commit in self.commits(merge_base, self.tip)? {
            if let Some(id) = self.patch_of_commit(commit)? {
                of_target.entry(id).or_insert(commit);
            }
        }
        if let Some(id) = self.patch(base, work)?
            && let Some(commit) = of_target.get(&id)
        {
            return Ok(Some(*commit));
        }
        if !is_committed {
            return Ok(None);
        }
        // From the newest: the first one found is the last that landed.
        let mut last = None;
        for commit in self.commits(merge_base, self.head)? {
            let Some(id) = self.patch_of_commit(commit)? else { continue };
            match of_target.get(&id) {
                Some(landed) => last = last.or(Some(*landed)),
                None => return Ok(None),
            }
        }
        Ok(last)
    }

    /// Returns the commits that are reachable from `to` and not from `from`, newest first.
    fn commits(&self, from: git2::Oid, to: git2::Oid) -> Result<Vec<git2::Oid>> {
        let walk = || -> std::result::Result<Vec<git2::Oid>, git2::Error> {
            let mut walk = self.scratch.repo.revwalk()?;
            walk.set_sorting(git2::Sort::TOPOLOGICAL)?;
            walk.push(to)?;
            walk.hide(from)?;
            walk.take(MAX_COMMITS).collect()
        };
        walk().or_fail(cannot)
    }

    /// Returns the id of a commit's changes; `None` for a merge and for an empty commit.
    fn patch_of_commit(&self, commit: git2::Oid) -> Result<Option<git2::Oid>> {
        let commit = self.scratch.repo.find_commit(commit).or_fail(cannot)?;
        let Ok(parent) = commit.parent(0) else { return Ok(None) };
        if commit.parent_count() > 1 {
            return Ok(None);
        }
        self.patch(parent.tree_id(), commit.tree_id())
    }

    /// Returns the id of the changes between two trees, without line numbers and white space.
    fn patch(&self, before: git2::Oid, after: git2::Oid) -> Result<Option<git2::Oid>> {
        if before == after {
            return Ok(None);
        }
        let repo = &self.scratch.repo;
        let compare = || -> std::result::Result<git2::Oid, git2::Error> {
            let (before, after) = (repo.find_tree(before)?, repo.find_tree(after)?);
            let options = git2::DiffOptions::new();
            tree_diff::diff_trees(repo, Some(&before), Some(&after), options)?.patchid(None)
        };
        compare().map(Some).or_fail(cannot)
    }
}

fn cannot() -> &'static str {
    "cannot search for the work in its target"
}
