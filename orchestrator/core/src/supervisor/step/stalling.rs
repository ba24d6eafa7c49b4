//! Agents that are stuck: the user is told, and a message of the user cancels the turn.

use crate::session::journal::JournalEntry;
use crate::supervisor::step::{RunState, StepActions, SupervisorAction};

impl RunState {
    /// Returns whether the agent is expected to send events.
    pub(crate) fn expects_events(&self) -> bool {
        let summary = &self.summary;
        let waits = summary.is_parked() || !summary.open_requests.is_empty();
        summary.in_turn && !waits && summary.stalled.is_none() && self.ending.is_none()
    }

    /// Returns whether the agent counts as stuck.
    pub(crate) fn is_stalled(&self) -> bool {
        self.summary.stalled.is_some()
    }
}

impl StepActions<'_> {
    pub(super) fn on_stalled(&mut self, why: String) {
        if !self.state.expects_events() {
            return;
        }
        let reason = format!("stalled: {why}");
        self.write(JournalEntry::Stalled { why });
        self.actions.push(SupervisorAction::NotifyRequest { reason });
    }

    pub(super) fn on_stall_ended(&mut self) {
        if self.state.is_stalled() {
            self.write(JournalEntry::StallEnded);
        }
    }

    /// A message waits for the end of the turn, which a stuck agent does not reach.
    pub(super) fn on_send(&mut self, text: String) {
        self.write(JournalEntry::Sent { text });
        if self.state.is_stalled() && self.state.summary.in_turn && self.state.ending.is_none() {
            self.state.redirected = true;
            self.actions.push(SupervisorAction::Cancel);
        }
    }
}
