//! An earlier state of a session's work: a review or a diff shows what is new since then.

use base::failure::{Failure, OrFail, Result};

use crate::project::Project;
use crate::session::journal::{JournalEntry, JournalTail, WorkSummary};
use crate::session::last_shown;
use crate::session_view::SessionView;

/// An earlier state of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlierState {
    /// When the user last saw it: in `studio diff` or `studio review` on a terminal.
    LastLook,
    /// Before the agent's last turn.
    LastTurn,
}

/// Returns the commit or the tree with that state; `None` if there was no work yet.
pub fn resolve(
    project: &Project,
    view: &SessionView,
    state: EarlierState,
) -> Result<Option<String>> {
    let id = &view.record.id;
    let found = match state {
        EarlierState::LastLook => {
            let tree = last_shown::read(&project.repository, id);
            Some(tree.ok_or_else(|| {
                Failure::not_found(format!("session `{id}` was not shown yet"))
                    .because("neither `studio diff` nor `studio review` showed it on a terminal")
                    .hint(format!("studio review {id}"))
            })?)
        }
        EarlierState::LastTurn => before_last_turn(project, view)?,
    };
    if let Some(state) = &found {
        let repo = project.repository.open()?;
        let exists = studio_git::object_format::parse_id(state)
            .is_ok_and(|state| repo.find_object(state, None).is_ok());
        if !exists {
            return Err(Failure::not_found("cannot find the earlier state of the work")
                .because("only the last 20 snapshots are kept")
                .hint(format!("studio review {id}    shows all of the work")));
        }
    }
    Ok(found)
}

/// Returns the work as it was collected before the last turn; `None` if that was the first.
fn before_last_turn(project: &Project, view: &SessionView) -> Result<Option<String>> {
    let path = project.store.file(&view.record.id, "journal.jsonl");
    let lines = JournalTail::from_start(path).read_new().or_fail(|| "cannot read the journal")?;
    let (mut collected, mut before_turn): (Option<WorkSummary>, Option<WorkSummary>) = (None, None);
    for line in lines {
        match line.entry {
            JournalEntry::Work(work) => collected = Some(work),
            JournalEntry::Turn { .. } => before_turn.clone_from(&collected),
            _ => {}
        }
    }
    Ok(before_turn.map(|work| work.commit().to_owned()))
}
