//! Checks the merged trees of a queue at the same time, and lands its front while they pass.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, Scope};
use std::time::Duration;

use base::failure::Result;
use base::files::step;

use crate::commit_message::WrittenMessage;
use crate::interrupt::Interrupt;
use crate::landing::merge_checks::{self, Retry, TreeOutcome, TreeState};
use crate::landing::queue::blame::FailedEntry;
use crate::landing::queue::{HistoryPoint, QueueRun};
use crate::landing::{self, Expected, Landed, message};
use crate::project::Project;
use crate::session::record::SessionRecord;
use studio_git::merge::Candidate;

/// How often an interrupt is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A session, merged on top of those before it.
#[derive(Debug)]
pub(super) struct Link {
    /// The index of its entry.
    pub entry: usize,
    /// The merged work.
    pub candidate: Candidate,
}

/// The progress of a link.
#[derive(Default)]
struct LinkState {
    is_started: bool,
    checks: Option<Result<TreeOutcome>>,
    message: Option<Result<WrittenMessage>>,
}

/// A result of a thread, for the link with this index.
enum ThreadEvent {
    Checked(usize, Result<TreeOutcome>),
    Written(usize, Result<WrittenMessage>),
}

/// What a link at the front allows.
enum Progress {
    /// It landed.
    Landed,
    /// It has to wait for its checks or its message.
    Waiting,
    /// It does not land, so that the links behind it are no longer what would land.
    Broken,
}

impl QueueRun<'_> {
    /// Lands links from the front until all have landed, or one of them does not land: then the
    /// others have to be merged again. Threads that still run are stopped.
    pub(super) fn run_chain(&mut self, links: &[Link]) -> Result<()> {
        if links.is_empty() {
            return Ok(());
        }
        let interrupt = self.project.interrupt.child();
        let (tx, rx) = mpsc::channel();
        // The threads use what does not change while they run.
        let project = self.project;
        let requests: Vec<CheckRequest> = links.iter().map(|link| self.request(link)).collect();
        thread::scope(|scope| {
            let threads = Threads { scope, project, interrupt: &interrupt, tx };
            let result = self.drive(links, &requests, &threads, &rx);
            interrupt.trigger();
            result
        })
    }

    fn request(&self, link: &Link) -> CheckRequest {
        let entry = &self.entries[link.entry];
        let checks = match entry.options.no_checks {
            true => Vec::new(),
            false => merge_checks::checks_of(self.project, &entry.view.record),
        };
        let needs_message = entry.options.message.is_none()
            && !entry.options.dry_run
            && link.candidate.needs_message;
        CheckRequest {
            record: SessionRecord::clone(&entry.view.record),
            commit: link.candidate.merged_commit.clone(),
            tree: link.candidate.tree.clone(),
            checks,
            needs_message,
        }
    }

    fn drive<'scope, 'env>(
        &mut self,
        links: &'env [Link],
        requests: &'env [CheckRequest],
        threads: &Threads<'scope, 'env>,
        rx: &Receiver<ThreadEvent>,
    ) -> Result<()> {
        let mut states: Vec<LinkState> = links.iter().map(|_| LinkState::default()).collect();
        threads.write_messages(links, requests);
        let (mut front, mut running) = (0, 0);
        let jobs = merge_checks::parallel_runs(self.project);
        loop {
            while front < links.len() {
                match self.advance(&links[front], &requests[front], &mut states[front])? {
                    Progress::Landed => front += 1,
                    Progress::Waiting => break,
                    Progress::Broken => return Ok(()),
                }
            }
            if front == links.len() {
                return Ok(());
            }
            for n in front..links.len() {
                let has_failed =
                    matches!(&states[n].checks, Some(Ok(outcome)) if !outcome.has_passed());
                // Trees behind a failed one contain its work.
                if running >= jobs || has_failed {
                    break;
                }
                if !std::mem::replace(&mut states[n].is_started, true) {
                    threads.check(n, &requests[n]);
                    running += 1;
                }
            }
            match rx.recv_timeout(POLL_INTERVAL) {
                Ok(ThreadEvent::Checked(n, result)) => {
                    running -= 1;
                    states[n].checks = Some(result);
                    step("queue.checked");
                }
                Ok(ThreadEvent::Written(n, result)) => states[n].message = Some(result),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.project.interrupt.check()?;
                }
            }
        }
    }

    /// Lands the link at the front if its checks have passed.
    fn advance(
        &mut self,
        link: &Link,
        request: &CheckRequest,
        state: &mut LinkState,
    ) -> Result<Progress> {
        let n = link.entry;
        let results = match state.checks.take() {
            None => return Ok(Progress::Waiting),
            Some(Err(failure)) => {
                self.project.interrupt.check()?;
                self.settle_refused(n, failure.into());
                return Ok(Progress::Broken);
            }
            Some(Ok(TreeOutcome::Passed(results))) => results,
            Some(Ok(outcome @ (TreeOutcome::Failed(_) | TreeOutcome::SetUpFailed { .. }))) => {
                self.fail(link, outcome);
                return Ok(Progress::Broken);
            }
        };
        let written = match (request.needs_message, state.message.take()) {
            (false, _) => None,
            (true, Some(written)) => Some(written?),
            (true, None) => {
                state.checks = Some(Ok(TreeOutcome::Passed(results)));
                return Ok(Progress::Waiting);
            }
        };
        if self.entries[n].options.dry_run {
            let entry = &self.entries[n];
            let landed =
                Landed { checks: results, ..Landed::not_yet(entry.id().clone(), &link.candidate) };
            self.record_landing(link, &link.candidate.merged_commit);
            self.settle_landed(n, landed);
            return Ok(Progress::Landed);
        }
        self.land(link, written.as_ref())
    }

    fn land(&mut self, link: &Link, written: Option<&WrittenMessage>) -> Result<Progress> {
        let entry = &self.entries[link.entry];
        let expected = Expected {
            work_tree: &entry.tree,
            merged_tree: &link.candidate.tree,
            message: written,
        };
        step("queue.landing");
        let land = || {
            let lock = landing::lock(self.project, entry.id())?;
            landing::land_expected(self.project, &entry.view, &entry.options, Some(expected), &lock)
        };
        match land() {
            Ok(Some(landed)) => {
                let commit = landed.commit.clone();
                self.record_landing(link, commit.as_deref().unwrap_or_default());
                self.settle_landed(link.entry, landed);
                // Sessions that waited for this one start now.
                if let Err(failure) = self.project.schedule() {
                    self.outcome.failure.get_or_insert(failure);
                }
                Ok(Progress::Landed)
            }
            Ok(None) => {
                self.read_again(link.entry);
                Ok(Progress::Broken)
            }
            Err(rejection) => {
                self.project.interrupt.check()?;
                self.settle_refused(link.entry, rejection);
                Ok(Progress::Broken)
            }
        }
    }

    fn record_landing(&mut self, link: &Link, commit: &str) {
        let entry = &self.entries[link.entry];
        let point = HistoryPoint { commit: commit.to_owned(), session: Some(entry.id().clone()) };
        self.history.entry(entry.target.as_str().to_owned()).or_default().push(point);
    }

    /// Takes an entry out of the queue whose checks fail on top of all that landed before it.
    fn fail(&mut self, link: &Link, outcome: TreeOutcome) {
        let entry = &self.entries[link.entry];
        let note = format!("{}: {}; the others go on", entry.id(), outcome.summary());
        self.project.console.note(&note);
        let history = self.history.get(entry.target.as_str());
        self.failed.push(FailedEntry {
            entry: link.entry,
            outcome,
            onto: link.candidate.target_tip.clone(),
            merged_by_syntax: link.candidate.merged_by_syntax.clone(),
            history: history.map_or(0, Vec::len),
        });
        self.settled[link.entry] = true;
    }
}

