//! Tracks whether a turn discovered anything: files and commands that were not read or run before.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

/// What a session has seen.
#[derive(Debug, Default)]
pub struct NoveltyFilter {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: HashSet<String>,
    has_new: bool,
    notes_taken: bool,
}

impl NoveltyFilter {
    /// Starts a new user turn.
    pub fn begin_turn(&self) {
        let mut state = self.state();
        (state.has_new, state.notes_taken) = (false, false);
    }

    /// Records that a file was read, or a command run.
    pub fn add(&self, item: Option<String>) {
        let Some(item) = item else { return };
        let mut state = self.state();
        state.has_new |= state.known.insert(item);
    }

    /// Records that notes were taken.
    pub fn notes_taken(&self) {
        self.state().notes_taken = true;
    }

    /// Whether this turn discovered something and no notes were taken.
    pub fn should_take_note(&self) -> bool {
        let state = self.state();
        state.has_new && !state.notes_taken
    }

    fn state(&self) -> MutexGuard<'_, State> {
        base::sync::lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_discoveries_without_notes_want_a_note() {
        let learnt = NoveltyFilter::default();
        assert!(!learnt.should_take_note());
        learnt.add(Some("a.rs".into()));
        assert!(learnt.should_take_note());
        learnt.notes_taken();
        assert!(!learnt.should_take_note());
        learnt.begin_turn();
        learnt.add(Some("a.rs".into()));
        assert!(!learnt.should_take_note(), "it was read before");
        learnt.add(Some("b.rs".into()));
        assert!(learnt.should_take_note());
    }
}
