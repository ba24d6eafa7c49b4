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
use crate::{discard, keepalive_refs, snapshot};

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
    kept: BTreeMap<String, String>,
    bytes: u64,
    is_old: bool,
}

/// Deletes what is older than the limit, then the oldest while there is too much. Deletes nothing
/// but trash.
pub fn empty(
    repository: &Repository,
    keep: RetentionPolicy,
    now: jiff::Timestamp,
) -> Result<GcReport> {
    let mut log = OperationLog::open(repository)?;
    transaction::recover_with(repository, &mut log)?;
    sweep(repository, &log);
    let mut freed = GcReport::default();
    for heap in heaps(repository, &log, keep, now)? {
        delete(repository, &heap)?;
        freed.add(&heap);
    }
    Ok(freed)
}

/// Returns what [`empty`] would delete.
pub fn planned(
    repository: &Repository,
    keep: RetentionPolicy,
    now: jiff::Timestamp,
) -> Result<GcReport> {
    let log = OperationLog::open(repository)?;
    let mut freed = GcReport::default();
    for heap in heaps(repository, &log, keep, now)? {
        freed.add(&heap);
    }
    Ok(freed)
}

impl GcReport {
    fn add(&mut self, heap: &TrashEntry) {
        self.operations.push(heap.intent.id.clone());
        self.bytes += heap.bytes;
    }
}

/// Returns the entries to delete, oldest first.
fn heaps(
    repository: &Repository,
    log: &OperationLog,
    keep: RetentionPolicy,
    now: jiff::Timestamp,
) -> Result<Vec<TrashEntry>> {
    let oldest = now.as_second() - keep.days * 86_400;
    let repo = repository.open()?;
    let mut heaps: Vec<TrashEntry> = Vec::new();
    for intent in log.intents().filter(|intent| log.outcome(&intent.id) == Some(true)) {
        let directories = directories(repository, intent);
        let kept = refs::list(&repo, &discard::kept_prefix(&intent.id))?;
        if directories.is_empty() && kept.is_empty() {
            continue;
        }
        let time: Option<jiff::Timestamp> = intent.time.parse().ok();
        let is_old = time.is_some_and(|time| time.as_second() <= oldest);
        let bytes = directories.iter().map(|dir| size(dir)).sum();
        heaps.push(TrashEntry { intent: intent.clone(), directories, kept, bytes, is_old });
    }
    let mut total: u64 = heaps.iter().map(|heap| heap.bytes).sum();
    heaps.retain(|heap| {
        let goes = heap.is_old || (total > keep.bytes && heap.bytes > 0);
        total -= if goes { heap.bytes } else { 0 };
        goes
    });
    Ok(heaps)
}

/// Returns the existing directories of an operation in the trash.
fn directories(repository: &Repository, intent: &Intent) -> Vec<PathBuf> {
    let mut found = vec![discard::private_trash(repository, &intent.id)];
    found.extend(trash_of_worktrees(intent));
    found.sort();
    found.dedup();
    found.retain(|dir| dir.symlink_metadata().is_ok());
    found
}

/// Returns the directories in which an operation put worktrees: they have its name and one entry
/// per session.
fn trash_of_worktrees(intent: &Intent) -> impl Iterator<Item = PathBuf> {
    intent.moves.iter().filter_map(|moving| {
        let of_operation = moving.to.parent()?;
        let is_trash = of_operation.file_name()? == intent.id.as_str();
        let mut sessions = intent.sessions.iter();
        let is_of_session =
            sessions.any(|place| moving.to.file_name() == Some(place.id.as_str().as_ref()));
        (is_trash && is_of_session).then(|| of_operation.to_owned())
    })
}

/// Deletes an entry. Renames it first, so that an interrupted deletion cannot be mistaken for
/// something to undo.
fn delete(repository: &Repository, heap: &TrashEntry) -> Result<()> {
    for dir in &heap.directories {
        step("gc.rename");
        let mut emptied = dir.clone().into_os_string();
        emptied.push(EMPTIED);
        fs::rename(dir, &emptied).or_fail(|| format!("cannot delete {}", dir.display()))?;
        step("gc.delete");
        remove(Path::new(&emptied));
    }
    let repo = repository.open()?;
    let mut gone = heap.kept.clone();
    for place in heap.intent.sessions.iter().filter(|place| !place.git_dir.exists()) {
        let is_in_trash = !heap.directories.is_empty();
        if is_in_trash && refs::read(&repo, &place.branch.full())?.is_none() {
            gone.extend(refs::list(&repo, &snapshot::prefix(&place.id))?);
            let pins = keepalive_refs::name(&place.id);
            gone.extend(refs::read(&repo, &pins)?.map(|held| (pins, held)));
        }
    }
    let changes: Vec<RefChange> =
        gone.into_iter().map(|(name, held)| RefChange::new(name, Some(held), None)).collect();
    refs::update_own(repository, &changes, "studio: gc")
}

/// The suffix of a directory that is being deleted.
pub(crate) const EMPTIED: &str = ".emptied";

/// Deletes the remains of an interrupted deletion.
fn sweep(repository: &Repository, log: &OperationLog) {
    let mut parents = vec![repository.common_dir.join("studio/trash")];
    let trashes = log.intents().flat_map(trash_of_worktrees);
    parents.extend(trashes.filter_map(|dir| Some(dir.parent()?.to_owned())));
    parents.sort();
    parents.dedup();
    for entry in parents.iter().flat_map(fs::read_dir).flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(EMPTIED) {
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

/// Returns the disk usage of a directory and its contents, in bytes.
fn size(dir: &Path) -> u64 {
    let own = dir.symlink_metadata().map_or(0, |found| found.blocks() * 512);
    let entries = match dir.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::read_dir(dir).into_iter().flatten().flatten(),
        Ok(_) | Err(_) => return own,
    };
    own + entries.map(|entry| size(&entry.path())).sum::<u64>()
}
