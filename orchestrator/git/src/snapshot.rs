//! Snapshots: the committed, staged, changed and untracked files of a session's worktree as a
//! commit, without touching the worktree.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base::failure::{Failure, OrFail, Result};
use base::files::step;
use base::git::Git;
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::check_leftovers::Leftover;
use crate::checkout::FileChange;
use crate::import::ImportedWork;
use crate::index::WorktreeIndex;
use crate::object_quarantine::{self, Quarantine};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::stage::{self, Listing};
use crate::stored_index::StoredIndex;
use crate::submodules::{self, SubmoduleState};
use crate::{check_leftovers, confined_thread, index, object_format};

/// Timeout of reading a worktree.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// Number of snapshots that are kept per session.
const MAX_SNAPSHOTS: u64 = 20;

/// What a snapshot excludes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Files larger than this many bytes, except those in `include`.
    pub file_bytes: u64,
    /// Untracked files beyond this number.
    pub untracked: usize,
    /// Files that are included whatever their size, as relative paths.
    pub include: Vec<PathBuf>,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        SnapshotLimits { file_bytes: 10_000_000, untracked: 10_000, include: Vec::new() }
    }
}

/// Why a path is excluded from a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OmissionReason {
    /// The file is larger than the limit.
    TooLarge,
    /// There are too many untracked files.
    TooMany,
    /// It is a repository inside the worktree.
    Repository,
    /// It is neither a file nor a symlink, or not readable.
    Unreadable,
    /// It is a submodule with work that the session's own work does not record.
    Submodule,
}

/// A path that is excluded from a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omission {
    /// The path, relative to the worktree; bytes that are not UTF-8 are replaced.
    pub path: String,
    /// The reason.
    pub why: OmissionReason,
}

/// The work of a session at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The commit of the agent's HEAD.
    pub head: String,
    /// The commit with all of the work: the snapshot, or the head if there is nothing else.
    pub work: String,
    /// The number of the snapshot; `None` for a clean worktree.
    pub number: Option<u64>,
    /// Excluded paths: landing refuses until they are ignored or included.
    #[serde(rename = "left_out")]
    pub omissions: Vec<Omission>,
    /// Paths that are excluded because the checks created, changed or deleted them.
    #[serde(rename = "by_checks")]
    pub changed_by_checks: Vec<String>,
}

impl Snapshot {
    /// Returns whether there are uncommitted changes.
    pub fn is_dirty(&self) -> bool {
        self.number.is_some()
    }
}

/// Takes a snapshot of a worktree whose commits are imported. A clean worktree without an earlier
/// snapshot, and one that is unchanged since the last, create no new one; so the newest always has
/// the last seen state. If the worktree is gone, the newest snapshot is used.
pub fn take(
    repository: &Repository,
    session_repo: &SessionRepo,
    imported: &ImportedWork,
    limits: &SnapshotLimits,
    now: jiff::Timestamp,
) -> Result<Snapshot> {
    let clean_snapshot = |omissions, changed_by_checks| Snapshot {
        head: imported.head.clone(),
        work: imported.head.clone(),
        number: None,
        omissions,
        changed_by_checks,
    };
    let repo = repository.open()?;
    if session_repo.worktree.symlink_metadata().is_err() {
        let (work, number) = match last_known_state(repository, session_repo, imported)? {
            LastSeen::Committed => return Ok(clean_snapshot(Vec::new(), Vec::new())),
            LastSeen::Snapshot { number, work, .. } => (work, number),
            LastSeen::Older { name } => {
                return Err(older_snapshot_failure(session_repo, imported, &name));
            }
        };
        return Ok(Snapshot {
            work,
            number: Some(number),
            ..clean_snapshot(Vec::new(), Vec::new())
        });
    }
    let leftovers = check_leftovers::read(&repo, &session_repo.id)?;
    let WorktreeContent {
        scratch,
        tree,
        staged,
        omissions: left_out,
        changed_by_checks: by_checks,
    } = read_worktree(repository, session_repo, imported, limits, &leftovers)?;
    let head = repo.find_commit(refs::oid(&imported.head)?).or_fail(cannot)?;
    let is_clean = tree == head.tree_id() && staged.is_none_or(|staged| staged == head.tree_id());
    if is_clean && list_snapshots(&repo, &session_repo.id)?.is_empty() {
        return Ok(clean_snapshot(left_out, by_checks));
    }
    let content = SnapshotTree { head: imported.head.clone(), tree, staged };
    let (work, number) = store(repository, session_repo, &scratch, &content, now)?;
    if is_clean {
        return Ok(clean_snapshot(left_out, by_checks));
    }
    Ok(Snapshot { work, number: Some(number), ..clean_snapshot(left_out, by_checks) })
}

