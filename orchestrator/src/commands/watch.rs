//! Watches sessions until they settle: reads their growing journals, calls the scheduler, and asks
//! the user at the terminal about permission requests.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base::config::studio::NotificationChannel;
use base::event::Event;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::commands::changes::DirectoryWatcher;
use crate::commands::context::CommandContext;
use crate::commands::permission_prompt::PermissionPrompt;
use crate::commands::stop;
use crate::report;
use crate::report::progress::SessionProgress;
use studio_core::inbox;
use studio_core::session::journal::{JournalEntry, JournalLine, JournalTail};
use studio_core::session::state::{SessionState, reason, state};
use studio_core::session::summary::{Disposition, JournalSummary, Phase, SessionFacts};
use studio_core::session_view::SessionView;
use studio_core::timeline::{TimelineKind, describe_event};
use studio_git::transaction;

/// How often the scheduler is called.
const SCHEDULE_INTERVAL: Duration = Duration::from_secs(1);

/// How often a supervisor may end before it writes the journal of its session.
const MAX_FAILED_STARTS: u32 = 3;

/// The result of watching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchOutcome {
    /// All sessions settled.
    Settled,
    /// The user pressed Ctrl-C; the sessions were stopped.
    Interrupted,
}

/// When to stop watching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopWhen {
    /// When all sessions have settled.
    All,
    /// When one session has settled; it is not watched any longer.
    One,
}

/// Which part of a session's journal is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchFrom {
    /// New entries only, for an existing session.
    FromNow,
    /// All entries, each state separately, for a new session.
    States,
    /// Like `States`, and with `--json` the events of the agent as well.
    Events,
}

/// A watched session.
struct Watched {
    id: Id,
    tail: JournalTail,
    /// The facts from the lines read so far.
    facts: SessionFacts,
    printed_state: Option<SessionState>,
    /// Whether its landing was interrupted and cannot be finished now, which has been reported.
    recovery_failed: bool,
    settled: bool,
    /// The last permission request for which the bell rang.
    last_request: u32,
}

/// Shows the sessions until all have settled. Ctrl-C stops them, and keeps everything.
pub(crate) fn watch(context: &CommandContext, ids: &[Id], show: WatchFrom) -> Result<WatchOutcome> {
    Watcher::begin(context, show)?.watch(ids)
}

/// Shows sessions while they work.
pub(crate) struct Watcher<'d> {
    context: &'d CommandContext,
    show: WatchFrom,
    watched: Vec<Watched>,
    progress: SessionProgress,
    prompt: Option<PermissionPrompt>,
    changes: DirectoryWatcher,
    signals: TerminationSignals,
    interrupted: bool,
    scheduled: Instant,
    /// How often the scheduler started each session here.
    starts: BTreeMap<Id, u32>,
    runtime: Runtime,
}

/// The reason for the end of a wait.
enum Woken {
    /// Something may have changed.
    Changed,
    /// The user pressed Ctrl-C.
    Interrupted,
    /// The user pressed a key.
    Key(char),
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        self.changes.close_elsewhere();
    }
}

