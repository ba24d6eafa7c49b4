//! Changes of the plan and of the landing queue as server-sent events: of their files, of their process
//! and of the sessions. The id of an event is a digest of what decides the page, so nothing must be
//! remembered.

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
use studio_core::landing::queue::progress;

use crate::commands::context::CommandContext;
use crate::commands::plan;
use crate::serve::error_answer::ErrorAnswer;
use crate::serve::events;
use crate::serve::server::PageServer;

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_millis(500);
/// After how many looks something is sent, so that a connection that is gone is noticed.
const KEEP_ALIVE_LOOKS: u32 = 30;

/// A page that shows files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FilePage {
    Plan,
    Queue,
}

impl FilePage {
    /// Returns the name of its events, and of its part of the API.
    fn name(self) -> &'static str {
        match self {
            FilePage::Plan => "plan",
            FilePage::Queue => "queue",
        }
    }

    /// Finds the files.
    fn watch(self, context: &CommandContext) -> Result<WatchedFiles> {
        let (files, lock) = match self {
            FilePage::Plan => (plan::watched_files(context)?, plan::lock_path(context)?),
            FilePage::Queue => {
                let (file, lock) = progress::paths(context);
                (vec![file], lock)
            }
        };
        Ok(WatchedFiles { files, lock })
    }

    /// Returns the path of the stream with everything that happens from now on.
    pub(crate) fn stream_path(
        self,
        server: &PageServer,
        context: &CommandContext,
    ) -> Result<String> {
        let id = self.watch(context)?.event_id(server);
        Ok(format!("/api/v1/{}/events?after={id}", self.name()))
    }
}

/// The files whose changes are events, and the lock of the process that writes them.
struct WatchedFiles {
    files: Vec<PathBuf>,
    lock: PathBuf,
}

impl WatchedFiles {
    /// Returns the id of the present state.
    fn event_id(&self, server: &PageServer) -> String {
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

/// Where the stream starts.
#[derive(Deserialize)]
pub(super) struct FileEventsQuery {
    /// The id of the last event that is known.
    after: Option<String>,
}

/// An event `plan` whenever the plan may look different.
pub(super) async fn plan(
    server: State<PageServer>,
    query: Query<FileEventsQuery>,
    headers: HeaderMap,
) -> std::result::Result<Response, ErrorAnswer> {
    stream_of(FilePage::Plan, server, query, headers).await
}

/// An event `queue` whenever the landing queue may look different.
pub(super) async fn queue(
    server: State<PageServer>,
    query: Query<FileEventsQuery>,
    headers: HeaderMap,
) -> std::result::Result<Response, ErrorAnswer> {
    stream_of(FilePage::Queue, server, query, headers).await
}

/// Returns the events of a page. The first one says where the stream starts.
async fn stream_of(
    page: FilePage,
    State(server): State<PageServer>,
    Query(query): Query<FileEventsQuery>,
    headers: HeaderMap,
) -> std::result::Result<Response, ErrorAnswer> {
    let watch = server.read(move |_, context| page.watch(context)).await;
    let watch = watch.map_err(ErrorAnswer::api)?;
    let known = events::last_event_id(&headers).map(str::to_owned).or(query.after);
    let rx = server.feed().subscribe();
    let state = (server, watch, rx, known);
    let next = move |(server, watch, mut rx, known): (
        PageServer,
        WatchedFiles,
        _,
        Option<String>,
    )| async move {
        for _ in 0..KEEP_ALIVE_LOOKS {
            let id = watch.event_id(&server);
            let name = if known.is_none() { "start" } else { page.name() };
            if known.as_ref() != Some(&id) {
                let part = events::event(&id, name, "{}");
                return Some((part, (server, watch, rx, Some(id))));
            }
            // A change of a session ends the wait.
            let rx: &mut tokio::sync::watch::Receiver<_> = &mut rx;
            let _ = tokio::time::timeout(INTERVAL, rx.changed()).await;
        }
        Some((": \n\n".to_owned(), (server, watch, rx, known)))
    };
    Ok(events::event_stream(stream::unfold(state, next)))
}