/// The content of a worktree.
pub struct WorktreeContent {
    /// The directory with its objects.
    pub scratch: Quarantine,
    /// The tree of all files.
    pub tree: git2::Oid,
    /// The staged tree; `None` during a merge with conflicts.
    pub staged: Option<git2::Oid>,
    /// Excluded paths.
    pub omissions: Vec<Omission>,
    /// Paths that are excluded because the checks created, changed or deleted them.
    pub changed_by_checks: Vec<String>,
}

/// Reads a worktree without touching it and without creating a ref: at any time, even while its
/// agent works. Leftovers of checks that are unchanged and not staged are read as they were before
/// the checks. A confined thread reads the files: whatever the agent puts in their place, no other
/// file is read.
pub fn read_worktree(
    repository: &Repository,
    session_repo: &SessionRepo,
    imported: &ImportedWork,
    limits: &SnapshotLimits,
    leftovers: &Leftover,
) -> Result<WorktreeContent> {
    let scratch = Quarantine::for_session(repository, &session_repo.git_dir)?;
    scratch.copy_attributes(&*repository.open()?)?;
    index::copy(&scratch, &session_repo.git_dir)?;
    let mut read = confined_thread::object_directories(&repository.common_dir);
    read.extend([session_repo.git_dir.join("objects"), session_repo.worktree.clone()]);
    let rules = confined_thread::rules(read, vec![scratch.path().to_owned()]);
    let head = refs::oid(&imported.head)?;
    let objects = object_quarantine::alternates(&[
        repository.common_dir.join("objects"),
        session_repo.git_dir.join("objects"),
    ]);
    let submodules = submodules::read(repository, session_repo);
    let (session_repo, limits, leftovers) =
        (session_repo.clone(), limits.clone(), leftovers.clone());
    confined_thread::run(rules, TIMEOUT, cannot(), move || {
        let work = (limits, leftovers, submodules);
        read_confined(scratch, &objects, head, &session_repo, &work)
    })
}

/// Reads the files of a worktree of the user, on a confined thread; `scratch` has a copy of its
/// index.
pub(crate) fn read_files(
    scratch: Quarantine,
    objects: &str,
    head: git2::Oid,
    worktree: &Path,
    limits: &SnapshotLimits,
) -> Result<WorktreeContent> {
    let repo = &scratch.repo;
    repo.set_config(&scratch.config()?).or_fail(cannot)?;
    repo.set_workdir(worktree, false).or_fail(cannot)?;
    let head = repo.find_commit(head).or_fail(cannot)?;
    let git = Git::at(scratch.path()).with_known_config().with_objects(objects);
    let git = git.with_work_tree(worktree);
    let (mut index, listing) = list_changes(&scratch, &git, &head, worktree, &[])?;
    repo.set_index(&mut index.entries).or_fail(cannot)?;
    let omissions = stage::add_changes(listing, &mut index.entries, worktree, limits, &scratch)?;
    let tree = index.write_tree(repo, scratch.path(), &head)?;
    let staged = index.staged;
    drop(head);
    Ok(WorktreeContent { scratch, tree, staged, omissions, changed_by_checks: Vec::new() })
}

