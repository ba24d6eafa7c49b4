//! Prepared worktrees: the files of a commit and an index for them, without a session. A new session
//! takes one over by two renames, instead of writing every file.
//!
//! A prepared worktree is in `.pool/NAME` beside the sessions' worktrees, where no sandbox can write;
//! its record and its index are in `studio/pool/NAME`. It is complete when its record names a
//! commit, and a claim first removes that file: no worktree is handed out twice.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::failure::{OrFail, Result};
use base::files::step;
use base::lock::Lock;

use crate::names::{self, WorktreeTemplate};
use crate::parallel_checkout::{self, WriteResult, WriteTarget};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::stored_index::StoredIndex;
use crate::{commit_attributes, filters, gc, object_format, partial_clone, worktree};

/// The directory of prepared worktrees, beside those of sessions.
const POOL_DIR: &str = ".pool";
/// The file of a record with the commit; a worktree without it is incomplete, or was taken over.
const COMMIT_FILE: &str = "commit";
/// The file of a record with the path of the worktree, which studio may remove.
const PATH_FILE: &str = "worktree";
/// The file of a record that tells with which filters the files were written.
const FILTERS_FILE: &str = "filters";
/// The file of a record with the states of the directories when they had no other names.
const DIRECTORIES_FILE: &str = "directories";
/// A prepared worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PreparedWorktree {
    record: PathBuf,
    worktree: PathBuf,
    commit: String,
}

/// What a session took over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// The commit whose files the worktree has.
    pub commit: String,
}

/// Returns the number of complete worktrees for a template that sessions from a commit can use.
pub fn len(repository: &Repository, worktrees: &WorktreeTemplate, commit: &str) -> usize {
    let parent = worktrees.parent(repository).join(POOL_DIR);
    let Ok(repo) = repository.open() else { return 0 };
    let is_usable = |prepared: &PreparedWorktree| {
        prepared.worktree.parent() == Some(&parent)
            && commit_attributes::are_same(&repo, &prepared.commit, commit)
    };
    list(repository).into_iter().filter(is_usable).count()
}

/// Prepares worktrees with the files of a commit until there are this many, unless another process
/// does. Returns how many were prepared.
pub fn fill(
    repository: &Repository,
    worktrees: &WorktreeTemplate,
    commit: &str,
    size: u32,
) -> Result<u32> {
    let directory = pool_dir(repository)?;
    let Some(_lock) = Lock::try_take(&directory.join("lock")).or_fail(cannot)? else {
        return Ok(0);
    };
    remove_incomplete(repository)?;
    remove_outdated(repository, commit)?;
    let parent = worktrees.parent(repository);
    if !names::is_for_worktrees(repository, &parent) {
        // Other repositories may have worktrees there.
        return Ok(0);
    }
    let parent = parent.join(POOL_DIR);
    worktree::refuse_symlink(&parent)?;
    let mut filled = 0;
    while len(repository, worktrees, commit) < size as usize {
        if !prepare_one(repository, &directory, &parent, commit)? {
            break;
        }
        filled += 1;
    }
    Ok(filled)
}

/// Prepares one worktree; returns `false` if only git can write the files.
fn prepare_one(
    repository: &Repository,
    directory: &Path,
    parent: &Path,
    commit: &str,
) -> Result<bool> {
    let name = base::random::hex::<8>().or_fail(cannot)?;
    let (record, worktree) = (directory.join(&name), parent.join(&name));
    fs::create_dir(&record).or_fail(cannot)?;
    base::files::replace(&record.join(PATH_FILE), worktree.to_string_lossy().as_bytes())
        .or_fail(cannot)?;
    step("pool.record");
    fs::create_dir_all(&worktree).or_fail(cannot)?;
    step("pool.directory");
    partial_clone::fetch_checkout(repository, commit, None)?;
    let target = WriteTarget {
        git_dir: &repository.common_dir,
        worktree: &worktree,
        index: &record.join("index"),
    };
    let result = parallel_checkout::write(repository, &target, commit);
    let result = match &result {
        Ok(WriteResult::Written) => {
            filters::smudge_files(target.git_dir, target.worktree, target.index)
                .and_then(|()| write_filters(&record))
                .and(result)
        }
        Ok(WriteResult::NeedsGit) | Err(_) => result,
    };
    step("pool.files");
    if !matches!(result, Ok(WriteResult::Written)) {
        gc::remove(&worktree);
        gc::remove(&record);
        return result.map(|_| false);
    }
    write_directories(&record, &worktree, object_format::of_id(commit))?;
    base::files::replace(&record.join(COMMIT_FILE), commit.as_bytes()).or_fail(cannot)?;
    step("pool.complete");
    Ok(true)
}

