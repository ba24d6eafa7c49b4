//! The landing queue: its progress, and the button that starts it.

use axum::extract::State;
use jiff::Timestamp;
use maud::{Markup, html};

use crate::commands::queue_status::{self, QueueReport};
use crate::serve::error_answer::PageResult;
use crate::serve::file_events::FilePage;
use crate::serve::pages::layout::{self, NavigationItem};
use crate::serve::server::PageServer;

/// Shows the queue.
pub(crate) async fn show(State(server): State<PageServer>) -> PageResult {
    let (stream, queue, now) = server
        .read(|server, context| {
            server.feed().refresh();
            // The stream begins before the queue is read, so that no change is missed.
            let stream = FilePage::Queue.stream_path(server, context)?;
            Ok((stream, queue_status::read(context)?, context.clock.now()))
        })
        .await?;
    let content = content(&queue, now);
    Ok(layout::page(&server, NavigationItem::Queue, "Landing", Some(&stream), &content))
}

fn content(queue: &QueueReport, now: Timestamp) -> Markup {
    let is_running = queue.state == "running";
    let settled = queue.sessions.iter().filter(|session| session.state != "waiting").count();
    html! {
        h1 { "Landing" }
        p #queue-state role="status" { (queue_status::heading(queue, now)) "." }
        @if is_running {
            p.plan-progress {
                label for="progress" { (settled) " of " (queue.sessions.len()) " sessions are settled" }
                progress #progress max=(queue.sessions.len()) value=(settled) {}
            }
        }
        @if !queue.sessions.is_empty() {
            ol.queue data-list {
                @for session in &queue.sessions {
                    li #(format!("queued-{}", session.id)) {
                        span.state.(kind(&session.state, session.activity.is_some())) { (session.state) }
                        a href=(format!("/sessions/{}", session.id)) { (session.id) }
                        p { (queue_status::sentence(session, now)) }
                    }
                }
            }
        }
        @if !is_running {
            section #ready aria-labelledby="ready-title" {
                h2 #ready-title { "Ready to land" }
                @if queue.ready.is_empty() { p.empty { "No session is ready." } }
                @else {
                    ol { @for id in &queue.ready { li { a href=(format!("/sessions/{id}")) { (id) } } } }
                    form.action action="/api/v1/accept" method="post" data-done="the queue has ended" {
                        button.primary #land-all { "Land all, in the best order, as far as they pass together" }
                    }
                }
            }
        }
        p { a href="/operations" { "What landed, with undo" } }
    }
}

/// Returns the class of a state.
fn kind(state: &str, is_active: bool) -> &'static str {
    match (state, is_active) {
        ("landed", _) => "good",
        ("refused", _) => "bad",
        (_, true) => "busy",
        _ => "rest",
    }
}
