//! Statistics over the sessions of a repository: how many landed and what they cost, by agent, by
//! model and over time. It has no terminal in it.

use std::collections::BTreeMap;

use base::event::Usage;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::{Value, json};

use crate::session::state::SessionState;
use crate::session_view::SessionView;

/// The name of the group of sessions whose agent reported no model.
const UNKNOWN_MODEL: &str = "unknown";

/// The totals of a group of sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionTotals {
    /// The number of sessions.
    pub sessions: usize,
    /// Sessions whose work landed.
    pub landed: usize,
    /// Discarded sessions.
    pub discarded: usize,
    /// The other sessions.
    pub open: usize,
    /// Lines that landed sessions added.
    pub insertions: u64,
    /// Lines that landed sessions deleted.
    pub deletions: u64,
    /// Model replies that the agents reported.
    pub replies: u64,
    /// The duration of completed runs, in milliseconds.
    pub worked_ms: u64,
    /// Tokens and cost; `None` if no agent reported any.
    pub usage: Option<Usage>,
}

/// The statistics of a repository.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// All sessions together.
    pub totals: SessionTotals,
    /// By agent, the one with the most sessions first.
    pub agents: Vec<(String, SessionTotals)>,
    /// By model, the one with the most sessions first.
    pub models: Vec<(String, SessionTotals)>,
    /// By the day of the session's creation, in order, without empty days.
    pub days: Vec<(Date, SessionTotals)>,
}

impl Stats {
    /// Counts sessions created at `since` or later.
    pub fn of(views: &[SessionView], since: Option<Timestamp>, zone: &TimeZone) -> Stats {
        let mut stats = Stats::default();
        let (mut agents, mut models, mut days) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for view in views {
            let record = &view.record;
            let Ok(created_at) = record.created_at.parse::<Timestamp>() else { continue };
            if since.is_some_and(|since| created_at < since) {
                continue;
            }
            let model = view.facts.summary.model.as_ref().or(record.model.as_ref());
            let model = model.map_or(UNKNOWN_MODEL, String::as_str);
            let day = created_at.to_zoned(zone.clone()).date();
            stats.totals.add(view);
            agents.entry(record.agent.clone()).or_insert_with(SessionTotals::default).add(view);
            models.entry(model.to_owned()).or_insert_with(SessionTotals::default).add(view);
            days.entry(day).or_insert_with(SessionTotals::default).add(view);
        }
        stats.agents = most_first(agents);
        stats.models = most_first(models);
        stats.days = days.into_iter().collect();
        stats
    }

    /// Returns the statistics as JSON; absent values are null.
    pub fn json(&self) -> Value {
        let groups = |groups: &[(String, SessionTotals)]| {
            let group = |(name, totals): &(String, SessionTotals)| labelled("name", name, totals);
            groups.iter().map(group).collect::<Vec<_>>()
        };
        let days = self.days.iter().map(|(day, totals)| labelled("date", &day.to_string(), totals));
        json!({
            "schema": 1,
            "totals": self.totals,
            "agents": groups(&self.agents),
            "models": groups(&self.models),
            "days": days.collect::<Vec<_>>(),
        })
    }
}

impl SessionTotals {
    fn add(&mut self, view: &SessionView) {
        let summary = &view.facts.summary;
        self.sessions += 1;
        match view.state {
            SessionState::Accepted => {
                self.landed += 1;
                if let Some(work) = view.work() {
                    self.insertions += work.insertions;
                    self.deletions += work.deletions;
                }
            }
            SessionState::Discarded => self.discarded += 1,
            SessionState::Queued
            | SessionState::Starting
            | SessionState::Working
            | SessionState::Waiting { .. }
            | SessionState::Checking
            | SessionState::Ready
            | SessionState::Failed { .. }
            | SessionState::Empty
            | SessionState::Stopped
            | SessionState::Crashed
            | SessionState::Landing => self.open += 1,
        }
        self.replies += u64::from(summary.replies().unwrap_or_default());
        self.worked_ms = self.worked_ms.saturating_add(summary.worked_ms);
        if let Some(usage) = summary.usage {
            self.usage = Some(self.usage.unwrap_or_default().plus(usage));
        }
    }
}

/// Sorts groups by their number of sessions, then by name.
fn most_first(groups: BTreeMap<String, SessionTotals>) -> Vec<(String, SessionTotals)> {
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.sessions));
    groups
}

/// Returns totals as an object with their label as the first field.
fn labelled(key: &str, label: &str, totals: &SessionTotals) -> Value {
    let mut object = json!({ key: label });
    if let (Value::Object(object), Value::Object(fields)) = (&mut object, json!(totals)) {
        object.extend(fields);
    }
    object
}
