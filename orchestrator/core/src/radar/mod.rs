//! The conflict radar: which sessions change the same lines, as of their last snapshots, which of
//! them conflict with the branch that they land on, and in which order to land them.

pub mod landing_order;

use std::collections::BTreeMap;

use base::failure::Result;
use base::id::Id;
use serde::{Deserialize, Serialize};
use studio_git::names::BranchName;
use studio_git::pair_conflicts::{self, PairConflict, PairSelection, WorkRange};
use studio_git::repo::Repository;

use crate::radar::landing_order::Candidates;
use crate::session::record::SessionRecord;
use crate::session::state::SessionState;
use crate::session::summary::JournalSummary;

/// A session with work of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RadarSession {
    /// The session.
    pub id: Id,
    /// Its work, uncommitted changes included, as of the last snapshot.
    pub work: WorkRange,
    /// The branch that it lands on.
    pub branch: Option<BranchName>,
    /// The group of attempts at the same task that it belongs to.
    pub group: Option<Id>,
    /// Sessions that land before it.
    pub after: Vec<Id>,
    /// Whether it can land now.
    pub is_ready: bool,
}

/// A session that changes the same lines as another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionConflict {
    /// The other session.
    pub id: Id,
    /// The conflicting files.
    pub files: Vec<String>,
}

/// Two sessions that change the same lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictingPair {
    /// The sessions, in the order of the report.
    pub ids: [Id; 2],
    /// The conflicting files.
    pub files: Vec<String>,
}

/// A session that conflicts with the branch that it lands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchConflict {
    /// The session.
    pub id: Id,
    /// The branch.
    pub branch: BranchName,
    /// The tip of the branch.
    pub tip: String,
    /// The conflicting files.
    pub files: Vec<String>,
}

/// One step of the landing order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandingStep {
    /// The session.
    pub id: Id,
    /// The earlier sessions of the order that it conflicts with.
    pub conflicts_with: Vec<Id>,
}

/// The conflicts among the sessions of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RadarReport {
    /// The conflicting pairs of sessions.
    pub pairs: Vec<ConflictingPair>,
    /// The conflicts with branches.
    pub branches: Vec<BranchConflict>,
    /// The best order in which to land the sessions: as many as possible without a conflict.
    pub order: Vec<LandingStep>,
    /// The sessions whose work cannot be compared: unreadable, or too large.
    pub unreadable: Vec<Id>,
    /// The number of pairs that were not compared because of the maximum.
    pub skipped: usize,
    /// The number of pairs that were merged.
    pub merged: usize,
}

impl RadarSession {
    /// Returns a session; `None` without changes, or if it was accepted or discarded.
    pub fn of(
        record: &SessionRecord,
        summary: &JournalSummary,
        state: &SessionState,
    ) -> Option<RadarSession> {
        let work = summary.work.as_ref().filter(|work| work.is_changed() && !state.is_over())?;
        let base = work.base.as_ref().unwrap_or(&record.base.commit).clone();
        Some(RadarSession {
            id: record.id.clone(),
            work: WorkRange { base, commit: work.commit().to_owned() },
            branch: record.base.branch.clone(),
            group: record.group.clone(),
            after: record.after.clone(),
            is_ready: *state == SessionState::Ready,
        })
    }

    /// Returns whether two sessions are compared: of several attempts at one task, only one lands.
    pub(crate) fn is_compared_with(&self, other: &RadarSession) -> bool {
        self.group.is_none() || self.group != other.group
    }
}

impl RadarReport {
    /// Returns the sessions that conflict with each session.
    pub fn by_session(&self) -> BTreeMap<&Id, Vec<SessionConflict>> {
        let mut by_session: BTreeMap<&Id, Vec<SessionConflict>> = BTreeMap::new();
        for ConflictingPair { ids: [first, second], files } in &self.pairs {
            for (id, other) in [(first, second), (second, first)] {
                let conflict = SessionConflict { id: other.clone(), files: files.clone() };
                by_session.entry(id).or_default().push(conflict);
            }
        }
        by_session
    }
}

