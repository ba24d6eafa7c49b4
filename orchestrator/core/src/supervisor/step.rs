//! Decides the next actions of a supervisor. A pure state machine: `run` carries out the
//! [`SupervisorAction`]s.

mod parking;
mod stalling;

use std::collections::BTreeSet;

use base::event::Usage;
use base::id::Id;
use base::text::{CONTINUE_PROMPT, count, printable};
use serde_json::Value;

use crate::launch::Decision;
use crate::radar::SessionConflict;
use crate::sandbox::limits::ExceededLimit;
use crate::session::journal::{
    CheckResult, JournalEntry, SessionOutcome, TURN_CANCELLED, WorkSummary,
};
use crate::session::record::{RunLimits, SessionRecord};
use crate::session::summary::{JournalSummary, Phase};

/// The state of one supervised run.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one run")]
pub(crate) struct RunState {
    /// The summary of the journal, including this run.
    pub summary: JournalSummary,
    record: SessionRecord,
    ending: Option<Ending>,
    agent: AgentStatus,
    memory: ConversationMemory,
    /// What the running turn asks for.
    message: String,
    /// Whether the turn before it was interrupted.
    was_interrupted: bool,
    /// Whether the agent is told which sessions change the same lines.
    conflict_notes: bool,
    /// Whether the session's work is being collected, and compared with that of others.
    importing: bool,
    /// Whether a turn that was stuck was cancelled for a message of the user.
    redirected: bool,
    /// Whether an agent that got no prompt yet has loaded the conversation so far.
    unprompted: Option<bool>,
    /// Whether the rate limit ended before the cancelled turn did.
    limit_ended: bool,
}

/// What a running agent knows of earlier turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConversationMemory {
    /// The whole conversation: one process serves all turns.
    Persistent,
    /// The conversation that the agent reported: each turn is a separate process that continues it.
    Continued,
    /// Nothing: each turn is a separate process.
    PerTurn,
}

/// Why the run is ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ending {
    Stopped,
    Failed(String),
}

/// The state of the agent's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentStatus {
    Absent,
    Starting,
    Running,
}

/// An input of the state machine.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each variant documents its fields
pub(crate) enum Input {
    /// The run starts, in a process with this id.
    Begin { pid: u32 },
    /// The worktree is prepared; `note` is a note for the user.
    WorktreeReady { note: Option<String> },
    /// The agent is running; `loaded` is whether it has loaded the conversation so far.
    Launched { conversation_id: Option<String>, loaded: bool },
    /// The worktree or the agent could not be started.
    CannotStart { reason: String },
    /// A line of the setup starts.
    SetupStarted { line: String },
    /// The making of the worktree or its setup was cancelled.
    SetupCancelled,
    /// The agent works in the conversation with this id.
    ConversationStarted { id: String },
    /// The agent cannot continue its conversation.
    ConversationLost,
    /// The agent sent an event in g3's wire format.
    Event { event: Value },
    /// The agent requests a permission.
    PermissionRequested(PermissionAsk),
    /// The agent ended its turn; `why` is the error, if any.
    TurnEnded { reason: Option<String> },
    /// The agent's process exited.
    AgentExited { reason: String },
    /// The session's work was collected within a turn.
    Kept { work: WorkSummary },
    /// The session's work was collected.
    Imported { work: WorkSummary },
    /// The collected work was compared with that of other sessions, which change the same lines.
    Compared { conflicts: Vec<SessionConflict> },
    /// Other sessions change the same lines.
    SameLines { conflicts: Vec<SessionConflict> },
    /// The session's work could not be collected.
    CannotImport { reason: String },
    /// The checks have run.
    Checked { results: Vec<CheckResult> },
    /// The user sent a message to the agent.
    Send { text: String },
    /// The user answered a request; `always` also answers further ones of its kind.
    Answer { n: u32, allow: bool, always: bool },
    /// The session was asked to stop; `why` is absent if the user asked.
    Stop { why: Option<String> },
    /// A limit was reached.
    Limit { limit: String },
    /// A note for the user.
    Note { text: String },
    /// The agent counts as stuck.
    Stalled { why: String },
    /// The agent makes progress again.
    StallEnded,
    /// The account of the agent is rate limited until this time, RFC 3339 in UTC; `ended_turn` is
    /// whether that ended the turn, whose end follows.
    RateLimited { until: String, why: String, ended_turn: bool },
    /// The rate limit has ended.
    RateLimitEnded,
    /// The agent's processes reached a limit of their sandbox, which ended them.
    SandboxLimit { limit: ExceededLimit },
}

