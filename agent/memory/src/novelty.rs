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
    fresh: bool,
    remembered: bool,
}

impl NoveltyFilter {
    /// Starts a new user turn.
    pub fn begin_turn(&self) {
        let mut state = self.state();
        (state.fresh, state.remembered) = (false, false);
    }

    /// Records that a file was read, or a command run.
    pub fn saw(&self, what: Option<String>) {
        let Some(what) = what else { return };
        let mut state = self.state();
        state.fresh |= state.known.insert(what);
    }

    /// Records that notes were taken.
    pub fn remembered(&self) {
        self.state().remembered = true;
    }

    /// Whether this turn discovered something and no notes were taken.
    pub fn wants_a_note(&self) -> bool {
        let state = self.state();
        state.fresh && !state.remembered
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
        assert!(!learnt.wants_a_note());
        learnt.saw(Some("a.rs".into()));
        assert!(learnt.wants_a_note());
        learnt.remembered();
        assert!(!learnt.wants_a_note());
        learnt.begin_turn();
        learnt.saw(Some("a.rs".into()));
        assert!(!learnt.wants_a_note(), "it was read before");
        learnt.saw(Some("b.rs".into()));
        assert!(learnt.wants_a_note());
    }
}
