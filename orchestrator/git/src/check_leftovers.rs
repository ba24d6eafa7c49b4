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
const MESSAGE_PREFIX: &str = "What checks left\n\n";

/// The leftovers of the last checks in a worktree.
#[derive(Clone, Debug, Default)]
pub struct Leftover {
    /// The changes, by path.
    pub changes: Vec<FileChange>,
    /// Files that a snapshot excludes: too large, or too many.
    pub excluded: Vec<UntrackedFile>,
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
    pub omitted: &'a [String],
}

/// Returns the ref of the commit with the worktree after the checks; its parent is the work before
/// them, and its message ends with the list of excluded files.
fn ref_name(id: &Id) -> String {
    format!("{}checked", snapshot::prefix(id))
}

/// Records how a worktree differs from the work before the checks. Commits made by the checks count
/// as the session's.
pub fn record(
    repository: &Repository,
    session_repo: &SessionRepo,
    state: WorkBeforeChecks<'_>,
    now: jiff::Timestamp,
) -> Result<()> {
    let imported = import::import(repository, session_repo)?;
    let repo = repository.open()?;
    let current = refs::read(&repo, &ref_name(&session_repo.id))?;
    let WorktreeContent { scratch, tree, omissions: left_out, .. } = snapshot::read_worktree(
        repository,
        session_repo,
        &imported,
        &SnapshotLimits::default(),
        &Leftover::default(),
    )?;
    let work = scratch.repo.find_commit(refs::oid(state.work)?).or_fail(cannot)?;
    let new = left_out.iter().filter(|omission| !state.omitted.contains(&omission.path));
    let excluded: Vec<UntrackedFile> =
        new.filter_map(|omission| UntrackedFile::of(session_repo, omission)).collect();
    if tree == work.tree_id() && excluded.is_empty() {
        let deletion = RefChange::new(ref_name(&session_repo.id), current, None);
        return refs::update_or_fail(repository, &[deletion], "studio: the checks left nothing");
    }
    let message = format!("{MESSAGE_PREFIX}{}", serde_json::to_string(&excluded).or_fail(cannot)?);
    let create_commit = || -> std::result::Result<git2::Oid, git2::Error> {
        let time = git2::Time::new(now.as_second(), 0);
        let signature = git2::Signature::new("studio", "studio@studio.invalid", &time)?;
        let tree = scratch.repo.find_tree(tree)?;
        scratch.repo.commit(None, &signature, &signature, &message, &tree, &[&work])
    };
    let commit = create_commit().or_fail(cannot)?.to_string();
    let imported_pack =
        object_quarantine::import_commit(repository, &scratch, session_repo, &commit, state.work)?;
    step("checks.objects");
    let change = RefChange::new(ref_name(&session_repo.id), current, Some(commit));
    refs::update_or_fail(repository, &[change], "studio: what the checks left")?;
    step("checks.noted");
    imported_pack.release();
    Ok(())
}

/// Returns the leftovers of the last checks.
pub fn read(repo: &git2::Repository, id: &Id) -> Result<Leftover> {
    let Some(commit_id) = refs::read(repo, &ref_name(id))? else { return Ok(Leftover::default()) };
    let commit = repo.find_commit(refs::oid(&commit_id)?).or_fail(cannot)?;
    let parent = commit.parent_id(0).or_fail(cannot)?.to_string();
    let list = commit.message().ok().and_then(|text| text.strip_prefix(MESSAGE_PREFIX));
    // Earlier versions wrote no list.
    let excluded = list.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    Ok(Leftover { changes: checkout::changes(repo, &parent, &commit_id)?, excluded })
}

impl Leftover {
    /// Returns whether a path that a snapshot excludes is unchanged since the checks.
    pub(crate) fn contains(&self, session_repo: &SessionRepo, left_out: &Omission) -> bool {
        let recorded = self.excluded.iter().find(|file| file.path == left_out.path);
        recorded
            .is_some_and(|file| UntrackedFile::of(session_repo, left_out).as_ref() == Some(file))
    }
}

impl UntrackedFile {
    /// Returns `None` for a directory, because changes inside it would not be detected.
    fn of(session_repo: &SessionRepo, omission: &Omission) -> Option<UntrackedFile> {
        let metadata = session_repo.worktree.join(&omission.path).symlink_metadata().ok()?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        (!metadata.is_dir()).then(|| UntrackedFile {
            path: omission.path.clone(),
            bytes: metadata.len(),
            modified,
        })
    }
}

/// Returns the changes that have not been staged since.
pub(crate) fn unstaged_leftovers<'a>(
    index: &git2::Index,
    leftovers: &'a [FileChange],
) -> Vec<&'a FileChange> {
    leftovers.iter().filter(|change| entry(index, change) != change.after).collect()
}

/// Removes the leftovers from an index of the whole worktree, if they are unchanged since the
/// checks. Returns their paths.
pub(crate) fn remove_from_index(
    index: &mut git2::Index,
    leftovers: &[&FileChange],
) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for change in leftovers {
        if entry(index, change) != change.after {
            continue;
        }
        match change.before {
            None => index.remove_path(&change.path).or_fail(cannot)?,
            Some(before) => {
                index
                    .add(&checkout_update::index_entry(&change.path, before, None))
                    .or_fail(cannot)?;
            }
        }
        removed.push(change.path.to_string_lossy().into_owned());
    }
    Ok(removed)
}

fn entry(index: &git2::Index, change: &FileChange) -> Option<FileEntry> {
    index.get_path(&change.path, 0).map(|entry| FileEntry { id: entry.id, mode: entry.mode })
}

fn cannot() -> &'static str {
    "cannot tell what the checks left in the worktree"
}
