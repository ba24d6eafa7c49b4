//! Collects a session's work: imports and snapshots it, and compares it with its base.

use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use serde::{Deserialize, Serialize};

use crate::session::journal::WorkSummary;
use crate::session::record::SessionRecord;
use studio_git::accepted_hunks;
use studio_git::check_leftovers::WorkBeforeChecks;
use studio_git::handle;
use studio_git::import::{self, ImportedWork};
use studio_git::landed_work::{self, LandedWork, WorkCommits};
use studio_git::names::BranchName;
use studio_git::patch::Comparison;
use studio_git::refs;
use studio_git::repo::Repository;
use studio_git::snapshot::{self, Omission, Snapshot, SnapshotLimits, WorktreeContent};
use studio_git::{tree_limits, worktree};

/// Maximum number of paths in a note.
const MAX_PATHS: usize = 20;

/// The collected work of a session.
#[derive(Clone, Debug)]
pub struct Collected {
    /// The imported commits.
    pub imported: ImportedWork,
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
    handle::keep_open(|| {
        let (imported, snapshot) = fetch(repository, record, limits)?;
        let work = summarize(repository, record, &imported, &snapshot)?;
        Ok(Collected { imported, snapshot, work })
    })
}

/// Imports the session's commits and takes a snapshot of the uncommitted changes.
pub(crate) fn fetch(
    repository: &Repository,
    record: &SessionRecord,
    limits: &SnapshotLimits,
) -> Result<(ImportedWork, Snapshot)> {
    // The work of a session at a place has no worktree here.
    let is_elsewhere = record.run_mode.place.is_some() && !record.session_repo.worktree.exists();
    if !is_elsewhere && !worktree::is_finished(&record.session_repo) {
        // Files that are not there yet are not deleted.
        return Err(Failure::refused(format!("session `{}` has no complete worktree", record.id))
            .because("it ended while its worktree was made, before its agent started")
            .hint(format!("studio resume {}", record.id))
            .hint(format!("studio discard {}", record.id)));
    }
    let mut imported = import::import(repository, &record.session_repo)?;
    if is_elsewhere {
        let missing = import::missing_worktree_note(&record.session_repo);
        imported.notes.retain(|note| *note != missing);
    }
    let now = Clock::from_env().now();
    let snapshot = snapshot::take(repository, &record.session_repo, &imported, limits, now)?;
    if let (false, false, Some(number)) =
        (is_elsewhere, record.session_repo.worktree.exists(), snapshot.number)
    {
        let name = format!("{}{number}", snapshot::prefix(&record.id));
        imported.notes.push(format!(
            "uncommitted work was restored from {name}; ignored files, and files too large for it, \
             are lost"
        ));
    }
    imported.notes.extend(changed_by_checks_note(&snapshot.changed_by_checks));
    Ok((imported, snapshot))
}

/// Records what checks left in the worktree since the work was collected, because it is not the
/// agent's work.
pub fn note_leftovers(
    repository: &Repository,
    record: &SessionRecord,
    work: &WorkSummary,
) -> Result<()> {
    let now = Clock::from_env().now();
    let state = WorkBeforeChecks { work: work.commit(), omitted: &work.omitted };
    studio_git::check_leftovers::record(repository, &record.session_repo, state, now)
}

/// Returns the note about files that do not land because they changed while the checks ran: either
/// the checks or the agent may have changed them.
fn changed_by_checks_note(paths: &[String]) -> Option<String> {
    let listed = paths.iter().take(MAX_PATHS).map(String::as_str).collect::<Vec<_>>().join(" ");
    let suffix = match paths.len() {
        0 => return None,
        many if many > MAX_PATHS => format!(" and {} more", many - MAX_PATHS),
        _ => String::new(),
    };
    Some(format!(
        "changed while the checks ran, will not land: {listed}{suffix}; `git add` it in the worktree to \
         land it"
    ))
}

fn summarize(
    repository: &Repository,
    record: &SessionRecord,
    imported: &ImportedWork,
    snapshot: &Snapshot,
) -> Result<WorkSummary> {
    let base = comparison_base(&*repository.open()?, repository, record, &imported.head)?;
    fetch_changed(repository, &*repository.open()?, &base, &snapshot.work);
    let stats = studio_git::diff::stats(repository, &base, &snapshot.work)?;
    let commits = studio_git::diff::commit_distance(repository, &imported.head, &base)?.ahead;
    let mut notes = imported.notes.clone();
    notes.extend(omission_notes(&snapshot.omissions));
    notes.extend(landing_obstacle(repository, &base, &imported.head)?);
    Ok(WorkSummary {
        base: Some(base),
        head: imported.head.clone(),
        snapshot: snapshot.is_dirty().then(|| snapshot.work.clone()),
        commits: commits as u64,
        files_changed: stats.files as u64,
        insertions: stats.insertions as u64,
        deletions: stats.deletions as u64,
        dirty: snapshot.is_dirty(),
        omitted: snapshot.omissions.iter().map(|omission| omission.path.clone()).collect(),
        notes,
    })
}

