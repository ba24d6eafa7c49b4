//! The current changes of a session, whether its agent works or not.

use base::failure::{Failure, Result};

use crate::project::Project;
use crate::session::collect::{self, SessionChanges};
use crate::session_view::SessionView;
use studio_git::snapshot::SnapshotLimits;

/// Maximum number of attempts to read a worktree that changes at the same time.
const MAX_ATTEMPTS: u32 = 3;

/// Returns the current changes in the worktree; without a worktree, those that were collected last.
pub fn load(project: &Project, view: &SessionView) -> Result<SessionChanges> {
    let id = &view.record.id;
    let live = !view.state.is_over() && view.facts.summary.has_worktree;
    let mut last_error = None;
    // A running supervisor imports by itself, and two imports at once would conflict. Without a
    // supervisor, the current state is recorded as the last one seen.
    if live
        && let Some(_lock) = project.store.lock(id)?
        && let Ok(collected) =
            collect::collect(&project.repository, &view.record, &SnapshotLimits::default())
    {
        return Ok(collect::collected_changes(&project.repository, &view.record, &collected.work));
    }
    for _ in 0..MAX_ATTEMPTS {
        if !live {
            break;
        }
        match collect::current_changes(&project.repository, &view.record) {
            Ok(Some((changes, _))) => return Ok(changes),
            Ok(None) => break,
            Err(error) => last_error = Some(error),
        }
        // A file that the agent is writing or removing may be readable in the next attempt.
        if !view.state.is_active() {
            break;
        }
    }
    match (view.work(), last_error) {
        (Some(work), last_error) => {
            let mut changes = collect::collected_changes(&project.repository, &view.record, work);
            let note = "this is the work as of its last import";
            changes.notes.extend(last_error.map(|error| format!("{note}: {}", error.sentence())));
            Ok(changes)
        }
        (None, Some(error)) => Err(error),
        (None, None) => Err(Failure::refused(format!("session `{id}` has no changes yet"))
            .hint(format!("studio logs {id} -f"))),
    }
}
