//! Landing: moves the target branch to the new commit, updates its checkouts, and moves the session
//! to the trash, all or nothing.

use base::failure::{Failure, Result};
use serde::{Deserialize, Serialize};

use crate::accepted_hunks::BaseUpdate;
use crate::checkout::{self, FileChange};
use crate::discard::DropPlan;
use crate::merge::{Candidate, LandingCommit};
use crate::names::BranchName;
use crate::oplog::{Intent, OperationKind, OperationLog, TargetUpdate};
use crate::refs::RefChange;
use crate::repo::Repository;
use crate::session_repo::SessionRepo;
use crate::transaction::{self, TransactionResult};
use crate::{checkout_conflicts, discard, endless_patterns, submodules, trial, worktree};

/// A landing.
#[derive(Debug)]
pub struct LandRequest {
    /// The session.
    pub session_repo: SessionRepo,
    /// Its merged and checked work.
    pub candidate: Candidate,
    /// The result of [`merge::commit`].
    pub landing_commit: LandingCommit,
    /// The receipt, stored as a note of the commit in `refs/notes/studio`.
    pub receipt: Option<String>,
    /// The time, RFC 3339.
    pub time: String,
    /// Other sessions that are discarded in the same operation.
    pub dropped: Vec<SessionRepo>,
    /// The move of the session's base if only chosen hunks land: then the session stays open.
    pub base_update: Option<BaseUpdate>,
}

/// The result of a landing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LandResult {
    /// The target is at the commit.
    Landed {
        /// The operation, for `studio undo`.
        operation: String,
        /// Number of updated checkouts.
        checkouts: usize,
    },
    /// The target moved and nothing was changed: the work must be merged with its new tip.
    TargetMoved,
}

/// Lands the work. Refuses (3), naming paths and reasons, if any of the user's files are in the
/// way.
pub fn accept(repository: &Repository, request: &LandRequest) -> Result<LandResult> {
    let mut log = OperationLog::open(repository)?;
    transaction::recover_with(repository, &mut log)?;
    log.refuse_ended(std::iter::once(&request.session_repo).chain(&request.dropped))?;
    let candidate = &request.candidate;
    if repository.tip(&candidate.target)?.as_deref() != Some(candidate.target_tip.as_str()) {
        return Ok(LandResult::TargetMoved);
    }
    refuse_session_branch(repository, &candidate.target)?;
    let operation = log.next_id();
    let checkouts = checkout::of_branch(repository, &candidate.target)?;
    trial::refuse_active(repository, &checkouts)?;
    let (kind, drop_plan) = match &request.base_update {
        None => {
            let plan = discard::plan_drop(repository, &request.session_repo, &operation)?;
            (OperationKind::Accept, plan)
        }
        Some(base_update) => {
            let keep = vec![base_update.change.clone()];
            (OperationKind::AcceptHunks, DropPlan { keep, moves: Vec::new(), drop: Vec::new() })
        }
    };
    let DropPlan { keep: mut refs_first, mut moves, drop: mut refs_last } = drop_plan;
    for session_repo in &request.dropped {
        let plan = discard::plan_drop(repository, session_repo, &operation)?;
        refs_first.extend(plan.keep);
        moves.extend(plan.moves);
        refs_last.extend(plan.drop);
    }
    let sessions = std::iter::once(&request.session_repo).chain(&request.dropped);
    let name = format!("{}{}/work", discard::kept_prefix(&operation), request.session_repo.id);
    refs_first.push(RefChange::new(name, None, Some(candidate.work.clone())));
    let intent = Intent {
        landing: Some(TargetUpdate {
            target: candidate.target.clone(),
            before: candidate.target_tip.clone(),
            after: request.landing_commit.commit.clone(),
            checkouts: checkouts.clone(),
        }),
        refs_first,
        moves,
        refs_last,
        dropped: request.dropped.iter().map(|session_repo| session_repo.id.clone()).collect(),
        receipt: request.receipt.clone(),
        note: request.landing_commit.note.clone(),
        ..Intent::new(operation.clone(), &request.time, kind, sessions.cloned().collect())
    };
    match transaction::execute(repository, &mut log, &intent)? {
        TransactionResult::Yes => Ok(LandResult::Landed { operation, checkouts: checkouts.len() }),
        TransactionResult::TargetMoved(_) => Ok(LandResult::TargetMoved),
    }
}