/// A permission request at the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PermissionAsk {
    /// Its number, unique in the session.
    pub number: u32,
    /// The agent's description.
    pub description: String,
    /// The kind: the same for all requests that `always` covers.
    pub rule: String,
    /// The host that it wants to reach, if it is a connection.
    pub host: Option<String>,
    /// Why allowing it would have no effect, and which configuration line would.
    pub futile_reason: Option<String>,
}

/// An action of the supervisor.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each variant documents its fields
pub(crate) enum SupervisorAction {
    /// Append to the journal.
    Write(JournalEntry),
    /// Notify the user of a permission request that waits for an answer.
    NotifyRequest { reason: String },
    /// Create or find the worktree and prepare it.
    MakeWorktree,
    /// Cancel the making of the worktree and its setup.
    CancelSetup,
    /// Start the agent; `conversation_id` is the conversation to continue.
    Launch { conversation_id: Option<String> },
    /// Send a prompt to the agent; `recap` asks to append the diff so far.
    Prompt { text: String, recap: bool },
    /// Send the decision on request `n` to the agent.
    Answer { n: u32, decision: Decision },
    /// Ask the agent to end its turn, and kill it after a grace period.
    Cancel,
    /// Collect the session's work.
    Import,
    /// Compare the work in the journal with that of other sessions.
    Compare,
    /// Run the checks.
    Check,
    /// Cancel the checks.
    CancelChecks,
    /// End everything.
    Finish,
}

/// Processes one input and returns the actions.
pub(crate) fn step(state: &mut RunState, input: Input) -> Vec<SupervisorAction> {
    if let Phase::Ended { .. } = state.summary.phase {
        return Vec::new();
    }
    let mut actions = StepActions { state, actions: Vec::new() };
    match input {
        Input::Begin { pid } => actions.on_begin(pid),
        Input::WorktreeReady { note } => actions.on_worktree_ready(note),
        Input::Launched { conversation_id, loaded } => actions.on_launched(conversation_id, loaded),
        Input::CannotStart { reason: why } => actions.finish(SessionOutcome::Failed { why }),
        Input::SetupStarted { line } => actions.write(JournalEntry::Setup { line }),
        Input::SetupCancelled => actions.end_if_asked(),
        Input::ConversationStarted { id } => {
            actions.write(JournalEntry::Agent { conversation_id: Some(id) });
        }
        Input::ConversationLost => actions.on_conversation_lost(),
        Input::Event { event } => actions.on_event(event),
        Input::PermissionRequested(request) => actions.on_permission_request(request),
        Input::TurnEnded { reason: why } => actions.on_turn_ended(why),
        Input::AgentExited { reason: why } => actions.on_agent_exited(why),
        Input::Kept { work } => actions.on_kept(work),
        Input::Imported { work } => actions.on_imported(work),
        Input::Compared { conflicts } => actions.on_compared(conflicts),
        Input::SameLines { conflicts } => actions.on_same_lines(conflicts),
        Input::CannotImport { reason: why } => actions.on_import_failed(why),
        Input::Checked { results } => actions.on_checked(results),
        Input::Send { text } => actions.on_send(text),
        Input::Answer { n, allow, always } => {
            actions.answer(n, Decision { allow, always, reason: None });
        }
        Input::Stop { why } => actions.on_stop(why),
        Input::Limit { limit } => actions.on_limit(limit),
        Input::Note { text } => actions.write(JournalEntry::Note { text }),
        Input::Stalled { why } => actions.on_stalled(why),
        Input::StallEnded => actions.on_stall_ended(),
        Input::RateLimited { until, why, ended_turn } => {
            actions.on_rate_limited(until, why, ended_turn);
        }
        Input::RateLimitEnded => actions.on_rate_limit_ended(),
        Input::SandboxLimit { limit } => actions.on_sandbox_limit(limit),
    }
    actions.actions
}

