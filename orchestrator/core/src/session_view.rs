//! A session as JSON for scripts, with the exact fields of the contract; absent values are null.

use std::path::PathBuf;

use base::clock::Clock;
use base::event::Usage;
use serde_json::{Value, json};

use crate::coach_json;
use crate::radar::SessionConflict;
use crate::session::collect::BranchStanding;
use crate::session::journal::{CheckResult, WorkSummary};
use crate::session::placement::Placement;
use crate::session::prepared_message::PreparedMessage;
use crate::session::record::SessionRecord;
use crate::session::state::{SessionState, reason, state};
use crate::session::summary::{Phase, SessionFacts};

/// A session with everything that is displayed about it.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// The record of its creation.
    pub record: Box<SessionRecord>,
    /// The current facts.
    pub facts: Box<SessionFacts>,
    /// The state that follows from the facts.
    pub state: SessionState,
    /// The relation of the work to its branch; `None` if it was not determined.
    pub standing: Option<BranchStanding>,
    /// The open sessions that change the same lines; `None` if that was not determined.
    pub conflicts_with: Option<Vec<SessionConflict>>,
    /// The operation to undo in order to reopen it.
    pub undo_operation: Option<String>,
    /// The agent's changes to its git directory that plain git in the worktree would obey; `None`
    /// if there are none or they were not checked for.
    pub tampered: Option<String>,
    /// The checkout of the user in which its work is being tried.
    pub tried_in: Option<PathBuf>,
    /// The commit message that a model wrote for its current work.
    pub message: Option<PreparedMessage>,
    /// Why its work cannot land on the current tip of its target, if a check in the background found
    /// that out.
    pub obstacle: Option<String>,
    /// Where it is, if it was at a place.
    pub placement: Option<Placement>,
}

impl SessionView {
    /// Creates a view from record and facts.
    pub(crate) fn new(record: SessionRecord, facts: SessionFacts) -> SessionView {
        let state = state(&facts);
        let undo_operation = facts.disposition.operation().map(str::to_owned);
        SessionView {
            record: Box::new(record),
            facts: Box::new(facts),
            state,
            standing: None,
            conflicts_with: None,
            undo_operation,
            tampered: None,
            tried_in: None,
            message: None,
            obstacle: None,
            placement: None,
        }
    }

    /// Explains its state.
    pub fn reason(&self) -> Option<String> {
        let at_place = self.placement_reason();
        // A session whose job waits has a slot here.
        let has_slot =
            at_place.is_some() && self.facts.queue_reason.is_none() && !self.is_blocked();
        let reason = reason(&self.facts, &self.state)
            .filter(|_| self.state != SessionState::Queued || !has_slot);
        let landed = self.landed_elsewhere().map(|clause| format!("landed elsewhere: {clause}"));
        let obstacle = self.obstacle.clone().filter(|_| landed.is_none());
        let clauses = [landed, at_place, reason, obstacle];
        let clauses: Vec<String> = clauses.into_iter().flatten().collect();
        (!clauses.is_empty()).then(|| clauses.join("; "))
    }

    /// Returns the name of its state, with its place until it has landed or was discarded.
    pub fn state_with_place(&self) -> String {
        match self.record.run_mode.place.as_ref().filter(|_| !self.state.is_over()) {
            Some(place) => format!("{} at {place}", self.state.name()),
            None => self.state.name().to_owned(),
        }
    }

    /// Returns whether it is at its place.
    pub fn is_away(&self) -> bool {
        self.placement.as_ref().is_some_and(Placement::is_away)
    }

    /// Says what is wrong with its place, while it is there.
    pub fn placement_reason(&self) -> Option<String> {
        let placement = self.placement.as_ref()?;
        let is_ended = matches!(self.facts.summary.phase, Phase::Ended { .. });
        let problem = placement.problem.clone().filter(|_| !is_ended);
        let lost = placement.lost.as_ref().filter(|_| self.state == SessionState::Crashed);
        problem.or_else(|| lost.map(|why| format!("lost at {}: {why}", placement.place)))
    }

    /// Says how the branch has its work already, if it does although studio did not land it.
    pub fn landed_elsewhere(&self) -> Option<String> {
        let landed = self.standing.as_ref()?.landed.as_ref()?;
        Some(landed.clause(self.record.base.branch.as_ref()?.as_str()))
    }

    /// Returns whether its agent counts as stuck.
    pub fn is_stalled(&self) -> bool {
        let is_waiting = matches!(self.state, SessionState::Waiting { .. });
        is_waiting && self.facts.summary.stalled.is_some()
    }

