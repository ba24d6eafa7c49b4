//! What a supervisor does next. Asks nobody, touches nothing: `run` carries out the `Do`s.

use base::event::{Event, What};
use base::text::GO_ON;
use serde_json::Value;

use crate::session::facts::{Phase, Story};
use crate::session::journal::{CheckResult, Entry, Outcome, Work};
use crate::session::record::Record;

/// One supervised run of a session.
#[derive(Clone, Debug)]
pub struct Life {
    /// What the journal tells so far, this run included.
    pub story: Story,
    record: Record,
    ending: Option<Ending>,
    agent: Presence,
    model_turns: u32,
}

/// Why the run is being ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ending {
    Stopped,
    Failed(String),
}

/// How far the agent's process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Absent,
    Starting,
    There,
}

/// What a supervisor hears.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // a variant's sentence speaks of its fields
pub enum Input {
    /// The run begins, in a process with this id.
    Begin { pid: u32 },
    /// The worktree stands and is prepared; `note` is what a person should know.
    WorktreeStands { note: Option<String> },
    /// The agent runs; `loaded` tells whether it knows the conversation so far.
    Launched { talk: Option<String>, loaded: bool },
    /// The worktree or the agent could not be had.
    CannotStart { why: String },
    /// The agent tells something, in g3's wire form.
    Event { event: Value },
    /// The agent asks whether it may do something.
    Asked { what: String },
    /// The agent ended its turn; `why` says what went wrong.
    TurnEnded { why: Option<String> },
    /// The agent's process ended by itself.
    AgentGone { why: String },
    /// The session's work was brought home.
    Imported { work: Work },
    /// The session's work cannot be brought home.
    CannotImport { why: String },
    /// The checks ran.
    Checked { results: Vec<CheckResult> },
    /// Somebody says something to the agent.
    Send { text: String },
    /// Somebody decided a request.
    Answer { n: u32, allow: bool },
    /// Somebody wants the session to end.
    Stop,
    /// A limit was reached.
    Limit { what: String },
}

/// What a supervisor does.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // a variant's sentence speaks of its fields
pub enum Do {
    /// Append to the journal.
    Write(Entry),
    /// Make or find the worktree and prepare it.
    MakeWorktree,
    /// Start the agent; `talk` is the conversation to go on with.
    Launch { talk: Option<String> },
    /// Give the agent something to do; `recap` asks for the diff so far to be added.
    Prompt { text: String, recap: bool },
    /// Hand the decision of request `n` to the agent.
    Answer { n: u32, allow: bool },
    /// Ask the agent to end its turn, and end it after a grace.
    Cancel,
    /// Bring the session's work home.
    Import,
    /// Run the checks.
    Check,
    /// End the checks.
    AbandonChecks,
    /// End everything.
    Finish,
}

/// One step: news in, deeds out.
pub fn step(life: &mut Life, input: Input) -> Vec<Do> {
    if let Phase::Ended { .. } = life.story.phase {
        return Vec::new();
    }
    let mut todo = Deeds { life, list: Vec::new() };
    match input {
        Input::Begin { pid } => todo.begin(pid),
        Input::WorktreeStands { note } => todo.worktree_stands(note),
        Input::Launched { talk, loaded } => todo.launched(talk, loaded),
        Input::CannotStart { why } => todo.finish(Outcome::Failed { why }),
        Input::Event { event } => todo.event(event),
        Input::Asked { what } => todo.asked(what),
        Input::TurnEnded { why } => todo.turn_ended(why),
        Input::AgentGone { why } => todo.agent_gone(why),
        Input::Imported { work } => todo.imported(work),
        Input::CannotImport { why } => todo.cannot_import(why),
        Input::Checked { results } => todo.checked(results),
        Input::Send { text } => todo.write(Entry::Sent { text }),
        Input::Answer { n, allow } => todo.answer(n, allow, "user"),
        Input::Stop => todo.stop(),
        Input::Limit { what } => todo.limit(what),
    }
    todo.list
}

