//! Trials: a session's work as changes in a checkout of the user, whose HEAD and index stay as they
//! are. Ending a trial puts the files back byte for byte.

use std::collections::BTreeSet;
use std::path::PathBuf;

use base::failure::{Failure, OrFail, Result};

use crate::checkout::{self, Checkout, FileChange};
use crate::conflict::Conflict;
use crate::land::refuse_endless_patterns;
use crate::object_quarantine::{self, Quarantine};
use crate::oplog::{Intent, LogEntries, OperationKind, OperationLog, TrialTarget};
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::snapshot::{self, WorktreeContent};
use crate::transaction::{mark_step, recover_with, write_intent, write_outcome};
use crate::trial_files::{ChangedPaths, TrialFiles};
use crate::{accepted_hunks, checkout_conflicts, entry_mode, merge, partial_clone, refs};

/// A session that is being tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The operation that started it.
    pub operation: String,
    /// The session.
    pub session_repo: SessionRepo,
    /// The checkout with its work.
    pub checkout: Checkout,
    /// The commit of the checkout's HEAD when the trial began.
    pub head: String,
    /// The time of its start, RFC 3339.
    pub time: String,
}

/// The work of a session that is tried.
pub enum TrialWork {
    /// The worktree as it is.
    Worktree {
        /// The commit of its HEAD, which may be known to the session only.
        head: String,
        /// Its files.
        content: Box<WorktreeContent>,
    },
    /// A commit of the repository.
    Commit(String),
}

/// What happens to files of a trial that the user changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedFiles {
    /// The trial does not end.
    Refuse,
    /// They stay as they are.
    Keep,
}

/// The result of a start or an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedFiles {
    /// Number of paths that differ from the user's commit.
    pub files: usize,
    /// Submodules, which stay as they are.
    pub skipped: Vec<PathBuf>,
}

/// A trial that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedTrial {
    /// The operation that ended it.
    pub operation: String,
    /// The files that stay as the user changed them.
    pub kept: Vec<PathBuf>,
}

impl Trial {
    fn of(intent: Intent) -> Option<Trial> {
        let TrialTarget { checkout, head } = intent.trial?;
        let session_repo = intent.sessions.into_iter().next()?;
        Some(Trial { operation: intent.id, session_repo, checkout, head, time: intent.time })
    }
}

/// Returns the active trials of all checkouts, oldest first, without locking the log.
pub fn active(repository: &Repository) -> Result<Vec<Trial>> {
    let entries = LogEntries::read_current(repository)?;
    Ok(active_in(&entries))
}

/// Like [`active`], with the log that was read.
pub fn active_in(entries: &LogEntries) -> Vec<Trial> {
    entries.active_trials().into_iter().filter_map(Trial::of).collect()
}

/// Refuses (3) to change checkouts in which a session is tried.
pub(crate) fn refuse_active(repository: &Repository, checkouts: &[Checkout]) -> Result<()> {
    let trials = active(repository)?;
    let Some(trial) = trials.iter().find(|trial| checkouts.contains(&trial.checkout)) else {
        return Ok(());
    };
    let worktree = trial.checkout.worktree.display();
    Err(Failure::refused(format!("`{}` is being tried in {worktree}", trial.session_repo.id))
        .because("its files are in the way")
        .hint(format!("studio -C '{worktree}' try --end")))
}

/// Puts a session's work into the checkout in which the search for the repository started. Refuses
/// (3) if a changed file of the user is in the way, and fails with a conflict (4) if the work does
/// not merge with HEAD.
pub fn start(
    repository: &Repository,
    session_repo: &SessionRepo,
    work: &TrialWork,
    time: &str,
) -> Result<(Trial, TriedFiles)> {
    let checkout = checkout::current(repository)?;
    let mut log = OperationLog::open(repository)?;
    recover_with(repository, &mut log)?;
    refuse_active(repository, std::slice::from_ref(&checkout))?;
    let head = repository.base(None)?.commit;
    let merged = merge_work(repository, session_repo, &checkout, &head, work)?;
    let operation = log.next_id();
    let mut intent =
        Intent::new(operation.clone(), time, OperationKind::Try, vec![session_repo.clone()]);
    intent.trial = Some(TrialTarget { checkout: checkout.clone(), head: head.clone() });
    let files = TrialFiles::of(repository, &operation);
    files.remove();
    let _lock = checkout::lock_index(&checkout, &operation)?;
    let version =
        prepare(&files, &checkout, &merged, &merged.changes).inspect_err(|_| files.remove())?;
    write_intent(&mut log, &intent)?;
    if let Err(failure) = files.apply(&log, &checkout.worktree, version) {
        log.confirm()?;
        files.put_back(&log, &checkout.worktree, &ChangedPaths::new())?;
        write_outcome(&mut log, &intent, false)?;
        files.remove();
        return Err(failure);
    }
    mark_step(&log, &intent, "files")?;
    write_outcome(&mut log, &intent, true)?;
    let tried = TriedFiles { files: merged.changes.len(), skipped: merged.skipped.clone() };
    let session_repo = session_repo.clone();
    Ok((Trial { operation, session_repo, checkout, head, time: time.to_owned() }, tried))
}

