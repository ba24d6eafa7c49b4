//! The dispositions of sessions (accepted, discarded, …), read from the operation log.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::failure::{Failure, Result};
use base::id::Id;

use crate::session::record::SessionRecord;
use crate::session::summary::{Dependency, Disposition};
use studio_git::names::BranchName;
use studio_git::oplog::{Intent, LogEntries, OperationKind, TargetUpdate};
use studio_git::repo::Repository;
use studio_git::{discard, trial};

/// How long the dispositions of an unchanged log are used: paths in it depend on where worktrees are.
const CACHE_TIME: Duration = Duration::from_secs(2);

/// The disposition of every session in the operation log.
pub struct Dispositions {
    by_session: BTreeMap<Id, Disposition>,
    undone_landings: BTreeSet<Id>,
    intents: HashMap<String, Arc<Intent>>,
    trials: BTreeMap<Id, PathBuf>,
    entries: Arc<LogEntries>,
}

impl Dispositions {
    /// Returns the disposition of one session.
    pub(crate) fn get(&self, id: &Id) -> &Disposition {
        self.by_session.get(id).unwrap_or(&Disposition::Open)
    }

    /// Returns whether a session landed and its landing was undone.
    pub fn is_landing_undone(&self, id: &Id) -> bool {
        self.undone_landings.contains(id)
    }

    /// Refuses a session whose disposition is unknown: a line of the operation log that may be
    /// about it is unreadable.
    pub(crate) fn refuse_unknown(&self, id: &Id) -> Result<()> {
        match self.entries.session_doubt(id) {
            Some(doubt) => Err(Failure::failed(format!("session `{id}` cannot be read"))
                .because(doubt.sentence())
                .hint("studio doctor")),
            None => Ok(()),
        }
    }

    /// Returns the dependencies of a session that have not landed.
    pub(crate) fn open_dependencies(&self, record: &SessionRecord) -> Vec<Dependency> {
        let dependencies = record.after.iter().map(|id| (id, self.get(id)));
        dependencies
            .filter(|(_, disposition)| !matches!(disposition, Disposition::Accepted { .. }))
            .map(|(id, disposition)| Dependency {
                id: id.clone(),
                disposition: disposition.clone(),
            })
            .collect()
    }

    /// Returns the branch on which an operation landed its session.
    pub(crate) fn target_of(&self, operation: &str) -> Option<&BranchName> {
        Some(&self.intents.get(operation)?.landing.as_ref()?.target)
    }

    /// Returns the moves of branches with which these sessions landed, undone ones included.
    pub fn landings_of(&self, sessions: &BTreeSet<Id>) -> impl Iterator<Item = &TargetUpdate> {
        let is_theirs =
            move |intent: &&Arc<Intent>| intent.sessions.iter().any(|it| sessions.contains(&it.id));
        self.intents.values().filter(is_theirs).filter_map(|intent| intent.landing.as_ref())
    }

    /// Returns the checkout in which a session is being tried.
    pub(crate) fn tried_in(&self, id: &Id) -> Option<&PathBuf> {
        self.trials.get(id)
    }

    /// Returns whether everything that an operation discarded can be restored.
    pub(crate) fn is_kept(&self, repository: &Repository, operation: &str) -> bool {
        let intent = self.intents.get(operation);
        intent.is_some_and(|intent| discard::is_kept(repository, intent))
    }
}

/// The dispositions that were read last. A log that is unchanged is not read again within moments,
/// because commands that wait look often.
#[derive(Default)]
pub struct DispositionCache {
    known: Mutex<Option<KnownDispositions>>,
}

struct KnownDispositions {
    stamp: Option<LogStamp>,
    read_at: Instant,
    dispositions: Arc<Dispositions>,
}

impl DispositionCache {
    /// Returns the dispositions of the sessions of a repository.
    pub(crate) fn get(&self, repository: &Repository) -> Result<Arc<Dispositions>> {
        let stamp = log_stamp(repository);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref()
            && known.stamp == stamp
            && known.read_at.elapsed() < CACHE_TIME
        {
            return Ok(known.dispositions.clone());
        }
        let dispositions = Arc::new(read(repository)?);
        let read_at = Instant::now();
        *known = Some(KnownDispositions { stamp, read_at, dispositions: dispositions.clone() });
        Ok(dispositions)
    }
}

