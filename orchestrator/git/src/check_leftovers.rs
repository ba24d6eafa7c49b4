//! Files that checks leave in a worktree (reports, caches, rewritten files): they are not the
//! agent's work, so they are recorded after the checks, and not counted, shown or landed.

use std::os::unix::fs::MetadataExt;

use base::failure::{OrFail, Result};
use base::files::step;
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::checkout::{self, FileChange, FileEntry};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::snapshot::{self, Omission, SnapshotLimits, WorktreeContent};
use crate::{checkout_update, import, object_quarantine};

/// The prefix of the message of such a commit.
const MESSAGE: &str = "What checks left\n\n";

/// The leftovers of the last checks in a worktree.
#[derive(Clone, Debug, Default)]
pub struct Leftover {
    /// The changes, by path.
    pub changes: Vec<FileChange>,
    /// Files that a snapshot excludes: too large, or too many.
    pub beside: Vec<UntrackedFile>,
}

/// A file that a snapshot excludes, as it was after the checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UntrackedFile {
    path: String,
    bytes: u64,
    /// The modification time: seconds and nanoseconds.
    modified: (i64, i64),
}

/// A session's work before the checks.
#[derive(Clone, Copy, Debug)]
pub struct WorkBeforeChecks<'a> {
    /// The commit with the work.
    pub work: &'a str,
    /// The excluded paths.
    pub left_out: &'a [String],
}

/// Returns the ref of the commit with the worktree after the checks; its parent is the work before
/// them, and its message ends with the list of excluded files.
fn name(id: &Id) -> String {
    format!("{}checked", snapshot::prefix(id))
}

/// Records how a worktree differs from the work before the checks. Commits made by the checks count
/// as the session's.
pub fn note(
    repository: &Repository,
    place: &SessionRepo,
    before: WorkBeforeChecks<'_>,
    now: jiff::Timestamp,
) -> Result<()> {
    let home = import::import(repository, place)?;
    let repo = repository.open()?;
    let held = refs::read(&repo, &name(&place.id))?;
    let WorktreeContent { scratch, tree, left_out, .. } =
        snapshot::look(repository, place, &home, &SnapshotLimits::default(), &Leftover::default())?;
    let work = scratch.repo.find_commit(refs::oid(before.work)?).or_fail(cannot)?;
    let new = left_out.iter().filter(|left| !before.left_out.contains(&left.path));
    let beside: Vec<UntrackedFile> =
        new.filter_map(|left| UntrackedFile::of(place, left)).collect();
    if tree == work.tree_id() && beside.is_empty() {
        let gone = RefChange::new(name(&place.id), held, None);
        return refs::update_own(repository, &[gone], "studio: the checks left nothing");
    }
    let message = format!("{MESSAGE}{}", serde_json::to_string(&beside).or_fail(cannot)?);
    let make = || -> std::result::Result<git2::Oid, git2::Error> {
        let time = git2::Time::new(now.as_second(), 0);
        let who = git2::Signature::new("studio", "studio@studio.invalid", &time)?;
        let tree = scratch.repo.find_tree(tree)?;
        scratch.repo.commit(None, &who, &who, &message, &tree, &[&work])
    };
    let commit = make().or_fail(cannot)?.to_string();
    let from = [scratch.objects(), place.git_dir.join("objects")];
    let had = [before.work.to_owned()];
    let kept = object_quarantine::bring(
        repository,
        &from,
        std::slice::from_ref(&commit),
        &had,
        &place.id,
    )?;
    step("checks.objects");
    let change = RefChange::new(name(&place.id), held, Some(commit));
    refs::update_own(repository, &[change], "studio: what the checks left")?;
    step("checks.noted");
    kept.release();
    Ok(())
}

/// Returns the leftovers of the last checks.
pub fn of(repo: &git2::Repository, id: &Id) -> Result<Leftover> {
    let Some(left) = refs::read(repo, &name(id))? else { return Ok(Leftover::default()) };
    let commit = repo.find_commit(refs::oid(&left)?).or_fail(cannot)?;
    let before = commit.parent_id(0).or_fail(cannot)?.to_string();
    let noted = commit.message().ok().and_then(|text| text.strip_prefix(MESSAGE));
    // Earlier versions wrote no list.
    let beside = noted.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    Ok(Leftover { changes: checkout::changes(repo, &before, &left)?, beside })
}

impl Leftover {
    /// Returns whether a path that a snapshot excludes is unchanged since the checks.
    pub(crate) fn holds(&self, place: &SessionRepo, left_out: &Omission) -> bool {
        let known = self.beside.iter().find(|beside| beside.path == left_out.path);
        known.is_some_and(|known| UntrackedFile::of(place, left_out).as_ref() == Some(known))
    }
}

impl UntrackedFile {
    /// Returns `None` for a directory, because changes inside it would not be detected.
    fn of(place: &SessionRepo, left: &Omission) -> Option<UntrackedFile> {
        let found = place.worktree.join(&left.path).symlink_metadata().ok()?;
        let modified = (found.mtime(), found.mtime_nsec());
        (!found.is_dir()).then(|| UntrackedFile {
            path: left.path.clone(),
            bytes: found.len(),
            modified,
        })
    }
}

/// Returns the changes that have not been staged since.
pub(crate) fn unstaged<'a>(index: &git2::Index, left: &'a [FileChange]) -> Vec<&'a FileChange> {
    left.iter().filter(|change| entry(index, change) != change.after).collect()
}

/// Removes the leftovers from an index of the whole worktree, if they are unchanged since the
/// checks. Returns their paths.
pub(crate) fn take_out(index: &mut git2::Index, left: &[&FileChange]) -> Result<Vec<String>> {
    let mut taken = Vec::new();
    for change in left {
        if entry(index, change) != change.after {
            continue;
        }
        match change.before {
            None => index.remove_path(&change.path).or_fail(cannot)?,
            Some(before) => {
                index.add(&checkout_update::fresh(&change.path, before, None)).or_fail(cannot)?;
            }
        }
        taken.push(change.path.to_string_lossy().into_owned());
    }
    Ok(taken)
}

fn entry(index: &git2::Index, change: &FileChange) -> Option<FileEntry> {
    index.get_path(&change.path, 0).map(|held| FileEntry { id: held.id, mode: held.mode })
}

fn cannot() -> &'static str {
    "cannot tell what the checks left in the worktree"
}