impl RunState {
    /// Creates the state for a run of a session with this journal summary.
    pub(crate) fn new(
        record: SessionRecord,
        summary: JournalSummary,
        memory: ConversationMemory,
    ) -> RunState {
        let (agent, message) = (AgentStatus::Absent, String::new());
        RunState {
            summary,
            record,
            ending: None,
            agent,
            memory,
            message,
            was_interrupted: false,
            conflict_notes: true,
            importing: false,
            redirected: false,
            unprompted: None,
            limit_ended: false,
        }
    }

    /// Sets whether the agent is told which sessions change the same lines.
    #[must_use]
    pub(crate) fn with_conflict_notes(self, conflict_notes: bool) -> RunState {
        RunState { conflict_notes, ..self }
    }

    /// Returns the note about sessions that change the same lines, for the next prompt.
    fn conflict_note(&self) -> Option<String> {
        let conflicts = &self.summary.unsent_same_lines;
        if conflicts.is_empty() || !self.conflict_notes {
            return None;
        }
        let line = |(id, files): (&Id, &BTreeSet<String>)| {
            let files = files.iter().map(|file| format!("`{}`", printable(file)));
            format!("- session `{id}`: {}", files.collect::<Vec<_>>().join(", "))
        };
        let lines: Vec<String> = conflicts.iter().map(line).collect();
        Some(format!(
            "Note from studio: other agents are changing the same lines as you, in worktrees of \
             their own, in these files. Keep your changes there as small as your task allows, so \
             that both can be merged.\n{}",
            lines.join("\n")
        ))
    }

    /// Returns whether the running agent knows the earlier turns.
    fn remembers(&self) -> bool {
        match self.memory {
            ConversationMemory::Persistent => true,
            ConversationMemory::Continued => self.summary.conversation_id.is_some(),
            ConversationMemory::PerTurn => false,
        }
    }

    /// Returns the limits that apply now.
    pub(crate) fn limits(&self) -> RunLimits {
        self.summary.limits.or(self.record.limits)
    }

    /// Returns the exceeded limit, in words.
    fn exceeded_limit(&self) -> Option<String> {
        exceeded_limit(&self.limits(), &self.summary).map(|limit| limit.limit)
    }

    /// Returns whether permission requests wait for the user.
    pub(crate) fn is_attended(&self) -> bool {
        self.summary.attended.unwrap_or(self.record.run_mode.attended)
    }

    /// Returns the next prompt for the agent, and whether it needs a recap.
    fn next_prompt(&self, loaded: bool) -> (String, bool) {
        let message = self.summary.pending.front().cloned().flatten();
        // An agent with requirements that never replied may not have received its task.
        let is_unconfirmed =
            self.record.plan_ref.contract.is_some() && self.summary.usage.is_none();
        let is_first = self.summary.turns == 0 || is_unconfirmed;
        let task = &self.record.task;
        if let (Some(origin), true) = (&self.record.origin, is_first) {
            let message = [origin.message.clone(), message].into_iter().flatten();
            let message = message.collect::<Vec<_>>().join("\n\n");
            let message = if message.is_empty() { CONTINUE_PROMPT } else { &message };
            return match loaded {
                true => (message.to_owned(), false),
                false => {
                    (recap(origin.last_message.as_deref(), &origin.task, false, message), true)
                }
            };
        }
        match (is_first, loaded, message) {
            (true, _, None) => (task.clone(), false),
            (true, _, Some(message)) => (format!("{task}\n\n{message}"), false),
            (false, true, message) => {
                (message.unwrap_or_else(|| CONTINUE_PROMPT.to_owned()), false)
            }
            (false, false, message) => {
                let message = message.as_deref().unwrap_or(CONTINUE_PROMPT);
                (self.recap(message, self.summary.interrupted), true)
            }
        }
    }

