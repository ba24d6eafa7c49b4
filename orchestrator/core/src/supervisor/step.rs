//! Decides the next actions of a supervisor. A pure state machine: `run` carries out the
//! [`SupervisorAction`]s.

use base::event::Usage;
use base::text::{GO_ON, count};
use serde_json::Value;

use crate::launch::Decision;
use crate::session::journal::{CheckResult, JournalEntry, SessionOutcome, WorkSummary};
use crate::session::record::{RunLimits, SessionRecord};
use crate::session::summary::{JournalSummary, Phase};

/// The state of one supervised run.
#[derive(Clone, Debug)]
pub(crate) struct RunState {
    /// The summary of the journal, including this run.
    pub story: JournalSummary,
    record: SessionRecord,
    ending: Option<Ending>,
    agent: AgentStatus,
    memory: ConversationMemory,
}

/// What a running agent knows of earlier turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConversationMemory {
    /// The whole conversation: one process serves all turns.
    Keeps,
    /// Nothing: each turn is a separate process.
    Forgets,
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
    There,
}

/// An input of the state machine.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each variant documents its fields
pub(crate) enum Input {
    /// The run starts, in a process with this id.
    Begin { pid: u32 },
    /// The worktree is prepared; `note` is a note for the user.
    WorktreeStands { note: Option<String> },
    /// The agent is running; `loaded` is whether it has loaded the conversation so far.
    Launched { talk: Option<String>, loaded: bool },
    /// The worktree or the agent could not be started.
    CannotStart { why: String },
    /// The agent sent an event in g3's wire format.
    Event { event: Value },
    /// The agent requests a permission.
    Asked(PermissionAsk),
    /// The agent ended its turn; `why` is the error, if any.
    TurnEnded { why: Option<String> },
    /// The agent's process exited.
    AgentGone { why: String },
    /// The session's work was collected.
    Imported { work: WorkSummary },
    /// The session's work could not be collected.
    CannotImport { why: String },
    /// The checks have run.
    Checked { results: Vec<CheckResult> },
    /// The user sent a message to the agent.
    Send { text: String },
    /// The user answered a request; `always` also answers further ones of its kind.
    Answer { n: u32, allow: bool, always: bool },
    /// The session was asked to stop.
    Stop,
    /// A limit was reached.
    Limit { what: String },
}

/// A permission request at the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PermissionAsk {
    /// Its number, unique in the session.
    pub n: u32,
    /// The agent's description.
    pub what: String,
    /// The kind: the same for all requests that `always` covers.
    pub rule: String,
    /// Why allowing it would have no effect, and which configuration line would.
    pub futile: Option<String>,
}

/// An action of the supervisor.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each variant documents its fields
pub(crate) enum SupervisorAction {
    /// Append to the journal.
    Write(JournalEntry),
    /// Create or find the worktree and prepare it.
    MakeWorktree,
    /// Start the agent; `talk` is the conversation to continue.
    Launch { talk: Option<String> },
    /// Send a prompt to the agent; `recap` asks to append the diff so far.
    Prompt { text: String, recap: bool },
    /// Send the decision on request `n` to the agent.
    Answer { n: u32, decision: Decision },
    /// Ask the agent to end its turn, and kill it after a grace period.
    Cancel,
    /// Collect the session's work.
    Import,
    /// Run the checks.
    Check,
    /// Cancel the checks.
    AbandonChecks,
    /// End everything.
    Finish,
}

/// Processes one input and returns the actions.
pub(crate) fn step(life: &mut RunState, input: Input) -> Vec<SupervisorAction> {
    if let Phase::Ended { .. } = life.story.phase {
        return Vec::new();
    }
    let mut todo = StepActions { life, list: Vec::new() };
    match input {
        Input::Begin { pid } => todo.begin(pid),
        Input::WorktreeStands { note } => todo.worktree_stands(note),
        Input::Launched { talk, loaded } => todo.launched(talk, loaded),
        Input::CannotStart { why } => todo.finish(SessionOutcome::Failed { why }),
        Input::Event { event } => todo.event(event),
        Input::Asked(asked) => todo.asked(asked),
        Input::TurnEnded { why } => todo.turn_ended(why),
        Input::AgentGone { why } => todo.agent_gone(why),
        Input::Imported { work } => todo.imported(work),
        Input::CannotImport { why } => todo.cannot_import(why),
        Input::Checked { results } => todo.checked(results),
        Input::Send { text } => todo.write(JournalEntry::Sent { text }),
        Input::Answer { n, allow, always } => {
            todo.answer(n, Decision { allow, always, why: None });
        }
        Input::Stop => todo.stop(),
        Input::Limit { what } => todo.limit(what),
    }
    todo.list
}

