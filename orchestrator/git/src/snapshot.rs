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
use crate::import::ImportedWork;
use crate::object_quarantine::{self, Quarantine};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::{check_leftovers, confined_thread, index, stage};

/// Timeout of reading a worktree.
const LONGEST: Duration = Duration::from_secs(1800);
/// Number of snapshots that are kept per session.
const KEPT: u64 = 20;

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
    pub left_out: Vec<Omission>,
    /// Paths that are excluded because the checks created, changed or deleted them.
    pub by_checks: Vec<String>,
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
    place: &SessionRepo,
    home: &ImportedWork,
    limits: &SnapshotLimits,
    now: jiff::Timestamp,
) -> Result<Snapshot> {
    let clean = |left_out, by_checks| Snapshot {
        head: home.head.clone(),
        work: home.head.clone(),
        number: None,
        left_out,
        by_checks,
    };
    let repo = repository.open()?;
    if place.worktree.symlink_metadata().is_err() {
        let (work, number) = match last_seen(repository, place, home)? {
            LastSeen::Committed => return Ok(clean(Vec::new(), Vec::new())),
            LastSeen::Snapshot { number, work, .. } => (work, number),
            LastSeen::Older { name } => return Err(older(place, home, &name)),
        };
        return Ok(Snapshot { work, number: Some(number), ..clean(Vec::new(), Vec::new()) });
    }
    let leftovers = check_leftovers::of(&repo, &place.id)?;
    let WorktreeContent { scratch, tree, staged, left_out, by_checks } =
        look(repository, place, home, limits, &leftovers)?;
    let head = repo.find_commit(refs::oid(&home.head)?).or_fail(cannot)?;
    let is_clean = tree == head.tree_id() && staged.is_none_or(|staged| staged == head.tree_id());
    if is_clean && numbered(&repo, &place.id)?.is_empty() {
        return Ok(clean(left_out, by_checks));
    }
    let made = SnapshotTree { head: home.head.clone(), tree, staged };
    let (work, number) = keep(repository, place, &scratch, &made, now)?;
    if is_clean {
        return Ok(clean(left_out, by_checks));
    }
    Ok(Snapshot { work, number: Some(number), ..clean(left_out, by_checks) })
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
    pub left_out: Vec<Omission>,
    /// Paths that are excluded because the checks created, changed or deleted them.
    pub by_checks: Vec<String>,
}

/// Reads a worktree without touching it and without creating a ref: at any time, even while its
/// agent works. Leftovers of checks that are unchanged and not staged are read as they were before
/// the checks. A confined thread reads the files: whatever the agent puts in their place, no other
/// file is read.
pub fn look(
    repository: &Repository,
    place: &SessionRepo,
    home: &ImportedWork,
    limits: &SnapshotLimits,
    leftovers: &Leftover,
) -> Result<WorktreeContent> {
    let scratch = Quarantine::for_session(repository, &place.git_dir)?;
    scratch.share_attributes(&repository.open()?)?;
    index::copy(&scratch, &place.git_dir)?;
    let mut read = confined_thread::object_directories(&repository.common_dir);
    read.extend([place.git_dir.join("objects"), place.worktree.clone()]);
    let rules = confined_thread::rules(read, vec![scratch.path().to_owned()]);
    let head = refs::oid(&home.head)?;
    let objects = object_quarantine::alternates(&[
        repository.common_dir.join("objects"),
        place.git_dir.join("objects"),
    ]);
    let (place, limits, leftovers) = (place.clone(), limits.clone(), leftovers.clone());
    confined_thread::run(rules, LONGEST, cannot(), move || {
        seen(scratch, &objects, head, &place, &limits, &leftovers)
    })
}

