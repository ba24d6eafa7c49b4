//! Compares the work that lands with the work that the user last looked at.

use base::failure::{Failure, Result};

use crate::landing::{LandingOptions, Rejection};
use crate::project::Project;
use crate::session::last_shown;
use crate::session::record::SessionRecord;

/// Asks for confirmation if the work differs from the last one that `studio diff` or `studio
/// review` showed on a terminal. Without a terminal it is refused (3), unless `--yes` is given.
/// Returns the note for the result.
pub(super) fn confirm(
    project: &Project,
    record: &SessionRecord,
    tree: &str,
    options: &LandingOptions,
) -> std::result::Result<Option<String>, Rejection> {
    let id = &record.id;
    let shown = last_shown::read(&project.repository, id);
    if shown.is_none_or(|shown| shown == tree) {
        return Ok(None);
    }
    let note = format!("`{id}` changed since you looked at it");
    if options.yes || options.dry_run {
        return Ok(Some(note));
    }
    if project.console.confirm(&format!("{note}: land it anyway?")) == Some(true) {
        return Ok(None);
    }
    let failure = Failure::refused(format!("session `{id}` was not landed"))
        .because(note)
        .hint(format!("studio diff {id} --since last"))
        .hint(format!("or land it anyway: studio accept {id} --yes"));
    Err(Rejection::to_confirm(failure, "--yes", tree))
}

/// Refuses (3) work that is not the tree of `--match-tree`.
pub(super) fn refuse_other_tree(
    record: &SessionRecord,
    tree: &str,
    options: &LandingOptions,
) -> Result<()> {
    match &options.match_tree {
        Some(expected) if expected != tree => {
            let id = &record.id;
            Err(Failure::refused(format!("session `{id}` was not landed"))
                .because(format!("its work is the tree {tree}, not {expected}"))
                .hint(format!("studio diff {id}")))
        }
        Some(_) | None => Ok(()),
    }
}