/// Records the states of the directories, if they have only names of the index. Without them, the
/// names are counted when the worktree is taken over.
fn write_directories(record: &Path, worktree: &Path, format: git2::ObjectFormat) -> Result<()> {
    let Some(stored) = StoredIndex::read(&record.join("index"), format).or_fail(cannot)? else {
        return Ok(());
    };
    let Ok(states) = stored.directory_states(worktree) else { return Ok(()) };
    if stored.describes(worktree).unwrap_or(false) {
        base::files::replace(&record.join(DIRECTORIES_FILE), states.checksum.as_bytes())
            .or_fail(cannot)?;
    }
    Ok(())
}

/// Records the filters that wrote the files.
fn write_filters(record: &Path) -> Result<()> {
    base::files::replace(&record.join(FILTERS_FILE), filters::fingerprint().as_bytes())
        .or_fail(cannot)
}

/// Moves a prepared worktree to the place of a new session, and its index into the session's git
/// directory; prefers one with the files of the session's base, and takes none with other attributes,
/// because git writes the same blob as another file there. One whose files are not exactly as
/// they were written is removed instead. The caller holds the lock for registrations.
pub(crate) fn claim(repository: &Repository, session_repo: &SessionRepo) -> Option<Claimed> {
    let parent = session_repo.worktree.parent()?.join(POOL_DIR);
    let repo = repository.open().ok()?;
    let mut prepared = list(repository);
    prepared.retain(|prepared| {
        prepared.worktree.parent() == Some(&parent)
            && commit_attributes::are_same(&repo, &prepared.commit, &session_repo.base)
    });
    prepared.sort_by_key(|prepared| prepared.commit != session_repo.base);
    prepared.iter().find_map(|prepared| {
        // From here on it belongs to this session, or is incomplete.
        fs::remove_file(prepared.record.join(COMMIT_FILE)).ok()?;
        step("pool.claimed");
        let moved = prepared.is_intact() && prepared.move_to(session_repo).is_ok();
        if !moved {
            gc::remove(&prepared.worktree);
            let _ = fs::remove_file(session_repo.git_dir.join("index"));
        }
        gc::remove(&prepared.record);
        step("pool.moved");
        moved.then(|| Claimed { commit: prepared.commit.clone() })
    })
}

impl PreparedWorktree {
    /// Returns whether the filters of now wrote its files.
    fn has_present_filters(&self) -> bool {
        let recorded = fs::read_to_string(self.record.join(FILTERS_FILE)).unwrap_or_default();
        recorded == filters::fingerprint()
    }

    /// Returns whether the files and directories are exactly those that were written.
    fn is_intact(&self) -> bool {
        let format = object_format::of_id(&self.commit);
        let stored = StoredIndex::read(&self.record.join("index"), format).ok().flatten();
        let is_intact = |stored: StoredIndex| match self.has_recorded_directories(&stored) {
            true => stored.describes_files(&self.worktree),
            false => stored.describes(&self.worktree),
        };
        stored.is_some_and(|stored| is_intact(stored).unwrap_or(false))
    }

    /// Returns whether no name can have been added to a directory or removed since the states were
    /// recorded. One that changed at the same time as it was recorded may have changed after it.
    fn has_recorded_directories(&self, stored: &StoredIndex) -> bool {
        let path = self.record.join(DIRECTORIES_FILE);
        let (recorded, written_at) =
            (fs::read_to_string(&path), path.metadata().and_then(|it| it.modified()));
        let (Ok(recorded), Ok(written_at)) = (recorded, written_at) else { return false };
        stored
            .directory_states(&self.worktree)
            .is_ok_and(|states| states.checksum == recorded && states.changed_at < written_at)
    }

    fn move_to(&self, session_repo: &SessionRepo) -> io::Result<()> {
        fs::rename(self.record.join("index"), session_repo.git_dir.join("index"))?;
        fs::rename(&self.worktree, &session_repo.worktree)
    }
}

