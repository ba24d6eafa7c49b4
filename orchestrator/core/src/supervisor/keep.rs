//! Collects the work of an agent while it works, for sessions at a place: what was collected comes home,
//! and a place that is lost loses no more than what was written since.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::session::record::SessionRecord;
use crate::supervisor::run::InternalEvent;
use crate::supervisor::step::Input;
use studio_git::head;

/// The interval in which new commits are looked for.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// When to collect, and the collection that runs.
pub(super) struct WorkKeeper {
    /// The interval; `None` if nothing is collected within turns.
    interval: Option<Duration>,
    git_dir: PathBuf,
    last: Instant,
    next_look: Instant,
    head: Option<String>,
    running: Option<JoinHandle<()>>,
}

impl WorkKeeper {
    /// Creates the keeper of a session.
    pub(super) fn new(record: &SessionRecord) -> WorkKeeper {
        let seconds = record.run_mode.home.as_ref().map(|home| home.keep_seconds);
        WorkKeeper {
            interval: seconds.map(Duration::from_secs),
            git_dir: record.session_repo.git_dir.clone(),
            last: Instant::now(),
            next_look: Instant::now() + COMMIT_INTERVAL,
            head: None,
            running: None,
        }
    }

    /// Returns when the work is to be collected: after a commit, or when the interval has passed. Cancel
    /// safe.
    pub(super) async fn due(&mut self) {
        let Some(interval) = self.interval else { return std::future::pending().await };
        loop {
            tokio::time::sleep_until(self.next_look).await;
            self.next_look = Instant::now() + COMMIT_INTERVAL;
            if self.running.as_ref().is_some_and(|running| !running.is_finished()) {
                continue;
            }
            let head = head::read(&self.git_dir).ok().and_then(|state| state.commit);
            let is_new = self.head.is_some() && self.head != head;
            self.head = head;
            if is_new || self.last.elapsed() >= interval {
                return;
            }
        }
    }

    /// Starts to collect.
    pub(super) fn start(
        &mut self,
        collect: impl Future<Output = Input> + Send + 'static,
        tx: UnboundedSender<InternalEvent>,
    ) {
        self.last = Instant::now();
        self.running = Some(tokio::spawn(async move {
            // A failure is reported at the end of the turn, when everything is collected again.
            if let Input::Imported { work } = collect.await {
                let _ = tx.send(InternalEvent::Input(Input::Kept { work }));
            }
        }));
    }

    /// Returns the collection that runs, which must end before another one begins.
    pub(super) fn take_running(&mut self) -> Option<JoinHandle<()>> {
        self.running.take()
    }
}