    /// Returns the conversation to continue: its own, else a copy of the forked session's.
    fn conversation_id(&self) -> Option<String> {
        let origin = self.record.origin.as_ref();
        let copied = || origin.and_then(|origin| origin.conversation_id.clone());
        self.summary.conversation_id.clone().or_else(copied)
    }

    /// Returns a recap for an agent that cannot load its conversation.
    fn recap(&self, message: &str, was_interrupted: bool) -> String {
        let last_message = self.summary.last_message.as_deref();
        recap(last_message, &self.record.task, was_interrupted, message)
    }
}

/// Returns a recap of a conversation that the agent does not have.
fn recap(last_message: Option<&str>, task: &str, interrupted: bool, message: &str) -> String {
    let last_message = base::text::tail(last_message.unwrap_or("(nothing)"), 4000);
    let introduction = match interrupted {
        true => "You were working on this task in this directory and were interrupted:",
        false => "You have worked on this task in this directory:",
    };
    format!(
        "{introduction}\n\n{task}\n\nYour last words were:\n\n{last_message}\n\nYour changes so far \
         are in the directory. {message}"
    )
}

/// A limit that a session exceeded, over all its runs together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachedLimit {
    /// The limit, in words.
    pub limit: String,
    /// The flag that raises it.
    pub flag: &'static str,
}

/// Returns the limit that a session has exceeded. The time limit is watched by the supervisor
/// itself.
fn exceeded_limit(limits: &RunLimits, summary: &JournalSummary) -> Option<ReachedLimit> {
    let usage = summary.usage.unwrap_or_default();
    let turns = limits.turns.filter(|max| summary.replies > *max);
    let tokens = limits.tokens.filter(|max| usage.tokens() > *max);
    let cost = usage.cost_usd.unwrap_or(0.0);
    let usd = limits.usd.filter(|max| !usage.is_cost_known() || cost > *max);
    turns.map(turn_limit).or(tokens.map(token_limit)).or(usd.map(|max| budget_limit(max, &usage)))
}

/// Returns the limit that leaves nothing for another turn.
pub fn exhausted_limit(limits: &RunLimits, summary: &JournalSummary) -> Option<ReachedLimit> {
    let usage = summary.usage.unwrap_or_default();
    let turns = limits.turns.filter(|max| summary.replies >= *max);
    let tokens = limits.tokens.filter(|max| usage.tokens() >= *max);
    let cost = usage.cost_usd.unwrap_or(0.0);
    let usd = limits.usd.filter(|max| !usage.is_cost_known() || (cost > 0.0 && cost >= *max));
    let seconds = limits.seconds.filter(|max| summary.worked_ms / 1000 >= *max);
    let time_limit = |max| ReachedLimit { limit: count(max, "second"), flag: "--timeout SECONDS" };
    let others = tokens.map(token_limit).or(usd.map(|max| budget_limit(max, &usage)));
    turns.map(turn_limit).or(others).or(seconds.map(time_limit))
}

fn turn_limit(max: u32) -> ReachedLimit {
    ReachedLimit { limit: count(u64::from(max), "turn"), flag: "--max-turns N" }
}

fn token_limit(max: u64) -> ReachedLimit {
    ReachedLimit { limit: count(max, "token"), flag: "--max-tokens N" }
}

fn budget_limit(max: f64, usage: &Usage) -> ReachedLimit {
    let price_note = match !usage.is_cost_known() {
        true => {
            ": the price of a model that it asked is not known (`[[models]] name = \"NAME\", price \
             = { input = USD, output = USD }` in ~/.config/g3/config.toml sets it)"
        }
        false => "",
    };
    ReachedLimit { limit: format!("a budget of ${max}{price_note}"), flag: "--budget USD" }
}

/// The actions of one step, and the state that they change.
struct StepActions<'a> {
    state: &'a mut RunState,
    actions: Vec<SupervisorAction>,
}

