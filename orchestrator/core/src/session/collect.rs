//! Collects a session's work: imports and snapshots it, and compares it with its base.

use base::clock::Clock;
use base::failure::{OrFail, Result};
use serde::{Deserialize, Serialize};

use crate::session::journal::WorkSummary;
use crate::session::record::SessionRecord;
use studio_git::check_leftovers::WorkBeforeChecks;
use studio_git::import::{self, ImportedWork};
use studio_git::patch::Comparison;
use studio_git::refs;
use studio_git::repo::Repository;
use studio_git::snapshot::{self, Omission, Snapshot, SnapshotLimits};
use studio_git::tree_limits;

/// Maximum number of paths in a note.
const SHOWN: usize = 20;

/// The collected work of a session.
#[derive(Clone, Debug)]
pub struct Collected {
    /// The imported commits.
    pub home: ImportedWork,
    /// The uncommitted changes.
    pub snapshot: Snapshot,
    /// The summary of both.
    pub work: WorkSummary,
}

/// Imports the session's commits, takes a snapshot of the uncommitted changes, and summarizes both.
pub fn collect(
    repository: &Repository,
    record: &SessionRecord,
    limits: &SnapshotLimits,
) -> Result<Collected> {
    let (home, snapshot) = fetch(repository, record, limits)?;
    let work = sum(repository, record, &home, &snapshot)?;
    Ok(Collected { home, snapshot, work })
}

/// Imports the session's commits and takes a snapshot of the uncommitted changes.
pub(crate) fn fetch(
    repository: &Repository,
    record: &SessionRecord,
    limits: &SnapshotLimits,
) -> Result<(ImportedWork, Snapshot)> {
    let mut home = import::import(repository, &record.place)?;
    let now = Clock::from_env().now();
    let snapshot = snapshot::take(repository, &record.place, &home, limits, now)?;
    if let (false, Some(number)) = (record.place.worktree.exists(), snapshot.number) {
        let name = format!("{}{number}", snapshot::prefix(&record.id));
        home.notes.push(format!(
            "uncommitted work was restored from {name}; ignored files, and files too large for it, \
             are lost"
        ));
    }
    home.notes.extend(by_checks(&snapshot.by_checks));
    Ok((home, snapshot))
}

/// Records what checks left in the worktree since the work was collected, because it is not the
/// agent's work.
pub fn note_leftovers(
    repository: &Repository,
    record: &SessionRecord,
    work: &WorkSummary,
) -> Result<()> {
    let now = Clock::from_env().now();
    let before = WorkBeforeChecks { work: work.commit(), left_out: &work.left_out };
    studio_git::check_leftovers::note(repository, &record.place, before, now)
}

/// Returns the note about files that do not land because they changed while the checks ran: either
/// the checks or the agent may have changed them.
fn by_checks(paths: &[String]) -> Option<String> {
    let shown = paths.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(" ");
    let more = match paths.len() {
        0 => return None,
        many if many > SHOWN => format!(" and {} more", many - SHOWN),
        _ => String::new(),
    };
    Some(format!(
        "changed while the checks ran, will not land: {shown}{more}; `git add` it in the worktree to \
         land it"
    ))
}

fn sum(
    repository: &Repository,
    record: &SessionRecord,
    home: &ImportedWork,
    snapshot: &Snapshot,
) -> Result<WorkSummary> {
    let base = compared_with(&repository.open()?, repository, record, &home.head)?;
    let stats = studio_git::diff::stats(repository, &base, &snapshot.work)?;
    let commits = studio_git::diff::apart(repository, &home.head, &base)?.ahead;
    let mut notes = home.notes.clone();
    notes.extend(left_out(&snapshot.left_out));
    notes.extend(unlandable(repository, &base, &home.head)?);
    Ok(WorkSummary {
        base: Some(base),
        head: home.head.clone(),
        snapshot: snapshot.is_dirty().then(|| snapshot.work.clone()),
        commits: commits as u64,
        files_changed: stats.files as u64,
        insertions: stats.insertions as u64,
        deletions: stats.deletions as u64,
        dirty: snapshot.is_dirty(),
        left_out: snapshot.left_out.iter().map(|left| left.path.clone()).collect(),
        notes,
    })
}

/// Returns the commit with which a session's work is compared: the merge base with its target
/// branch, so that commits merged from there do not count as the session's work.
fn compared_with(
    repo: &git2::Repository,
    repository: &Repository,
    record: &SessionRecord,
    head: &str,
) -> Result<String> {
    let base = &record.base.commit;
    let Some(branch) = &record.base.branch else { return Ok(base.clone()) };
    let Some(tip) = repository.tip(branch)? else { return Ok(base.clone()) };
    let (head, tip) = (refs::oid(head)?, refs::oid(&tip)?);
    let Ok(common) = repo.merge_base(head, tip) else { return Ok(base.clone()) };
    // If the branch was reset to before the base, the base still does not count as the session's
    // work.
    let started = refs::oid(base)?;
    let is_older = repo.graph_descendant_of(started, common).unwrap_or(false);
    let has_base = head == started || repo.graph_descendant_of(head, started).unwrap_or(false);
    Ok(if is_older && has_base { base.clone() } else { common.to_string() })
}