/// Brings the session's newer work into the checkout; `None` if the trial has ended. Refuses (3) if
/// the user changed a file of the trial, or has changes in a file that the session changed now.
pub fn update(
    repository: &Repository,
    trial: &Trial,
    work: &TrialWork,
) -> Result<Option<TriedFiles>> {
    let log = OperationLog::open(repository)?;
    if log.active_trials().iter().all(|intent| intent.id != trial.operation) {
        return Ok(None);
    }
    let checkout = &trial.checkout;
    let merged = merge_work(repository, &trial.session_repo, checkout, &trial.head, work)?;
    let files = TrialFiles::of(repository, &trial.operation);
    let _lock = checkout::lock_index(checkout, &trial.operation)?;
    let changed = files.find_changed(checkout, &trial.head)?;
    if !changed.is_empty() {
        return Err(changed_failure("the session's newer work is not shown", trial, &changed));
    }
    let known = files.paths()?;
    let is_new = |change: &&FileChange| !known.contains(&change.path);
    let new: Vec<FileChange> = merged.changes.iter().filter(is_new).cloned().collect();
    let version = prepare(&files, checkout, &merged, &new)?;
    files.apply(&log, &checkout.worktree, version)?;
    Ok(Some(TriedFiles { files: merged.changes.len(), skipped: merged.skipped.clone() }))
}

/// Ends a trial: puts the user's files back.
pub fn end(
    repository: &Repository,
    trial: &Trial,
    changed: ChangedFiles,
    time: &str,
) -> Result<EndedTrial> {
    let mut log = OperationLog::open(repository)?;
    recover_with(repository, &mut log)?;
    let is_this = |intent: &Intent| intent.id == trial.operation;
    let active = log.active_trials().into_iter().find(is_this).ok_or_else(|| {
        Failure::refused(format!("`{}` is not being tried", trial.session_repo.id))
            .hint("studio operations")
    })?;
    end_with(repository, &mut log, &active, changed, time)
}

/// Like [`end`], for a caller that holds the operation lock.
pub(crate) fn end_with(
    repository: &Repository,
    log: &mut OperationLog,
    started: &Intent,
    changed: ChangedFiles,
    time: &str,
) -> Result<EndedTrial> {
    let trial = Trial::of(started.clone())
        .ok_or_else(|| Failure::refused(format!("`{}` tried no session", started.id)))?;
    let files = TrialFiles::of(repository, &trial.operation);
    let exists = trial.checkout.worktree.is_dir();
    let operation = log.next_id();
    let _lock = match exists {
        true => Some(checkout::lock_index(&trial.checkout, &operation)?),
        false => None,
    };
    let mut kept = files.find_changed(&trial.checkout, &trial.head)?;
    if changed == ChangedFiles::Refuse && !kept.is_empty() {
        return Err(changed_failure("the trial cannot end", &trial, &kept)
            .hint("studio try --end --keep    keeps them as they are, and puts the others back"));
    }
    let intent = Intent {
        undoes: Some(started.id.clone()),
        trial: started.trial.clone(),
        ..Intent::new(operation.clone(), time, OperationKind::Undo, started.sessions.clone())
    };
    write_intent(log, &intent)?;
    kept.extend(files.put_back(log, &trial.checkout.worktree, &kept)?);
    mark_step(log, &intent, "files")?;
    write_outcome(log, &intent, true)?;
    files.remove();
    Ok(EndedTrial { operation, kept: kept.into_keys().collect() })
}

/// Puts the user's files back after a crash in a start or an end, and returns whether the operation
/// counts as done.
pub(crate) fn recover(
    repository: &Repository,
    log: &OperationLog,
    intent: &Intent,
    target: &TrialTarget,
    messages: &mut Vec<String>,
) -> Result<bool> {
    let files = files_of(repository, intent);
    let checkout = &target.checkout;
    if checkout.worktree.is_dir() {
        let _lock = checkout::relock_index(checkout, &intent.id)?;
        let mut kept = files.find_changed(checkout, &target.head)?;
        kept.extend(files.put_back(log, &checkout.worktree, &kept)?);
        messages.extend(kept.iter().map(|(path, reason)| {
            format!("{} is {reason} and was left unchanged", checkout.worktree.join(path).display())
        }));
    }
    Ok(intent.kind == OperationKind::Undo)
}

/// Removes the saved files of an operation that ended.
pub(crate) fn forget(repository: &Repository, intent: &Intent) {
    files_of(repository, intent).remove();
}

/// Returns the saved files that an operation uses.
fn files_of(repository: &Repository, intent: &Intent) -> TrialFiles {
    TrialFiles::of(repository, intent.undoes.as_ref().unwrap_or(&intent.id))
}