/// Closes a session whose work is in its target already: nothing lands, its parts are moved to the
/// trash as after a landing, and an undo reopens it. Returns the operation.
pub fn close(
    repository: &Repository,
    session_repo: &SessionRepo,
    work: &str,
    time: &str,
) -> Result<String> {
    let mut log = OperationLog::open(repository)?;
    transaction::recover_with(repository, &mut log)?;
    log.refuse_ended([session_repo])?;
    let operation = log.next_id();
    let plan = discard::plan_drop(repository, session_repo, &operation)?;
    let mut refs_first = plan.keep;
    let name = format!("{}{}/work", discard::kept_prefix(&operation), session_repo.id);
    refs_first.push(RefChange::new(name, None, Some(work.to_owned())));
    let sessions = vec![session_repo.clone()];
    let intent = Intent {
        refs_first,
        moves: plan.moves,
        refs_last: plan.drop,
        ..Intent::new(operation.clone(), time, OperationKind::Accept, sessions)
    };
    transaction::execute(repository, &mut log, &intent)?;
    Ok(operation)
}

/// Makes the checks of [`accept`], without taking a lock or changing anything.
pub fn preflight(repository: &Repository, candidate: &Candidate) -> Result<()> {
    preflight_from(repository, candidate, &candidate.target_tip)
}

/// Like [`preflight`], for work that was merged with other work that lands before it. `tip` is the
/// current tip of the target.
pub fn preflight_from(repository: &Repository, candidate: &Candidate, tip: &str) -> Result<()> {
    refuse_session_branch(repository, &candidate.target)?;
    let repo = repository.open()?;
    let changes = checkout::changes(&repo, tip, &candidate.merged_commit)?;
    refuse_endless_patterns(&repo, &changes)?;
    submodules::refuse_missing(repository, &changes, &candidate.merged_commit)?;
    let checkouts = checkout::of_branch(repository, &candidate.target)?;
    trial::refuse_active(repository, &checkouts)?;
    for checkout in checkouts {
        if checkout.git_dir.join("index.lock").exists() {
            return Err(Failure::refused("another git process is running in the checkout")
                .because(format!("{} exists", checkout.git_dir.join("index.lock").display()))
                .hint("wait for it, then try again"));
        }
        checkout_conflicts::refuse(&checkout, &changes)?;
    }
    Ok(())
}

/// Refuses (3) patterns that would make every later status of the checkout take years.
pub(crate) fn refuse_endless_patterns(
    repo: &git2::Repository,
    changes: &[FileChange],
) -> Result<()> {
    for change in changes {
        let name = change.path.file_name().unwrap_or_default();
        let (Some(after), true) = (change.after, name == ".gitignore" || name == ".gitattributes")
        else {
            continue;
        };
        let Ok(blob) = repo.find_blob(after.id) else { continue };
        if let Some(line) = endless_patterns::find_first(blob.content()) {
            return Err(Failure::refused("a pattern has too many `*` to be matched")
                .because(format!("{}:{line}", change.path.display()))
                .hint("change it in the session's worktree"));
        }
    }
    Ok(())
}

/// Refuses the branch of a session as target: only the agent may move it.
fn refuse_session_branch(repository: &Repository, target: &BranchName) -> Result<()> {
    let sessions = repository.common_dir.join("studio/sessions");
    for admin_dir in worktree::admin_dirs(repository)? {
        let is_of_session = worktree::pointer_target(&admin_dir)
            .is_some_and(|target_dir| target_dir.starts_with(&sessions));
        if is_of_session && checkout::is_head_on(&admin_dir, target) {
            return Err(Failure::refused(format!("`{target}` belongs to a session"))
                .because("its agent may be moving it")
                .hint("land that session first, or choose another target: --onto BRANCH"));
        }
    }
    Ok(())
}
