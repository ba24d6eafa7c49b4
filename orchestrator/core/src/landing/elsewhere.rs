//! Closes sessions whose work landed elsewhere: there is nothing left to land.

use base::failure::Result;
use studio_git::land;
use studio_git::landed_work::{self, WorkCommits};
use studio_git::names::BranchName;
use studio_git::snapshot::Snapshot;

use crate::landing::{Landed, LandingOptions};
use crate::project::Project;
use crate::session::record::SessionRecord;

/// Closes a session if the target has its work already; an undo reopens it. Returns `None` if there
/// is something to land.
pub(super) fn close(
    project: &Project,
    record: &SessionRecord,
    snapshot: &Snapshot,
    target: &BranchName,
    options: &LandingOptions,
) -> Result<Option<Landed>> {
    let repository = &project.repository;
    let Some(tip) = repository.tip(target)? else { return Ok(None) };
    let summary = project.store.summary(&record.id)?;
    let collected_base = summary.work.and_then(|work| work.base);
    let commits = WorkCommits {
        start: &record.base.commit,
        base: collected_base.as_ref().unwrap_or(&record.base.commit),
        head: &snapshot.head,
        work: &snapshot.work,
    };
    let Some(found) = landed_work::find(repository, commits, &tip)? else { return Ok(None) };
    let operation = match options.dry_run {
        true => None,
        false => {
            let time = project.clock.stamp();
            Some(land::close(repository, &record.session_repo, &snapshot.work, &time)?)
        }
    };
    Ok(Some(Landed {
        commit: operation.as_ref().map(|_| found.commit.clone()),
        operation,
        id: record.id.clone(),
        target: target.clone(),
        strategy: options.strategy,
        message_by: "user",
        checks: Vec::new(),
        check_files: Vec::new(),
        merged_by_syntax: Vec::new(),
        hooks: Vec::new(),
        notes: Vec::new(),
        hunks: None,
        elsewhere: Some(found),
        dropped: Vec::new(),
    }))
}