impl StepActions<'_> {
    fn write(&mut self, entry: JournalEntry) {
        self.state.summary.add_entry(&entry);
        self.actions.push(SupervisorAction::Write(entry));
    }

    fn on_begin(&mut self, pid: u32) {
        self.write(JournalEntry::Spawned { pid });
        self.actions.push(SupervisorAction::MakeWorktree);
    }

    fn on_worktree_ready(&mut self, note: Option<String>) {
        if let Some(text) = note {
            self.write(JournalEntry::Note { text });
        }
        self.launch();
    }

    fn launch(&mut self) {
        if !self.state.summary.has_worktree {
            self.write(JournalEntry::Worktree);
        }
        if let Some(ending) = self.state.ending.take() {
            return self.end_with(ending);
        }
        self.state.agent = AgentStatus::Starting;
        self.actions
            .push(SupervisorAction::Launch { conversation_id: self.state.conversation_id() });
    }

    fn on_launched(&mut self, conversation_id: Option<String>, loaded: bool) {
        self.state.agent = AgentStatus::Running;
        self.write(JournalEntry::Agent { conversation_id });
        if let Some(ending) = self.state.ending.take() {
            return self.end_with(ending);
        }
        match self.state.summary.is_parked() {
            true => self.state.unprompted = Some(loaded),
            false => self.prompt(loaded),
        }
    }

    fn prompt(&mut self, loaded: bool) {
        if self.state.agent == AgentStatus::Absent {
            return self.launch();
        }
        let (mut text, recap) = self.state.next_prompt(loaded);
        if let Some(note) = self.state.conflict_note() {
            text = format!("{text}\n\n{note}");
        }
        self.state.was_interrupted = self.state.summary.interrupted;
        let n = self.state.summary.turns + 1;
        self.write(JournalEntry::Turn { n, text: text.clone(), log_bytes: None });
        self.state.message.clone_from(&text);
        self.actions.push(SupervisorAction::Prompt { text, recap });
    }

    /// Sends the prompt of the running turn again, with what a new conversation has to know.
    fn on_conversation_lost(&mut self) {
        if !self.state.summary.in_turn {
            return;
        }
        if self.state.ending.is_some() {
            return self.on_turn_ended(Some(TURN_CANCELLED.to_owned()));
        }
        let text = "the agent could not continue its conversation; it starts a new one with the \
                    task, its last message and the diff so far";
        self.write(JournalEntry::Note { text: text.to_owned() });
        let text = self.state.recap(&self.state.message, self.state.was_interrupted);
        self.actions.push(SupervisorAction::Prompt { text, recap: true });
    }

    fn on_event(&mut self, mut event: Value) {
        // Agents restart their numbers with each start; the session's numbers only increase.
        let Some(fields) = event.as_object_mut() else { return };
        fields.insert("seq".to_owned(), self.state.summary.last_seq.saturating_add(1).into());
        self.write(JournalEntry::Event { event });
        if let (None, Some(limit)) = (&self.state.ending, self.state.exceeded_limit()) {
            self.on_limit(limit);
        }
    }

    fn on_permission_request(&mut self, request: PermissionAsk) {
        let PermissionAsk { number, description, rule, host, futile_reason } = request;
        let is_always_allowed = self.state.summary.always.contains(&rule);
        let reason = format!("permission {number}: {description}");
        self.write(JournalEntry::Asked {
            n: number,
            rule: Some(rule).filter(|rule| *rule != description),
            what: description,
            host,
        });
        let id = &self.state.record.id;
        let denial = match futile_reason {
            _ if self.state.ending.is_some() => Some("the session is ending".to_owned()),
            Some(reason) => Some(reason),
            None if is_always_allowed => None,
            None if !self.state.is_attended() => {
                let rule = self
                    .state
                    .summary
                    .open_requests
                    .get(&number)
                    .map(|request| request.rule.as_str());
                let rule = rule.filter(|rule| rule.starts_with("[[gate.rules]]"));
                let rule = rule.map(|rule| {
                    format!("\nThis rule in ~/.config/g3/config.toml allows it:\n{rule}")
                });
                let rule = rule.unwrap_or_default();
                Some(format!(
                    "no terminal to ask on; `studio resume {id} --ask` keeps requests open{rule}"
                ))
            }
            None => return self.actions.push(SupervisorAction::NotifyRequest { reason }),
        };
        let allow = denial.is_none();
        self.answer(number, Decision { allow, always: allow, reason: denial });
    }

    fn answer(&mut self, n: u32, decision: Decision) {
        let Some(request) = self.state.summary.open_requests.get(&n) else { return };
        let rule = request.rule.clone();
        let decided_by = match &decision.reason {
            None if !self.state.summary.always.contains(&request.rule) => "user",
            None | Some(_) => "studio",
        };
        let Decision { allow, always, ref reason } = decision;
        // The end of a run is its own reason.
        let (by, reason) =
            (decided_by.to_owned(), reason.clone().filter(|_| self.state.ending.is_none()));
        self.write(JournalEntry::Answered { n, allow, always, by, why: reason });
        self.actions.push(SupervisorAction::Answer { n, decision });
        // Open requests of the same kind are answered as well.
        let mut open_requests = self.state.summary.open_requests.iter();
        let same_kind = open_requests.find(|(_, request)| always && request.rule == rule);
        if let Some(n) = same_kind.map(|(n, _)| *n) {
            self.answer(n, Decision { allow, always: true, reason: None });
        }
    }

    fn on_turn_ended(&mut self, reason: Option<String>) {
        if !self.state.summary.in_turn {
            return;
        }
        if reason.is_none() && self.state.summary.is_parked() {
            // It was complete before it was cancelled: no model has to be asked.
            self.write(JournalEntry::Unparked);
        }
        let redirected = std::mem::take(&mut self.state.redirected);
        let continues = self.state.summary.is_parked() || redirected;
        if let (Some(error), None, false) = (&reason, &self.state.ending, continues) {
            self.state.ending = Some(Ending::Failed(error.clone()));
        }
        let n = self.state.summary.turns;
        self.write(JournalEntry::TurnEnd { n, why: reason });
        self.import();
    }

    fn import(&mut self) {
        self.state.importing = true;
        self.actions.push(SupervisorAction::Import);
    }

    fn on_agent_exited(&mut self, reason: String) {
        let previous = std::mem::replace(&mut self.state.agent, AgentStatus::Absent);
        if self.state.summary.in_turn {
            self.on_turn_ended(Some(reason));
        } else if previous == AgentStatus::Starting {
            self.finish(SessionOutcome::Failed { why: reason });
        }
    }

    /// Records what was collected while the agent works. After its turn everything is collected again.
    fn on_kept(&mut self, work: WorkSummary) {
        let is_new = self.state.summary.work.as_ref() != Some(&work);
        if self.state.summary.in_turn && is_new && work.is_changed() {
            self.write(JournalEntry::Work(work));
        }
    }

    fn on_imported(&mut self, work: WorkSummary) {
        self.write(JournalEntry::Work(work));
        // Only now, so that of two sessions at least one sees the work of the other.
        self.actions.push(SupervisorAction::Compare);
    }

    fn on_compared(&mut self, conflicts: Vec<SessionConflict>) {
        self.state.importing = false;
        self.on_same_lines(conflicts);
        if let Some(ending) = self.state.ending.take() {
            return self.end_with(ending);
        }
        if self.state.summary.is_parked() {
            return self.continue_if_limit_ended();
        }
        if !self.state.summary.pending.is_empty() {
            return self.prompt(self.state.remembers());
        }
        if !self.state.summary.work.as_ref().is_some_and(WorkSummary::is_changed) {
            return self.finish(SessionOutcome::Empty);
        }
        if self.state.record.checks.is_empty() {
            self.write(JournalEntry::Checked { results: Vec::new() });
            return self.finish(SessionOutcome::Ready);
        }
        self.write(JournalEntry::Checking);
        self.actions.push(SupervisorAction::Check);
    }

    fn on_same_lines(&mut self, conflicts: Vec<SessionConflict>) {
        for conflict in conflicts {
            let files = self.state.summary.new_conflicts_with(&conflict.id, &conflict.files);
            if !files.is_empty() {
                self.write(JournalEntry::SameLines { id: conflict.id, files });
            }
        }
    }

    fn on_import_failed(&mut self, reason: String) {
        self.state.importing = false;
        match self.state.ending.take() {
            Some(Ending::Stopped) => {
                self.write(JournalEntry::Note { text: reason });
                self.finish(SessionOutcome::Stopped);
            }
            Some(Ending::Failed(_)) | None => self.finish(SessionOutcome::Failed { why: reason }),
        }
    }

    fn on_checked(&mut self, results: Vec<CheckResult>) {
        if self.state.summary.phase != Phase::Checking {
            return;
        }
        let failed_check = results.iter().find(|result| !result.ok).cloned();
        self.write(JournalEntry::Checked { results });
        if let Some(ending) = self.state.ending.take() {
            return self.end_with(ending);
        }
        if !self.state.summary.pending.is_empty() {
            return self.prompt(self.state.remembers());
        }
        match failed_check {
            None => self.finish(SessionOutcome::Ready),
            Some(check) => self.finish(SessionOutcome::Failed { why: check.failure() }),
        }
    }

    fn on_stop(&mut self, why: Option<String>) {
        if self.state.ending.replace(Ending::Stopped) == Some(Ending::Stopped) {
            return;
        }
        self.write(JournalEntry::StopRequested { why });
        self.end_early();
    }

    fn on_limit(&mut self, limit: String) {
        if self.state.ending.is_some() {
            return;
        }
        self.state.ending = Some(Ending::Failed(format!("it reached its limit of {limit}")));
        self.write(JournalEntry::Limit { what: limit });
        self.end_early();
    }

    fn on_sandbox_limit(&mut self, limit: ExceededLimit) {
        if self.state.ending.is_some() {
            return;
        }
        let sentence = limit.sentence(self.state.record.id.as_str());
        self.state.ending = Some(Ending::Failed(sentence));
        self.write(JournalEntry::Limit { what: limit.to_string() });
        self.end_early();
    }

    /// Ends a run that has a reason to end, from any phase.
    fn end_early(&mut self) {
        match self.state.summary.phase {
            Phase::Checking => {
                self.actions.push(SupervisorAction::CancelChecks);
                self.end_if_asked();
            }
            Phase::Working | Phase::Waiting { .. } | Phase::Parked { .. }
                if self.state.summary.in_turn =>
            {
                let open_requests: Vec<u32> =
                    self.state.summary.open_requests.keys().copied().collect();
                for n in open_requests {
                    let reason = Some("the session is ending".to_owned());
                    self.answer(n, Decision { allow: false, always: false, reason });
                }
                self.actions.push(SupervisorAction::Cancel);
            }
            Phase::Starting | Phase::Parked { .. } if self.state.agent == AgentStatus::Starting => {
                self.actions.push(SupervisorAction::Cancel);
            }
            // Nothing else happens that would see the reason.
            Phase::Parked { .. } if !self.state.importing => self.end_if_asked(),
            // The next input (worktree, agent, import) sees the reason and ends the run. Only the
            // worktree and its setup may take long.
            Phase::Starting => self.actions.push(SupervisorAction::CancelSetup),
            Phase::Queued
            | Phase::Working
            | Phase::Waiting { .. }
            | Phase::Parked { .. }
            | Phase::Ended { .. } => {}
        }
    }

    /// Ends a run that has a reason to end.
    fn end_if_asked(&mut self) {
        if let Some(ending) = self.state.ending.take() {
            self.end_with(ending);
        }
    }

    fn end_with(&mut self, ending: Ending) {
        self.finish(match ending {
            Ending::Stopped => SessionOutcome::Stopped,
            Ending::Failed(error) => SessionOutcome::Failed { why: error },
        });
    }

    fn finish(&mut self, outcome: SessionOutcome) {
        let outcome = match (self.state.ending.take(), outcome) {
            (Some(Ending::Stopped), SessionOutcome::Failed { why }) => {
                self.write(JournalEntry::Note { text: why });
                SessionOutcome::Stopped
            }
            (_, outcome) => outcome,
        };
        self.write(JournalEntry::Exit { outcome, ms: None });
        self.actions.push(SupervisorAction::Finish);
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