impl<'d> Watcher<'d> {
    /// Creates a watcher without sessions, which handles Ctrl-C from now on.
    pub(crate) fn begin(context: &'d CommandContext, show: WatchFrom) -> Result<Watcher<'d>> {
        let runtime = base::runtime::current_thread();
        let runtime = runtime.or_fail(|| "cannot start the runtime")?;
        let (signals, changes, prompt) = {
            let _guard = runtime.enter();
            let prompt = if context.json { None } else { PermissionPrompt::new() };
            (TerminationSignals::listen()?, DirectoryWatcher::start(), prompt)
        };
        changes.add(context.store.root());
        Ok(Watcher {
            context,
            show,
            watched: Vec::new(),
            progress: SessionProgress::new(context.json),
            prompt,
            changes,
            signals,
            interrupted: false,
            scheduled: Instant::now(),
            starts: BTreeMap::new(),
            runtime,
        })
    }

    /// Shows sessions until they settle.
    pub(crate) fn watch(mut self, ids: &[Id]) -> Result<WatchOutcome> {
        ids.iter().for_each(|id| self.add(id));
        self.run_until(StopWhen::All)
    }

    /// Adds a session, unless it is watched already.
    pub(crate) fn add(&mut self, id: &Id) {
        if self.watched.iter().any(|watched| watched.id == *id) {
            return;
        }
        self.changes.add(&self.context.store.dir(id));
        let facts = SessionFacts {
            locked: true,
            summary: JournalSummary::default(),
            disposition: Disposition::Open,
            dependencies: Vec::new(),
            queue_reason: None,
        };
        self.watched.push(Watched {
            id: id.clone(),
            tail: JournalTail::from_start(self.context.store.file(id, "journal.jsonl")),
            facts,
            printed_state: None,
            recovery_failed: false,
            settled: false,
            last_request: 0,
        });
    }

    /// Watches until the condition is met.
    pub(crate) fn run_until(&mut self, stop_when: StopWhen) -> Result<WatchOutcome> {
        loop {
            self.update()?;
            if self.watched.iter().all(|watched| watched.settled) {
                return Ok(if self.interrupted {
                    WatchOutcome::Interrupted
                } else {
                    WatchOutcome::Settled
                });
            }
            if stop_when == StopWhen::One && !self.interrupted {
                let before = self.watched.len();
                self.watched.retain(|watched| !watched.settled);
                if self.watched.len() < before {
                    return Ok(WatchOutcome::Settled);
                }
            }
            if self.scheduled.elapsed() >= SCHEDULE_INTERVAL && !self.interrupted {
                for id in self.context.schedule()? {
                    *self.starts.entry(id).or_default() += 1;
                }
                self.scheduled = Instant::now();
                self.refuse_failing_starts()?;
            }
            match self.wait() {
                Woken::Changed => {}
                Woken::Key(key) => {
                    if let Some(prompt) = &mut self.prompt {
                        prompt.answer(self.context, key, &mut self.progress)?;
                    }
                }
                Woken::Interrupted if self.interrupted => return Ok(WatchOutcome::Interrupted),
                Woken::Interrupted => {
                    self.interrupted = true;
                    if !self.context.json {
                        let text = "stopping; everything is kept (again: do not wait)";
                        self.progress.say(text);
                    }
                    stop_all(self.context, self.watched.iter().map(|watched| &watched.id))?;
                }
            }
        }
    }

    /// Fails if the supervisor of a watched session ends again and again without a line in its
    /// journal, for example because the disk is full. The session stays queued.
    fn refuse_failing_starts(&self) -> Result<()> {
        let fails = |watched: &&Watched| {
            watched.facts.summary.phase == Phase::Queued
                && self.starts.get(&watched.id).is_some_and(|starts| *starts > MAX_FAILED_STARTS)
        };
        let Some(Watched { id, .. }) = self.watched.iter().find(fails) else { return Ok(()) };
        let log = std::fs::read_to_string(self.context.store.file(id, "supervisor.log"));
        let log = log.unwrap_or_default();
        let last =
            log.lines().rfind(|line| line.starts_with("  why:") || line.starts_with("error:"));
        let last = last.map_or("it wrote no reason", |line| line.trim());
        Err(Failure::failed(format!("cannot start the supervisor of `{id}`"))
            .because(format!("it ended {MAX_FAILED_STARTS} times at once: {last}"))
            .hint("free disk space and open files, then: studio resume --all"))
    }

    /// Waits for an event or a timeout.
    fn wait(&mut self) -> Woken {
        let Watcher { runtime, changes, signals, prompt, .. } = self;
        let key = async {
            match prompt {
                Some(prompt) => prompt.read_key().await,
                None => std::future::pending().await,
            }
        };
        runtime.block_on(async {
            tokio::select! {
                () = changes.next() => Woken::Changed,
                () = signals.recv() => Woken::Interrupted,
                key = key => Woken::Key(key),
            }
        })
    }

    fn update(&mut self) -> Result<()> {
        let (context, dispositions) = (self.context, self.context.dispositions()?);
        let mut views = Vec::with_capacity(self.watched.len());
        for session in &mut self.watched {
            let view = context.view_with(&session.id, &dispositions)?;
            let settled = session.update(context, &view, &mut self.progress, self.show)?;
            let is_ringing = session.has_news(&view, settled);
            if is_ringing && context.config.studio.notify.contains(NotificationChannel::Bell) {
                report::bell();
            }
            // A session with unfinished dependencies makes no progress by itself, so it does not
            // prolong the watch.
            session.settled = settled || view.is_blocked();
            views.push(view);
        }
        if let Some(prompt) = &mut self.prompt {
            let all = if self.interrupted { &[] } else { views.as_slice() };
            prompt.update(inbox::questions(all), "", &mut self.progress);
        }
        Ok(())
    }
}

/// SIGINT and SIGTERM.
pub(crate) struct TerminationSignals {
    int: tokio::signal::unix::Signal,
    term: tokio::signal::unix::Signal,
}

impl TerminationSignals {
    /// Handles the signals from now on. Call it within a runtime.
    pub(crate) fn listen() -> Result<TerminationSignals> {
        use tokio::signal::unix::{SignalKind, signal};
        let fail = || "cannot handle Ctrl-C";
        let int = signal(SignalKind::interrupt()).or_fail(fail)?;
        let term = signal(SignalKind::terminate()).or_fail(fail)?;
        Ok(TerminationSignals { int, term })
    }

