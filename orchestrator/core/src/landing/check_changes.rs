//! What a landing says about changed files that decide what the checks say.

use base::failure::{Failure, Result};
use studio_git::merge::Candidate;

use crate::check_files::{self, CheckFile};
use crate::landing::LandingOptions;
use crate::project::Project;
use crate::session::record::SessionRecord;

/// Returns the changed files that decide what the checks of the merged tree say.
pub(super) fn find(
    project: &Project,
    record: &SessionRecord,
    candidate: &Candidate,
) -> Result<Vec<CheckFile>> {
    let repo = project.repository.open()?;
    let lines = check_files::lines(project, record);
    check_files::changed(&repo, &candidate.target_tip, &candidate.merged_commit, &lines)
}

/// Names the files before the checks run. If `[studio] confirm_check_changes` is set, the user
/// confirms them; without a terminal the landing is refused (3).
pub(super) fn show(
    project: &Project,
    record: &SessionRecord,
    files: &[CheckFile],
    options: &LandingOptions,
) -> Result<()> {
    let Some(sentence) = check_files::sentence(files) else { return Ok(()) };
    let needs_answer = project.config.studio.confirm_check_changes
        && !(options.allow_check_changes || options.dry_run);
    if !needs_answer {
        project.console.note(&format!("note: {sentence}"));
        return Ok(());
    }
    if project.console.confirm(&format!("{sentence}: land it anyway?")) == Some(true) {
        return Ok(());
    }
    let id = &record.id;
    Err(Failure::refused(format!("session `{id}` was not landed"))
        .because(sentence)
        .hint(format!("studio review {id}"))
        .hint(format!("or land it anyway: studio accept {id} --allow-check-changes")))
}