/// What tells whether the operation log has changed: its inode, length and time.
type LogStamp = (u64, u64, i64, i64);

/// Returns the stamp of the operation log; `None` if it does not exist.
fn log_stamp(repository: &Repository) -> Option<LogStamp> {
    let log = std::fs::metadata(repository.common_dir.join("studio/operations.jsonl")).ok()?;
    Some((log.ino(), log.len(), log.mtime(), log.mtime_nsec()))
}

/// Reads the operation log without locking it.
pub(crate) fn read(repository: &Repository) -> Result<Dispositions> {
    let entries = LogEntries::read_current(repository)?;
    let (by_session, undone_landings) = dispositions_of(&entries);
    let intents = entries.intents().map(|intent| (intent.id.clone(), intent.clone())).collect();
    let trials = trial::active_in(&entries).into_iter();
    let trials = trials.map(|trial| (trial.session_repo.id, trial.checkout.worktree)).collect();
    Ok(Dispositions { by_session, undone_landings, intents, trials, entries })
}

/// Returns the disposition of each session, and the sessions whose landing was undone.
fn dispositions_of(entries: &LogEntries) -> (BTreeMap<Id, Disposition>, BTreeSet<Id>) {
    let (mut dispositions, mut undone_landings) = (BTreeMap::new(), BTreeSet::new());
    let of_hunks: HashSet<&str> = entries
        .intents()
        .filter(|intent| intent.kind == OperationKind::AcceptHunks)
        .map(|intent| intent.id.as_str())
        .collect();
    for intent in entries.intents() {
        // A session stays open during a trial, after a landing of some of its hunks, and after the
        // undo of either. One whose files are being moved back is not open yet.
        let result = entries.result(&intent.id);
        let is_done = result == Some(true);
        let keeps_session = match intent.kind {
            OperationKind::Relocate | OperationKind::Try => true,
            OperationKind::AcceptHunks => is_done,
            OperationKind::Undo => {
                let undoes_hunks =
                    intent.undoes.as_deref().is_some_and(|undone| of_hunks.contains(undone));
                !is_done || intent.trial.is_some() || undoes_hunks
            }
            OperationKind::Accept | OperationKind::Discard => false,
        };
        if result == Some(false) || keeps_session {
            continue;
        }
        let disposition = disposition(intent, is_done);
        for session_repo in &intent.sessions {
            let disposition = match intent.dropped.contains(&session_repo.id) && is_done {
                true => Some(Disposition::Discarded { operation: intent.id.clone() }),
                false => disposition.clone(),
            };
            let previous = match &disposition {
                Some(disposition) => {
                    dispositions.insert(session_repo.id.clone(), disposition.clone())
                }
                None => dispositions.remove(&session_repo.id),
            };
            match (&disposition, previous) {
                (None, Some(Disposition::Accepted { .. })) => {
                    undone_landings.insert(session_repo.id.clone())
                }
                (Some(Disposition::Accepted { .. }), _) => undone_landings.remove(&session_repo.id),
                (_, _) => false,
            };
        }
    }
    (dispositions, undone_landings)
}

/// Returns the disposition that an operation gives to its sessions; `None` if it reopens them.
fn disposition(intent: &Intent, done: bool) -> Option<Disposition> {
    match (intent.kind, done) {
        (OperationKind::Accept | OperationKind::AcceptHunks, false) => Some(Disposition::Landing),
        (OperationKind::Accept, true) => {
            let commit = intent.landing.as_ref().map(|landing| landing.after.clone());
            Some(Disposition::Accepted { operation: intent.id.clone(), commit })
        }
        (OperationKind::Discard, _) => {
            Some(Disposition::Discarded { operation: intent.id.clone() })
        }
        (OperationKind::AcceptHunks, true)
        | (OperationKind::Undo | OperationKind::Relocate | OperationKind::Try, _) => None,
    }
}
