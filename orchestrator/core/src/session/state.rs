//! The state of a session, a pure function of its facts.

use base::clock::Clock;
use serde::{Deserialize, Serialize};

use crate::session::journal::SessionOutcome;
use crate::session::summary::{
    Denials, Dependency, Disposition, FailedCalls, JournalSummary, Phase, QueueReason,
    SessionFacts, Unchecked,
};

/// The states of a session. The state diagram is in docs/architecture.md.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[allow(missing_docs)] // the names are the documentation
pub enum SessionState {
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

/// Returns the state that follows from the facts.
pub fn state(facts: &SessionFacts) -> SessionState {
    match &facts.disposition {
        Disposition::Accepted { .. } => return SessionState::Accepted,
        Disposition::Discarded { .. } => return SessionState::Discarded,
        Disposition::Landing => return SessionState::Landing,
        Disposition::Open => {}
    }
    let if_locked = |state: SessionState| if facts.locked { state } else { SessionState::Crashed };
    match &facts.summary.phase {
        Phase::Queued => SessionState::Queued,
        Phase::Starting => if_locked(SessionState::Starting),
        Phase::Working => if_locked(SessionState::Working),
        Phase::Waiting { reason } => if_locked(SessionState::Waiting { reason: reason.clone() }),
        Phase::Parked { until, .. } => {
            if_locked(SessionState::Waiting { reason: rate_limit_reason(until) })
        }
        Phase::Checking => if_locked(SessionState::Checking),
        // Unchecked work is not ready, and a changed worktree is not empty.
        Phase::Ended { outcome: SessionOutcome::Ready | SessionOutcome::Empty }
            if facts.summary.unchecked.is_some() =>
        {
            SessionState::Stopped
        }
        Phase::Ended { outcome: SessionOutcome::Ready } => SessionState::Ready,
        Phase::Ended { outcome: SessionOutcome::Failed { why } } => {
            SessionState::Failed { why: why.clone() }
        }
        Phase::Ended { outcome: SessionOutcome::Empty } => SessionState::Empty,
        Phase::Ended { outcome: SessionOutcome::Stopped } => SessionState::Stopped,
    }
}

/// Says until when an account is rate limited, in the user's time zone.
pub fn rate_limit_reason(until: &str) -> String {
    match until.parse() {
        Ok(until) => format!("rate limit until {}", Clock::from_env().local_time(until)),
        Err(_) => "rate limit".to_owned(),
    }
}

impl SessionState {
    /// Returns the name of the state in `--json`.
    pub fn name(&self) -> &'static str {
        match self {
            SessionState::Queued => "queued",
            SessionState::Starting => "starting",
            SessionState::Working => "working",
            SessionState::Waiting { .. } => "waiting",
            SessionState::Checking => "checking",
            SessionState::Ready => "ready",
            SessionState::Failed { .. } => "failed",
            SessionState::Empty => "empty",
            SessionState::Stopped => "stopped",
            SessionState::Crashed => "crashed",
            SessionState::Landing => "landing",
            SessionState::Accepted => "accepted",
            SessionState::Discarded => "discarded",
        }
    }

    /// Returns whether a supervisor is running.
    pub fn is_active(&self) -> bool {
        match self {
            SessionState::Starting
            | SessionState::Working
            | SessionState::Waiting { .. }
            | SessionState::Checking => true,
            SessionState::Queued
            | SessionState::Ready
            | SessionState::Failed { .. }
            | SessionState::Empty
            | SessionState::Stopped
            | SessionState::Crashed
            | SessionState::Landing
            | SessionState::Accepted
            | SessionState::Discarded => false,
        }
    }

    /// Returns whether the state changes only by a command of the user.
    pub fn is_settled(&self) -> bool {
        !self.is_active() && *self != SessionState::Queued && *self != SessionState::Landing
    }

    /// Returns whether the session's work was accepted or discarded.
    pub fn is_over(&self) -> bool {
        matches!(self, SessionState::Accepted | SessionState::Discarded)
    }
}

