//! Empties the trash: the only code that deletes discarded work, after the retention time or when
//! there is too much.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use base::files::step;
use serde::{Deserialize, Serialize};

use crate::oplog::{Intent, OperationLog};
use crate::refs::{self, RefChange};
use crate::repo::Repository;
use crate::transaction;
use crate::{accepted_hunks, discard, keepalive_refs, snapshot, start_point, submodule_refs};

/// How long and how much discarded work is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Days that discarded work is kept.
    pub days: i64,
    /// Maximum disk usage of the trash in bytes; beyond that, the oldest is deleted first.
    pub bytes: u64,
}

impl Default for RetentionPolicy {
    fn default() -> Self {
        RetentionPolicy { days: 7, bytes: 10_000_000_000 }
    }
}

/// The result of emptying the trash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcReport {
    /// Operations that can no longer be undone.
    pub operations: Vec<String>,
    /// Freed disk space in bytes.
    pub bytes: u64,
}

/// The parts of an operation in the trash.
struct TrashEntry {
    intent: Intent,
    directories: Vec<PathBuf>,
    kept_refs: BTreeMap<String, String>,
    bytes: u64,
    is_expired: bool,
}

/// Deletes what is older than the limit, then the oldest while there is too much. Deletes nothing
/// but trash.
pub fn empty_trash(
    repository: &Repository,
    policy: RetentionPolicy,
    now: jiff::Timestamp,
) -> Result<GcReport> {
    let mut log = OperationLog::open(repository)?;
    transaction::recover_with(repository, &mut log)?;
    delete_leftovers(repository, &log);
    let mut report = GcReport::default();
    for entry in expired_entries(repository, &log, policy, now)? {
        delete_entry(repository, &entry)?;
        report.add(&entry);
    }
    submodule_refs::delete_of_gone_sessions(repository, &log)?;
    Ok(report)
}

/// Returns what [`empty_trash`] would delete.
pub fn preview(
    repository: &Repository,
    policy: RetentionPolicy,
    now: jiff::Timestamp,
) -> Result<GcReport> {
    let log = OperationLog::open(repository)?;
    let mut report = GcReport::default();
    for entry in expired_entries(repository, &log, policy, now)? {
        report.add(&entry);
    }
    Ok(report)
}

impl GcReport {
    fn add(&mut self, entry: &TrashEntry) {
        self.operations.push(entry.intent.id.clone());
        self.bytes += entry.bytes;
    }
}

/// Returns the entries to delete, oldest first.
fn expired_entries(
    repository: &Repository,
    log: &OperationLog,
    policy: RetentionPolicy,
    now: jiff::Timestamp,
) -> Result<Vec<TrashEntry>> {
    let cutoff = now.as_second() - policy.days * 86_400;
    let repo = repository.open()?;
    let mut entries: Vec<TrashEntry> = Vec::new();
    for intent in log.intents().filter(|intent| log.outcome(&intent.id) == Some(true)) {
        let directories = directories(repository, intent);
        let kept_refs = refs::list(&repo, &discard::kept_prefix(&intent.id))?;
        if directories.is_empty() && kept_refs.is_empty() {
            continue;
        }
        let time: Option<jiff::Timestamp> = intent.time.parse().ok();
        let is_old = time.is_some_and(|time| time.as_second() <= cutoff);
        let bytes = directories.iter().map(|dir| disk_usage(dir)).sum();
        entries.push(TrashEntry {
            intent: intent.clone(),
            directories,
            kept_refs,
            bytes,
            is_expired: is_old,
        });
    }
    let mut total: u64 = entries.iter().map(|entry| entry.bytes).sum();
    entries.retain(|entry| {
        let is_deleted = entry.is_expired || (total > policy.bytes && entry.bytes > 0);
        total -= if is_deleted { entry.bytes } else { 0 };
        is_deleted
    });
    Ok(entries)
}

/// Returns the existing directories of an operation in the trash.
fn directories(repository: &Repository, intent: &Intent) -> Vec<PathBuf> {
    let mut directories = vec![discard::private_trash(repository, &intent.id)];
    directories.extend(worktree_trash_dirs(intent));
    directories.sort();
    directories.dedup();
    directories.retain(|dir| dir.symlink_metadata().is_ok());
    directories
}

