//! Sessions whose account is rate limited: the turn is cancelled, and continues after the limit.

use crate::session::journal::JournalEntry;
use crate::session::summary::Phase;
use crate::supervisor::step::{AgentStatus, RunState, StepActions, SupervisorAction};

impl RunState {
    /// Returns whether the session waits for the end of a rate limit, and nothing else.
    pub(crate) fn is_parked(&self) -> bool {
        self.summary.is_parked()
    }
}

impl StepActions<'_> {
    /// Parks the session. A session that waits for the user, or runs its checks, asks no model.
    pub(super) fn on_rate_limited(&mut self, until: String, why: String, ended_turn: bool) {
        let is_asking = match &self.state.summary.phase {
            Phase::Starting => self.state.agent == AgentStatus::Starting,
            Phase::Working | Phase::Waiting { .. } => {
                self.state.summary.in_turn && self.state.summary.open_requests.is_empty()
            }
            Phase::Parked { until: previous, .. } => *previous != until,
            Phase::Queued | Phase::Checking | Phase::Ended { .. } => false,
        };
        if !is_asking || self.state.ending.is_some() {
            return;
        }
        self.state.limit_ended = false;
        let is_new = !self.state.summary.is_parked();
        self.write(JournalEntry::Parked { until, why });
        if is_new && self.state.summary.in_turn && !ended_turn {
            self.actions.push(SupervisorAction::Cancel);
        }
    }

    /// Continues a parked session, or as soon as its cancelled turn has ended.
    pub(super) fn on_rate_limit_ended(&mut self) {
        if !self.state.summary.is_parked() {
            return;
        }
        self.state.limit_ended = true;
        if !self.state.summary.in_turn && !self.state.importing {
            self.continue_if_limit_ended();
        }
    }

    pub(super) fn continue_if_limit_ended(&mut self) {
        if !std::mem::take(&mut self.state.limit_ended) {
            return;
        }
        self.write(JournalEntry::Unparked);
        // The first prompt follows the start of the agent.
        if self.state.agent != AgentStatus::Starting {
            let loaded = self.state.unprompted.take();
            self.prompt(loaded.unwrap_or_else(|| self.state.remembers()));
        }
    }
}