impl RunState {
    /// Creates the state for a run of a session with this journal summary.
    pub(crate) fn new(
        record: SessionRecord,
        story: JournalSummary,
        memory: ConversationMemory,
    ) -> RunState {
        RunState { story, record, ending: None, agent: AgentStatus::Absent, memory }
    }

    /// Returns the limits that apply now.
    pub(crate) fn limits(&self) -> RunLimits {
        self.story.limits.or(self.record.limits)
    }

    /// Returns the exceeded limit, in words.
    fn over_limit(&self) -> Option<String> {
        over_limit(&self.limits(), &self.story).map(|reached| reached.what)
    }

    /// Returns whether permission requests wait for the user.
    fn is_attended(&self) -> bool {
        self.story.attended.unwrap_or(self.record.manner.attended)
    }

    /// Returns the next prompt for the agent, and whether it needs a recap.
    fn next_prompt(&self, loaded: bool) -> (String, bool) {
        let said = self.story.pending.front().cloned().flatten();
        // An agent with requirements that never replied may not have received its task.
        let unheard = self.record.part.contract.is_some() && self.story.usage.is_none();
        let fresh = self.story.turns == 0 || unheard;
        let task = &self.record.task;
        match (fresh, loaded, said) {
            (true, _, None) => (task.clone(), false),
            (true, _, Some(said)) => (format!("{task}\n\n{said}"), false),
            (false, true, said) => (said.unwrap_or_else(|| GO_ON.to_owned()), false),
            (false, false, said) => (self.recap(said.as_deref().unwrap_or(GO_ON)), true),
        }
    }

    /// Returns a recap for an agent that cannot load its conversation.
    fn recap(&self, said: &str) -> String {
        let words = self.story.last_words.as_deref().unwrap_or("(nothing)");
        let words = base::text::tail(words, 4000);
        let before = match self.story.interrupted {
            true => "You were working on this task in this directory and were interrupted:",
            false => "You have worked on this task in this directory:",
        };
        format!(
            "{before}\n\n{}\n\nYour last words were:\n\n{words}\n\nYour changes so far are in the \
             directory. {said}",
            self.record.task
        )
    }
}

/// A limit that a session exceeded, over all its runs together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachedLimit {
    /// The limit, in words.
    pub what: String,
    /// The flag that raises it.
    pub flag: &'static str,
}

/// Returns the limit that a session has exceeded. The time limit is watched by the supervisor
/// itself.
fn over_limit(limits: &RunLimits, story: &JournalSummary) -> Option<ReachedLimit> {
    let usage = story.usage.unwrap_or_default();
    let turns = limits.turns.filter(|most| story.replies > *most);
    let tokens = limits.tokens.filter(|most| usage.tokens() > *most);
    let spent = usage.cost_usd.unwrap_or(0.0);
    let usd = limits.usd.filter(|most| !usage.is_cost_known() || spent > *most);
    turns.map(of_turns).or(tokens.map(of_tokens)).or(usd.map(|most| of_money(most, &usage)))
}

/// Returns the limit that leaves nothing for another turn.
pub fn used_up(limits: &RunLimits, story: &JournalSummary) -> Option<ReachedLimit> {
    let usage = story.usage.unwrap_or_default();
    let turns = limits.turns.filter(|most| story.replies >= *most);
    let tokens = limits.tokens.filter(|most| usage.tokens() >= *most);
    let spent = usage.cost_usd.unwrap_or(0.0);
    let usd = limits.usd.filter(|most| !usage.is_cost_known() || (spent > 0.0 && spent >= *most));
    let seconds = limits.seconds.filter(|most| story.worked_ms / 1000 >= *most);
    let of_time = |most| ReachedLimit { what: count(most, "second"), flag: "--timeout SECONDS" };
    let others = tokens.map(of_tokens).or(usd.map(|most| of_money(most, &usage)));
    turns.map(of_turns).or(others).or(seconds.map(of_time))
}

fn of_turns(most: u32) -> ReachedLimit {
    ReachedLimit { what: count(u64::from(most), "turn"), flag: "--max-turns N" }
}

fn of_tokens(most: u64) -> ReachedLimit {
    ReachedLimit { what: count(most, "token"), flag: "--max-tokens N" }
}