impl Life {
    /// A run of a session whose journal tells `story` so far.
    pub fn new(record: Record, story: Story) -> Life {
        Life { story, record, ending: None, agent: Presence::Absent, model_turns: 0 }
    }

    /// The limit that is reached, in words.
    fn over_limit(&self) -> Option<String> {
        let limits = &self.record.limits;
        let usage = self.story.usage.unwrap_or_default();
        let tokens = usage.input + usage.output + usage.cache_read + usage.cache_write;
        if let Some(most) = limits.turns.filter(|most| self.model_turns > *most) {
            return Some(format!("{most} turns"));
        }
        if let Some(most) = limits.tokens.filter(|most| tokens > *most) {
            return Some(format!("{most} tokens"));
        }
        let cost = usage.cost_usd.unwrap_or(0.0);
        limits.usd.filter(|most| cost > *most).map(|most| format!("a budget of ${most}"))
    }

    /// What the agent is told next, and whether it needs the story so far.
    fn next_prompt(&self, loaded: bool) -> (String, bool) {
        let said = self.story.pending.front().cloned().flatten();
        // Whoever works under requirements and never answered may not have got its task either.
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

    /// The story so far for an agent that cannot load its conversation.
    fn recap(&self, said: &str) -> String {
        let words = self.story.last_words.as_deref().unwrap_or("(nothing)");
        let words = base::text::tail(words, 4000);
        format!(
            "You were working on this task in this directory and were interrupted:\n\n{}\n\n\
             Your last words were:\n\n{words}\n\nYour changes so far are in the directory. {said}",
            self.record.task
        )
    }
}

/// The deeds of one step, and the life that they change.
struct Deeds<'a> {
    life: &'a mut Life,
    list: Vec<Do>,
}