/// A merged tree to check.
struct CheckRequest {
    record: SessionRecord,
    commit: String,
    tree: String,
    checks: Vec<String>,
    /// Whether its landing needs a message of a model.
    needs_message: bool,
}

/// Starts the threads of a chain.
struct Threads<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    project: &'env Project,
    interrupt: &'env Interrupt,
    tx: Sender<ThreadEvent>,
}

impl<'scope, 'env> Threads<'scope, 'env> {
    /// Returns a project for a thread, which ends when the chain does.
    fn project(&self) -> Project {
        let project = self.project.with_console(self.project.console.clone());
        Project { interrupt: self.interrupt.clone(), ..project }
    }

    fn check(&self, n: usize, request: &'env CheckRequest) {
        let (project, tx) = (self.project(), self.tx.clone());
        self.scope.spawn(move || {
            let state = TreeState { commit: &request.commit, tree: &request.tree };
            let result = merge_checks::check_tree(
                &project,
                &request.record,
                state,
                &request.checks,
                Retry::Once,
            );
            let _ = tx.send(ThreadEvent::Checked(n, result));
        });
    }

    /// Writes the messages that sessions do not have yet, while the checks run.
    fn write_messages(&self, links: &'env [Link], requests: &'env [CheckRequest]) {
        let (project, tx) = (self.project(), self.tx.clone());
        self.scope.spawn(move || {
            let both = links.iter().zip(requests).enumerate();
            for (n, (link, request)) in both.filter(|(_, (_, it))| it.needs_message) {
                let result = project.interrupt.check().and_then(|()| {
                    message::for_candidate(&project, &request.record, &link.candidate)
                });
                let has_failed = result.is_err();
                if tx.send(ThreadEvent::Written(n, result)).is_err() || has_failed {
                    return;
                }
            }
        });
    }
}