/// The changes of a session, ready to be shown.
pub struct SessionChanges {
    /// The two states of the files.
    pub comparison: Comparison,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

/// Compares the current worktree with the merge base; `None` if the worktree is missing. Imports
/// nothing and writes no ref, so it is safe while the agent works.
pub fn look_now(
    repository: &Repository,
    record: &SessionRecord,
) -> Result<Option<(SessionChanges, WorkSummary)>> {
    let place = &record.place;
    if !studio_git::worktree::is_finished(place) || !import::check_pointer(place)? {
        return Ok(None);
    }
    let repo = repository.open()?;
    let leftovers = studio_git::check_leftovers::of(&repo, &place.id)?;
    let found = studio_git::head::read(&place.git_dir)?;
    let tip = repository.tip(&place.branch)?;
    let head = found.commit.or(tip).unwrap_or_else(|| place.base.clone());
    let (on, busy) = (found.branch, found.busy);
    let home = ImportedWork { head, moved: false, on, busy, notes: Vec::new() };
    let seen = snapshot::look(repository, place, &home, &SnapshotLimits::default(), &leftovers)?;
    let base = compared_with(&seen.scratch.repo, repository, record, &home.head)?;
    let mut notes: Vec<String> = by_checks(&seen.by_checks).into_iter().collect();
    notes.extend(left_out(&seen.left_out));
    let tree = seen.tree.to_string();
    let head_tree =
        seen.scratch.repo.find_commit(refs::oid(&home.head)?).or_fail(cannot_compare)?;
    let is_dirty = head_tree.tree_id() != seen.tree;
    drop(head_tree);
    let stats = studio_git::diff::stats_in(&seen.scratch.repo, &base, &tree)?;
    let commits = studio_git::diff::apart_in(&seen.scratch.repo, &home.head, &base)?.ahead;
    let work = WorkSummary {
        base: Some(base.clone()),
        head: home.head,
        snapshot: None,
        commits: commits as u64,
        files_changed: stats.files as u64,
        insertions: stats.insertions as u64,
        deletions: stats.deletions as u64,
        dirty: is_dirty,
        left_out: seen.left_out.iter().map(|left| left.path.clone()).collect(),
        notes: notes.clone(),
    };
    let comparison =
        Comparison::of_worktree(repository, &place.git_dir, seen.scratch, &base, &tree);
    Ok(Some((SessionChanges { comparison, notes }, work)))
}

/// Returns the changes that were last collected.
pub fn look_back(
    repository: &Repository,
    record: &SessionRecord,
    work: &WorkSummary,
) -> SessionChanges {
    let base = work.base.as_ref().unwrap_or(&record.base.commit);
    let comparison = Comparison::of_commits(repository, base, work.commit());
    SessionChanges { comparison, notes: work.notes.clone() }
}

/// Returns notes about what a snapshot left out, one sentence each.
fn left_out(left_out: &[Omission]) -> impl Iterator<Item = String> {
    left_out
        .iter()
        .take(SHOWN)
        .map(|left| format!("left out: {}: {}", left.path, left.why.sentence()))
}

fn cannot_compare() -> &'static str {
    "cannot compare the work with its base"
}

/// Returns why the session's last commit could not land, as far as the commit alone shows it.
fn unlandable(repository: &Repository, base: &str, head: &str) -> Result<Option<String>> {
    let repo = repository.open()?;
    let target = studio_git::checkout::tree_of(&repo, base)?;
    Ok(tree_limits::refuse(&repo, head, &target).err().map(|failure| failure.sentence()))
}

/// How the work relates to its target branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchStanding {
    /// Number of commits that the branch does not have.
    pub ahead: usize,
    /// Number of commits of the branch that the work does not have.
    pub behind: usize,
    /// Files with conflicting changes.
    pub conflicts: Vec<String>,
}

/// Compares the work with its base branch as it is now; `None` without one. Writes nothing.
pub fn standing(
    repository: &Repository,
    record: &SessionRecord,
    work: &WorkSummary,
) -> Result<Option<BranchStanding>> {
    let Some(branch) = &record.base.branch else { return Ok(None) };
    let Some(tip) = repository.tip(branch)? else { return Ok(None) };
    let apart = studio_git::diff::apart(repository, &work.head, &tip)?;
    let repo = repository.open()?;
    let fail = || "cannot compare the work with its branch";
    let commit = |id: &str| repo.find_commit(refs::oid(id)?).or_fail(fail);
    let (ours, theirs) = (commit(&tip)?, commit(work.commit())?);
    let mut index = repo.merge_commits(&ours, &theirs, None).or_fail(fail)?;
    let conflicts = studio_git::conflict::settle(&repo, &mut index)?;
    Ok(Some(BranchStanding {
        ahead: apart.ahead,
        behind: apart.behind,
        conflicts: conflicts.into_iter().map(|conflict| conflict.path).collect(),
    }))
}

/// Returns the session's changes since its base as a patch, including uncommitted ones, as they
/// were last collected.
pub(crate) fn diff(
    repository: &Repository,
    record: &SessionRecord,
    work: &WorkSummary,
) -> Result<String> {
    let base = work.base.as_ref().unwrap_or(&record.base.commit);
    studio_git::diff::patch(repository, base, work.commit())
}
