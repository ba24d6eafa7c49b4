//! The pipeline for display: its range, and each stage with its session.

use base::failure::Result;
use base::lock::Lock;
use base::text::{count, head, printable};
use serde_json::{Value, json};
use studio_core::session::state::SessionState;
use studio_core::session::summary::Disposition;
use studio_core::session_view::SessionView;

use super::pipeline;
use super::range::{self, CommitRange};
use super::record::{self, PipelineRecord, SdlcState};
use super::stages::{PersonaStage, STAGES, StageSessions};
use crate::commands::context::CommandContext;
use crate::report;
use crate::report::table;

/// Returns whether a process advances the pipeline.
pub(crate) fn is_running(context: &CommandContext) -> bool {
    Lock::is_held(&record::lock_path(&context.repository)).unwrap_or(false)
}

/// Prints the pipeline as a table, and what to do next.
pub(crate) fn show(context: &CommandContext, record: &PipelineRecord, sessions: &StageSessions) {
    let commits = count(record.commits, "commit");
    let range = range::name(record, 12);
    report::out(&printable(&format!("{commits} of {}: {range}", record.branch)));
    let row = |(stage, session): (&PersonaStage, &Option<SessionView>)| {
        let persona = stage.persona.to_owned();
        let Some(view) = session else {
            return [persona, "pending".to_owned(), String::new(), String::new(), String::new()];
        };
        let cost = cost_usd(view).map_or_else(|| "-".to_owned(), |usd| format!("${usd:.2}"));
        let state = view.state.name().to_owned();
        [persona, state, table::changes(view), cost, view.record.id.to_string()]
    };
    let rows = STAGES.iter().zip(sessions).map(row).collect();
    report::out(&table::plain(["STAGE", "STATE", "CHANGES", "COST", "SESSION"], rows));
    for command in next_commands(context, record, sessions) {
        report::say(&format!("next: {command}"));
    }
}

/// Returns the pipeline as JSON.
pub(crate) fn json(
    context: &CommandContext,
    record: &PipelineRecord,
    sessions: &StageSessions,
) -> Value {
    let stages: Vec<Value> = STAGES
        .iter()
        .zip(sessions)
        .map(|(stage, session)| {
            let view = session.as_ref();
            let work = view.and_then(SessionView::work);
            json!({
                "stage": stage.persona,
                "session": view.map(|view| &view.record.id),
                "state": view.map_or("pending", |view| view.state.name()),
                "why": view.and_then(SessionView::reason),
                "files_changed": work.map(|work| work.files_changed),
                "insertions": work.map(|work| work.insertions),
                "deletions": work.map(|work| work.deletions),
                "cost_usd": view.and_then(cost_usd),
                "commit": view.and_then(landed_commit),
            })
        })
        .collect();
    json!({
        "id": record.id, "branch": record.branch, "from": record.from, "to": record.to,
        "commits": record.commits, "complete": record.complete, "running": is_running(context),
        "stages": stages, "next": next_commands(context, record, sessions),
    })
}

/// Returns the JSON of `sdlc status`.
pub(crate) fn status_json(
    context: &CommandContext,
    state: &SdlcState,
    sessions: &StageSessions,
) -> Value {
    let pipeline = state.pipeline.as_ref().map(|record| json(context, record, sessions));
    json!({"schema": 1, "cursors": state.cursors, "pipeline": pipeline})
}

/// Returns the suggested commands.
fn next_commands(
    context: &CommandContext,
    record: &PipelineRecord,
    sessions: &StageSessions,
) -> Vec<String> {
    let is_running = is_running(context);
    if !record.complete && !is_running {
        return vec!["studio sdlc run".to_owned()];
    }
    let views = sessions.iter().flatten();
    let ids = |is_wanted: fn(&SessionState) -> bool| -> Vec<&str> {
        let wanted = views.clone().filter(|view| is_wanted(&view.state));
        wanted.map(|view| view.record.id.as_str()).collect()
    };
    match record.complete {
        true => match ids(|state| *state == SessionState::Ready).join(" ") {
            ids if ids.is_empty() => Vec::new(),
            ids => vec![format!("studio accept {ids}")],
        },
        false => match ids(SessionState::is_active).last() {
            Some(id) => vec![format!("studio logs {id} -f"), format!("studio stop {id}")],
            None => Vec::new(),
        },
    }
}

/// Prints the pipeline at the end of `sdlc run`.
pub(crate) fn end(context: &CommandContext, record: &PipelineRecord, sessions: &StageSessions) {
    match context.json {
        true => summary(&json(context, record, sessions)),
        false => show(context, record, sessions),
    }
}

/// Reports that there is nothing to do, and what of the last run has not landed.
pub(crate) fn no_commits(
    context: &CommandContext,
    state: &SdlcState,
    range: &CommitRange,
) -> Result<()> {
    let last = state.pipeline.as_ref();
    let sessions = last.map(|record| pipeline::sessions_of(context, record)).transpose()?;
    let last = last.zip(sessions);
    if context.json {
        let last = last.map_or(Value::Null, |(record, sessions)| json(context, record, &sessions));
        summary(&last);
        return Ok(());
    }
    let branch = &range.branch;
    report::say(&match &range.from {
        Some(from) => format!("no new commits on `{branch}` after {}", head(from, 12)),
        None => format!("no new commits on `{branch}`"),
    });
    for command in last.iter().flat_map(|(record, it)| next_commands(context, record, it)) {
        report::say(&format!("next: {command}"));
    }
    Ok(())
}

fn summary(pipeline: &Value) {
    report::json_line(&json!({"type": "summary", "schema": 1, "pipeline": pipeline}));
}

fn cost_usd(view: &SessionView) -> Option<f64> {
    view.facts.summary.usage.as_ref()?.cost_usd
}

fn landed_commit(view: &SessionView) -> Option<String> {
    match &view.facts.disposition {
        Disposition::Accepted { commit, .. } => commit.clone(),
        Disposition::Open | Disposition::Landing | Disposition::Discarded { .. } => None,
    }
}
