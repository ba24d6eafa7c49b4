//! The changes of the plan as server-sent events: of its files, of its process and of its sessions.
//! The id of an event is a digest of what decides the page, so nothing must be remembered.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use base::config::trust::hash;
use base::failure::Result;
use base::lock::Lock;
use futures_util::stream;
use serde::Deserialize;

use crate::commands::context::CommandContext;
use crate::commands::plan;
use crate::serve::error_answer::ErrorAnswer;
use crate::serve::events;
use crate::serve::server::PageServer;

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_millis(500);
/// After how many looks something is sent, so that a connection that is gone is noticed.
const KEEP_ALIVE_LOOKS: u32 = 30;

/// The files whose changes are events.
pub(crate) struct PlanWatch {
    files: Vec<PathBuf>,
    lock: PathBuf,
}

impl PlanWatch {
    /// Finds the files of the plan.
    pub(crate) fn new(context: &CommandContext) -> Result<PlanWatch> {
        Ok(PlanWatch { files: plan::watched_files(context)?, lock: plan::lock_path(context)? })
    }

    /// Returns the id of the present state.
    pub(crate) fn event_id(&self, server: &PageServer) -> String {
        let number = *server.feed().subscribe().borrow();
        let meta = |path: &PathBuf| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
        };
        let files: Vec<_> = self.files.iter().map(meta).collect();
        let is_running = Lock::is_held(&self.lock).ok();
        let state = format!("{} {files:?} {is_running:?}", server.feed().event_id(number));
        hash(state.as_bytes())
    }
}

/// Returns the path of the stream with everything that happens from now on.
pub(crate) fn stream_path(server: &PageServer, context: &CommandContext) -> Result<String> {
    let id = PlanWatch::new(context)?.event_id(server);
    Ok(format!("/api/v1/plan/events?after={id}"))
}

/// Where the stream starts.
#[derive(Deserialize)]
pub(super) struct PlanEventsQuery {
    /// The id of the last event that is known.
    after: Option<String>,
}

/// An event `plan` whenever the plan may look different. The first event says where the stream
/// starts.
pub(super) async fn plan(
    State(server): State<PageServer>,
    Query(query): Query<PlanEventsQuery>,
    headers: HeaderMap,
) -> std::result::Result<Response, ErrorAnswer> {
    let watch = server.read(|_, context| PlanWatch::new(context)).await;
    let watch = watch.map_err(ErrorAnswer::api)?;
    let known = events::last_event_id(&headers).map(str::to_owned).or(query.after);
    let rx = server.feed().subscribe();
    let state = (server, watch, rx, known);
    Ok(events::event_stream(stream::unfold(state, |(server, watch, mut rx, known)| async move {
        for _ in 0..KEEP_ALIVE_LOOKS {
            let id = watch.event_id(&server);
            let name = if known.is_none() { "start" } else { "plan" };
            if known.as_ref() != Some(&id) {
                let part = events::event(&id, name, "{}");
                return Some((part, (server, watch, rx, Some(id))));
            }
            // A change of a session ends the wait.
            let _ = tokio::time::timeout(INTERVAL, rx.changed()).await;
        }
        Some((": \n\n".to_owned(), (server, watch, rx, known)))
    })))
}