/// Compares all pairs of sessions, and each session with its branch, with at most this many merges.
pub fn scan(
    repository: &Repository,
    sessions: &[RadarSession],
    max_merges: usize,
) -> Result<RadarReport> {
    let tips = branch_tips(repository, sessions)?;
    let mut works: Vec<WorkRange> = sessions.iter().map(|session| session.work.clone()).collect();
    let count = works.len();
    // The changes of each session's branch since the session's base.
    let mut branch_of: Vec<usize> = Vec::new();
    for (index, session) in sessions.iter().enumerate() {
        let tip = session.branch.as_ref().and_then(|branch| tips.get(branch.as_str()));
        if let Some(tip) = tip.filter(|tip| **tip != session.work.base) {
            let base = session.work.base.clone();
            works.push(WorkRange { base, commit: tip.clone() });
            branch_of.push(index);
        }
    }
    let is_wanted = |first: usize, second: usize| match second.checked_sub(count) {
        None => sessions[first].is_compared_with(&sessions[second]),
        Some(branch) => branch_of[branch] == first,
    };
    let selection = PairSelection { is_wanted: &is_wanted, max_merges };
    let found = pair_conflicts::find(repository, &works, selection)?;
    let mut report =
        RadarReport { skipped: found.skipped, merged: found.merged, ..RadarReport::default() };
    for conflict in found.conflicts {
        let session = &sessions[conflict.first];
        match (sessions.get(conflict.second), &session.branch) {
            (Some(other), _) => report.pairs.push(ConflictingPair {
                ids: [session.id.clone(), other.id.clone()],
                files: conflict.paths,
            }),
            (None, Some(branch)) => report.branches.push(BranchConflict {
                id: session.id.clone(),
                branch: branch.clone(),
                tip: works[conflict.second].commit.clone(),
                files: conflict.paths,
            }),
            (None, None) => {}
        }
    }
    let mut unreadable = found.unreadable;
    unreadable.iter_mut().for_each(|index| {
        if let Some(branch) = index.checked_sub(count) {
            *index = branch_of[branch];
        }
    });
    unreadable.dedup();
    report.unreadable = unreadable.into_iter().map(|index| sessions[index].id.clone()).collect();
    report.order = order(sessions, &report);
    Ok(report)
}

/// Returns the sessions that conflict with the first one, with at most this many merges.
pub fn conflicts_of_first(
    repository: &Repository,
    sessions: &[RadarSession],
    max_merges: usize,
) -> Result<Vec<SessionConflict>> {
    let works: Vec<WorkRange> = sessions.iter().map(|session| session.work.clone()).collect();
    let is_wanted =
        |first: usize, second: usize| first == 0 && sessions[0].is_compared_with(&sessions[second]);
    let selection = PairSelection { is_wanted: &is_wanted, max_merges };
    let found = pair_conflicts::find(repository, &works, selection)?;
    let conflict = |pair: PairConflict| SessionConflict {
        id: sessions[pair.second].id.clone(),
        files: pair.paths,
    };
    Ok(found.conflicts.into_iter().map(conflict).collect())
}

fn branch_tips(
    repository: &Repository,
    sessions: &[RadarSession],
) -> Result<BTreeMap<String, String>> {
    let mut tips = BTreeMap::new();
    for branch in sessions.iter().filter_map(|session| session.branch.as_ref()) {
        if !tips.contains_key(branch.as_str())
            && let Some(tip) = repository.tip(branch)?
        {
            tips.insert(branch.as_str().to_owned(), tip);
        }
    }
    Ok(tips)
}

fn order(sessions: &[RadarSession], report: &RadarReport) -> Vec<LandingStep> {
    let index_of: BTreeMap<&Id, usize> =
        sessions.iter().enumerate().map(|(index, session)| (&session.id, index)).collect();
    let indices = |ids: &[Id]| ids.iter().filter_map(|id| index_of.get(id).copied()).collect();
    let pairs = report.pairs.iter();
    let candidates = Candidates {
        after: sessions.iter().map(|session| indices(&session.after)).collect(),
        conflicts: pairs.map(|pair| (index_of[&pair.ids[0]], index_of[&pair.ids[1]])).collect(),
        // One that conflicts with its branch cannot land before its agent resolved that.
        is_late: sessions
            .iter()
            .map(|it| !it.is_ready || report.branches.iter().any(|conflict| conflict.id == it.id))
            .collect(),
    };
    let id = |index: usize| sessions[index].id.clone();
    let steps = landing_order::best_order(&candidates).into_iter();
    steps
        .map(|step| LandingStep {
            id: id(step.index),
            conflicts_with: step.conflicts_with.into_iter().map(id).collect(),
        })
        .collect()
}
