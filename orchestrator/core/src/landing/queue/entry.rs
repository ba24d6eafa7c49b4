//! A session in the queue.

use std::collections::BTreeSet;

use base::failure::{OrFail, Result};
use base::id::Id;

use crate::landing::target::{self, LandingTarget};
use crate::landing::{self, LandingOptions, Rejection, last_look, syntax_merges};
use crate::project::Project;
use crate::radar::landing_order::{self, Candidates};
use crate::session::collect;
use crate::session_view::SessionView;
use studio_git::conflict;
use studio_git::land;
use studio_git::landing_history;
use studio_git::merge::{self, Candidate, MergeTarget, PreparedMerge};
use studio_git::partial_clone;
use studio_git::refs;
use studio_git::snapshot::{self, Snapshot, SnapshotLimits};
use studio_git::{diff, names::BranchName};

/// A session in the queue, as it was when the queue read it. Its lock is free: if it changes before
/// it lands, the queue reads it again.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The session.
    pub view: SessionView,
    /// The options of its landing, with what the user has confirmed.
    pub options: LandingOptions,
    /// Its work.
    pub snapshot: Snapshot,
    /// The tree of its work.
    pub tree: String,
    /// The branch on which it lands.
    pub target: BranchName,
    /// The merge base, if it is not that of its commits.
    base: Option<String>,
    /// The session from whose branch it started.
    pub parent: Option<Id>,
    /// The changed files.
    paths: BTreeSet<String>,
    /// Notes of the import.
    pub notes: Vec<String>,
    /// Whether the user was asked about it.
    is_examined: bool,
}

impl Entry {
    /// Reads the work of a session, and asks what its landing would ask about it. `earlier` are the
    /// entries that were read before: a session that is based on one of them lands where that one
    /// does.
    pub(super) fn read(
        project: &Project,
        id: &Id,
        options: &LandingOptions,
        earlier: &[Entry],
    ) -> std::result::Result<Entry, Rejection> {
        let _lock = landing::lock(project, id)?;
        let view = project.refresh(id)?;
        landing::refuse_state(&view, options)?;
        let record = &view.record;
        let limits = SnapshotLimits { include: options.include.clone(), ..Default::default() };
        let (collected, snapshot) = collect::fetch(&project.repository, record, &limits)?;
        let tree = landing_history::resolve(&project.repository, &snapshot.work)?.1;
        snapshot::refuse_omissions(&snapshot, &record.session_repo.worktree)?;
        let change_note = last_look::confirm(project, record, &tree, options)?;
        let parent = target::parent(project, record)?;
        let queued_parent = earlier.iter().find(|it| Some(&it.view.record.id) == parent.as_ref());
        let LandingTarget { branch, base: stack_base } = match queued_parent {
            Some(entry) if options.onto.is_none() => LandingTarget {
                branch: entry.target.clone(),
                base: Some(record.base.commit.clone()),
            },
            Some(_) | None => target::resolve(project, record, options)?,
        };
        let repo = project.repository.open()?;
        let compared =
            collect::base_for(&repo, &project.repository, record, &snapshot.head, Some(&branch))?;
        let base = compared.landed.clone().or_else(|| stack_base.clone());
        let compared_with = base.as_deref().unwrap_or(&compared.merge_base);
        let stats = diff::stats(&project.repository, compared_with, &snapshot.work)?;
        Ok(Entry {
            // It is not asked about again.
            options: LandingOptions { yes: true, ..options.clone() },
            snapshot,
            tree,
            target: branch,
            base,
            parent,
            paths: stats.paths.into_iter().collect(),
            notes: collected.notes.into_iter().chain(change_note).collect(),
            view,
            is_examined: false,
        })
    }

    /// Returns the session.
    pub(super) fn id(&self) -> &Id {
        &self.view.record.id
    }

    /// Refuses merged work that cannot land, and asks once about what the user has to confirm. `tip`
    /// is the current tip of the target.
    pub(super) fn examine(
        &mut self,
        project: &Project,
        candidate: &Candidate,
        tip: &str,
    ) -> std::result::Result<(), Rejection> {
        syntax_merges::require_checks(project, &self.view.record, candidate, &self.options)?;
        if self.is_examined {
            return Ok(land::preflight_from(&project.repository, candidate, tip)?);
        }
        let merged = (candidate, tip);
        self.options = landing::examine(project, &self.view, &self.options, &self.tree, merged)?;
        self.is_examined = true;
        Ok(())
    }

    /// Merges the work with a commit that the target has, or may get.
    pub(super) fn merge_onto(&self, project: &Project, tip: &str) -> Result<PreparedMerge> {
        merge::prepare_onto(
            &project.repository,
            &self.view.record.session_repo,
            &self.snapshot,
            MergeTarget { branch: &self.target, tip },
            syntax_merges::method(project, &self.view.record, &self.options),
            self.base.as_deref(),
            project.clock.now(),
        )
    }
}

/// Returns the order in which entries land.
pub(super) fn in_order(project: &Project, entries: &[Entry]) -> Result<Vec<usize>> {
    let index_of = |id: &Id| entries.iter().position(|entry| entry.id() == id);
    let dependencies = |entry: &Entry| -> Vec<usize> {
        entry.view.record.after.iter().chain(&entry.parent).filter_map(index_of).collect()
    };
    let mut candidates = Candidates {
        after: entries.iter().map(dependencies).collect(),
        conflicts: Vec::new(),
        is_late: vec![false; entries.len()],
    };
    let repo = project.repository.open()?;
    for first in 0..entries.len() {
        for second in first + 1..entries.len() {
            let pair = (&entries[first], &entries[second]);
            // A session and the one that it is based on have the same changes.
            let is_related = candidates.after[first].contains(&second)
                || candidates.after[second].contains(&first)
                || pair.0.target != pair.1.target;
            if !is_related && conflict(project, &repo, pair)? {
                candidates.conflicts.push((first, second));
            }
        }
    }
    Ok(landing_order::best_order(&candidates).into_iter().map(|step| step.index).collect())
}

/// Returns whether two sessions conflict. Only those are merged that changed the same file.
fn conflict(
    project: &Project,
    repo: &git2::Repository,
    (first, second): (&Entry, &Entry),
) -> Result<bool> {
    if first.paths.is_disjoint(&second.paths) {
        return Ok(false);
    }
    let works = (first.snapshot.work.as_str(), second.snapshot.work.as_str());
    partial_clone::fetch_merge(&project.repository, repo, works, None)?;
    let fail = || "cannot compare the work of two sessions";
    let commit = |entry: &Entry| repo.find_commit(refs::oid(&entry.snapshot.work)?).or_fail(fail);
    let mut index = merge::merge_with_base(repo, &commit(first)?, &commit(second)?, None)?;
    Ok(!conflict::resolve(repo, &mut index)?.is_empty())
}
