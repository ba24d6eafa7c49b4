//! Lands many sessions: merges them one on top of the other in memory, checks the merged trees at the
//! same time, and lands the longest part of the queue whose trees passed. A session that fails or
//! conflicts is refused alone.
//!
//! Nothing of a queue is stored but passed checks, messages and its progress, which decides nothing, and
//! each landing is an operation of its own: after a kill, some sessions have landed, the others are
//! ready, and the same command continues.

mod blame;
mod chain;
mod entry;
pub mod progress;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::failure::{Failure, FailureKind, OrFail, Result};
use base::id::Id;
use base::lock::Lock;

use crate::landing::queue::blame::FailedEntry;
use crate::landing::queue::chain::Link;
use crate::landing::queue::entry::Entry;
use crate::landing::queue::progress::{ProgressFile, QueuedState, RecordingConsole};
use crate::landing::{self, Landed, LandingOptions, MAX_ATTEMPTS, Rejection};
use crate::project::{Project, pause};
use studio_git::merge::{self, PreparedMerge};

/// The lock of the queue, below studio's directory.
const LOCK_FILE: &str = "queue.lock";

/// The sessions that a queue has settled.
#[derive(Debug, Default)]
pub struct QueueOutcome {
    /// The sessions that landed, in order.
    pub landed: Vec<Landed>,
    /// The sessions that were refused.
    pub refused: Vec<(Id, Rejection)>,
    /// The first error that concerns no session alone. What has landed before and after it is above.
    pub failure: Option<Failure>,
}

/// A session that a queue has settled just now.
#[derive(Clone, Copy, Debug)]
pub enum QueueEvent<'a> {
    /// It landed.
    Landed(&'a Landed),
    /// It was refused.
    Refused(&'a Id, &'a Rejection),
}

/// The queue of a repository. There is one at a time.
#[derive(Debug)]
pub struct Queue {
    progress: ProgressFile,
    _lock: Lock,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.progress.end();
    }
}

impl Queue {
    /// Waits until no other queue of the repository runs. Of a dry run, no progress is written.
    pub fn open(project: &Project, is_dry_run: bool) -> Result<Queue> {
        let studio_dir = project.repository.studio_dir()?;
        let path = studio_dir.join(LOCK_FILE);
        let fail = || format!("cannot lock {}", path.display());
        let mut is_reported = false;
        loop {
            if let Some(lock) = Lock::try_take(&path).or_fail(fail)? {
                let progress = ProgressFile::new(&studio_dir, project.clock, is_dry_run);
                return Ok(Queue { progress, _lock: lock });
            }
            project.interrupt.check()?;
            if !std::mem::replace(&mut is_reported, true) {
                let text = "waiting for another `studio accept --all` in this repository to finish";
                project.console.note(text);
            }
            pause();
        }
    }

    /// Lands sessions. Each is reported when it is settled.
    pub fn run(
        &self,
        project: &Project,
        ids: &[Id],
        options: &LandingOptions,
        on_event: &mut dyn FnMut(QueueEvent<'_>),
    ) -> QueueOutcome {
        let console =
            RecordingConsole { inner: project.console.clone(), progress: self.progress.clone() };
        let project = &project.with_console(Arc::new(console));
        self.progress.add(ids);
        let mut run = QueueRun {
            project,
            progress: &self.progress,
            on_event,
            entries: Vec::new(),
            settled: Vec::new(),
            failed: Vec::new(),
            history: BTreeMap::new(),
            outcome: QueueOutcome::default(),
        };
        for id in ids {
            match Entry::read(project, id, options, &run.entries) {
                Ok(entry) => run.entries.push(entry),
                Err(rejection) => run.refuse(id, rejection),
            }
        }
        run.settled = vec![false; run.entries.len()];
        let landing = entry::in_order(project, &run.entries).and_then(|order| {
            let in_order = order.iter().map(|index| run.entries[*index].id().clone());
            self.progress.add(&in_order.collect::<Vec<_>>());
            run.land_all(order)
        });
        if let Err(failure) = landing {
            run.outcome.failure.get_or_insert(failure);
        }
        run.outcome
    }
}

/// A commit that a target had during a run.
#[derive(Clone, Debug)]
struct HistoryPoint {
    commit: String,
    /// The session that landed as this commit; `None` for commits of others.
    session: Option<Id>,
}

/// One run of a queue.
struct QueueRun<'a> {
    project: &'a Project,
    progress: &'a ProgressFile,
    on_event: &'a mut dyn FnMut(QueueEvent<'_>),
    entries: Vec<Entry>,
    /// Whether each entry has landed or was refused.
    settled: Vec<bool>,
    /// Entries whose checks failed, to be refused at the end with the reason.
    failed: Vec<FailedEntry>,
    /// The commits of each target, oldest first.
    history: BTreeMap<String, Vec<HistoryPoint>>,
    outcome: QueueOutcome,
}