fn of_money(most: f64, usage: &Usage) -> ReachedLimit {
    let unknown = match !usage.is_cost_known() {
        true => {
            ": the price of a model that it asked is not known (`[[models]] name = \"NAME\", price \
             = { input = USD, output = USD }` in ~/.config/g3/config.toml sets it)"
        }
        false => "",
    };
    ReachedLimit { what: format!("a budget of ${most}{unknown}"), flag: "--budget USD" }
}

/// The actions of one step, and the state that they change.
struct StepActions<'a> {
    life: &'a mut RunState,
    list: Vec<SupervisorAction>,
}

impl StepActions<'_> {
    fn write(&mut self, entry: JournalEntry) {
        self.life.story.hear_entry(&entry);
        self.list.push(SupervisorAction::Write(entry));
    }

    fn begin(&mut self, pid: u32) {
        self.write(JournalEntry::Spawned { pid });
        self.list.push(SupervisorAction::MakeWorktree);
    }

    fn worktree_stands(&mut self, note: Option<String>) {
        if let Some(text) = note {
            self.write(JournalEntry::Note { text });
        }
        self.launch();
    }

    fn launch(&mut self) {
        if !self.life.story.has_worktree {
            self.write(JournalEntry::Worktree);
        }
        if let Some(ending) = self.life.ending.take() {
            return self.end_with(ending);
        }
        self.life.agent = AgentStatus::Starting;
        self.list.push(SupervisorAction::Launch { talk: self.life.story.talk.clone() });
    }

    fn launched(&mut self, talk: Option<String>, loaded: bool) {
        self.life.agent = AgentStatus::There;
        self.write(JournalEntry::Agent { talk });
        if let Some(ending) = self.life.ending.take() {
            return self.end_with(ending);
        }
        self.prompt(loaded);
    }

    fn prompt(&mut self, loaded: bool) {
        if self.life.agent == AgentStatus::Absent {
            return self.launch();
        }
        let (text, recap) = self.life.next_prompt(loaded);
        let n = self.life.story.turns + 1;
        self.write(JournalEntry::Turn { n, text: text.clone(), log_bytes: None });
        self.list.push(SupervisorAction::Prompt { text, recap });
    }

    fn event(&mut self, mut event: Value) {
        // Agents restart their numbers with each start; the session's numbers only increase.
        let Some(fields) = event.as_object_mut() else { return };
        fields.insert("seq".to_owned(), self.life.story.last_seq.saturating_add(1).into());
        self.write(JournalEntry::Event { event });
        if let (None, Some(what)) = (&self.life.ending, self.life.over_limit()) {
            self.limit(what);
        }
    }

    fn asked(&mut self, asked: PermissionAsk) {
        let PermissionAsk { n, what, rule, futile } = asked;
        let known = self.life.story.always.contains(&rule);
        self.write(JournalEntry::Asked { n, rule: Some(rule).filter(|rule| *rule != what), what });
        let id = &self.life.record.id;
        let denied = match futile {
            _ if self.life.ending.is_some() => Some("the session is ending".to_owned()),
            Some(why) => Some(why),
            None if known => None,
            None if !self.life.is_attended() => {
                let rule = self.life.story.asks.get(&n).map(|ask| ask.rule.as_str());
                let rule = rule.filter(|rule| rule.starts_with("[[gate.rules]]"));
                let rule = rule.map(|rule| {
                    format!("\nThis rule in ~/.config/g3/config.toml allows it:\n{rule}")
                });
                let rule = rule.unwrap_or_default();
                Some(format!(
                    "no terminal to ask on; `studio resume {id} --ask` keeps requests open{rule}"
                ))
            }
            None => return,
        };
        let allow = denied.is_none();
        self.answer(n, Decision { allow, always: allow, why: denied });
    }

    fn answer(&mut self, n: u32, decision: Decision) {
        let Some(ask) = self.life.story.asks.get(&n) else { return };
        let by = match &decision.why {
            None if !self.life.story.always.contains(&ask.rule) => "user",
            None | Some(_) => "studio",
        };
        let Decision { allow, always, ref why } = decision;
        // The end of a run is its own reason.
        let (by, why) = (by.to_owned(), why.clone().filter(|_| self.life.ending.is_none()));
        self.write(JournalEntry::Answered { n, allow, always, by, why });
        self.list.push(SupervisorAction::Answer { n, decision });
        // Open requests of the same kind are answered as well.
        let same = self
            .life
            .story
            .asks
            .iter()
            .find(|(_, ask)| allow && always && self.life.story.always.contains(&ask.rule));
        if let Some(n) = same.map(|(n, _)| *n) {
            self.answer(n, Decision { allow: true, always: true, why: None });
        }
    }

    fn turn_ended(&mut self, why: Option<String>) {
        if !self.life.story.in_turn {
            return;
        }
        if let (Some(why), None) = (&why, &self.life.ending) {
            self.life.ending = Some(Ending::Failed(why.clone()));
        }
        let n = self.life.story.turns;
        self.write(JournalEntry::TurnEnd { n, why });
        self.list.push(SupervisorAction::Import);
    }

    fn agent_gone(&mut self, why: String) {
        let before = std::mem::replace(&mut self.life.agent, AgentStatus::Absent);
        if self.life.story.in_turn {
            self.turn_ended(Some(why));
        } else if before == AgentStatus::Starting {
            self.finish(SessionOutcome::Failed { why });
        }
    }

    fn imported(&mut self, work: WorkSummary) {
        let changed = work.commits > 0 || work.files_changed > 0;
        self.write(JournalEntry::Work(work));
        if let Some(ending) = self.life.ending.take() {
            return self.end_with(ending);
        }
        if !self.life.story.pending.is_empty() {
            return self.prompt(self.life.memory == ConversationMemory::Keeps);
        }
        if !changed {
            return self.finish(SessionOutcome::Empty);
        }
        if self.life.record.checks.is_empty() {
            self.write(JournalEntry::Checked { results: Vec::new() });
            return self.finish(SessionOutcome::Ready);
        }
        self.write(JournalEntry::Checking);
        self.list.push(SupervisorAction::Check);
    }

    fn cannot_import(&mut self, why: String) {
        match self.life.ending.take() {
            Some(Ending::Stopped) => {
                self.write(JournalEntry::Note { text: why });
                self.finish(SessionOutcome::Stopped);
            }
            Some(Ending::Failed(_)) | None => self.finish(SessionOutcome::Failed { why }),
        }
    }

    fn checked(&mut self, results: Vec<CheckResult>) {
        if self.life.story.phase != Phase::Checking {
            return;
        }
        let failed = results.iter().find(|result| !result.ok).cloned();
        self.write(JournalEntry::Checked { results });
        if let Some(ending) = self.life.ending.take() {
            return self.end_with(ending);
        }
        if !self.life.story.pending.is_empty() {
            return self.prompt(self.life.memory == ConversationMemory::Keeps);
        }
        match failed {
            None => self.finish(SessionOutcome::Ready),
            Some(check) => self.finish(SessionOutcome::Failed { why: check.failure() }),
        }
    }

    fn stop(&mut self) {
        if self.life.ending.replace(Ending::Stopped) == Some(Ending::Stopped) {
            return;
        }
        self.write(JournalEntry::StopRequested);
        self.wind_down();
    }

    fn limit(&mut self, what: String) {
        if self.life.ending.is_some() {
            return;
        }
        self.life.ending = Some(Ending::Failed(format!("it reached its limit of {what}")));
        self.write(JournalEntry::Limit { what });
        self.wind_down();
    }

    /// Ends a run that has a reason to end, from any phase.
    fn wind_down(&mut self) {
        match self.life.story.phase {
            Phase::Checking => {
                self.list.push(SupervisorAction::AbandonChecks);
                if let Some(ending) = self.life.ending.take() {
                    self.end_with(ending);
                }
            }
            Phase::Working | Phase::Waiting { .. } if self.life.story.in_turn => {
                let open: Vec<u32> = self.life.story.asks.keys().copied().collect();
                for n in open {
                    let why = Some("the session is ending".to_owned());
                    self.answer(n, Decision { allow: false, always: false, why });
                }
                self.list.push(SupervisorAction::Cancel);
            }
            Phase::Starting if self.life.agent == AgentStatus::Starting => {
                self.list.push(SupervisorAction::Cancel);
            }
            // The next input (worktree, agent, import) sees the reason and ends the run.
            Phase::Queued
            | Phase::Starting
            | Phase::Working
            | Phase::Waiting { .. }
            | Phase::Ended { .. } => {}
        }
    }

    fn end_with(&mut self, ending: Ending) {
        self.finish(match ending {
            Ending::Stopped => SessionOutcome::Stopped,
            Ending::Failed(why) => SessionOutcome::Failed { why },
        });
    }

    fn finish(&mut self, outcome: SessionOutcome) {
        let outcome = match (self.life.ending.take(), outcome) {
            (Some(Ending::Stopped), SessionOutcome::Failed { why }) => {
                self.write(JournalEntry::Note { text: why });
                SessionOutcome::Stopped
            }
            (_, outcome) => outcome,
        };
        self.write(JournalEntry::Exit { outcome, ms: None });
        self.list.push(SupervisorAction::Finish);
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
