//! The facts about a session: its lock, its journal's summary, its disposition.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::event::{Event, EventKind, Usage};
use base::id::Id;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::session::coach::{self, CoachSummary};
use crate::session::journal::{
    CheckResult, JournalEntry, JournalLine, SessionOutcome, WorkSummary,
};
use crate::session::record::RunLimits;

/// Maximum number of bytes of a request in the reason of a state; `status` shows all of it.
const MAX_REASON_BYTES: usize = 300;

/// Maximum number of bytes of a failed tool call's result in the reason of a state.
const MAX_RESULT_BYTES: usize = 200;

/// The facts that determine the state of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionFacts {
    /// Whether the session's lock is held.
    pub locked: bool,
    /// The summary of the journal.
    pub summary: JournalSummary,
    /// The disposition, from the operation log.
    pub disposition: Disposition,
    /// Dependencies that have not landed.
    pub dependencies: Vec<Dependency>,
    /// What it waits for besides its dependencies, if it is queued.
    pub queue_reason: Option<QueueReason>,
}

/// Why the scheduler did not start a queued session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueReason {
    /// The reason, as a clause.
    pub text: String,
    /// When that ends, if it is known: RFC 3339 in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Whether it can end although no session changes.
    pub changes_by_itself: bool,
    /// Whether only the user can end it.
    pub needs_user: bool,
}

impl QueueReason {
    /// Creates the reason of a session that waits for others.
    pub(crate) fn new(text: impl Into<String>) -> QueueReason {
        QueueReason { text: text.into(), ..QueueReason::default() }
    }
}

/// A session that another one depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The session.
    pub id: Id,
    /// Its disposition.
    pub disposition: Disposition,
}

/// What the operation log says about a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum Disposition {
    /// Neither landed nor discarded, or that was undone.
    #[default]
    Open,
    /// A landing was started and has no result yet.
    Landing,
    /// It landed.
    Accepted {
        /// The operation, for `studio undo`.
        operation: String,
        /// The commit on the target.
        commit: Option<String>,
    },
    /// It was discarded.
    Discarded {
        /// The operation, for `studio undo`.
        operation: String,
    },
}

impl Disposition {
    /// Returns the operation that accepted or discarded the session.
    pub(crate) fn operation(&self) -> Option<&str> {
        match self {
            Disposition::Accepted { operation, .. } | Disposition::Discarded { operation } => {
                Some(operation)
            }
            Disposition::Open | Disposition::Landing => None,
        }
    }
}

/// The phase of a session, from its journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// It is waiting for a job slot.
    #[default]
    Queued,
    /// A supervisor is creating the worktree and starting the agent.
    Starting,
    /// The agent is working.
    Working,
    /// The agent is waiting.
    Waiting {
        /// What it is waiting for.
        reason: String,
    },
    /// The account of the agent is rate limited.
    Parked {
        /// When the limit ends, RFC 3339 in UTC.
        until: String,
        /// The message of the agent that reported it.
        why: String,
    },
    /// The checks are running.
    Checking,
    /// The run ended.
    Ended {
        /// The outcome.
        outcome: SessionOutcome,
    },
}

/// Why the work of a session that ended well counts as unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unchecked {
    /// Its agent changed nothing, and the worktree was changed afterwards.
    ChangedByHand,
    /// Its checks are not those that passed.
    OtherChecks,
}

