//! The overview of all sessions: rows in groups, those that need the user first. It has no terminal
//! in it.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use base::id::Id;

use crate::radar::SessionConflict;
use crate::seen;
use crate::session::id::shortest_prefix;
use crate::session::record::SessionRecord;
use crate::session::state::SessionState;
use crate::session::summary::{Dependency, Disposition, OpenRequest};
use crate::session_view::SessionView;

/// Maximum number of bytes of the text and the task of a row; `studio status` shows all of them.
const MAX_TEXT_BYTES: usize = 600;

/// A group of rows, in the order of display.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionGroup {
    /// Permission requests, and settled sessions that cannot land as they are.
    NeedsYou,
    /// Sessions that continue by themselves.
    Working,
    /// Sessions that can land.
    Ready,
    /// Accepted and discarded sessions.
    Done,
}

impl SessionGroup {
    /// All groups.
    pub const ALL: [SessionGroup; 4] =
        [SessionGroup::NeedsYou, SessionGroup::Working, SessionGroup::Ready, SessionGroup::Done];

    /// Returns its title.
    pub fn title(self) -> &'static str {
        match self {
            SessionGroup::NeedsYou => "needs you",
            SessionGroup::Working => "working",
            SessionGroup::Ready => "ready",
            SessionGroup::Done => "done",
        }
    }

    fn of(view: &SessionView) -> SessionGroup {
        let is_discarded = |dependency: &Dependency| {
            matches!(dependency.disposition, Disposition::Discarded { .. })
        };
        match &view.state {
            // It would wait forever.
            SessionState::Queued if view.facts.dependencies.iter().any(is_discarded) => {
                SessionGroup::NeedsYou
            }
            SessionState::Waiting { .. } if view.is_stalled() => SessionGroup::NeedsYou,
            SessionState::Failed { .. }
            | SessionState::Crashed
            | SessionState::Empty
            | SessionState::Stopped => SessionGroup::NeedsYou,
            SessionState::Queued
            | SessionState::Starting
            | SessionState::Working
            | SessionState::Waiting { .. }
            | SessionState::Checking
            | SessionState::Landing => SessionGroup::Working,
            SessionState::Ready => SessionGroup::Ready,
            SessionState::Accepted | SessionState::Discarded => SessionGroup::Done,
        }
    }
}

/// What a row is about: a session, or one of its permission requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// The session.
    pub id: Id,
    /// The number of the permission request.
    pub request: Option<u32>,
}

/// One row. Its texts come from agents: a caller that displays them must escape them.
#[derive(Clone, Debug, PartialEq)]
pub struct OverviewRow {
    /// What it is about.
    pub key: RowKey,
    /// The shortest unique prefix of the session's id.
    pub prefix: String,
    /// The group.
    pub group: SessionGroup,
    /// The state of the session.
    pub state: SessionState,
    /// Whether the session settled and the user has not looked at it since.
    pub is_new: bool,
    /// The task.
    pub task: String,
    /// The agent.
    pub agent: String,
    /// The requested action, the conflicts, the agent's last message, or the reason of the state:
    /// the one that matters most, in one line.
    pub text: String,
    /// The agent's last message.
    pub last_message: Option<String>,
    /// The paths that conflict with the session's branch.
    pub conflicts: Vec<String>,
    /// The open sessions that change the same lines.
    pub conflicts_with: Vec<SessionConflict>,
    /// A warning about changes to the session's git directory.
    pub warning: Option<String>,
    /// Lines added and removed, and whether some are not committed.
    pub changes: Option<(u64, u64, bool)>,
    /// The known cost in US dollars.
    pub cost_usd: Option<f64>,
    /// When the current state of affairs began, RFC 3339: the age counts from here.
    pub since: String,
    /// The most likely next command.
    pub next: Option<String>,
    /// The operation to undo in order to reopen it.
    pub undo_operation: Option<String>,
}

/// The rows of a repository, in the order of display.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// The rows.
    pub rows: Vec<OverviewRow>,
}

/// An event that the user is told about once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// The session.
    pub id: Id,
    /// The number of the permission request; `None` if the session settled.
    pub request: Option<u32>,
    /// The time, RFC 3339.
    pub time: String,
}

impl Overview {
    /// Creates the overview of sessions, oldest first, each with whether the user has looked at it
    /// since it settled.
    pub fn of(sessions: &[(&SessionView, bool)]) -> Overview {
        let mut ids: Vec<Id> = sessions.iter().map(|(view, _)| view.record.id.clone()).collect();
        ids.sort();
        let mut rows: Vec<OverviewRow> =
            sessions.iter().flat_map(|(view, is_seen)| rows_of(view, *is_seen, &ids)).collect();
        // Stable: of rows with the same time, the session that was created first is first.
        rows.sort_by(OverviewRow::compare);
        Overview { rows }
    }

    /// Returns the rows that a filter keeps.
    pub fn filtered<'o>(&'o self, filter: &'o RowFilter) -> impl Iterator<Item = &'o OverviewRow> {
        self.rows.iter().filter(|row| filter.matches(row))
    }

    /// Returns the row of a key.
    pub fn row(&self, key: &RowKey) -> Option<&OverviewRow> {
        self.rows.iter().find(|row| row.key == *key)
    }

    /// Returns the number of rows of a group.
    pub fn count(&self, group: SessionGroup) -> usize {
        self.rows.iter().filter(|row| row.group == group).count()
    }

    /// Returns the known cost of all sessions in US dollars.
    pub fn cost_usd(&self) -> Option<f64> {
        let mut counted = BTreeSet::new();
        let costs = self.rows.iter().filter(|row| counted.insert(&row.key.id));
        costs.filter_map(|row| row.cost_usd).reduce(|a, b| a + b)
    }

