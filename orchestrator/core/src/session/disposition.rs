//! The dispositions of sessions (accepted, discarded, …), read from the operation log.

use std::collections::{BTreeMap, BTreeSet};

use base::failure::{Failure, Result};
use base::id::Id;

use crate::session::record::SessionRecord;
use crate::session::summary::{Dependency, Disposition};
use studio_git::oplog::{Intent, LogEntries, LogLine, OperationKind};
use studio_git::repo::Repository;
use studio_git::{discard, moved_repository};

/// The disposition of every session in the operation log.
pub struct Dispositions {
    by_session: BTreeMap<Id, Disposition>,
    undone: BTreeSet<Id>,
    intents: BTreeMap<String, Intent>,
    entries: LogEntries,
}

impl Dispositions {
    /// Returns the disposition of one session.
    pub(crate) fn of(&self, id: &Id) -> &Disposition {
        self.by_session.get(id).unwrap_or(&Disposition::Open)
    }

    /// Returns whether a session landed and its landing was undone.
    pub fn is_landing_undone(&self, id: &Id) -> bool {
        self.undone.contains(id)
    }

    /// Refuses a session whose disposition is unknown: a line of the operation log that may be
    /// about it is unreadable.
    pub(crate) fn refuse_doubt(&self, id: &Id) -> Result<()> {
        match self.entries.doubt_about(id) {
            Some(doubt) => Err(Failure::failed(format!("session `{id}` cannot be read"))
                .because(doubt.sentence())
                .hint("studio doctor")),
            None => Ok(()),
        }
    }

    /// Returns the dependencies of a session that have not landed.
    pub(crate) fn holds(&self, record: &SessionRecord) -> Vec<Dependency> {
        let waits = record.after.iter().map(|id| (id, self.of(id)));
        waits
            .filter(|(_, fate)| !matches!(fate, Disposition::Accepted { .. }))
            .map(|(id, fate)| Dependency { id: id.clone(), fate: fate.clone() })
            .collect()
    }

    /// Returns whether everything that an operation discarded can be restored.
    pub(crate) fn is_kept(&self, repository: &Repository, operation: &str) -> bool {
        let intent = self.intents.get(operation);
        intent.is_some_and(|intent| discard::is_kept(repository, intent))
    }
}

/// Reads the operation log without locking it.
pub(crate) fn read(repository: &Repository) -> Result<Dispositions> {
    let entries = LogEntries::read(repository)?;
    let (by_session, undone) = of(entries.lines());
    let mut intents = BTreeMap::new();
    for line in entries.lines() {
        if let LogLine::Intent(intent) = line {
            let mut intent = intent.clone();
            moved_repository::intent_now(&repository.common_dir, &mut intent);
            intents.insert(intent.id.clone(), *intent);
        }
    }
    Ok(Dispositions { by_session, undone, intents, entries })
}

/// Returns the disposition of each session, and the sessions whose landing was undone.
fn of(lines: &[LogLine]) -> (BTreeMap<Id, Disposition>, BTreeSet<Id>) {
    let ended = |wanted: bool| -> BTreeSet<&str> {
        let of = |line: &'_ LogLine| matches!(line, LogLine::Outcome(end) if end.done == wanted);
        let named = lines.iter().filter(|line| of(line));
        named
            .filter_map(|line| match line {
                LogLine::Outcome(end) => Some(end.id.as_str()),
                LogLine::Intent(_) => None,
            })
            .collect()
    };
    let (done, taken_back) = (ended(true), ended(false));
    let (mut fates, mut undone) = (BTreeMap::new(), BTreeSet::new());
    for line in lines {
        let LogLine::Intent(intent) = line else { continue };
        if taken_back.contains(intent.id.as_str()) || intent.kind == OperationKind::Relocate {
            continue;
        }
        let fate = fate(intent, done.contains(intent.id.as_str()));
        for place in &intent.sessions {
            let before = match &fate {
                Some(fate) => fates.insert(place.id.clone(), fate.clone()),
                None => fates.remove(&place.id),
            };
            match (&fate, before) {
                (None, Some(Disposition::Accepted { .. })) => undone.insert(place.id.clone()),
                (Some(Disposition::Accepted { .. }), _) => undone.remove(&place.id),
                (_, _) => false,
            };
        }
    }
    (fates, undone)
}

/// Returns the disposition that an operation gives to its sessions; `None` if it reopens them.
fn fate(intent: &Intent, done: bool) -> Option<Disposition> {
    match (intent.kind, done) {
        (OperationKind::Accept, false) => Some(Disposition::Landing),
        (OperationKind::Accept, true) => {
            let commit = intent.landing.as_ref().map(|landing| landing.after.clone());
            Some(Disposition::Accepted { operation: intent.id.clone(), commit })
        }
        (OperationKind::Discard, _) => {
            Some(Disposition::Discarded { operation: intent.id.clone() })
        }
        (OperationKind::Undo | OperationKind::Relocate, _) => None,
    }
}
