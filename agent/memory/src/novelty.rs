//! Whether a turn found anything out: files that were read and commands that were run which were
//! not before.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    /// The user said something: what follows is a new turn.
    pub fn begin_turn(&self) {
        let mut state = self.state();
        (state.fresh, state.remembered) = (false, false);
    }

    /// A file was read, or a command run.
    pub fn saw(&self, what: Option<String>) {
        let Some(what) = what else { return };
        let mut state = self.state();
        state.fresh |= state.known.insert(what);
    }

    /// Notes were taken.
    pub fn remembered(&self) {
        self.state().remembered = true;
    }

    /// Whether this turn saw something new and nobody noted anything.
    pub fn wants_a_note(&self) -> bool {
        let state = self.state();
        state.fresh && !state.remembered
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_and_not_noted_wants_a_note() {
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
