//! The list of operations: what can be undone.

use axum::extract::State;
use maud::html;
use studio_git::oplog;

use crate::serve::error_answer::PageResult;
use crate::serve::pages::board;
use crate::serve::pages::layout::{self, NavigationItem};
use crate::serve::server::PageServer;

/// Maximum number of operations on the page.
const MAX_OPERATIONS: usize = 200;

/// Shows the newest operations.
pub(crate) async fn show(State(server): State<PageServer>) -> PageResult {
    let stream = server.feed().stream_path();
    let (operations, now) = server
        .read(|_, context| Ok((oplog::list(&context.repository)?, context.clock.now())))
        .await?;
    let content = html! {
        h1 { "Operations" }
        @if operations.is_empty() { p.empty { "No operations yet." } }
        ol.operations data-list {
            @for operation in operations.iter().rev().take(MAX_OPERATIONS) {
                li #(operation.id) {
                    code { (operation.id) }
                    span { (operation.kind.name()) }
                    span.sessions {
                        @for id in &operation.sessions {
                            a href=(layout::session_path(id)) { (id) } " "
                        }
                    }
                    (layout::age(&operation.time, now))
                    @match &operation.undone_by {
                        Some(by) => span { "undone by " (by) },
                        None if operation.kind.name() == "undo" => span {},
                        None => (board::undo(&operation.id)),
                    }
                }
            }
        }
        @if operations.len() > MAX_OPERATIONS { p { "Older ones: " code { "studio operations" } } }
    };
    Ok(layout::page(&server, NavigationItem::Operations, "Operations", Some(&stream), &content))
}
