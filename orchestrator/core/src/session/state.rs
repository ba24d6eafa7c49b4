//! The state of a session, which is a function of the facts and of nothing else.

use serde::{Deserialize, Serialize};

use crate::session::facts::{Denials, Facts, Fate, Hold, Phase, Story, Unchecked};
use crate::session::journal::Outcome;

/// The states of a session. The life of a session is the diagram of docs/architecture.md.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[allow(missing_docs)] // the names are the contract
pub enum State {
    Queued,
    Starting,
    Working,
    Waiting { reason: String },
    Checking,
    Ready,
    Failed { why: String },
    Empty,
    Stopped,
    Crashed,
    Landing,
    Accepted,
    Discarded,
}

/// What the facts say.
pub fn state(facts: &Facts) -> State {
    match &facts.fate {
        Fate::Accepted { .. } => return State::Accepted,
        Fate::Discarded { .. } => return State::Discarded,
        Fate::Landing => return State::Landing,
        Fate::Open => {}
    }
    let live = |state: State| if facts.locked { state } else { State::Crashed };
    match &facts.story.phase {
        Phase::Queued => State::Queued,
        Phase::Starting => live(State::Starting),
        Phase::Working => live(State::Working),
        Phase::Waiting { reason } => live(State::Waiting { reason: reason.clone() }),
        Phase::Checking => live(State::Checking),
        // What has not been checked is not ready, and what was changed is not empty.
        Phase::Ended { outcome: Outcome::Ready | Outcome::Empty }
            if facts.story.unchecked.is_some() =>
        {
            State::Stopped
        }
        Phase::Ended { outcome: Outcome::Ready } => State::Ready,
        Phase::Ended { outcome: Outcome::Failed { why } } => State::Failed { why: why.clone() },
        Phase::Ended { outcome: Outcome::Empty } => State::Empty,
        Phase::Ended { outcome: Outcome::Stopped } => State::Stopped,
    }
}

impl State {
    /// The name of the state, as it stands in `--json`.
    pub fn name(&self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Starting => "starting",
            State::Working => "working",
            State::Waiting { .. } => "waiting",
            State::Checking => "checking",
            State::Ready => "ready",
            State::Failed { .. } => "failed",
            State::Empty => "empty",
            State::Stopped => "stopped",
            State::Crashed => "crashed",
            State::Landing => "landing",
            State::Accepted => "accepted",
            State::Discarded => "discarded",
        }
    }

    /// Whether a supervisor is at work.
    pub fn is_active(&self) -> bool {
        match self {
            State::Starting | State::Working | State::Waiting { .. } | State::Checking => true,
            State::Queued
            | State::Ready
            | State::Failed { .. }
            | State::Empty
            | State::Stopped
            | State::Crashed
            | State::Landing
            | State::Accepted
            | State::Discarded => false,
        }
    }

    /// Whether nothing more happens by itself.
    pub fn is_settled(&self) -> bool {
        !self.is_active() && *self != State::Queued && *self != State::Landing
    }

    /// Whether the session's work was landed or dropped.
    pub fn is_over(&self) -> bool {
        matches!(self, State::Accepted | State::Discarded)
    }
}