/// Explains the state of the session in one sentence.
pub fn reason(facts: &SessionFacts, state: &SessionState) -> Option<String> {
    let summary = &facts.summary;
    let reason = match state {
        SessionState::Queued => queued_reason(&facts.dependencies, facts.queue_reason.as_ref()),
        SessionState::Starting => match &summary.setup_line {
            Some(line) => format!("running the setup `{line}`"),
            None => "creating the worktree and starting the agent".into(),
        },
        SessionState::Working => format!("turn {}", summary.turns),
        SessionState::Waiting { reason } => reason.clone(),
        SessionState::Checking => "running the checks".into(),
        SessionState::Ready => ready_reason(summary.checks.as_deref().unwrap_or_default().len()),
        SessionState::Failed { why } => failed_reason(why, summary),
        SessionState::Empty => empty_reason(summary),
        SessionState::Stopped => stopped_reason(summary).into(),
        SessionState::Crashed => "its supervisor exited unexpectedly".into(),
        SessionState::Landing => "landing in progress".into(),
        SessionState::Accepted => match &facts.disposition {
            Disposition::Accepted { commit: Some(commit), .. } => {
                format!("landed as {}", base::text::head(commit, 12))
            }
            Disposition::Accepted { commit: None, .. }
            | Disposition::Open
            | Disposition::Landing
            | Disposition::Discarded { .. } => "landed".into(),
        },
        SessionState::Discarded => "discarded".into(),
    };
    let note = summary.note.as_ref().filter(|_| *state == SessionState::Ready);
    let denials = denials_clause(&summary.denials).filter(|_| {
        matches!(state, SessionState::Ready | SessionState::Empty | SessionState::Failed { .. })
    });
    let clauses = [Some(reason), note.cloned(), denials];
    Some(clauses.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// Returns a clause about the requests that studio denied without asking the user.
fn denials_clause(denials: &Denials) -> Option<String> {
    let Denials { count, description: what, why } = denials;
    match count {
        0 => None,
        1 => Some(format!("a request was denied ({what}): {why}")),
        n => Some(format!("{n} requests were denied (the first: {what}): {why}")),
    }
}

fn failed_reason(reason: &str, summary: &JournalSummary) -> String {
    match summary.failed_check().and_then(|check| check.fails_on.as_ref()) {
        Some(branch) => format!("{reason}; this check also fails on `{branch}`"),
        None => reason.to_owned(),
    }
}

fn empty_reason(summary: &JournalSummary) -> String {
    let left_out = summary.work.as_ref().map(|work| work.omitted.as_slice()).unwrap_or_default();
    match left_out {
        [] => match &summary.failed_calls {
            // A denied request is a failed call as well, but is explained separately.
            _ if summary.denials.count > 0 => "the agent finished and changed nothing".into(),
            FailedCalls { count: 0, .. } => "the agent finished and changed nothing".into(),
            FailedCalls { count: 1, last } => {
                format!("the agent finished and changed nothing; a tool call failed: {last}")
            }
            FailedCalls { count, last } => format!(
                "the agent finished and changed nothing; {count} tool calls failed, the last: {last}"
            ),
        },
        [path] => format!("the agent finished; its only change, {path}, is left out"),
        [first, rest @ ..] => {
            let count = rest.len();
            format!("the agent finished; all it changed is left out: {first} and {count} more")
        }
    }
}

fn stopped_reason(summary: &JournalSummary) -> &str {
    match summary.unchecked {
        Some(Unchecked::ChangedByHand) => {
            "changed by hand after its agent finished; its checks have not run"
        }
        Some(Unchecked::OtherChecks) => "its checks were changed and have not run",
        None => summary.stop_reason.as_deref().unwrap_or("stopped by the user"),
    }
}

fn queued_reason(dependencies: &[Dependency], reason: Option<&QueueReason>) -> String {
    match dependencies.first() {
        None => reason.map_or_else(|| "waiting for a free slot".into(), |it| it.text.clone()),
        Some(Dependency { id, disposition: Disposition::Discarded { operation } }) => {
            format!("waiting for `{id}`, which was discarded (studio undo {operation})")
        }
        Some(Dependency {
            id,
            disposition: Disposition::Open | Disposition::Landing | Disposition::Accepted { .. },
        }) => {
            format!("waiting for `{id}` to land")
        }
    }
}

fn ready_reason(checks: usize) -> String {
    match checks {
        0 => "the agent finished; no checks are configured".into(),
        1 => "its check passed".into(),
        n => format!("all {n} checks passed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::journal::{CheckResult, JournalEntry, JournalLine, WorkSummary};

    fn entry(name: &str) -> JournalEntry {
        let passed = || CheckResult {
            command: "make".into(),
            ok: true,
            exit: 0,
            ms: 1,
            tail: String::new(),
            hint: None,
            limit: None,
            fails_on: None,
            flaky: false,
        };
        let work = |files_changed| WorkSummary { files_changed, ..WorkSummary::default() };
        let commands = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match name {
            "changed" => JournalEntry::Work(work(1)),
            "unchanged" => JournalEntry::Work(work(0)),
            "passed" => JournalEntry::Checked { results: vec![passed()] },
            "same_checks" => JournalEntry::Checks { commands: commands(&["make"]) },
            "fewer_checks" => JournalEntry::Checks { commands: Vec::new() },
            "other_checks" => JournalEntry::Checks { commands: commands(&["make", "lint"]) },
            "queued" => JournalEntry::Queued { prompt: None },
            "spawned" => JournalEntry::Spawned { pid: 7 },
            "turn" => JournalEntry::Turn { n: 1, text: "do".into(), log_bytes: None },
            "asked" => JournalEntry::Asked { n: 1, what: "rm".into(), rule: None, host: None },
            "answered" => JournalEntry::Answered {
                n: 1,
                allow: true,
                always: false,
                by: "user".into(),
                why: None,
            },
            "turn_end" => JournalEntry::TurnEnd { n: 1, why: None },
            "checking" => JournalEntry::Checking,
            "stop" => JournalEntry::StopRequested { why: None },
            "ends" => JournalEntry::StopRequested { why: Some("its job ends".into()) },
            "ready" => JournalEntry::Exit { outcome: SessionOutcome::Ready, ms: None },
            "failed" => {
                JournalEntry::Exit { outcome: SessionOutcome::Failed { why: "w".into() }, ms: None }
            }
            "empty" => JournalEntry::Exit { outcome: SessionOutcome::Empty, ms: None },
            "stopped" => JournalEntry::Exit { outcome: SessionOutcome::Stopped, ms: None },
            other => panic!("no entry is called {other}"),
        }
    }

    fn facts(journal: &str, locked: bool, disposition: Disposition) -> SessionFacts {
        let lines: Vec<JournalLine> = journal
            .split_whitespace()
            .map(|name| JournalLine { time: "t".into(), entry: entry(name) })
            .collect();
        SessionFacts {
            locked,
            summary: JournalSummary::of(&lines),
            disposition,
            dependencies: Vec::new(),
            queue_reason: None,
        }
    }

    fn state_name(journal: &str, locked: bool, disposition: Disposition) -> &'static str {
        state(&facts(journal, locked, disposition)).name()
    }

    #[test]
    fn a_stopped_session_says_who_stopped_it() {
        let by_user = "stopped by the user";
        for (journal, expected) in [
            ("queued stopped", by_user),
            ("queued spawned turn stop stopped", by_user),
            ("queued spawned turn ends stopped", "its job ends"),
            ("queued spawned turn ends stopped queued stopped", by_user),
            ("queued spawned turn ends stopped queued spawned turn stop stopped", by_user),
        ] {
            let facts = facts(journal, false, Disposition::Open);
            assert_eq!(
                reason(&facts, &SessionState::Stopped).as_deref(),
                Some(expected),
                "{journal}"
            );
        }
    }

    #[test]
    fn every_transition_of_the_state_diagram() {
        let working = "queued spawned turn";
        for (journal, locked, unlocked) in [
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
            assert_eq!(state_name(journal, true, Disposition::Open), locked, "{journal}, locked");
            assert_eq!(state_name(journal, false, Disposition::Open), unlocked, "{journal}, free");
            for locked in [true, false] {
                assert_eq!(state_name(journal, locked, Disposition::Landing), "landing");
                let operation = || "op1".to_owned();
                let landed = Disposition::Accepted { operation: operation(), commit: None };
                let dropped = Disposition::Discarded { operation: operation() };
                assert_eq!(state_name(journal, locked, landed), "accepted");
                assert_eq!(state_name(journal, locked, dropped), "discarded");
            }
        }
    }
}
