//! A run that home gave up because it could not reach its place. It may go on there: home takes it up
//! again, unless something happened to the session here since.

use base::failure::{Failure, OrFail, Result};
use base::files;
use base::id::Id;

use crate::place::requests::Requests;
use crate::session::placement::Placement;
use crate::session::record::SessionRecord;
use crate::session::store::SessionStore;
use crate::supervisor::control::ControlRequest;

/// Returns the placement of a session whose run was given up, for this reason.
pub(super) fn given_up(
    placement: Placement,
    store: &SessionStore,
    id: &Id,
    why: String,
) -> Result<Placement> {
    let unreached = Some(journal_bytes(store, id)?);
    Ok(Placement { away: false, problem: None, lost: Some(why), unreached, ..placement })
}

/// Counts the session as at its place again: the next call of the scheduler connects to it. A message is
/// carried over then. Returns whether it may run there, and nothing happened to it here since. The
/// caller holds its lock.
pub fn take_up(
    store: &SessionStore,
    record: &SessionRecord,
    message: Option<&str>,
) -> Result<bool> {
    let id = &record.id;
    let Some(placement) = unreached(store, id) else { return Ok(false) };
    let has_worktree = record.session_repo.worktree.symlink_metadata().is_ok();
    let is_same_place = record.run_mode.place.as_ref() == Some(&placement.place);
    let bytes = placement.unreached.unwrap_or_default();
    if has_worktree || !is_same_place || journal_bytes(store, id)? != bytes {
        return Ok(false);
    }
    let mut requests = drop_stops(store, id)?;
    if let Some(text) = message {
        requests.add(store, id, ControlRequest::Send { text: text.to_owned() })?;
    }
    files::step("place.taken_up");
    Placement { away: true, lost: None, unreached: None, ..placement }.write(store, id)?;
    Ok(true)
}

/// Forgets the run: the session will be delivered again. The caller holds its lock.
pub fn forget(store: &SessionStore, id: &Id) -> Result<()> {
    let Some(placement) = unreached(store, id) else { return Ok(()) };
    drop_stops(store, id)?;
    Placement { unreached: None, job: None, ..placement }.write(store, id)
}

/// Refuses new settings for a run that may go on at its place.
pub fn refuse_settings(store: &SessionStore, id: &Id) -> Result<()> {
    match unreached(store, id) {
        Some(Placement { place, .. }) => {
            Err(Failure::refused(format!("session `{id}` may still run at {place}, as it was"))
                .because("it was given up because there was no connection")
                .hint(format!("studio resume {id}    connects to it again"))
                .hint(format!(
                    "studio resume {id} --on {place}    starts a new run with the work that is here"
                )))
        }
        None => Ok(()),
    }
}

/// Removes the user's requests to stop, which the resumed run would carry out.
fn drop_stops(store: &SessionStore, id: &Id) -> Result<Requests> {
    let mut requests = Requests::read(store, id);
    let stops = requests.waiting.iter().filter(|it| it.request == ControlRequest::Stop);
    let stops: Vec<u64> = stops.map(|it| it.number).collect();
    for number in stops {
        requests.remove(store, id, number)?;
    }
    Ok(requests)
}

/// Returns the placement of a session whose run was given up.
fn unreached(store: &SessionStore, id: &Id) -> Option<Placement> {
    Placement::read(store, id).filter(|placement| placement.unreached.is_some())
}

fn journal_bytes(store: &SessionStore, id: &Id) -> Result<u64> {
    let journal = store.file(id, "journal.jsonl").metadata();
    journal.map(|journal| journal.len()).or_fail(|| "cannot read the journal")
}