/// Creates a snapshot commit of a worktree's content in a quarantine.
pub(crate) fn commit_content(
    repo: &git2::Repository,
    head: &str,
    content: &WorktreeContent,
    now: jiff::Timestamp,
) -> Result<git2::Oid> {
    let WorktreeContent { tree, staged, .. } = *content;
    commit_snapshot(repo, &SnapshotTree { head: head.to_owned(), tree, staged }, now)
        .or_fail(cannot)
}

/// The part of [`read_worktree`] that reads the worktree, on the confined thread.
fn read_confined(
    scratch: Quarantine,
    objects: &str,
    head: git2::Oid,
    session_repo: &SessionRepo,
    (limits, leftovers, submodules): &(SnapshotLimits, Leftover, Vec<SubmoduleState>),
) -> Result<WorktreeContent> {
    let repo = &scratch.repo;
    repo.set_config(&scratch.config()?).or_fail(cannot)?;
    repo.set_workdir(&session_repo.worktree, false).or_fail(cannot)?;
    let head = repo.find_commit(head).or_fail(cannot)?;
    let worktree = &session_repo.worktree;
    let git = Git::at(scratch.path()).with_known_config().with_objects(objects);
    let git = git.with_work_tree(worktree);
    let (mut opened, listing) = list_changes(&scratch, &git, &head, worktree, &leftovers.changes)?;
    let index = &mut opened.entries;
    repo.set_index(index).or_fail(cannot)?;
    let unstaged = check_leftovers::unstaged_leftovers(index, &leftovers.changes);
    let mut omissions = stage::add_changes(listing, index, worktree, limits, &scratch)?;
    let mut changed_by_checks = check_leftovers::remove_from_index(index, &unstaged)?;
    let leftover_files =
        omissions.extract_if(.., |omission| leftovers.contains(session_repo, omission));
    changed_by_checks.extend(leftover_files.map(|omission| omission.path));
    for state in submodules {
        omissions.extend(stage::add_submodule(index, state)?);
    }
    let tree = opened.write_tree(repo, scratch.path(), &head)?;
    let staged = opened.staged;
    drop(head);
    Ok(WorktreeContent { scratch, tree, staged, omissions, changed_by_checks })
}

/// Lists the changes of a worktree, and opens the copied index with the entries that are needed to stage
/// them and the other changes.
fn list_changes(
    scratch: &Quarantine,
    git: &Git,
    head: &git2::Commit<'_>,
    worktree: &Path,
    others: &[FileChange],
) -> Result<(WorktreeIndex, Listing)> {
    let (repo, scratch) = (&scratch.repo, scratch.path());
    let stored = StoredIndex::read(&scratch.join("index"), repo.object_format()).or_fail(cannot)?;
    if let Some(stored) = &stored {
        let listing = stage::list(git, Some(stored), worktree)?;
        let others = others.iter().map(|change| change.path.as_path());
        let paths = listing.differing().chain(others);
        if let Some(index) = WorktreeIndex::open_few(repo, scratch, stored, paths)? {
            return Ok((index, listing));
        }
        let index = WorktreeIndex::open(repo, scratch, head)?;
        let is_known = index.staged.is_some() || index.entries.has_conflicts();
        let listing = if is_known { listing } else { stage::list(git, None, worktree)? };
        return Ok((index, listing));
    }
    // git reads the index that is written here if it is missing or split.
    let index = WorktreeIndex::open(repo, scratch, head)?;
    Ok((index, stage::list(git, None, worktree)?))
}

