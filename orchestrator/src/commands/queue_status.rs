//! `studio accept --all --status`: the progress of the landing queue, and what the next one would land.

use base::failure::Result;
use base::id::Id;
use base::text::printable;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use studio_core::landing::queue::progress::{self, QueueState, QueuedSession, QueuedState};
use studio_core::radar::{self, RadarSession};
use studio_core::session::state::SessionState;

use crate::commands::context::CommandContext;
use crate::report;
use crate::report::table;

/// The landing queue of a repository.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueueReport {
    /// The version of the form.
    pub schema: u32,
    /// `running`, `over`, `interrupted` if it was killed, or `none`.
    pub state: String,
    /// When the last queue began; `null` without one.
    pub began_at: Option<String>,
    /// The sessions of the last queue.
    pub sessions: Vec<QueuedSessionReport>,
    /// The ready sessions, which the next `studio accept --all` takes, in the best order.
    pub ready: Vec<String>,
}

/// A session in the queue.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueuedSessionReport {
    /// The session.
    pub id: String,
    /// `waiting`, `landed` or `refused`.
    pub state: String,
    /// What happens to it now, for example which check runs; `null` if nothing does.
    pub activity: Option<String>,
    /// When this began.
    pub since: String,
    /// The commit as which it landed; `null` if its work landed elsewhere.
    pub commit: Option<String>,
    /// Why it was refused.
    pub reason: Option<String>,
}

impl QueuedSessionReport {
    fn new(session: QueuedSession, is_running: bool) -> QueuedSessionReport {
        let (state, commit, reason) = match session.state {
            QueuedState::Waiting => ("waiting", None, None),
            QueuedState::Landed(commit) => ("landed", commit, None),
            QueuedState::Refused(reason) => ("refused", None, Some(reason)),
        };
        QueuedSessionReport {
            id: session.id.to_string(),
            state: state.to_owned(),
            activity: (is_running && !session.activities.is_empty())
                .then(|| session.activities.join(", ")),
            since: session.since,
            commit,
            reason,
        }
    }
}

/// Reads the report. Changes nothing.
pub(crate) fn read(context: &CommandContext) -> Result<QueueReport> {
    let (state, progress) = progress::read(context)?;
    let is_running = state == QueueState::Running;
    let name = match state {
        QueueState::None => "none",
        QueueState::Running => "running",
        QueueState::Over => "over",
        QueueState::Interrupted => "interrupted",
    };
    let sessions = progress.sessions.into_iter();
    Ok(QueueReport {
        schema: 1,
        state: name.to_owned(),
        began_at: (state != QueueState::None).then_some(progress.began_at),
        sessions: sessions.map(|session| QueuedSessionReport::new(session, is_running)).collect(),
        ready: ready_in_order(context)?.iter().map(Id::to_string).collect(),
    })
}

/// Returns the ready sessions in the best landing order, as of their last snapshots; those without
/// changes come last.
fn ready_in_order(context: &CommandContext) -> Result<Vec<Id>> {
    let mut views = context.views()?;
    views.retain(|view| view.state == SessionState::Ready);
    let with_work = views
        .iter()
        .filter_map(|view| RadarSession::of(&view.record, &view.facts.summary, &view.state));
    let report = radar::scan(&context.repository, &with_work.collect::<Vec<_>>(), usize::MAX)?;
    let mut ready: Vec<Id> = report.order.into_iter().map(|step| step.id).collect();
    for view in views {
        if !ready.contains(&view.record.id) {
            ready.push(view.record.id);
        }
    }
    Ok(ready)
}

/// Prints the report.
pub(super) fn run(context: &CommandContext) -> Result<u8> {
    let queue = read(context)?;
    if context.json {
        report::json_line(&json!(queue));
        return Ok(0);
    }
    let now = context.clock.now();
    report::out(&heading(&queue, now));
    for session in &queue.sessions {
        report::out(&format!("  {}: {}", session.id, sentence(session, now)));
    }
    if queue.state != "running" && !queue.ready.is_empty() {
        report::out("ready to land: studio accept --all");
        for id in &queue.ready {
            report::out(&format!("  {id}"));
        }
    }
    Ok(0)
}

/// Returns what the report says about the queue as a whole.
pub(crate) fn heading(queue: &QueueReport, now: Timestamp) -> String {
    let age = queue.began_at.as_ref().map(|began| table::age(began, now)).unwrap_or_default();
    match queue.state.as_str() {
        "none" => "no queue has run yet".to_owned(),
        "running" => format!("the queue has been running for {age}"),
        "interrupted" => {
            format!(
                "the queue that began {age} ago was killed: what landed stays, the rest is ready"
            )
        }
        _ => format!("the last queue began {age} ago"),
    }
}

/// Says how far a session is.
pub(crate) fn sentence(session: &QueuedSessionReport, now: Timestamp) -> String {
    let age = table::age(&session.since, now);
    match (session.state.as_str(), &session.activity) {
        ("waiting", Some(activity)) => format!("{} for {age}", printable(activity)),
        ("waiting", None) => "waiting".to_owned(),
        ("landed", _) => match &session.commit {
            Some(commit) => format!("landed as {}", base::text::head(commit, 12)),
            None => "landed elsewhere".to_owned(),
        },
        _ => format!("refused: {}", printable(session.reason.as_deref().unwrap_or_default())),
    }
}
