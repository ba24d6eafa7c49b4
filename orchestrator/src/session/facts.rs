//! What is known about a session: who holds its lock, what its journal tells, what became of it.

use std::collections::{BTreeMap, VecDeque};

use base::event::{Event, Usage, What};
use base::id::Id;
use serde::{Deserialize, Serialize};

use crate::session::coach::{self, Coach};
use crate::session::journal::{CheckResult, Entry, Line, Outcome, Work};

/// Everything from which the state of a session follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Whether somebody holds the session's lock.
    pub locked: bool,
    /// What the journal tells.
    pub story: Story,
    /// What the operations log says became of it.
    pub fate: Fate,
    /// The sessions that must have landed before it starts, and have not.
    pub holds: Vec<Hold>,
}

/// A session that another waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The session.
    pub id: Id,
    /// What became of it so far.
    pub fate: Fate,
}

/// What the operations log says became of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum Fate {
    /// Nothing so far, or it was undone.
    #[default]
    Open,
    /// A landing was begun and has no outcome yet.
    Landing,
    /// It was landed.
    Accepted {
        /// The operation, for `studio undo`.
        operation: String,
        /// The commit on the target.
        commit: Option<String>,
    },
    /// It was dropped.
    Discarded {
        /// The operation, for `studio undo`.
        operation: String,
    },
}

impl Fate {
    /// The operation that ended the session.
    pub fn operation(&self) -> Option<&str> {
        match self {
            Fate::Accepted { operation, .. } | Fate::Discarded { operation } => Some(operation),
            Fate::Open | Fate::Landing => None,
        }
    }
}

/// Where the journal stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// It waits for a free place.
    #[default]
    Queued,
    /// A supervisor makes the worktree and starts the agent.
    Starting,
    /// The agent works.
    Working,
    /// The agent waits for something.
    Waiting {
        /// For what.
        reason: String,
    },
    /// The checks run.
    Checking,
    /// The run ended.
    Ended {
        /// How.
        outcome: Outcome,
    },
}

/// Why the work of a session whose run ended well counts as unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unchecked {
    /// Its agent changed nothing, and somebody changed the worktree since.
    ChangedByHand,
    /// It has other checks than those that passed.
    OtherChecks,
}

/// A journal, read once and summed up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Story {
    /// Where it stands.
    pub phase: Phase,
    /// Prompts that the agent has not been given yet; `None` is the task.
    pub pending: VecDeque<Option<String>>,
    /// Turns so far.
    pub turns: u32,
    /// Whether the turn with that number is still open.
    pub in_turn: bool,
    /// The name of the agent's conversation.
    pub talk: Option<String>,
    /// Requests without an answer.
    pub asks: BTreeMap<u32, String>,
    /// The number of the last request.
    pub last_ask: u32,
    /// Replies of models that the agent told of.
    pub replies: u32,
    /// What its coach said, where it has one.
    pub coach: Option<Coach>,
    /// What was used, all turns together.
    pub usage: Option<Usage>,
    /// What the agent said last.
    pub last_words: Option<String>,
    /// What the session holds.
    pub work: Option<Work>,
    /// How the checks went; absent before they ran.
    pub checks: Option<Vec<CheckResult>>,
    /// Whether they ran on what the last turn left.
    pub is_checked: bool,
    /// The commands that must pass, where the user has changed them.
    pub commands: Option<Vec<String>>,
    /// Why the work of an ended session counts as unchecked.
    pub unchecked: Option<Unchecked>,
    /// The last note.
    pub note: Option<String>,
    /// The time of the last line, RFC 3339.
    pub updated_at: Option<String>,
    /// Whether the worktree was made.
    pub has_worktree: bool,
}

impl Story {
    /// Reads lines in order.
    pub fn of<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Story {
        let mut story = Story::default();
        for line in lines {
            story.hear(line);
        }
        story
    }

    /// Takes one more line into account.
    pub fn hear(&mut self, line: &Line) {
        self.updated_at = Some(line.time.clone());
        self.hear_entry(&line.entry);
    }