impl QueueRun<'_> {
    fn land_all(&mut self, mut remaining: Vec<usize>) -> Result<()> {
        let mut attempts = 0;
        let result = loop {
            remaining.retain(|n| !self.settled[*n]);
            let Some(first) = remaining.first().copied() else { break Ok(()) };
            if let Err(failure) = self.project.interrupt.check() {
                break Err(failure);
            }
            if attempts >= MAX_ATTEMPTS {
                for n in remaining {
                    let target = &self.entries[n].target;
                    let message =
                        format!("`{target}` kept changing; gave up after {MAX_ATTEMPTS} attempts");
                    let id = self.entries[n].id().clone();
                    let failure = Failure::refused(message).hint(format!("studio accept {id}"));
                    self.settle_refused(n, failure.into());
                }
                break Ok(());
            }
            let target = self.entries[first].target.clone();
            let of_target: Vec<usize> =
                remaining.iter().copied().filter(|n| self.entries[*n].target == target).collect();
            let progress = self.settled.iter().filter(|settled| **settled).count();
            match self.build(&of_target).and_then(|links| self.run_chain(&links)) {
                Ok(()) => {}
                Err(failure) if failure.kind == FailureKind::Interrupted => break Err(failure),
                // Those before it may have landed.
                Err(failure) => match of_target.iter().find(|n| !self.settled[**n]) {
                    Some(n) => self.settle_refused(*n, failure.into()),
                    None => drop(self.outcome.failure.get_or_insert(failure)),
                },
            }
            let has_progress = self.settled.iter().filter(|settled| **settled).count() > progress;
            attempts = if has_progress { 0 } else { attempts + 1 };
        };
        match self.refuse_failed(result) {
            Ok(()) => Ok(()),
            Err(failure) if failure.kind == FailureKind::Interrupted => {
                // What has landed is reported; the others stay ready.
                if let Some(n) = self.settled.iter().position(|settled| !settled) {
                    self.settle_refused(n, failure.into());
                    return Ok(());
                }
                Err(failure)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Merges entries one on top of the other, in order. Those that cannot be merged are left for
    /// later, when the others have landed; if there are no others, they are refused.
    fn build(&mut self, ordered: &[usize]) -> Result<Vec<Link>> {
        let Some(first) = ordered.first() else { return Ok(Vec::new()) };
        let target = self.entries[*first].target.clone();
        let current_tip = merge::tip_of(&self.project.repository, &target)?;
        self.note_tip(target.as_str(), &current_tip);
        let mut tip = current_tip.clone();
        let mut links: Vec<Link> = Vec::new();
        let mut deferred = Vec::new();
        for n in ordered.iter().copied() {
            self.project.interrupt.check()?;
            match self.is_parent_ahead(n, &links) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(rejection) => {
                    self.settle_refused(n, rejection);
                    continue;
                }
            }
            match self.entries[n].merge_onto(self.project, &tip) {
                Ok(PreparedMerge::Ready(candidate)) => {
                    match self.entries[n].examine(self.project, &candidate, &current_tip) {
                        Ok(()) => {
                            tip.clone_from(&candidate.merged_commit);
                            links.push(Link { entry: n, candidate: *candidate });
                        }
                        Err(rejection) => self.settle_refused(n, rejection),
                    }
                }
                Ok(PreparedMerge::Nothing | PreparedMerge::Conflicts(_)) => deferred.push(n),
                Err(failure) => self.settle_refused(n, failure.into()),
            }
        }
        if links.is_empty() {
            for n in deferred {
                match self.land_alone(n) {
                    Ok(landed) => self.settle_landed(n, landed),
                    Err(rejection) => self.settle_refused(n, rejection),
                }
            }
        }
        Ok(links)
    }

    /// Lands an entry that cannot be merged as `studio accept` does: that closes a session whose work
    /// landed elsewhere, and says why another one cannot land.
    fn land_alone(&self, n: usize) -> std::result::Result<Landed, Rejection> {
        let (id, options) = (self.entries[n].id(), &self.entries[n].options);
        let lock = landing::lock(self.project, id)?;
        landing::land(self.project, &self.project.view(id)?, options, &lock)
    }

    /// Returns whether the session that an entry is based on has landed, or does so before it.
    /// Fails if it was refused.
    fn is_parent_ahead(&self, n: usize, links: &[Link]) -> std::result::Result<bool, Rejection> {
        let entry = &self.entries[n];
        let Some(parent) = &entry.parent else { return Ok(true) };
        let Some(m) = self.entries.iter().position(|it| it.id() == parent) else {
            return Ok(true);
        };
        let has_landed = self.outcome.landed.iter().any(|landed| landed.id == *parent);
        if !self.settled[m] || has_landed {
            return Ok(has_landed || links.iter().any(|link| link.entry == m));
        }
        let id = entry.id();
        Err(Failure::refused(format!("session `{id}` was not landed"))
            .because(format!("it is based on `{parent}`, which did not land"))
            .hint(format!("studio accept {parent}"))
            .into())
    }

    /// Records the current tip of a target.
    fn note_tip(&mut self, target: &str, tip: &str) {
        let points = self.history.entry(target.to_owned()).or_default();
        if points.last().is_none_or(|point| point.commit != *tip) {
            points.push(HistoryPoint { commit: tip.to_owned(), session: None });
        }
    }

    /// Reads an entry again whose work, or whose target, has changed.
    fn read_again(&mut self, n: usize) {
        let entry = &self.entries[n];
        let (id, options) = (entry.id().clone(), entry.options.clone());
        match Entry::read(self.project, &id, &options, &self.entries) {
            Ok(entry) => self.entries[n] = entry,
            Err(rejection) => self.settle_refused(n, rejection),
        }
    }

    fn settle_landed(&mut self, n: usize, mut landed: Landed) {
        let notes = std::mem::take(&mut self.entries[n].notes);
        landed.notes.splice(0..0, notes);
        self.progress.settle(&landed.id, QueuedState::Landed(landed.commit.clone()));
        (self.on_event)(QueueEvent::Landed(&landed));
        self.outcome.landed.push(landed);
        self.settled[n] = true;
    }

    fn settle_refused(&mut self, n: usize, rejection: Rejection) {
        self.settled[n] = true;
        let id = self.entries[n].id().clone();
        self.refuse(&id, rejection);
    }

    fn refuse(&mut self, id: &Id, mut rejection: Rejection) {
        if !rejection.failure.what.contains(id.as_str()) {
            rejection.failure.what = format!("{id}: {}", rejection.failure.what);
        }
        self.progress.settle(id, QueuedState::Refused(rejection.failure.sentence()));
        (self.on_event)(QueueEvent::Refused(id, &rejection));
        self.outcome.refused.push((id.clone(), rejection));
    }
}