/// The last known state of a deleted worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LastSeen {
    /// Everything was committed, or there is no snapshot.
    Committed,
    /// The newest snapshot contains the uncommitted changes.
    Snapshot {
        /// Its number.
        number: u64,
        /// Its commit.
        work: String,
        /// The commit with the staged changes; `None` during a merge with conflicts.
        staged: Option<String>,
    },
    /// The newest snapshot is older than the last commit: later changes are unknown, and it may
    /// contain work that the commits do not.
    Older {
        /// Its ref.
        name: String,
    },
}

/// Returns the last known state of the worktree.
pub(crate) fn last_known_state(
    repository: &Repository,
    session_repo: &SessionRepo,
    imported: &ImportedWork,
) -> Result<LastSeen> {
    let repo = repository.open()?;
    let Some((number, work)) = list_snapshots(&repo, &session_repo.id)?.pop() else {
        return Ok(LastSeen::Committed);
    };
    let commit = repo.find_commit(refs::oid(&work)?).or_fail(cannot)?;
    let base = commit.parent(0).or_fail(cannot)?;
    let staged = commit.parent(1).ok();
    let trees = [Some(commit.tree_id()), staged.as_ref().map(git2::Commit::tree_id)];
    if trees.into_iter().flatten().all(|tree| tree == base.tree_id()) {
        return Ok(LastSeen::Committed);
    }
    if base.id().to_string() != imported.head {
        return Ok(LastSeen::Older { name: format!("{}{number}", prefix(&session_repo.id)) });
    }
    let staged = staged.map(|staged| staged.id().to_string());
    Ok(LastSeen::Snapshot { number, work, staged })
}

/// Returns the refusal (3) to land while a snapshot may contain work that the commits do not.
fn older_snapshot_failure(
    session_repo: &SessionRepo,
    imported: &ImportedWork,
    name: &str,
) -> Failure {
    Failure::refused(format!("the worktree of `{}` is gone", session_repo.id))
        .because(format!(
            "its latest snapshot is older than its last commit: {name} may contain work that {} \
             does not",
            imported.head
        ))
        .hint(format!("git diff {} {name}    shows what", session_repo.branch))
        .hint(format!(
            "studio resume {}    recreates the worktree from the last commit",
            session_repo.id
        ))
}

/// The content of a snapshot.
struct SnapshotTree {
    head: String,
    tree: git2::Oid,
    staged: Option<git2::Oid>,
}

/// Creates the commit and its ref, unless the last snapshot has the same content.
fn store(
    repository: &Repository,
    session_repo: &SessionRepo,
    scratch: &Quarantine,
    content: &SnapshotTree,
    now: jiff::Timestamp,
) -> Result<(String, u64)> {
    let previous = list_snapshots(&*repository.open()?, &session_repo.id)?;
    if let Some((number, commit)) = previous.last()
        && has_same_content(&scratch.repo, commit, content)
    {
        return Ok((commit.clone(), *number));
    }
    let commit = commit_snapshot(&scratch.repo, content, now).or_fail(cannot)?.to_string();
    let imported_pack = object_quarantine::import_commit(
        repository,
        scratch,
        session_repo,
        &commit,
        &content.head,
    )?;
    step("snapshot.objects");
    let number = previous.last().map_or(1, |(number, _)| number + 1);
    let name = |number: u64| format!("{}{number}", prefix(&session_repo.id));
    let mut changes = vec![RefChange::new(name(number), None, Some(commit.clone()))];
    let expired = previous.iter().filter(|(old_number, _)| old_number + MAX_SNAPSHOTS <= number);
    changes.extend(
        expired.map(|(old_number, commit)| {
            RefChange::new(name(*old_number), Some(commit.clone()), None)
        }),
    );
    refs::update_or_fail(repository, &changes, "studio: snapshot")?;
    step("snapshot.ref");
    imported_pack.release();
    Ok((commit, number))
}