/// The summary of a journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own in the journal")]
pub struct JournalSummary {
    /// The phase.
    pub phase: Phase,
    /// Prompts that the agent has not got yet; `None` for the task.
    pub pending: VecDeque<Option<String>>,
    /// The number of turns so far.
    pub turns: u32,
    /// Whether the last turn is still running.
    pub in_turn: bool,
    /// The id of the agent's conversation.
    #[serde(rename = "talk")]
    pub conversation_id: Option<String>,
    /// The usage of that conversation.
    pub conversation_usage: Usage,
    /// Whether the last turn was interrupted, or is still running.
    pub interrupted: bool,
    /// Open permission requests.
    #[serde(rename = "asks")]
    pub open_requests: BTreeMap<u32, OpenRequest>,
    /// The number of the last permission request.
    #[serde(rename = "last_ask")]
    pub last_request: u32,
    /// Kinds of requests that the user allowed for the whole session.
    pub always: BTreeSet<String>,
    /// Requests of the latest run that studio denied without asking the user.
    #[serde(rename = "denied")]
    pub denials: Denials,
    /// Failed tool calls of the latest run.
    pub failed_calls: FailedCalls,
    /// Why the latest run was asked to stop, if not by the user.
    pub stop_reason: Option<String>,
    /// The number of the last event.
    pub last_seq: u64,
    /// Limits that the user changed after the creation.
    pub limits: RunLimits,
    /// Whether permission requests wait for the user, if that was changed after the creation.
    pub attended: Option<bool>,
    /// The total duration of completed runs, in milliseconds.
    pub worked_ms: u64,
    /// The start of the current run, RFC 3339; `None` if there is none.
    #[serde(rename = "run_began")]
    pub run_started_at: Option<String>,
    /// How long the current run was parked, in milliseconds.
    pub parked_ms: u64,
    /// Since when the current run is parked, RFC 3339.
    pub parked_since: Option<String>,
    /// Why the agent counts as stuck, if it does.
    pub stalled: Option<String>,
    /// The number of model replies that the agent reported.
    pub replies: u32,
    /// The coach's results, if there is a coach.
    pub coach: Option<CoachSummary>,
    /// The usage of all turns together.
    pub usage: Option<Usage>,
    /// The model that the agent reported last.
    pub model: Option<String>,
    /// The agent's last message.
    #[serde(rename = "last_words")]
    pub last_message: Option<String>,
    /// The work of the session.
    pub work: Option<WorkSummary>,
    /// The results of the checks; `None` before they ran.
    pub checks: Option<Vec<CheckResult>>,
    /// Whether the checks ran after the last turn.
    pub is_checked: bool,
    /// The checks, if the user has changed them.
    pub commands: Option<Vec<String>>,
    /// Why the work of an ended session counts as unchecked.
    pub unchecked: Option<Unchecked>,
    /// The last note.
    pub note: Option<String>,
    /// The sessions that changed the same lines, with the files, as far as they were recorded.
    pub same_lines: BTreeMap<Id, BTreeSet<String>>,
    /// Those of them that the agent was not told about.
    pub unsent_same_lines: BTreeMap<Id, BTreeSet<String>>,
    /// The time of the last entry, RFC 3339.
    pub updated_at: Option<String>,
    /// The end of the last run, RFC 3339 in UTC; `None` during a run.
    pub ended_at: Option<String>,
    /// Whether the worktree was created.
    pub has_worktree: bool,
    /// The line of the setup that runs.
    pub setup_line: Option<String>,
}

/// An open permission request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRequest {
    /// The agent's description.
    #[serde(rename = "what")]
    pub description: String,
    /// The kind: the same for all requests that `always` covers.
    pub rule: String,
    /// The host that it wants to reach, if it is a connection: an answer for always applies to all
    /// sessions then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When it was asked, RFC 3339 in UTC.
    #[serde(default)]
    pub asked_at: Option<String>,
}

impl OpenRequest {
    /// Describes what an answer for always does.
    pub fn always_allow_text(&self) -> &'static str {
        match self.host {
            Some(_) => "always allow this host, in all sessions",
            None => "always allow this in this session",
        }
    }

    /// Returns where an answer for always applies.
    pub fn always_scope(&self) -> &'static str {
        match self.host {
            Some(_) => "in all sessions",
            None => "for this session",
        }
    }
}

/// Requests that studio denied without asking the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Denials {
    /// The number of requests.
    pub count: u32,
    /// The description of the first one.
    #[serde(rename = "what")]
    pub description: String,
    /// Why the first one was denied, and how to allow it.
    pub why: String,
}

/// Failed tool calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailedCalls {
    /// The number of calls.
    pub count: u32,
    /// The start of the last one's result, in one line.
    pub last: String,
}