impl Deeds<'_> {
    fn write(&mut self, entry: Entry) {
        self.life.story.hear_entry(&entry);
        self.list.push(Do::Write(entry));
    }

    fn begin(&mut self, pid: u32) {
        self.write(Entry::Spawned { pid });
        self.list.push(Do::MakeWorktree);
    }

    fn worktree_stands(&mut self, note: Option<String>) {
        if let Some(text) = note {
            self.write(Entry::Note { text });
        }
        self.launch();
    }

    fn launch(&mut self) {
        if !self.life.story.has_worktree {
            self.write(Entry::Worktree);
        }
        if let Some(ending) = self.life.ending.take() {
            return self.end_with(ending);
        }
        self.life.agent = Presence::Starting;
        self.list.push(Do::Launch { talk: self.life.story.talk.clone() });
    }

    fn launched(&mut self, talk: Option<String>, loaded: bool) {
        self.life.agent = Presence::There;
        self.write(Entry::Agent { talk });
        if let Some(ending) = self.life.ending.take() {
            return self.end_with(ending);
        }
        self.prompt(loaded);
    }

    fn prompt(&mut self, loaded: bool) {
        if self.life.agent == Presence::Absent {
            return self.launch();
        }
        let (text, recap) = self.life.next_prompt(loaded);
        let n = self.life.story.turns + 1;
        self.write(Entry::Turn { n, text: text.clone() });
        self.list.push(Do::Prompt { text, recap });
    }

    fn event(&mut self, event: Value) {
        if let Ok(Event { what: What::Turn { .. }, .. }) = serde_json::from_value(event.clone()) {
            self.life.model_turns += 1;
        }
        self.write(Entry::Event { event });
        if let (None, Some(what)) = (&self.life.ending, self.life.over_limit()) {
            self.limit(what);
        }
    }

    fn asked(&mut self, what: String) {
        let n = self.life.story.last_ask + 1;
        self.write(Entry::Asked { n, what });
        if !self.life.record.manner.attended || self.life.ending.is_some() {
            self.answer(n, false, "nobody");
        }
    }

    fn answer(&mut self, n: u32, allow: bool, by: &str) {
        if self.life.story.asks.contains_key(&n) {
            self.write(Entry::Answered { n, allow, by: by.to_owned() });
            self.list.push(Do::Answer { n, allow });
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
        self.write(Entry::TurnEnd { n, why });
        self.list.push(Do::Import);
    }

    fn agent_gone(&mut self, why: String) {
        let before = std::mem::replace(&mut self.life.agent, Presence::Absent);
        if self.life.story.in_turn {
            self.turn_ended(Some(why));
        } else if before == Presence::Starting {
            self.finish(Outcome::Failed { why });
        }
    }

    fn imported(&mut self, work: Work) {
        let changed = work.commits > 0 || work.files_changed > 0;
        self.write(Entry::Work(work));
        if let Some(ending) = self.life.ending.take() {
            return self.end_with(ending);
        }
        if !self.life.story.pending.is_empty() {
            return self.prompt(true);
        }
        if !changed {
            return self.finish(Outcome::Empty);
        }
        if self.life.record.checks.is_empty() {
            self.write(Entry::Checked { results: Vec::new() });
            return self.finish(Outcome::Ready);
        }
        self.write(Entry::Checking);
        self.list.push(Do::Check);
    }

    fn cannot_import(&mut self, why: String) {
        match self.life.ending.take() {
            Some(Ending::Stopped) => {
                self.write(Entry::Note { text: why });
                self.finish(Outcome::Stopped);
            }
            Some(Ending::Failed(_)) | None => self.finish(Outcome::Failed { why }),
        }
    }

    fn checked(&mut self, results: Vec<CheckResult>) {
        if self.life.story.phase != Phase::Checking {
            return;
        }
        let failed = results.iter().find(|result| !result.ok).cloned();
        self.write(Entry::Checked { results });
        if let Some(ending) = self.life.ending.take() {
            return self.end_with(ending);
        }
        if !self.life.story.pending.is_empty() {
            return self.prompt(true);
        }
        match failed {
            None => self.finish(Outcome::Ready),
            Some(check) => self.finish(Outcome::Failed { why: check.failure() }),
        }
    }

    fn stop(&mut self) {
        if self.life.ending.replace(Ending::Stopped) == Some(Ending::Stopped) {
            return;
        }
        self.write(Entry::StopRequested);
        self.wind_down();
    }

    fn limit(&mut self, what: String) {
        if self.life.ending.is_some() {
            return;
        }
        self.life.ending = Some(Ending::Failed(format!("it reached its limit of {what}")));
        self.write(Entry::Limit { what });
        self.wind_down();
    }

    /// Leads a run that is to end towards its end, from wherever it is.
    fn wind_down(&mut self) {
        match self.life.story.phase {
            Phase::Checking => {
                self.list.push(Do::AbandonChecks);
                if let Some(ending) = self.life.ending.take() {
                    self.end_with(ending);
                }
            }
            Phase::Working | Phase::Waiting { .. } if self.life.story.in_turn => {
                let open: Vec<u32> = self.life.story.asks.keys().copied().collect();
                for n in open {
                    self.answer(n, false, "nobody");
                }
                self.list.push(Do::Cancel);
            }
            Phase::Starting if self.life.agent == Presence::Starting => {
                self.list.push(Do::Cancel);
            }
            // The next piece of news (worktree, agent, import) finds the ending and ends the run.
            Phase::Queued
            | Phase::Starting
            | Phase::Working
            | Phase::Waiting { .. }
            | Phase::Ended { .. } => {}
        }
    }

    fn end_with(&mut self, ending: Ending) {
        self.finish(match ending {
            Ending::Stopped => Outcome::Stopped,
            Ending::Failed(why) => Outcome::Failed { why },
        });
    }

    fn finish(&mut self, outcome: Outcome) {
        let outcome = match (self.life.ending.take(), outcome) {
            (Some(Ending::Stopped), Outcome::Failed { why }) => {
                self.write(Entry::Note { text: why });
                Outcome::Stopped
            }
            (_, outcome) => outcome,
        };
        self.write(Entry::Exit { outcome });
        self.list.push(Do::Finish);
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