/// Why the session is in its state, in one sentence.
pub fn why(facts: &Facts, state: &State) -> Option<String> {
    let story = &facts.story;
    let why = match state {
        State::Queued => queued_why(&facts.holds),
        State::Starting => "its worktree is made and its agent started".into(),
        State::Working => format!("turn {}", story.turns),
        State::Waiting { reason } => reason.clone(),
        State::Checking => "studio runs its checks".into(),
        State::Ready => ready_why(story.checks.as_deref().unwrap_or_default().len()),
        State::Failed { why } => failed_why(why, story),
        State::Empty => empty_why(story),
        State::Stopped => stopped_why(story).into(),
        State::Crashed => "its supervisor ended without a last word".into(),
        State::Landing => "its landing was begun".into(),
        State::Accepted => match &facts.fate {
            Fate::Accepted { commit: Some(commit), .. } => {
                format!("landed as {}", base::text::head(commit, 12))
            }
            Fate::Accepted { commit: None, .. }
            | Fate::Open
            | Fate::Landing
            | Fate::Discarded { .. } => "it was landed".into(),
        },
        State::Discarded => "it was discarded".into(),
    };
    let note = story.note.as_ref().filter(|_| *state == State::Ready);
    let denied = denied(&story.denied)
        .filter(|_| matches!(state, State::Ready | State::Empty | State::Failed { .. }));
    let all = [Some(why), note.cloned(), denied];
    Some(all.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// What studio denied without asking anybody, in a clause.
fn denied(denials: &Denials) -> Option<String> {
    let Denials { count, what, why } = denials;
    match count {
        0 => None,
        1 => Some(format!("a request was denied ({what}): {why}")),
        n => Some(format!("{n} requests were denied (the first: {what}): {why}")),
    }
}

fn failed_why(why: &str, story: &Story) -> String {
    match story.red_check().and_then(|check| check.fails_on.as_ref()) {
        Some(branch) => format!("{why}; this check fails on `{branch}` as well"),
        None => why.to_owned(),
    }
}

fn empty_why(story: &Story) -> String {
    let left_out = story.work.as_ref().map(|work| work.left_out.as_slice()).unwrap_or_default();
    match left_out {
        [] => "the agent finished and changed nothing".into(),
        [one] => format!("the agent finished; its only change, {one}, is left out"),
        [first, rest @ ..] => {
            let more = rest.len();
            format!("the agent finished; all it changed is left out: {first} and {more} more")
        }
    }
}

fn stopped_why(story: &Story) -> &'static str {
    match story.unchecked {
        Some(Unchecked::ChangedByHand) => {
            "it was changed by hand after its agent finished; its checks have not run"
        }
        Some(Unchecked::OtherChecks) => "its checks were changed and have not run",
        None => "it was stopped by the user",
    }
}

fn queued_why(holds: &[Hold]) -> String {
    match holds.first() {
        None => "it waits for a free place".into(),
        Some(Hold { id, fate: Fate::Discarded { operation } }) => {
            format!("it waits for `{id}`, which was discarded (studio undo {operation})")
        }
        Some(Hold { id, fate: Fate::Open | Fate::Landing | Fate::Accepted { .. } }) => {
            format!("it waits until `{id}` has landed")
        }
    }
}

fn ready_why(checks: usize) -> String {
    match checks {
        0 => "the agent finished; no checks are configured".into(),
        1 => "its check passed".into(),
        n => format!("all {n} checks passed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::journal::{CheckResult, Entry, Line, Work};

    fn entry(name: &str) -> Entry {
        let passed = || CheckResult {
            command: "make".into(),
            ok: true,
            exit: 0,
            ms: 1,
            tail: String::new(),
            hint: None,
            fails_on: None,
        };
        let work = |files_changed| Work { files_changed, ..Work::default() };
        let commands = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match name {
            "changed" => Entry::Work(work(1)),
            "unchanged" => Entry::Work(work(0)),
            "passed" => Entry::Checked { results: vec![passed()] },
            "same_checks" => Entry::Checks { commands: commands(&["make"]) },
            "fewer_checks" => Entry::Checks { commands: Vec::new() },
            "other_checks" => Entry::Checks { commands: commands(&["make", "lint"]) },
            "queued" => Entry::Queued { prompt: None },
            "spawned" => Entry::Spawned { pid: 7 },
            "turn" => Entry::Turn { n: 1, text: "do".into(), log_bytes: None },
            "asked" => Entry::Asked { n: 1, what: "rm".into(), rule: None },
            "answered" => {
                Entry::Answered { n: 1, allow: true, always: false, by: "user".into(), why: None }
            }
            "turn_end" => Entry::TurnEnd { n: 1, why: None },
            "checking" => Entry::Checking,
            "stop" => Entry::StopRequested,
            "ready" => Entry::Exit { outcome: Outcome::Ready, ms: None },
            "failed" => Entry::Exit { outcome: Outcome::Failed { why: "w".into() }, ms: None },
            "empty" => Entry::Exit { outcome: Outcome::Empty, ms: None },
            "stopped" => Entry::Exit { outcome: Outcome::Stopped, ms: None },
            other => panic!("no entry is called {other}"),
        }
    }

    fn shown(journal: &str, locked: bool, fate: Fate) -> &'static str {
        let lines: Vec<Line> = journal
            .split_whitespace()
            .map(|name| Line { time: "t".into(), entry: entry(name) })
            .collect();
        state(&Facts { locked, story: Story::of(&lines), fate, holds: Vec::new() }).name()
    }

    #[test]
    fn every_arrow_of_the_diagram() {
        let working = "queued spawned turn";
        for (journal, locked, free) in [
            ("queued", "queued", "queued"),
            ("queued stopped", "stopped", "stopped"),
            ("queued spawned", "starting", "crashed"),
            ("queued spawned failed", "failed", "failed"),
            ("queued spawned stop stopped", "stopped", "stopped"),
            (working, "working", "crashed"),
            ("queued spawned turn asked", "waiting", "crashed"),
            ("queued spawned turn asked answered", "working", "crashed"),
            ("queued spawned turn asked turn_end", "working", "crashed"),
            ("queued spawned turn asked stop stopped", "stopped", "stopped"),
            ("queued spawned turn turn_end checking", "checking", "crashed"),
            ("queued spawned turn turn_end checking ready", "ready", "ready"),
            ("queued spawned turn turn_end unchanged empty changed", "stopped", "stopped"),
            ("queued spawned turn turn_end unchanged empty changed unchanged", "empty", "empty"),
            ("queued spawned turn turn_end empty changed passed ready", "ready", "ready"),
            ("queued spawned turn turn_end passed ready other_checks", "stopped", "stopped"),
            ("queued spawned turn turn_end passed ready same_checks", "ready", "ready"),
            ("queued spawned turn turn_end passed ready fewer_checks", "ready", "ready"),
            (
                "queued spawned turn turn_end passed ready other_checks passed ready",
                "ready",
                "ready",
            ),
            ("queued spawned turn turn_end checking failed", "failed", "failed"),
            ("queued spawned turn turn_end empty", "empty", "empty"),
            ("queued spawned turn turn_end checking stop stopped", "stopped", "stopped"),
            ("queued spawned turn turn_end ready queued", "queued", "queued"),
            ("queued spawned turn turn_end ready queued spawned turn", "working", "crashed"),
            ("queued spawned turn stopped queued spawned turn", "working", "crashed"),
            ("queued spawned turn queued spawned", "starting", "crashed"),
        ] {
            assert_eq!(shown(journal, true, Fate::Open), locked, "{journal}, locked");
            assert_eq!(shown(journal, false, Fate::Open), free, "{journal}, free");
            for locked in [true, false] {
                assert_eq!(shown(journal, locked, Fate::Landing), "landing");
                let operation = || "op1".to_owned();
                let landed = Fate::Accepted { operation: operation(), commit: None };
                let dropped = Fate::Discarded { operation: operation() };
                assert_eq!(shown(journal, locked, landed), "accepted");
                assert_eq!(shown(journal, locked, dropped), "discarded");
            }
        }
    }
}
