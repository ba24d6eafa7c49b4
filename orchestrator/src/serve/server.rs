//! Everything that the answers of the server are made from.

use std::sync::Arc;

use axum::extract::Path;
use base::failure::{Failure, Result};
use base::id::Id;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::subcommand::SubcommandRunner;
use crate::serve::access::PageAccess;
use crate::serve::review_cache::ReviewCache;
use crate::serve::session_feed::SessionFeed;

/// Everything that answers are made from.
#[derive(Clone)]
pub(crate) struct PageServer {
    inner: Arc<ServerState>,
}

struct ServerState {
    common: CommonArgs,
    runner: SubcommandRunner,
    access: PageAccess,
    feed: Arc<SessionFeed>,
    reviews: ReviewCache,
    title: String,
}

impl PageServer {
    /// Reads the sessions.
    pub(crate) fn new(
        common: &CommonArgs,
        context: CommandContext,
        access: PageAccess,
    ) -> Result<PageServer> {
        // Requests are answered without messages on the terminal.
        let common = CommonArgs { json: true, ..common.clone() };
        let root = context.repository.main_checkout.as_ref();
        let root = root.unwrap_or(&context.repository.common_dir);
        let title = root.file_name().unwrap_or(root.as_os_str()).to_string_lossy().into_owned();
        let runner = SubcommandRunner::new(&common)?;
        let feed = Arc::new(SessionFeed::read(context)?);
        let reviews = ReviewCache::default();
        let inner = ServerState { common, runner, access, feed, reviews, title };
        Ok(PageServer { inner: Arc::new(inner) })
    }

    /// Returns the sessions.
    pub(crate) fn feed(&self) -> Arc<SessionFeed> {
        Arc::clone(&self.inner.feed)
    }

    /// Returns who gets an answer.
    pub(crate) fn access(&self) -> &PageAccess {
        &self.inner.access
    }

    /// Returns the runner of commands.
    pub(crate) fn runner(&self) -> &SubcommandRunner {
        &self.inner.runner
    }

    /// Returns the open reviews.
    pub(crate) fn reviews(&self) -> &ReviewCache {
        &self.inner.reviews
    }

    /// Returns the name of the repository.
    pub(crate) fn title(&self) -> &str {
        &self.inner.title
    }

    /// Runs a function on another thread, with a context as a command has it: files are read there.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&PageServer, &CommandContext) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let server = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let context = CommandContext::open(&server.inner.common)?;
            read(&server, &context)
        });
        task.await.unwrap_or_else(|error| {
            Err(Failure::failed("the server failed to answer").because(error))
        })
    }
}

/// The id of a session in a path. A path that is none names no session.
pub(crate) fn session_id(Path(text): Path<String>) -> Result<Id> {
    Id::parse(&text).map_err(|_| Failure::not_found("no such session"))
}