/// Fetches what a partial clone lacks of a comparison. Without it, the comparison says what is missing.
fn fetch_changed(repository: &Repository, repo: &git2::Repository, base: &str, work: &str) {
    drop(studio_git::partial_clone::fetch_changed(repository, repo, base, work));
}

/// The commit with which a session's work is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparisonBase {
    /// The merge base with the target branch, so that commits merged from there do not count as
    /// the session's work.
    pub merge_base: String,
    /// The merge base with the hunks of the session that landed before, if any did.
    pub landed: Option<String>,
}

impl ComparisonBase {
    /// Returns the commit to compare with.
    pub fn commit(&self) -> &str {
        self.landed.as_ref().unwrap_or(&self.merge_base)
    }
}

fn comparison_base(
    repo: &git2::Repository,
    repository: &Repository,
    record: &SessionRecord,
    head: &str,
) -> Result<String> {
    let base = base_for(repo, repository, record, head, record.base.branch.as_ref())?;
    Ok(base.commit().to_owned())
}

/// Returns the commit with which a session's work is compared to land on a branch.
pub(crate) fn base_for(
    repo: &git2::Repository,
    repository: &Repository,
    record: &SessionRecord,
    head: &str,
    branch: Option<&BranchName>,
) -> Result<ComparisonBase> {
    let tip = branch.map(|branch| repository.tip(branch)).transpose()?.flatten();
    let merge_base = merge_base(repo, record, head, tip.as_deref())?;
    let landed = match &tip {
        Some(tip) => accepted_hunks::landed_base(repository, &record.id, &merge_base, tip)?,
        None => None,
    };
    Ok(ComparisonBase { merge_base, landed })
}

fn merge_base(
    repo: &git2::Repository,
    record: &SessionRecord,
    head: &str,
    tip: Option<&str>,
) -> Result<String> {
    let base = &record.base.commit;
    let Some(tip) = tip else { return Ok(base.clone()) };
    let (head, tip) = (refs::oid(head)?, refs::oid(tip)?);
    let Ok(merge_base) = repo.merge_base(head, tip) else { return Ok(base.clone()) };
    // If the branch was reset to before the base, the base still does not count as the session's
    // work.
    let base_oid = refs::oid(base)?;
    let is_older = repo.graph_descendant_of(base_oid, merge_base).unwrap_or(false);
    let contains_base =
        head == base_oid || repo.graph_descendant_of(head, base_oid).unwrap_or(false);
    Ok(if is_older && contains_base { base.clone() } else { merge_base.to_string() })
}