/// Removes saved files of trials that are not active. A killed process may have left them.
pub(crate) fn remove_leftovers(repository: &Repository, log: &OperationLog) {
    if log.has_unreadable_lines() {
        return;
    }
    let active: BTreeSet<String> =
        log.active_trials().into_iter().map(|intent| intent.id).collect();
    let directory = repository.common_dir.join("studio/trials");
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| !active.contains(name)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The session's work, merged with the commit of the checkout.
struct MergedTrial {
    /// The checkout; it sees the objects of the merge.
    repo: git2::Repository,
    tree: git2::Oid,
    changes: Vec<FileChange>,
    skipped: Vec<PathBuf>,
    /// Their objects are needed as long as `repo`.
    _quarantines: Vec<Quarantine>,
}

/// Merges the session's work with a commit in memory. The repository gets no object.
fn merge_work(
    repository: &Repository,
    session_repo: &SessionRepo,
    checkout: &Checkout,
    head: &str,
    work: &TrialWork,
) -> Result<MergedTrial> {
    let scratch = Quarantine::open(repository)?;
    let mut quarantines = Vec::new();
    let (session_head, work) = match work {
        TrialWork::Commit(commit) => (commit.clone(), commit.clone()),
        TrialWork::Worktree { head: session_head, content } => {
            let now = jiff::Timestamp::UNIX_EPOCH;
            let repo = &content.scratch.repo;
            let commit = snapshot::commit_content(repo, session_head, content, now)?.to_string();
            let dirs = [content.scratch.objects(), session_repo.git_dir.join("objects")];
            let existing = [session_repo.base.clone(), head.to_owned()];
            let commits = [commit.clone()];
            let id = &session_repo.id;
            let verified =
                object_quarantine::verified_objects(repository, &dirs, &commits, &existing, id)?;
            scratch.add_objects(&verified.objects())?;
            quarantines.push(verified);
            (session_head.clone(), commit)
        }
    };
    // Commits without a common ancestor merge as if both added their files.
    let merge_base = scratch.repo.merge_base(refs::oid(head)?, refs::oid(&work)?).ok();
    let base = match merge_base {
        Some(base) => {
            let id = &session_repo.id;
            accepted_hunks::landed_base(repository, id, &base.to_string(), head)?
        }
        None => None,
    };
    partial_clone::fetch_merge(repository, &scratch.repo, (head, &work), base.as_deref())?;
    let tree = match merge::merge_tree(&scratch, head, &session_head, &work, base.as_deref())? {
        Ok(tree) => tree,
        Err(conflicts) => return Err(conflict_failure(session_repo, &conflicts)),
    };
    quarantines.push(scratch);
    let repo = checkout::open(checkout)?;
    for quarantine in &quarantines {
        let odb = repo.odb().or_fail(cannot)?;
        odb.add_disk_alternate(&quarantine.objects().to_string_lossy()).or_fail(cannot)?;
    }
    let (skipped, changes) = {
        let before = checkout::tree_of(&repo, head)?;
        let after = repo.find_tree(tree).or_fail(cannot)?;
        let changes = checkout::tree_changes(&repo, &before, &after)?;
        refuse_endless_patterns(&repo, &changes)?;
        let is_submodule = |change: &FileChange| {
            [change.before, change.after]
                .iter()
                .flatten()
                .any(|entry| entry.mode == entry_mode::GITLINK)
        };
        let (skipped, changes): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_submodule);
        let index = checkout::open_index(checkout)?;
        (skipped, checkout::written_changes(checkout, &index, &changes)?)
    };
    let skipped = skipped.into_iter().map(|change| change.path).collect();
    Ok(MergedTrial { repo, tree, changes, skipped, _quarantines: quarantines })
}

/// Saves the user's files at new paths and makes a version ready to be written.
fn prepare(
    files: &TrialFiles,
    checkout: &Checkout,
    merged: &MergedTrial,
    new: &[FileChange],
) -> Result<u32> {
    checkout_conflicts::refuse(checkout, new)?;
    let tree = merged.repo.find_tree(merged.tree).or_fail(cannot)?;
    let version = files.stage(&merged.repo, &tree, &merged.changes)?;
    files.save(&checkout.worktree, new)?;
    files.add_version(version, &merged.changes)?;
    Ok(version)
}

fn changed_failure(what: &str, trial: &Trial, changed: &ChangedPaths) -> Failure {
    let lines: Vec<String> =
        changed.iter().map(|(path, reason)| format!("{}: {reason}", path.display())).collect();
    let worktree = trial.checkout.worktree.display();
    Failure::refused(format!("{what}: you changed files of `{}`", trial.session_repo.id))
        .because(lines.join("\n"))
        .hint(format!("git -C '{worktree}' diff    shows them"))
}

fn conflict_failure(session_repo: &SessionRepo, conflicts: &[Conflict]) -> Failure {
    let paths: Vec<&str> = conflicts.iter().map(|conflict| conflict.path.as_str()).collect();
    let hunks: Vec<String> = conflicts
        .iter()
        .map(|conflict| format!("{}\n{}", conflict.path, conflict.hunks.trim_end()))
        .collect();
    let id = &session_repo.id;
    Failure::conflict(format!("`{id}` conflicts with your HEAD in {}", paths.join(", ")))
        .because(base::text::printable(&hunks.join("\n")))
        .hint(format!("studio send {id} 'merge the branch and solve the conflicts'"))
}

fn cannot() -> &'static str {
    "cannot merge the session's work with your checkout"
}
