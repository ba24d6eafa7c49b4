//! Finds out why the checks of a session fail in a queue: alone, or together with which other one.

use base::failure::{Failure, Result};

use crate::landing::merge_checks::{self, Retry, TreeOutcome, TreeState};
use crate::landing::queue::entry::Entry;
use crate::landing::queue::{HistoryPoint, QueueRun};
use crate::landing::{Rejection, merge_checks::Culprit, syntax_merges};
use crate::project::Project;
use studio_git::merge::PreparedMerge;

/// An entry whose checks failed on top of everything that landed before it.
pub(super) struct FailedEntry {
    /// Its index.
    pub entry: usize,
    /// The outcome of its checks.
    pub outcome: TreeOutcome,
    /// The commit that it was merged with.
    pub onto: String,
    /// The files of its merged tree that were merged by syntax.
    pub merged_by_syntax: Vec<String>,
    /// The number of commits of the target's history that it was merged with.
    pub history: usize,
}

impl QueueRun<'_> {
    /// Refuses the entries whose checks failed, and returns the result of the queue. The others have
    /// landed already, so that the search for the reason delays none of them. After an error, the
    /// entries are refused without a reason.
    pub(super) fn refuse_failed(&mut self, mut result: Result<()>) -> Result<()> {
        for failed in std::mem::take(&mut self.failed) {
            let explained = match &result {
                Ok(()) => self.explain(&failed),
                Err(_) => Ok(self.unexplained(&failed)),
            };
            let rejection = explained.unwrap_or_else(|failure| {
                result = Err(failure);
                self.unexplained(&failed)
            });
            self.settle_refused(failed.entry, rejection);
        }
        result
    }

    /// Returns the refusal of an entry, with the reason why its checks failed.
    fn explain(&self, failed: &FailedEntry) -> Result<Rejection> {
        let entry = &self.entries[failed.entry];
        let points = self.history.get(entry.target.as_str()).map_or(&[][..], |all| all);
        let points = &points[..failed.history.min(points.len())];
        let record = &entry.view.record;
        let culprit = match &failed.outcome {
            TreeOutcome::Failed(check) => culprit(self.project, entry, points, &check.command)?,
            TreeOutcome::Passed(_) | TreeOutcome::SetUpFailed { .. } => None,
        };
        let failure = merge_checks::failure_of(
            self.project,
            record,
            (&entry.target, &failed.onto),
            &failed.outcome,
            culprit.as_ref(),
        )?;
        let files = &failed.merged_by_syntax;
        let failure = syntax_merges::explain_failure(failure, entry.id(), files);
        let fails_with = culprit.and_then(|culprit| culprit.session).map(Box::new);
        Ok(Rejection { fails_with, ..failure.into() })
    }

    /// Returns the refusal of an entry without the reason why its checks failed.
    fn unexplained(&self, failed: &FailedEntry) -> Rejection {
        let id = self.entries[failed.entry].id();
        Failure::failed(failed.outcome.summary()).hint(format!("studio accept {id}")).into()
    }
}

/// Returns the commit of the target with which a check of the entry begins to fail; `None` if it
/// fails without any of them. Searches by bisection: the check fails on the last point.
fn culprit(
    project: &Project,
    entry: &Entry,
    points: &[HistoryPoint],
    command: &str,
) -> Result<Option<Culprit>> {
    let (Some(first), true) = (points.first(), points.len() > 1) else { return Ok(None) };
    if fails_on(project, entry, first, command)? != Some(false) {
        return Ok(None);
    }
    let (mut passing, mut failing) = (0, points.len() - 1);
    while failing - passing > 1 {
        let middle = passing.midpoint(failing);
        match fails_on(project, entry, &points[middle], command)? {
            Some(true) => failing = middle,
            Some(false) | None => passing = middle,
        }
    }
    let HistoryPoint { commit, session } = points[failing].clone();
    Ok(Some(Culprit { commit, session }))
}

/// Returns whether a check fails on the entry's work, merged with a commit; `None` if it cannot be
/// merged.
fn fails_on(
    project: &Project,
    entry: &Entry,
    point: &HistoryPoint,
    command: &str,
) -> Result<Option<bool>> {
    let PreparedMerge::Ready(candidate) = entry.merge_onto(project, &point.commit)? else {
        return Ok(None);
    };
    let record = &entry.view.record;
    let checks = merge_checks::checks_up_to(project, record, command);
    let state = TreeState { commit: &candidate.merged_commit, tree: &candidate.tree };
    let outcome = merge_checks::check_tree(project, record, state, &checks, Retry::Never)?;
    Ok(Some(!outcome.has_passed()))
}