/// Removes worktrees that are incomplete, because their preparation or a takeover was killed, and
/// their records. The caller holds the lock of the pool.
fn remove_incomplete(repository: &Repository) -> Result<Vec<String>> {
    // A takeover holds this lock.
    let _lock = worktree::lock(repository)?;
    let mut removed = Vec::new();
    for record in records(repository) {
        if record.join(COMMIT_FILE).exists() {
            continue;
        }
        if let Ok(path) = fs::read_to_string(record.join(PATH_FILE)) {
            gc::remove(Path::new(&path));
        }
        gc::remove(&record);
        removed.push(format!("removed the incomplete prepared worktree {}", record.display()));
    }
    Ok(removed)
}

/// Removes incomplete worktrees, for `studio doctor`; nothing while another process prepares one.
pub fn repair(repository: &Repository) -> Result<Vec<String>> {
    if !repository.common_dir.join("studio/pool").is_dir() {
        return Ok(Vec::new());
    }
    let directory = pool_dir(repository)?;
    match Lock::try_take(&directory.join("lock")).or_fail(cannot)? {
        Some(_lock) => remove_incomplete(repository),
        None => Ok(Vec::new()),
    }
}

/// Removes the prepared worktrees that are older than this, for `studio gc`; returns their number.
pub fn remove_old(repository: &Repository, age: Duration) -> Result<usize> {
    repair(repository)?;
    let _lock = worktree::lock(repository)?;
    let mut prepared = list_complete(repository);
    prepared.retain(|prepared| {
        let metadata = fs::metadata(prepared.record.join(COMMIT_FILE));
        let age_now = metadata.and_then(|it| it.modified()).ok().and_then(|it| it.elapsed().ok());
        age_now.is_some_and(|age_now| age_now >= age)
    });
    prepared.iter().try_for_each(remove)?;
    Ok(prepared.len())
}

/// Removes the worktrees that other filters wrote, or whose attributes are not those of a commit. The
/// caller holds the lock of the pool.
fn remove_outdated(repository: &Repository, commit: &str) -> Result<()> {
    let repo = repository.open()?;
    let is_outdated = |prepared: &PreparedWorktree| {
        !prepared.has_present_filters()
            || !commit_attributes::are_same(&repo, &prepared.commit, commit)
    };
    let mut prepared = list_complete(repository);
    prepared.retain(is_outdated);
    // A takeover holds this lock.
    let _lock = worktree::lock(repository)?;
    prepared.retain(|prepared| prepared.record.join(COMMIT_FILE).exists());
    prepared.iter().try_for_each(remove)
}

/// Removes a complete worktree. The caller holds the lock for registrations.
fn remove(prepared: &PreparedWorktree) -> Result<()> {
    fs::remove_file(prepared.record.join(COMMIT_FILE)).or_fail(cannot)?;
    gc::remove(&prepared.worktree);
    gc::remove(&prepared.record);
    Ok(())
}

/// Returns the directories of all prepared worktrees and their records.
pub fn directories(repository: &Repository) -> Vec<PathBuf> {
    let paths = records(repository).into_iter().flat_map(|record| {
        let worktree = fs::read_to_string(record.join(PATH_FILE)).ok().map(PathBuf::from);
        worktree.into_iter().chain([record])
    });
    paths.collect()
}

/// Lists the prepared worktrees that sessions can use: those that the filters of now wrote.
fn list(repository: &Repository) -> Vec<PreparedWorktree> {
    let mut prepared = list_complete(repository);
    prepared.retain(PreparedWorktree::has_present_filters);
    prepared
}

fn list_complete(repository: &Repository) -> Vec<PreparedWorktree> {
    let prepared = records(repository).into_iter().filter_map(|record| {
        let commit = fs::read_to_string(record.join(COMMIT_FILE)).ok()?;
        let worktree = PathBuf::from(fs::read_to_string(record.join(PATH_FILE)).ok()?);
        Some(PreparedWorktree { record, worktree, commit })
    });
    prepared.collect()
}

fn records(repository: &Repository) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository.common_dir.join("studio/pool")).into_iter().flatten();
    let mut records: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    records.retain(|path| path.is_dir());
    records.sort();
    records
}

fn pool_dir(repository: &Repository) -> Result<PathBuf> {
    let directory = repository.studio_dir()?.join("pool");
    fs::create_dir_all(&directory).or_fail(cannot)?;
    Ok(directory)
}

fn cannot() -> &'static str {
    "cannot prepare a worktree"
}