impl JournalSummary {
    /// Summarizes lines in order.
    pub(crate) fn of<'a>(lines: impl IntoIterator<Item = &'a JournalLine>) -> JournalSummary {
        let mut summary = JournalSummary::default();
        for line in lines {
            summary.add_line(line);
        }
        summary
    }

    /// Adds one line.
    pub fn add_line(&mut self, line: &JournalLine) {
        let previous_time = self.updated_at.replace(line.time.clone());
        if let JournalEntry::Spawned { .. } = &line.entry {
            self.ended_at = None;
            // The previous run has no exit entry: it ended at its last entry.
            if let Some(previous_time) = &previous_time {
                self.end_parking(previous_time);
            }
            let previous_run = self.run_started_at.replace(line.time.clone()).zip(previous_time);
            let duration = previous_run.and_then(|(started, ended)| milliseconds(&started, &ended));
            let worked = duration.unwrap_or(0).saturating_sub(self.parked_ms);
            self.worked_ms = self.worked_ms.saturating_add(worked);
            self.parked_ms = 0;
        }
        if let JournalEntry::Parked { .. } = &line.entry {
            self.parked_since.get_or_insert_with(|| line.time.clone());
        }
        if let JournalEntry::Unparked | JournalEntry::Exit { .. } = &line.entry {
            self.end_parking(&line.time);
        }
        if let JournalEntry::Exit { ms, .. } = &line.entry {
            self.ended_at = Some(line.time.clone());
            let started = self.run_started_at.take();
            let since_start = || milliseconds(&started?, &line.time);
            let duration = ms.or_else(|| Some(since_start()?.saturating_sub(self.parked_ms)));
            self.worked_ms = self.worked_ms.saturating_add(duration.unwrap_or(0));
        }
        self.add_entry(&line.entry);
        if let JournalEntry::Asked { n, .. } = &line.entry
            && let Some(request) = self.open_requests.get_mut(n)
        {
            request.asked_at = Some(line.time.clone());
        }
    }

    /// Counts the time since the run was parked.
    fn end_parking(&mut self, now: &str) {
        let parked = self.parked_since.take().and_then(|since| milliseconds(&since, now));
        self.parked_ms = self.parked_ms.saturating_add(parked.unwrap_or(0));
    }

    /// Returns whether the account of the agent is rate limited.
    pub(crate) fn is_parked(&self) -> bool {
        matches!(self.phase, Phase::Parked { .. })
    }

    /// Adds one entry.
    pub(crate) fn add_entry(&mut self, entry: &JournalEntry) {
        match entry {
            JournalEntry::Queued { prompt } => {
                self.phase = Phase::Queued;
                self.stop_reason = None;
                if prompt.is_some() || self.pending.is_empty() {
                    self.pending.push_back(prompt.clone());
                }
            }
            JournalEntry::Spawned { .. } => self.start_run(),
            JournalEntry::Setup { line } => self.setup_line = Some(line.clone()),
            JournalEntry::Worktree => self.has_worktree = true,
            JournalEntry::Agent { conversation_id } => self.start_agent(conversation_id.as_ref()),
            JournalEntry::Turn { n, .. } => self.start_turn(*n),
            JournalEntry::Event { event } => self.add_event(event),
            JournalEntry::Asked { n, what: description, rule, host } => {
                let rule = rule.clone().unwrap_or_else(|| description.clone());
                let description = description.clone();
                let host = host.clone();
                let request = OpenRequest { description, rule, host, asked_at: None };
                self.open_requests.insert(*n, request);
                self.last_request = self.last_request.max(*n);
                self.update_phase();
            }
            JournalEntry::Answered { n, allow, always, why, .. } => {
                let request = self.open_requests.remove(n).unwrap_or_default();
                match (allow, why) {
                    (false, Some(reason)) => self.denials.add(&request.description, reason),
                    (true, _) if *always => {
                        self.always.insert(request.rule);
                    }
                    (_, _) => {}
                }
                self.update_phase();
            }
            JournalEntry::Settings { limits, attended } => {
                self.limits = limits.or(self.limits);
                self.attended = attended.or(self.attended);
            }
            JournalEntry::Sent { text } => self.pending.push_back(Some(text.clone())),
            JournalEntry::TurnEnd { why, .. } => {
                self.interrupted = why.is_some();
                self.in_turn = false;
                self.open_requests.clear();
                self.stalled = None;
                self.update_phase();
            }
            JournalEntry::Work(work) => {
                self.coach.iter_mut().for_each(|coach| coach.record_work(work));
                self.work = Some(work.clone());
                if self.phase == (Phase::Ended { outcome: SessionOutcome::Empty }) {
                    self.unchecked = work.is_changed().then_some(Unchecked::ChangedByHand);
                }
            }
            JournalEntry::Checking => self.phase = Phase::Checking,
            JournalEntry::Checked { results } => {
                self.coach.iter_mut().for_each(|coach| coach.record_checks(results));
                self.checks = Some(results.clone());
                self.is_checked = true;
                self.unchecked = None;
            }
            JournalEntry::Checks { commands } => self.set_checks(commands),
            JournalEntry::StopRequested { why } => self.stop_reason.clone_from(why),
            JournalEntry::Limit { .. } => {}
            JournalEntry::SameLines { id, files } => {
                for recorded in [&mut self.same_lines, &mut self.unsent_same_lines] {
                    recorded.entry(id.clone()).or_default().extend(files.iter().cloned());
                }
            }
            JournalEntry::Note { text } => self.note = Some(text.clone()),
            JournalEntry::Parked { .. }
            | JournalEntry::Unparked
            | JournalEntry::Stalled { .. }
            | JournalEntry::StallEnded => self.add_pause(entry),
            JournalEntry::Exit { outcome, .. } => {
                self.phase = Phase::Ended { outcome: outcome.clone() };
                self.stalled = None;
                self.open_requests.clear();
            }
        }
    }

    fn start_turn(&mut self, n: u32) {
        self.pending.pop_front();
        self.unsent_same_lines.clear();
        self.turns = n;
        self.in_turn = true;
        self.interrupted = true;
        self.is_checked = false;
        self.stalled = None;
        self.phase = Phase::Working;
    }

    /// Adds the begin or the end of a rate limit or a stall.
    fn add_pause(&mut self, entry: &JournalEntry) {
        if let JournalEntry::Parked { until, why } = entry {
            self.phase = Phase::Parked { until: until.clone(), why: why.clone() };
        }
        if let JournalEntry::Stalled { why } = entry {
            self.stalled = Some(why.clone());
        }
        if let JournalEntry::StallEnded = entry {
            self.stalled = None;
        }
        if let (JournalEntry::Unparked, Phase::Parked { .. }) = (entry, &self.phase) {
            self.phase = Phase::Working;
        }
        self.update_phase();
    }

    /// Resets what belongs to the previous run.
    fn start_run(&mut self) {
        self.phase = Phase::Starting;
        self.setup_line = None;
        self.in_turn = false;
        self.unchecked = None;
        self.stalled = None;
        self.open_requests.clear();
        self.denials = Denials::default();
        self.failed_calls = FailedCalls::default();
    }

    fn start_agent(&mut self, id: Option<&String>) {
        self.setup_line = None;
        if id.is_some() && id != self.conversation_id.as_ref() {
            self.conversation_usage = Usage::default();
            self.conversation_id = id.cloned();
        }
    }

    /// Updates the state after a change of the checks: a ready session stays ready if all of them
    /// have passed.
    fn set_checks(&mut self, commands: &[String]) {
        let has_passed = |command: &String| {
            let mut results = self.checks.iter().flatten();
            results.any(|result| result.ok && result.command == *command)
        };
        if self.phase == (Phase::Ended { outcome: SessionOutcome::Ready }) {
            let all_passed = commands.iter().all(has_passed);
            self.unchecked = (!all_passed).then_some(Unchecked::OtherChecks);
        }
        self.commands = Some(commands.to_vec());
    }

    /// Returns the files in which a conflict with another session was not recorded yet.
    pub fn new_conflicts_with(&self, id: &Id, files: &[String]) -> Vec<String> {
        let recorded = self.same_lines.get(id);
        let is_new = |file: &&String| !recorded.is_some_and(|files| files.contains(*file));
        files.iter().filter(is_new).cloned().collect()
    }

    /// Returns the failed check that ended the run, if there is one.
    pub fn failed_check(&self) -> Option<&CheckResult> {
        let has_failed =
            matches!(self.phase, Phase::Ended { outcome: SessionOutcome::Failed { .. } });
        let failed_check = self.checks.iter().flatten().find(|result| !result.ok);
        failed_check.filter(|_| has_failed && self.is_checked)
    }

    /// Returns whether the coach's verdict is on the session's current work.
    pub fn has_current_verdict(&self) -> bool {
        let current = self.work.as_ref().filter(|_| !self.in_turn).map(WorkSummary::commit);
        let is_current = |coach: &CoachSummary| match &coach.judged_commit {
            Some(_) => current.is_some_and(|current| coach.is_for(current)),
            // The turn of the verdict is still running.
            None => !coach.continued,
        };
        self.coach.as_ref().is_some_and(is_current)
    }

    /// Returns the number of model replies, if known.
    pub(crate) fn replies(&self) -> Option<u32> {
        let coach_turns = self.coach.as_ref().map_or(0, |coach| coach.cost().turns);
        Some(self.replies.max(coach_turns)).filter(|replies| *replies > 0)
    }

    fn update_phase(&mut self) {
        if self.is_parked() {
            return;
        }
        self.phase = match self.open_requests.iter().next() {
            Some((n, request)) => {
                let description =
                    base::text::head(&request.description, MAX_REASON_BYTES).replace('\n', " ");
                let ellipsis =
                    if request.description.len() > MAX_REASON_BYTES { "…" } else { "" };
                Phase::Waiting { reason: format!("permission {n}: {description}{ellipsis}") }
            }
            None => match &self.stalled {
                Some(why) => Phase::Waiting { reason: format!("stalled: {why}") },
                None => Phase::Working,
            },
        };
    }

    fn add_event(&mut self, event: &serde_json::Value) {
        self.last_seq = event["seq"].as_u64().map_or(self.last_seq, |seq| seq.max(self.last_seq));
        let Ok(event) = serde_json::from_value::<Event>(event.clone()) else { return };
        if let Phase::Waiting { .. } = self.phase
            && self.open_requests.is_empty()
            && self.stalled.is_none()
        {
            self.phase = Phase::Working;
        }
        match event.what {
            EventKind::Text { text } if !text.trim().is_empty() => self.last_message = Some(text),
            EventKind::Usage { usage } => {
                self.usage = Some(self.usage.unwrap_or_default().plus(usage));
                self.conversation_usage = self.conversation_usage.plus(usage);
            }
            EventKind::Retry { why, .. } if !self.is_parked() => {
                self.phase = Phase::Waiting { reason: format!("retrying: {why}") };
            }
            EventKind::Error { text, .. } => self.last_message = Some(text),
            EventKind::Turn { .. } => self.replies = self.replies.saturating_add(1),
            EventKind::Plan { plan } => coach::apply_event(&mut self.coach, &plan),
            EventKind::ToolEnd { ok: false, text, .. } => self.failed_calls.add(&text),
            EventKind::Start { model, .. } => self.model = Some(model),
            EventKind::Text { .. }
            | EventKind::Retry { .. }
            | EventKind::Reasoning { .. }
            | EventKind::ToolStart { .. }
            | EventKind::ToolOutput { .. }
            | EventKind::ToolEnd { .. }
            | EventKind::Context { .. }
            | EventKind::Todo { .. }
            | EventKind::Thinned { .. }
            | EventKind::Compacted { .. }
            | EventKind::Notice { .. }
            | EventKind::Ask { .. }
            | EventKind::End { .. } => {}
        }
    }
}

impl FailedCalls {
    fn add(&mut self, text: &str) {
        self.count = self.count.saturating_add(1);
        // Some agents wrap their results in a Markdown fence.
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("```"));
        let line = lines.collect::<Vec<_>>().join(" ");
        self.last = base::text::head(&line, MAX_RESULT_BYTES).to_owned();
    }
}

impl Denials {
    fn add(&mut self, description: &str, reason: &str) {
        if self.count == 0 {
            self.description = base::text::head(description, MAX_REASON_BYTES).replace('\n', " ");
            self.why = reason.lines().next().unwrap_or_default().to_owned();
        }
        self.count = self.count.saturating_add(1);
    }
}

/// Returns the milliseconds between two RFC 3339 times.
fn milliseconds(from: &str, to: &str) -> Option<u64> {
    let (from, to): (Timestamp, Timestamp) = (from.parse().ok()?, to.parse().ok()?);
    u64::try_from(to.duration_since(from).as_millis()).ok()
}