    /// Returns whether it waits for the end of a rate limit.
    pub fn is_parked(&self) -> bool {
        let is_waiting = matches!(self.state, SessionState::Waiting { .. });
        is_waiting && self.facts.summary.is_parked()
    }

    /// Returns when it continues by itself, if that is known: RFC 3339 with the user's offset.
    pub fn waiting_until(&self) -> Option<String> {
        let until = match (&self.state, &self.facts.summary.phase) {
            (SessionState::Waiting { .. }, Phase::Parked { until, .. }) => until,
            (SessionState::Queued, _) => self.facts.queue_reason.as_ref()?.until.as_ref()?,
            (_, _) => return None,
        };
        let until: jiff::Timestamp = until.parse().ok()?;
        let zoned = until.to_zoned(Clock::from_env().zone());
        Some(zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
    }

    /// Returns whether it waits for dependencies that have not landed, or for the user to raise a
    /// budget.
    pub fn is_blocked(&self) -> bool {
        let needs_user = self.facts.queue_reason.as_ref().is_some_and(|reason| reason.needs_user);
        self.state == SessionState::Queued && (needs_user || !self.facts.dependencies.is_empty())
    }

    /// Returns the number of the attempt, if there are several at its task.
    pub fn attempt_number(&self) -> Option<u32> {
        self.record.group.as_ref().map(|_| self.record.attempt)
    }

    /// Describes in one line what it conflicts with: its branch, else another session.
    pub fn conflict_text(&self) -> Option<String> {
        let branch = self.record.base.branch.as_ref();
        let standing = self.standing.as_ref().filter(|standing| !standing.conflicts.is_empty());
        let other = || self.conflicts_with.iter().flatten().next();
        let (with, files) = match (standing, branch) {
            (Some(standing), Some(branch)) => (branch.as_str(), &standing.conflicts),
            (_, _) => other().map(|other| (other.id.as_str(), &other.files))?,
        };
        let first = files.first()?;
        let more = match files.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Some(format!("conflicts with {with} in {first}{more}"))
    }

    /// Returns the collected work.
    pub fn work(&self) -> Option<&WorkSummary> {
        self.facts.summary.work.as_ref()
    }

    /// Returns the number of the first open permission request.
    pub fn open_request(&self) -> Option<u32> {
        self.facts.summary.open_requests.keys().next().copied()
    }

    /// Returns the suggested commands, most likely first.
    pub fn suggested_commands(&self) -> Vec<String> {
        self.next_commands(self.record.id.as_str())
    }

    /// Like [`SessionView::suggested_commands`], with this name for the session.
    pub fn next_commands(&self, id: &str) -> Vec<String> {
        if self.is_blocked() {
            let status_commands = self
                .facts
                .dependencies
                .iter()
                .map(|dependency| format!("studio status {}", dependency.id));
            let raise = self.facts.queue_reason.as_ref().filter(|reason| reason.needs_user);
            let raise = raise.map(|_| format!("studio resume {id} --total-budget USD"));
            return raise
                .into_iter()
                .chain(status_commands)
                .chain([self.command("discard", id)])
                .collect();
        }
        if self.landed_elsewhere().is_some() && !self.state.is_over() {
            return ["accept", "discard"].map(|command| self.command(command, id)).to_vec();
        }
        let summary = &self.facts.summary;
        let commands: &[&str] = match &self.state {
            SessionState::Queued
            | SessionState::Starting
            | SessionState::Working
            | SessionState::Checking => &["logs -f", "stop"],
            SessionState::Waiting { .. } if self.is_stalled() => &["logs -f", "send", "stop"],
            SessionState::Waiting { .. } if summary.is_parked() => &["resume --now", "stop"],
            SessionState::Waiting { .. } if summary.open_requests.is_empty() => {
                &["logs -f", "stop"]
            }
            SessionState::Waiting { .. } => &["answer", "stop"],
            SessionState::Ready => &["diff", "accept", "discard"],
            SessionState::Failed { .. } if summary.failed_check().is_some() => {
                &["logs", "check", "resume", "discard"]
            }
            SessionState::Failed { .. } => &["logs", "resume", "discard"],
            SessionState::Empty if self.facts.summary.denials.count > 0 => {
                &["resume --ask", "discard"]
            }
            SessionState::Empty if self.first_omitted().is_some() => {
                &["include", "send", "discard"]
            }
            SessionState::Empty => &["send", "discard"],
            SessionState::Stopped if summary.unchecked.is_some() => &["check", "diff", "discard"],
            SessionState::Stopped | SessionState::Crashed => &["resume", "discard"],
            SessionState::Landing => &["doctor"],
            SessionState::Accepted | SessionState::Discarded if self.undo_operation.is_some() => {
                &["undo"]
            }
            SessionState::Accepted | SessionState::Discarded => &[],
        };
        commands.iter().map(|command| self.command(command, id)).collect()
    }

    /// Returns the first file that is excluded because of its size or number.
    fn first_omitted(&self) -> Option<&String> {
        self.work().and_then(|work| work.omitted.first())
    }

    fn command(&self, command_name: &str, id: &str) -> String {
        match command_name {
            "include" => {
                let file = self.first_omitted().map_or("FILE", String::as_str);
                format!("studio accept {id} --include '{file}'")
            }
            "logs -f" => format!("studio logs {id} -f"),
            "resume --now" => format!("studio resume {id} --now"),
            "resume --ask" => format!("studio resume {id} --ask"),
            "answer" => {
                let n = self.facts.summary.open_requests.keys().next().copied().unwrap_or(1);
                format!("studio answer {id} {n} allow")
            }
            "send" => format!("studio send {id} 'what to do'"),
            "doctor" => "studio doctor".to_owned(),
            "undo" => format!("studio undo {}", self.undo_operation.as_deref().unwrap_or_default()),
            command_name => format!("studio {command_name} {id}"),
        }
    }

    /// Returns where it runs, or null if that is here.
    fn place_json(&self) -> Value {
        match (&self.placement, &self.record.run_mode.place) {
            (Some(placement), _) => placement.json(),
            (None, Some(name)) => Placement { place: name.clone(), ..Placement::default() }.json(),
            (None, None) => Value::Null,
        }
    }

    /// Returns the session object of the contract.
    pub fn json(&self) -> Value {
        let (record, summary) = (&self.record, &self.facts.summary);
        let work = self.work();
        let head = work.map(|work| work.head.clone());
        json!({
            "id": record.id,
            "task": record.task,
            "state": self.state.name(),
            "why": self.reason(),
            "waiting_until": self.waiting_until(),
            "agent": record.agent,
            "persona": record.persona,
            "branch": record.session_repo.branch,
            "base": {"branch": record.base.branch, "commit": record.base.commit},
            "head": head,
            "worktree": record.session_repo.worktree,
            "place": self.place_json(),
            "created_at": record.created_at,
            "updated_at": summary.updated_at,
            "commits": work.map(|work| work.commits),
            "files_changed": work.map(|work| work.files_changed),
            "insertions": work.map(|work| work.insertions),
            "deletions": work.map(|work| work.deletions),
            "dirty": work.map(|work| work.dirty),
            "conflicts": self.standing.as_ref().map(|standing| &standing.conflicts),
            "conflicts_with": self.conflicts_with,
            "landed_elsewhere": self.standing.as_ref().and_then(|it| it.landed.as_ref()),
            "checks": summary.checks.as_deref().map(checks_json),
            "coach": coach_json::json(summary),
            "usage": summary.usage.as_ref().map(usage_json),
            "attempt": record.attempt,
            "group": record.group,
            "after": record.after,
            "tampered": self.tampered,
            "tried_in": self.tried_in,
            "message": self.message.as_ref().map(|message| &message.text),
            "next": self.suggested_commands(),
        })
    }
}

/// Returns check results as `[{command, ok, exit, ms}]`, with `fails_on`, the branch on which a
/// check fails as well, if there is one, and with `flaky` if it passed only when it was repeated.
pub fn checks_json(results: &[CheckResult]) -> Value {
    let check_json = |result: &CheckResult| {
        let mut object = json!({"command": result.command, "ok": result.ok, "exit": result.exit, "ms": result.ms});
        if let (Some(branch), Value::Object(fields)) = (&result.fails_on, &mut object) {
            fields.insert("fails_on".to_owned(), json!(branch));
        }
        if let (true, Value::Object(fields)) = (result.flaky, &mut object) {
            fields.insert("flaky".to_owned(), json!(true));
        }
        object
    };
    Value::Array(results.iter().map(check_json).collect())
}

fn usage_json(usage: &Usage) -> Value {
    json!({
        "input": usage.input,
        "output": usage.output,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "cost_usd": usage.cost_usd,
    })
}