/// The part of [`look`] that reads the worktree, on the confined thread.
fn seen(
    scratch: Quarantine,
    objects: &str,
    head: git2::Oid,
    place: &SessionRepo,
    limits: &SnapshotLimits,
    leftovers: &Leftover,
) -> Result<WorktreeContent> {
    let repo = &scratch.repo;
    repo.set_config(&scratch.config()?).or_fail(cannot)?;
    repo.set_workdir(&place.worktree, false).or_fail(cannot)?;
    let head = repo.find_commit(head).or_fail(cannot)?;
    let mut index = index::open(scratch.path(), &head)?;
    let staged = index::staged_tree(repo, &mut index)?;
    repo.set_index(&mut index).or_fail(cannot)?;
    let unstaged = check_leftovers::unstaged(&index, &leftovers.changes);
    let door = Git::at(scratch.path()).without_user_config().with_objects(objects);
    let door = door.with_work_tree(&place.worktree);
    let mut left_out = stage::add_changes(&door, &mut index, &place.worktree, limits)?;
    let mut by_checks = check_leftovers::take_out(&mut index, &unstaged)?;
    let beside = left_out.extract_if(.., |left| leftovers.holds(place, left));
    by_checks.extend(beside.map(|left| left.path));
    let tree = index.write_tree_to(repo).or_fail(cannot)?;
    drop(head);
    Ok(WorktreeContent { scratch, tree, staged, left_out, by_checks })
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
pub(crate) fn last_seen(
    repository: &Repository,
    place: &SessionRepo,
    home: &ImportedWork,
) -> Result<LastSeen> {
    let repo = repository.open()?;
    let Some((number, work)) = numbered(&repo, &place.id)?.pop() else {
        return Ok(LastSeen::Committed);
    };
    let commit = repo.find_commit(refs::oid(&work)?).or_fail(cannot)?;
    let on = commit.parent(0).or_fail(cannot)?;
    let staged = commit.parent(1).ok();
    let seen = [Some(commit.tree_id()), staged.as_ref().map(git2::Commit::tree_id)];
    if seen.into_iter().flatten().all(|tree| tree == on.tree_id()) {
        return Ok(LastSeen::Committed);
    }
    if on.id().to_string() != home.head {
        return Ok(LastSeen::Older { name: format!("{}{number}", prefix(&place.id)) });
    }
    let staged = staged.map(|staged| staged.id().to_string());
    Ok(LastSeen::Snapshot { number, work, staged })
}

/// Returns the refusal (3) to land while a snapshot may contain work that the commits do not.
fn older(place: &SessionRepo, home: &ImportedWork, name: &str) -> Failure {
    Failure::refused(format!("the worktree of `{}` is gone", place.id))
        .because(format!(
            "its latest snapshot is older than its last commit: {name} may contain work that {} \
             does not",
            home.head
        ))
        .hint(format!("git diff {} {name}    shows what", place.branch))
        .hint(format!("studio resume {}    recreates the worktree from the last commit", place.id))
}

/// The content of a snapshot.
struct SnapshotTree {
    head: String,
    tree: git2::Oid,
    staged: Option<git2::Oid>,
}

/// Creates the commit and its ref, unless the last snapshot has the same content.
fn keep(
    repository: &Repository,
    place: &SessionRepo,
    scratch: &Quarantine,
    made: &SnapshotTree,
    now: jiff::Timestamp,
) -> Result<(String, u64)> {
    let earlier = numbered(&repository.open()?, &place.id)?;
    if let Some((number, commit)) = earlier.last()
        && says_the_same(&scratch.repo, commit, made)
    {
        return Ok((commit.clone(), *number));
    }
    let commit = commit(&scratch.repo, made, now).or_fail(cannot)?.to_string();
    let from = [scratch.objects(), place.git_dir.join("objects")];
    let had = [made.head.clone()];
    let kept = object_quarantine::bring(
        repository,
        &from,
        std::slice::from_ref(&commit),
        &had,
        &place.id,
    )?;
    step("snapshot.objects");
    let number = earlier.last().map_or(1, |(number, _)| number + 1);
    let name = |number: u64| format!("{}{number}", prefix(&place.id));
    let mut changes = vec![RefChange::new(name(number), None, Some(commit.clone()))];
    let old = earlier.iter().filter(|(earlier, _)| earlier + KEPT <= number);
    changes.extend(old.map(|(old, held)| RefChange::new(name(*old), Some(held.clone()), None)));
    refs::update_own(repository, &changes, "studio: snapshot")?;
    step("snapshot.ref");
    kept.release();
    Ok((commit, number))
}

fn says_the_same(repo: &git2::Repository, commit: &str, made: &SnapshotTree) -> bool {
    let Ok(commit) = git2::Oid::from_str(commit).and_then(|id| repo.find_commit(id)) else {
        return false;
    };
    let staged = commit.parent(1).ok().map(|parent| parent.tree_id());
    let head = commit.parent_id(0).ok().map(|id| id.to_string());
    commit.tree_id() == made.tree && staged == made.staged && head.as_deref() == Some(&made.head)
}

fn commit(
    repo: &git2::Repository,
    made: &SnapshotTree,
    now: jiff::Timestamp,
) -> std::result::Result<git2::Oid, git2::Error> {
    let time = git2::Time::new(now.as_second(), 0);
    let who = git2::Signature::new("studio", "studio@studio.invalid", &time)?;
    let head = repo.find_commit(git2::Oid::from_str(&made.head)?)?;
    let save = |tree: git2::Oid, message: &str, parents: &[&git2::Commit<'_>]| {
        repo.commit(None, &who, &who, message, &repo.find_tree(tree)?, parents)
    };
    match made.staged {
        Some(staged) => {
            let staged = repo.find_commit(save(staged, "The index of a session\n", &[&head])?)?;
            save(made.tree, "Work in progress of a session\n", &[&head, &staged])
        }
        None => save(made.tree, "Work in progress of a session\n", &[&head]),
    }
}

/// Returns the prefix of a session's snapshot refs; a number follows.
pub fn prefix(id: &Id) -> String {
    format!("refs/studio/snapshots/{id}/")
}

/// Returns the commit of the newest snapshot.
pub fn latest(repository: &Repository, id: &Id) -> Result<Option<String>> {
    let mut all = numbered(&repository.open()?, id)?;
    Ok(all.pop().map(|(_, commit)| commit))
}

/// Returns all snapshots, oldest first.
fn numbered(repo: &git2::Repository, id: &Id) -> Result<Vec<(u64, String)>> {
    let prefix = prefix(id);
    let mut all: Vec<(u64, String)> = refs::list(repo, &prefix)?
        .into_iter()
        .filter_map(|(name, commit)| Some((name.strip_prefix(&prefix)?.parse().ok()?, commit)))
        .collect();
    all.sort();
    Ok(all)
}

/// Refuses (3) to land while paths are excluded.
pub fn refuse_left_out(snapshot: &Snapshot, worktree: &Path) -> Result<()> {
    if snapshot.left_out.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> = snapshot
        .left_out
        .iter()
        .take(20)
        .map(|left| format!("{}: {}", left.path, left.why.sentence()))
        .collect();
    if snapshot.left_out.len() > lines.len() {
        lines.push(format!("and {} more", snapshot.left_out.len() - lines.len()));
    }
    Err(Failure::refused("some files would not land")
        .because(lines.join("\n"))
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
        }
    }
}

fn cannot() -> &'static str {
    "cannot take a snapshot of the worktree"
}
