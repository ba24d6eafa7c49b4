//! The board: all sessions by state, those that need somebody first.

use axum::extract::{Query, State};
use maud::{Markup, html};
use serde::Deserialize;
use studio_core::live_sessions::LiveSessions;
use studio_core::overview::{Overview, OverviewRow, RowFilter, SessionGroup};
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;

use base::text::{count, printable};
use jiff::Timestamp;

use crate::serve::error_answer::PageResult;
use crate::serve::pages::layout::{self, NavigationItem};
use crate::serve::server::PageServer;

/// Maximum number of accepted and discarded sessions on the page without a filter.
const MAX_DONE: usize = 20;

/// The query of the board.
#[derive(Deserialize)]
pub(crate) struct BoardQuery {
    /// Words that a row must contain.
    #[serde(default)]
    q: String,
}

/// Shows the board.
pub(crate) async fn show(
    State(server): State<PageServer>,
    Query(query): Query<BoardQuery>,
) -> PageResult {
    let stream = server.feed().stream_path();
    let content = server
        .read(move |server, context| {
            server.feed().refresh();
            let now = context.clock.now();
            Ok(server.feed().with(|sessions| content(sessions, &query.q, now)))
        })
        .await?;
    Ok(layout::page(&server, NavigationItem::Board, "Sessions", Some(&stream), &content))
}

fn content(sessions: &LiveSessions, words: &str, now: Timestamp) -> Markup {
    let overview = Overview::of(&sessions.oldest_first());
    let filter = RowFilter::parse(words);
    let rows: Vec<&OverviewRow> = overview.filtered(&filter).collect();
    let unreadable: Vec<_> = sessions.unreadable().collect();
    html! {
        h1.hidden { "Sessions" }
        form #filter.filter role="search" data-live="main" {
            label.hidden for="q" { "Filter sessions" }
            input #q type="search" name="q" value=(words) placeholder="Filter: words, a state, an agent"
                autocomplete="off" data-keep;
            span.counts {
                @for group in SessionGroup::ALL {
                    a href=(format!("/?q={}", group.title().replace(' ', "+"))) {
                        (group.title()) " " b { (overview.count(group)) }
                    }
                }
                @if !filter.is_empty() { a href="/" { "all" } }
                @if let Some(usd) = overview.cost_usd() { span { (format!("${usd:.2}")) } }
            }
        }
        @for (id, failure) in &unreadable {
            p.warning { (id) ": " (printable(&failure.sentence())) " " code { "studio doctor" } }
        }
        @if overview.rows.is_empty() && unreadable.is_empty() {
            p.empty { "No sessions yet. " a href="/new" { "Start some tasks" } }
        } @else if rows.is_empty() && unreadable.is_empty() {
            p.empty { "No session matches." }
        }
        @for group in SessionGroup::ALL {
            (section(sessions, group, &rows, !filter.is_empty(), now))
        }
    }
}

fn section(
    sessions: &LiveSessions,
    group: SessionGroup,
    rows: &[&OverviewRow],
    is_filtered: bool,
    now: Timestamp,
) -> Markup {
    let rows: Vec<_> = rows.iter().filter(|row| row.group == group).collect();
    let max = if group == SessionGroup::Done && !is_filtered { MAX_DONE } else { usize::MAX };
    let name = group.title().replace(' ', "-");
    html! {
        @if !rows.is_empty() {
            section.group #(name) aria-labelledby=(format!("{name}-title")) {
                h2 #(format!("{name}-title")) { (group.title()) " " span.number { (rows.len()) } }
                ul.rows data-list {
                    @for row in rows.iter().take(max) {
                        @let session = sessions.get(&row.key.id);
                        @if let Some(Ok(view)) = session.map(|session| &session.view) {
                            (row_item(row, view, now))
                        }
                    }
                }
                @if rows.len() > max {
                    p { a href="/?q=done" { (count(rows.len() - max, "older session")) } }
                }
            }
        }
    }
}

fn row_item(row: &OverviewRow, view: &SessionView, now: Timestamp) -> Markup {
    let id = &row.key.id;
    let name = match row.key.request {
        Some(number) => format!("row-{id}-{number}"),
        None => format!("row-{id}"),
    };
    let path = layout::session_path(id);
    html! {
        li.row #(name) data-new[row.is_new] {
            div.row-state { (layout::state(&row.state)) }
            div.row-main {
                a.task href=(path) { (printable(&row.task)) }
                p.text title=(printable(&row.text)) { (printable(&row.text)) }
                @if let Some(warning) = &row.warning {
                    p.warning { (printable(warning)) "; plain git in its worktree would run it" }
                }
            }
            div.row-facts {
                span.agent { (printable(&row.agent)) }
                @if let Some((insertions, deletions, is_dirty)) = row.changes {
                    (layout::changes(insertions, deletions, is_dirty))
                }
                (layout::checks(view.facts.summary.checks.as_deref()))
                (layout::cost(row.cost_usd))
                (layout::age(&row.since, now))
            }
            div.row-actions { (actions(row)) }
        }
    }
}

/// Returns the actions that are most likely now; the page of the session has all.
fn actions(row: &OverviewRow) -> Markup {
    let id = &row.key.id;
    if let Some(number) = row.key.request {
        return answers(row, number);
    }
    html! {
        @match &row.state {
            SessionState::Ready => {
                a.button href=(format!("/sessions/{id}/review")) { "Review" span.hidden { " " (id) } }
            }
            SessionState::Starting | SessionState::Working | SessionState::Checking
            | SessionState::Queued | SessionState::Waiting { .. } => {
                (layout::action(id, "stop", "Stop", "stopped", None))
            }
            SessionState::Stopped | SessionState::Crashed | SessionState::Failed { .. } => {
                (layout::action(id, "resume", "Resume", "resumed", None))
            }
            SessionState::Empty | SessionState::Landing => {}
            SessionState::Accepted | SessionState::Discarded => {
                @if let Some(operation) = &row.undo_operation { (undo(operation)) }
            }
        }
    }
}

/// Returns the button that undoes an operation.
pub(crate) fn undo(operation: &str) -> Markup {
    html! {
        form.action action="/api/v1/undo" method="post" data-done=(format!("{operation} is undone")) {
            input type="hidden" name="operation" value=(operation);
            button { "Undo" span.hidden { " " (operation) } }
        }
    }
}

/// Returns the answers to a permission request. The page of the session shows all of it.
fn answers(row: &OverviewRow, number: u32) -> Markup {
    html! {
        a.button href=(format!("{}#request-{number}", layout::session_path(&row.key.id))) {
            "Answer" span.hidden { " " (row.key.id) " " (number) }
        }
    }
}