    /// Takes one more entry into account.
    pub fn hear_entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Queued { prompt } => {
                self.phase = Phase::Queued;
                if prompt.is_some() || self.pending.is_empty() {
                    self.pending.push_back(prompt.clone());
                }
            }
            Entry::Spawned { .. } => {
                self.phase = Phase::Starting;
                self.in_turn = false;
                self.unchecked = None;
                self.asks.clear();
            }
            Entry::Worktree => self.has_worktree = true,
            Entry::Agent { talk } => {
                self.talk = talk.clone().or(self.talk.take());
            }
            Entry::Turn { n, .. } => {
                self.pending.pop_front();
                self.turns = *n;
                self.in_turn = true;
                self.is_checked = false;
                self.phase = Phase::Working;
            }
            Entry::Event { event } => self.hear_event(event),
            Entry::Asked { n, what } => {
                self.asks.insert(*n, what.clone());
                self.last_ask = *n;
                self.wait_or_work();
            }
            Entry::Answered { n, .. } => {
                self.asks.remove(n);
                self.wait_or_work();
            }
            Entry::Sent { text } => self.pending.push_back(Some(text.clone())),
            Entry::TurnEnd { .. } => {
                self.in_turn = false;
                self.asks.clear();
                self.phase = Phase::Working;
            }
            Entry::Work(work) => {
                self.coach.iter_mut().for_each(|coach| coach.brought(work));
                self.work = Some(work.clone());
                if self.phase == (Phase::Ended { outcome: Outcome::Empty }) {
                    self.unchecked = work.is_changed().then_some(Unchecked::ChangedByHand);
                }
            }
            Entry::Checking => self.phase = Phase::Checking,
            Entry::Checked { results } => {
                self.coach.iter_mut().for_each(|coach| coach.checked(results));
                self.checks = Some(results.clone());
                self.is_checked = true;
                self.unchecked = None;
            }
            Entry::Checks { commands } => {
                let has_passed = |command: &String| {
                    let mut results = self.checks.iter().flatten();
                    results.any(|result| result.ok && result.command == *command)
                };
                if self.phase == (Phase::Ended { outcome: Outcome::Ready }) {
                    let all = commands.iter().all(has_passed);
                    self.unchecked = (!all).then_some(Unchecked::OtherChecks);
                }
                self.commands = Some(commands.clone());
            }
            Entry::StopRequested | Entry::Limit { .. } => {}
            Entry::Note { text } => self.note = Some(text.clone()),
            Entry::Exit { outcome } => {
                self.phase = Phase::Ended { outcome: outcome.clone() };
                self.asks.clear();
            }
        }
    }

    /// The check that ended the run, where a red check did.
    pub fn red_check(&self) -> Option<&CheckResult> {
        let failed = matches!(self.phase, Phase::Ended { outcome: Outcome::Failed { .. } });
        let red = self.checks.iter().flatten().find(|result| !result.ok);
        red.filter(|_| failed && self.is_checked)
    }

    /// Whether the verdict of its coach is of what the session holds now.
    pub fn is_judged_now(&self) -> bool {
        let now = self.work.as_ref().filter(|_| !self.in_turn).map(Work::commit);
        let of_now = |coach: &Coach| match &coach.of {
            Some(_) => now.is_some_and(|now| coach.is_of(now)),
            // The turn in which it was given goes on.
            None => !coach.played_on,
        };
        self.coach.as_ref().is_some_and(of_now)
    }

    /// Replies of models, as far as they are known.
    pub fn replies(&self) -> Option<u32> {
        let told = self.coach.as_ref().map_or(0, |coach| coach.cost().turns);
        Some(self.replies.max(told)).filter(|replies| *replies > 0)
    }

    fn wait_or_work(&mut self) {
        self.phase = match self.asks.iter().next() {
            Some((n, what)) => Phase::Waiting { reason: format!("permission {n}: {what}") },
            None => Phase::Working,
        };
    }

    fn hear_event(&mut self, event: &serde_json::Value) {
        let Ok(event) = serde_json::from_value::<Event>(event.clone()) else { return };
        if let Phase::Waiting { .. } = self.phase
            && self.asks.is_empty()
        {
            self.phase = Phase::Working;
        }
        match event.what {
            What::Text { text } if !text.trim().is_empty() => self.last_words = Some(text),
            What::Usage { usage } => {
                self.usage = Some(self.usage.unwrap_or_default().plus(usage));
            }
            What::Retry { why, .. } => {
                self.phase = Phase::Waiting { reason: format!("it tries again: {why}") };
            }
            What::Error { text, .. } => self.last_words = Some(text),
            What::Turn { .. } => self.replies += 1,
            What::Plan { plan } => coach::hear(&mut self.coach, &plan),
            What::Start { .. }
            | What::Text { .. }
            | What::Reasoning { .. }
            | What::ToolStart { .. }
            | What::ToolOutput { .. }
            | What::ToolEnd { .. }
            | What::Context { .. }
            | What::Todo { .. }
            | What::Thinned { .. }
            | What::Compacted { .. }
            | What::Notice { .. }
            | What::Ask { .. }
            | What::End { .. } => {}
        }
    }
}
