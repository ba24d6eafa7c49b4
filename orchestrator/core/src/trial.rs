//! Trying a session: reads its work as it is now, to be put into a checkout of the user.

use base::failure::{Failure, Result};
use serde_json::{Value, json};
use studio_git::repo::Repository;
use studio_git::trial::{Trial, TrialWork};

use crate::session::collect;
use crate::session_view::SessionView;

/// The work of a session at one moment.
pub struct CurrentWork {
    /// The work.
    pub work: TrialWork,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
    /// Identifies the content.
    pub fingerprint: String,
}

/// Reads the session's worktree, also while its agent works; without a worktree, the work that was
/// collected last.
pub fn current_work(repository: &Repository, view: &SessionView) -> Result<CurrentWork> {
    let record = &view.record;
    if let Some((imported, content)) = collect::read_current(repository, record)? {
        let fingerprint = format!("{} {}", imported.head, content.tree);
        let notes = collect::omission_notes(&content.omissions).collect();
        let work = TrialWork::Worktree { head: imported.head, content: Box::new(content) };
        return Ok(CurrentWork { work, notes, fingerprint });
    }
    let commit = view.work().map_or(record.session_repo.base.as_str(), |work| work.commit());
    let work = TrialWork::Commit(commit.to_owned());
    Ok(CurrentWork { work, notes: Vec::new(), fingerprint: commit.to_owned() })
}

/// Returns the trial of a checkout.
pub fn find_in_checkout(repository: &Repository) -> Result<Option<Trial>> {
    let checkout = studio_git::checkout::current(repository)?;
    let trials = studio_git::trial::active(repository)?;
    Ok(trials.into_iter().find(|trial| trial.checkout == checkout))
}

/// Returns the refusal (3) to end a trial where no session is tried; it names the other checkouts.
pub fn none_here(others: &[Trial]) -> Failure {
    let failure = Failure::refused("no session is being tried in this checkout");
    let hint =
        |trial: &Trial| format!("studio -C '{}' try --end", trial.checkout.worktree.display());
    others.iter().fold(failure, |failure, trial| failure.hint(hint(trial)))
}

/// Returns trials as JSON.
pub fn json(trials: &[Trial]) -> Value {
    let trial = |trial: &Trial| {
        json!({
            "operation": trial.operation, "id": trial.session_repo.id,
            "checkout": trial.checkout.worktree, "head": trial.head, "since": trial.time,
        })
    };
    json!({"schema": 1, "trials": trials.iter().map(trial).collect::<Vec<_>>()})
}