/// Returns the directories in which an operation put worktrees: they have its name and one entry
/// per session.
fn worktree_trash_dirs(intent: &Intent) -> impl Iterator<Item = PathBuf> {
    intent.moves.iter().filter_map(|directory_move| {
        let operation_dir = directory_move.to.parent()?;
        let is_trash = operation_dir.file_name()? == intent.id.as_str();
        let mut sessions = intent.sessions.iter();
        let is_of_session = sessions.any(|session_repo| {
            directory_move.to.file_name() == Some(session_repo.id.as_str().as_ref())
        });
        (is_trash && is_of_session).then(|| operation_dir.to_owned())
    })
}

/// Deletes an entry. Renames it first, so that an interrupted deletion cannot be mistaken for
/// something to undo.
fn delete_entry(repository: &Repository, entry: &TrashEntry) -> Result<()> {
    for dir in &entry.directories {
        step("gc.rename");
        let mut renamed = dir.clone().into_os_string();
        renamed.push(EMPTIED_SUFFIX);
        fs::rename(dir, &renamed).or_fail(|| format!("cannot delete {}", dir.display()))?;
        step("gc.delete");
        remove(Path::new(&renamed));
    }
    let repo = repository.open()?;
    let mut refs_to_delete = entry.kept_refs.clone();
    for session_repo in
        entry.intent.sessions.iter().filter(|session_repo| !session_repo.git_dir.exists())
    {
        let is_in_trash = !entry.directories.is_empty();
        if is_in_trash && refs::read(&repo, &session_repo.branch.full())?.is_none() {
            refs_to_delete.extend(refs::list(&repo, &snapshot::prefix(&session_repo.id))?);
            let id = &session_repo.id;
            let names = [
                keepalive_refs::ref_name(id),
                start_point::ref_name(id),
                accepted_hunks::ref_name(id),
            ];
            for name in names {
                refs_to_delete.extend(refs::read(&repo, &name)?.map(|commit| (name, commit)));
            }
        }
    }
    let changes: Vec<RefChange> = refs_to_delete
        .into_iter()
        .map(|(name, commit)| RefChange::new(name, Some(commit), None))
        .collect();
    refs::update_or_fail(repository, &changes, "studio: gc")
}

/// The suffix of a directory that is being deleted.
pub(crate) const EMPTIED_SUFFIX: &str = ".emptied";

/// Deletes the remains of an interrupted deletion.
fn delete_leftovers(repository: &Repository, log: &OperationLog) {
    let mut parents = vec![repository.common_dir.join("studio/trash")];
    let trash_dirs = log.intents().flat_map(worktree_trash_dirs);
    parents.extend(trash_dirs.filter_map(|dir| Some(dir.parent()?.to_owned())));
    parents.sort();
    parents.dedup();
    for entry in parents.iter().flat_map(fs::read_dir).flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(EMPTIED_SUFFIX) {
            remove(&entry.path());
        }
    }
}

/// Removes a directory, including read-only parts; what cannot be removed is retried next time.
pub fn remove(dir: &Path) {
    if fs::remove_dir_all(dir).is_err() {
        make_writable(dir);
        let _ = fs::remove_dir_all(dir);
    }
}

fn make_writable(dir: &Path) {
    let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

/// Returns the disk usage of all trash that can be undone, in bytes.
pub fn trash_usage(repository: &Repository) -> Result<u64> {
    let log = OperationLog::open(repository)?;
    let directories = log.intents().flat_map(|intent| directories(repository, intent));
    Ok(directories.map(|dir| disk_usage(&dir)).sum())
}

/// Returns the disk usage of a directory and its contents, in bytes.
pub fn disk_usage(dir: &Path) -> u64 {
    let own_bytes = dir.symlink_metadata().map_or(0, |metadata| metadata.blocks() * 512);
    let entries = match dir.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::read_dir(dir).into_iter().flatten().flatten(),
        Ok(_) | Err(_) => return own_bytes,
    };
    own_bytes + entries.map(|entry| disk_usage(&entry.path())).sum::<u64>()
}