fn has_same_content(repo: &git2::Repository, commit: &str, content: &SnapshotTree) -> bool {
    let Ok(commit) = object_format::parse_id(commit).and_then(|id| repo.find_commit(id)) else {
        return false;
    };
    let staged = commit.parent(1).ok().map(|parent| parent.tree_id());
    let head = commit.parent_id(0).ok().map(|id| id.to_string());
    commit.tree_id() == content.tree
        && staged == content.staged
        && head.as_deref() == Some(&content.head)
}

fn commit_snapshot(
    repo: &git2::Repository,
    content: &SnapshotTree,
    now: jiff::Timestamp,
) -> std::result::Result<git2::Oid, git2::Error> {
    let time = git2::Time::new(now.as_second(), 0);
    let signature = git2::Signature::new("studio", "studio@studio.invalid", &time)?;
    let head = repo.find_commit(object_format::parse_id(&content.head)?)?;
    let create_commit = |tree: git2::Oid, message: &str, parents: &[&git2::Commit<'_>]| {
        repo.commit(None, &signature, &signature, message, &repo.find_tree(tree)?, parents)
    };
    match content.staged {
        Some(staged) => {
            let staged =
                repo.find_commit(create_commit(staged, "The index of a session\n", &[&head])?)?;
            create_commit(content.tree, "Work in progress of a session\n", &[&head, &staged])
        }
        None => create_commit(content.tree, "Work in progress of a session\n", &[&head]),
    }
}

/// Returns the prefix of a session's snapshot refs; a number follows.
pub fn prefix(id: &Id) -> String {
    format!("refs/studio/snapshots/{id}/")
}

/// Returns the commit of the newest snapshot.
pub fn latest(repository: &Repository, id: &Id) -> Result<Option<String>> {
    let mut snapshots = list_snapshots(&*repository.open()?, id)?;
    Ok(snapshots.pop().map(|(_, commit)| commit))
}

/// Returns all snapshots, oldest first.
pub(crate) fn list_snapshots(repo: &git2::Repository, id: &Id) -> Result<Vec<(u64, String)>> {
    let prefix = prefix(id);
    let mut snapshots: Vec<(u64, String)> = refs::list(repo, &prefix)?
        .into_iter()
        .filter_map(|(name, commit)| Some((name.strip_prefix(&prefix)?.parse().ok()?, commit)))
        .collect();
    snapshots.sort();
    Ok(snapshots)
}

/// Refuses (3) to land while paths are excluded.
pub fn refuse_omissions(snapshot: &Snapshot, worktree: &Path) -> Result<()> {
    if snapshot.omissions.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> = snapshot
        .omissions
        .iter()
        .take(20)
        .map(|omission| format!("{}: {}", omission.path, omission.why.sentence()))
        .collect();
    if snapshot.omissions.len() > lines.len() {
        lines.push(format!("and {} more", snapshot.omissions.len() - lines.len()));
    }
    let failure = Failure::refused("some files would not land").because(lines.join("\n"));
    let is_submodule = |omission: &Omission| omission.why == OmissionReason::Submodule;
    if let Some(submodule) = snapshot.omissions.iter().find(|omission| is_submodule(omission)) {
        let path = worktree.join(&submodule.path);
        return Err(failure
            .hint(format!("commit them: git -C '{}' commit -a", path.display()))
            .hint(format!("or drop them: git -C '{}' reset --hard", path.display())));
    }
    Err(failure
        .hint(format!("ignore or remove it in {}", worktree.display()))
        .hint("or land it too: studio accept --include PATH"))
}

impl OmissionReason {
    /// Describes the reason for display.
    pub fn sentence(self) -> &'static str {
        match self {
            OmissionReason::TooLarge => "larger than 10 MB",
            OmissionReason::TooMany => "one of more than 10,000 untracked files",
            OmissionReason::Repository => "a nested repository",
            OmissionReason::Unreadable => "not a readable file",
            OmissionReason::Submodule => "a submodule with changes that are not committed",
        }
    }
}

fn cannot() -> &'static str {
    "cannot take a snapshot of the worktree"
}