    /// Returns what the user is to be told about: the open permission requests, and the sessions
    /// that settled and are new.
    pub fn notices(&self) -> BTreeSet<Notice> {
        let is_notable = |row: &&OverviewRow| row.key.request.is_some() || row.is_new;
        let notice = |row: &OverviewRow| Notice {
            id: row.key.id.clone(),
            request: row.key.request,
            time: row.since.clone(),
        };
        self.rows.iter().filter(is_notable).map(notice).collect()
    }
}

impl OverviewRow {
    /// Orders rows: by group; permission requests before sessions, the oldest first. Of the accepted
    /// and discarded sessions the newest is first. A look at a session does not move it.
    fn compare(&self, other: &OverviewRow) -> Ordering {
        let rank = |row: &OverviewRow| (row.group, row.key.request.is_none());
        let by_time = match self.group {
            SessionGroup::Done => other.since.cmp(&self.since),
            SessionGroup::NeedsYou | SessionGroup::Working | SessionGroup::Ready => {
                self.since.cmp(&other.since)
            }
        };
        rank(self).cmp(&rank(other)).then(by_time)
    }
}

/// Returns the rows of a session: one for each permission request, else one for itself.
fn rows_of(view: &SessionView, is_seen: bool, ids: &[Id]) -> Vec<OverviewRow> {
    let row = session_row(view, is_seen, ids);
    let requests = &view.facts.summary.open_requests;
    if !matches!(view.state, SessionState::Waiting { .. }) || requests.is_empty() {
        return vec![row];
    }
    let request_row = |(number, request): (&u32, &OpenRequest)| OverviewRow {
        key: RowKey { id: row.key.id.clone(), request: Some(*number) },
        group: SessionGroup::NeedsYou,
        text: one_line(&request.description),
        since: request.asked_at.clone().unwrap_or_else(|| row.since.clone()),
        ..row.clone()
    };
    requests.iter().map(request_row).collect()
}

fn session_row(view: &SessionView, is_seen: bool, ids: &[Id]) -> OverviewRow {
    let (record, summary) = (&view.record, &view.facts.summary);
    let prefix = shortest_prefix(&record.id, ids);
    let standing = view.standing.as_ref();
    let conflicts = standing.map(|standing| standing.conflicts.clone()).unwrap_or_default();
    let is_settled = view.state.is_settled();
    let since = match is_settled {
        true => seen::settled_at(view),
        false => summary.run_started_at.clone().unwrap_or_else(|| record.created_at.clone()),
    };
    OverviewRow {
        key: RowKey { id: record.id.clone(), request: None },
        group: SessionGroup::of(view),
        is_new: is_settled && !view.state.is_over() && !is_seen,
        task: match view.attempt_number() {
            Some(number) => format!("attempt {number}: {}", one_line(&record.task)),
            None => one_line(&record.task),
        },
        agent: agent(record),
        text: one_line(&text(view)),
        last_message: summary.last_message.clone(),
        warning: view.tampered.clone(),
        changes: view.work().map(|work| (work.insertions, work.deletions, work.dirty)),
        cost_usd: summary.usage.as_ref().and_then(|usage| usage.cost_usd),
        next: view.next_commands(prefix).into_iter().next(),
        undo_operation: view.undo_operation.clone(),
        state: view.state.clone(),
        prefix: prefix.to_owned(),
        since,
        conflicts,
        conflicts_with: view.conflicts_with.clone().unwrap_or_default(),
    }
}

/// Returns the agent, as whom it works, and where.
fn agent(record: &SessionRecord) -> String {
    let persona = record.persona.as_ref().map(|persona| format!(" as {persona}"));
    let place = record.run_mode.place.as_ref().map(|place| format!(" at {place}"));
    format!("{}{}{}", record.agent, persona.unwrap_or_default(), place.unwrap_or_default())
}

/// Returns what matters most about a session.
fn text(view: &SessionView) -> String {
    let last_message =
        || view.facts.summary.last_message.clone().filter(|it| !it.trim().is_empty());
    let reason = || view.reason().unwrap_or_default();
    if let Some(reason) = view.placement_reason() {
        return reason;
    }
    match &view.state {
        SessionState::Working | SessionState::Starting => last_message().unwrap_or_else(reason),
        SessionState::Ready => view.conflict_text().unwrap_or_else(reason),
        SessionState::Queued
        | SessionState::Waiting { .. }
        | SessionState::Checking
        | SessionState::Failed { .. }
        | SessionState::Empty
        | SessionState::Stopped
        | SessionState::Crashed
        | SessionState::Landing
        | SessionState::Accepted
        | SessionState::Discarded => reason(),
    }
}

fn one_line(text: &str) -> String {
    let start = base::text::head(text, MAX_TEXT_BYTES);
    start.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Words that a row must contain, all of them, in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFilter {
    words: Vec<String>,
}

impl RowFilter {
    /// Parses words separated by spaces.
    pub fn parse(text: &str) -> RowFilter {
        RowFilter { words: text.split_whitespace().map(str::to_lowercase).collect() }
    }

    /// Returns whether it keeps every row.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns whether it keeps a row: each word occurs in its id, state, group, task, agent or
    /// text.
    pub fn matches(&self, row: &OverviewRow) -> bool {
        if self.is_empty() {
            return true;
        }
        let fields = [
            row.key.id.as_str(),
            row.state.name(),
            row.group.title(),
            &row.task,
            &row.agent,
            &row.text,
        ];
        let fields = fields.map(str::to_lowercase);
        self.words.iter().all(|word| fields.iter().any(|field| field.contains(word.as_str())))
    }
}

#[cfg(test)]
#[path = "overview_tests.rs"]
mod tests;