/// The changes of a session, ready to be shown.
pub struct SessionChanges {
    /// The two states of the files.
    pub comparison: Comparison,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

/// Reads the current worktree without importing anything or writing a ref, so it is safe while the
/// agent works; `None` if the worktree is missing.
pub(crate) fn read_current(
    repository: &Repository,
    record: &SessionRecord,
) -> Result<Option<(ImportedWork, WorktreeContent)>> {
    let session_repo = &record.session_repo;
    if !worktree::is_finished(session_repo) || !import::check_pointer(session_repo)? {
        return Ok(None);
    }
    let repo = repository.open()?;
    let leftovers = studio_git::check_leftovers::read(&repo, &session_repo.id)?;
    let head_state = studio_git::head::read(&session_repo.git_dir)?;
    let tip = repository.tip(&session_repo.branch)?;
    let head = head_state.commit.or(tip).unwrap_or_else(|| session_repo.base.clone());
    let (branch, operation) = (head_state.branch, head_state.operation);
    let imported = ImportedWork { head, branch_moved: false, branch, operation, notes: Vec::new() };
    let limits = SnapshotLimits::default();
    let content =
        snapshot::read_worktree(repository, session_repo, &imported, &limits, &leftovers)?;
    Ok(Some((imported, content)))
}

/// Compares the current worktree with the merge base; `None` if the worktree is missing. Imports
/// nothing and writes no ref, so it is safe while the agent works.
pub fn current_changes(
    repository: &Repository,
    record: &SessionRecord,
) -> Result<Option<(SessionChanges, WorkSummary)>> {
    let session_repo = &record.session_repo;
    let Some((imported, worktree_state)) = read_current(repository, record)? else {
        return Ok(None);
    };
    let base = comparison_base(&worktree_state.scratch.repo, repository, record, &imported.head)?;
    let mut notes: Vec<String> =
        changed_by_checks_note(&worktree_state.changed_by_checks).into_iter().collect();
    notes.extend(omission_notes(&worktree_state.omissions));
    let tree = worktree_state.tree.to_string();
    let head_tree = worktree_state
        .scratch
        .repo
        .find_commit(refs::oid(&imported.head)?)
        .or_fail(cannot_compare)?;
    let is_dirty = head_tree.tree_id() != worktree_state.tree;
    drop(head_tree);
    fetch_changed(repository, &worktree_state.scratch.repo, &base, &tree);
    let stats = studio_git::diff::stats_in(&worktree_state.scratch.repo, &base, &tree)?;
    let commits =
        studio_git::diff::commit_distance_in(&worktree_state.scratch.repo, &imported.head, &base)?
            .ahead;
    let work = WorkSummary {
        base: Some(base.clone()),
        head: imported.head,
        snapshot: None,
        commits: commits as u64,
        files_changed: stats.files as u64,
        insertions: stats.insertions as u64,
        deletions: stats.deletions as u64,
        dirty: is_dirty,
        omitted: worktree_state.omissions.iter().map(|omission| omission.path.clone()).collect(),
        notes: notes.clone(),
    };
    let comparison = Comparison::of_worktree(
        repository,
        &session_repo.git_dir,
        worktree_state.scratch,
        &base,
        &tree,
    );
    Ok(Some((SessionChanges { comparison, notes }, work)))
}

/// Returns the changes that were last collected.
pub fn collected_changes(
    repository: &Repository,
    record: &SessionRecord,
    work: &WorkSummary,
) -> SessionChanges {
    let base = work.base.as_ref().unwrap_or(&record.base.commit);
    let comparison = Comparison::of_commits(repository, base, work.commit());
    SessionChanges { comparison, notes: work.notes.clone() }
}

/// Returns notes about what a snapshot left out, one sentence each.
pub(crate) fn omission_notes(omissions: &[Omission]) -> impl Iterator<Item = String> {
    omissions
        .iter()
        .take(MAX_PATHS)
        .map(|omission| format!("left out: {}: {}", omission.path, omission.why.sentence()))
}

fn cannot_compare() -> &'static str {
    "cannot compare the work with its base"
}

/// Returns why the session's last commit could not land, as far as the commit alone shows it.
fn landing_obstacle(repository: &Repository, base: &str, head: &str) -> Result<Option<String>> {
    let repo = repository.open()?;
    let target = studio_git::checkout::tree_of(&repo, base)?;
    Ok(tree_limits::refuse(&repo, &[head], &target).err().map(|failure| failure.sentence()))
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
    /// How the branch has the work already, if it does.
    pub landed: Option<LandedWork>,
}

/// Compares the work with its base branch as it is now; `None` without one. Writes nothing.
pub fn branch_standing(
    repository: &Repository,
    record: &SessionRecord,
    work: &WorkSummary,
) -> Result<Option<BranchStanding>> {
    let Some(branch) = &record.base.branch else { return Ok(None) };
    let Some(tip) = repository.tip(branch)? else { return Ok(None) };
    let divergence = studio_git::diff::commit_distance(repository, &work.head, &tip)?;
    if tip == record.base.commit && divergence.behind == 0 {
        // Nothing has landed since it began, and its work contains the branch.
        let ahead = divergence.ahead;
        return Ok(Some(BranchStanding { ahead, ..BranchStanding::default() }));
    }
    let repo = repository.open()?;
    let fail = || "cannot compare the work with its branch";
    let commit = |id: &str| repo.find_commit(refs::oid(id)?).or_fail(fail);
    let (ours, theirs) = (commit(&tip)?, commit(work.commit())?);
    let base = base_for(&repo, repository, record, &work.head, Some(branch))?;
    let mut index =
        studio_git::merge::merge_with_base(&repo, &ours, &theirs, base.landed.as_deref())?;
    let conflicts = studio_git::conflict::resolve(&repo, &mut index)?;
    let landed = landed_elsewhere(repository, record, work, &tip)?;
    Ok(Some(BranchStanding {
        ahead: divergence.ahead,
        behind: divergence.behind,
        // Work that landed is not merged again.
        conflicts: match landed {
            Some(_) => Vec::new(),
            None => conflicts.into_iter().map(|conflict| conflict.path).collect(),
        },
        landed,
    }))
}

/// Searches for the work in a branch with this tip: others may have landed it there.
pub fn landed_elsewhere(
    repository: &Repository,
    record: &SessionRecord,
    work: &WorkSummary,
    tip: &str,
) -> Result<Option<LandedWork>> {
    let start = &record.base.commit;
    let commits = WorkCommits {
        start,
        base: work.base.as_ref().unwrap_or(start),
        head: &work.head,
        work: work.commit(),
    };
    landed_work::find(repository, commits, tip)
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