    /// Waits for one of them.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}

fn stop_all<'i>(context: &CommandContext, ids: impl Iterator<Item = &'i Id>) -> Result<()> {
    for id in ids {
        stop::request_stop(context, id)?;
    }
    Ok(())
}

impl Watched {
    /// Shows new entries; returns whether the session has settled.
    fn update(
        &mut self,
        context: &CommandContext,
        view: &SessionView,
        progress: &mut SessionProgress,
        show: WatchFrom,
    ) -> Result<bool> {
        let lines = self.tail.read_new().or_fail(|| format!("cannot read `{}`", self.id))?;
        for line in &lines {
            self.facts.summary.add_line(line);
            if !context.json || show == WatchFrom::FromNow {
                continue;
            }
            // A state is reported before its events.
            let current = state(&self.facts);
            if self.printed_state.as_ref() != Some(&current) {
                // More is known about the current state than its lines contain.
                let reason = if current == view.state {
                    view.reason()
                } else {
                    reason(&self.facts, &current)
                };
                self.print_state(&current, reason, Some(&line.time));
            }
            if let (JournalEntry::Event { event }, WatchFrom::Events) = (&line.entry, show) {
                report::json_line(&json!({"type": "event", "id": self.id, "event": event}));
            }
        }
        if let Some(progress_text) = lines.iter().rev().find_map(progress_text) {
            progress.show(view, &progress_text);
        }
        if self.printed_state.as_ref() != Some(&view.state) {
            progress.show_state(view);
            if context.json {
                self.print_state(
                    &view.state,
                    view.reason(),
                    view.facts.summary.updated_at.as_deref(),
                );
            }
            self.printed_state = Some(view.state.clone());
        }
        if view.state == SessionState::Landing && !view.facts.locked {
            // The process that was landing it was killed; its intent says how to finish.
            if let Err(failure) = transaction::recover(&context.repository) {
                // The others continue; the next command that changes something tries again.
                if !std::mem::replace(&mut self.recovery_failed, true) {
                    report::say(&failure.to_string());
                }
                return Ok(true);
            }
        }
        // An automatically landed session is finished when its supervisor releases the lock.
        let will_land = view.record.run_mode.accept && view.state == SessionState::Ready;
        Ok(view.state.is_settled() && !(will_land && view.facts.locked))
    }
}

impl Watched {
    /// Returns whether the session has just settled, or has a new permission request.
    fn has_news(&mut self, view: &SessionView, settled: bool) -> bool {
        let newest = view.facts.summary.open_requests.keys().next_back().copied();
        let newest = newest.unwrap_or(self.last_request);
        let is_new = newest > std::mem::replace(&mut self.last_request, newest);
        is_new || (settled && !self.settled)
    }

    /// Reports the state as JSON.
    fn print_state(&mut self, state: &SessionState, reason: Option<String>, time: Option<&str>) {
        report::json_line(&json!({
            "type": "state", "id": self.id, "state": state.name(), "why": reason, "time": time,
        }));
        self.printed_state = Some(state.clone());
    }
}

/// Returns the text of an entry for the progress line: what the agent says and does.
fn progress_text(line: &JournalLine) -> Option<String> {
    let JournalEntry::Event { event } = &line.entry else { return None };
    let event = serde_json::from_value::<Event>(event.clone()).ok()?;
    let (kind, text) = describe_event(&event.what)?;
    let is_progress =
        matches!(kind, TimelineKind::Agent | TimelineKind::Call { .. } | TimelineKind::State);
    is_progress.then_some(text)
}
