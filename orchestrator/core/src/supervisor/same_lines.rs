//! After a turn, and before the first one of a run: finds the open sessions that change the same lines
//! as this one, and records that in their journals. Every session is told once for each other session
//! and file.
//!
//! A session is compared after its journal has its work. Of two sessions that do this at the same
//! moment, the later one therefore finds the work of the earlier one. If that one is ending and cannot
//! be told, its next run finds it.

use base::clock::Clock;
use base::failure::{OrFail, Result};
use base::files::step as durable_step;
use base::id::Id;
use studio_git::repo::Repository;

use crate::radar::{self, RadarSession, SessionConflict};
use crate::session::disposition::{self, Dispositions};
use crate::session::journal::{JournalEntry, WorkSummary};
use crate::session::record::SessionRecord;
use crate::session::state::state;
use crate::session::store::SessionStore;
use crate::session::summary::{JournalSummary, Phase, SessionFacts};
use crate::supervisor::control::{ControlRequest, send_request};

/// Maximum number of sessions that are merged with the session.
const MAX_MERGES: usize = 200;

/// Returns the sessions whose last snapshots conflict with the one in this session's journal, after the
/// others were told. What fails is left out: the next turn repeats it.
pub(crate) fn find(repository: &Repository, record: &SessionRecord) -> Vec<SessionConflict> {
    let conflicts = conflicts(repository, record).unwrap_or_default();
    let store = SessionStore::new(&repository.common_dir);
    for conflict in &conflicts {
        let _ = tell(repository, &store, &conflict.id, &record.id, &conflict.files);
    }
    if !conflicts.is_empty() {
        durable_step("conflicts.told");
    }
    conflicts
}

fn conflicts(repository: &Repository, record: &SessionRecord) -> Result<Vec<SessionConflict>> {
    let store = SessionStore::new(&repository.common_dir);
    let summary = store.summary(&record.id)?;
    if !summary.work.as_ref().is_some_and(WorkSummary::is_changed) {
        return Ok(Vec::new());
    }
    let dispositions = disposition::read(repository)?;
    let Some(own) = radar_session(&store, &dispositions, record, summary) else {
        return Ok(Vec::new());
    };
    let mut sessions = vec![own];
    for id in store.ids()?.into_iter().filter(|id| *id != record.id) {
        if dispositions.get(&id).operation().is_some() {
            continue;
        }
        // A damaged session does not block others.
        let Ok(summary) = store.summary(&id) else { continue };
        if summary.work.as_ref().is_some_and(WorkSummary::is_changed)
            && let Ok(other) = store.load(&id)
        {
            sessions.extend(radar_session(&store, &dispositions, &other, summary));
        }
    }
    radar::conflicts_of_first(repository, &sessions, MAX_MERGES)
}

fn radar_session(
    store: &SessionStore,
    dispositions: &Dispositions,
    record: &SessionRecord,
    summary: JournalSummary,
) -> Option<RadarSession> {
    let facts = SessionFacts {
        locked: store.is_locked(&record.id),
        disposition: dispositions.get(&record.id).clone(),
        dependencies: Vec::new(),
        queue_reason: None,
        summary,
    };
    RadarSession::of(record, &facts.summary, &state(&facts))
}

/// Records in another session that this one changes the same lines of these files.
fn tell(
    repository: &Repository,
    store: &SessionStore,
    other: &Id,
    own: &Id,
    files: &[String],
) -> Result<()> {
    let is_known = |summary: &JournalSummary| summary.new_conflicts_with(own, files).is_empty();
    if is_known(&store.summary(other)?) {
        return Ok(());
    }
    let request = ControlRequest::SameLines { id: own.clone(), files: files.to_vec() };
    if send_request(&repository.common_dir, other, &request)? {
        return Ok(());
    }
    // No supervisor runs: the holder of the lock writes the journal.
    let Some(_lock) = store.lock(other)? else { return Ok(()) };
    let summary = store.summary(other)?;
    let new = summary.new_conflicts_with(own, files);
    if new.is_empty() || !matches!(summary.phase, Phase::Ended { .. }) {
        return Ok(());
    }
    let mut writer = store.writer(other, Clock::from_env())?;
    let entry = JournalEntry::SameLines { id: own.clone(), files: new };
    let fail = || "cannot write the journal";
    writer.write(entry).or_fail(fail)?;
    writer.sync().or_fail(fail)
}
