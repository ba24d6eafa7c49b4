//! The sessions as all open pages see them: one reading of what changed on disk for all, with
//! numbered changes, so that a page that was away gets what it missed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::failure::Result;
use base::id::Id;
use studio_core::live_sessions::LiveSessions;
use studio_core::overview::Overview;
use studio_core::project::Project;
use studio_core::session_view::SessionView;
use studio_core::standing;
use studio_git::import;
use tokio::sync::watch;

use crate::commands::changes::DirectoryWatcher;
use crate::commands::context::CommandContext;

/// The minimum time between two readings of the sessions.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);
/// The number of changes that are remembered; after more, a page reads everything again.
const MAX_CHANGES: usize = 1000;

/// The sessions, kept up to date.
pub(crate) struct SessionFeed {
    context: CommandContext,
    inner: Mutex<FeedState>,
    /// The number of the last change.
    last: watch::Sender<u64>,
    /// Random: numbers of another server mean nothing here.
    run: String,
}

struct FeedState {
    sessions: LiveSessions,
    /// A hash of the rows of each session, as the pages last saw them.
    seen_rows: BTreeMap<Id, u64>,
    changes: VecDeque<(u64, BTreeSet<Id>)>,
    compared: Option<u64>,
}

/// What changed since an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FeedChange {
    /// These sessions.
    Sessions(BTreeSet<Id>),
    /// Unknown: read everything.
    Everything,
}

impl SessionFeed {
    /// Reads all sessions.
    pub(crate) fn read(context: CommandContext) -> Result<SessionFeed> {
        let sessions = LiveSessions::read(&context)?;
        let seen_rows = row_hashes(&sessions);
        let run = base::random::hex::<4>().unwrap_or_else(|_: io::Error| "0".to_owned());
        let inner = FeedState { sessions, seen_rows, changes: VecDeque::new(), compared: None };
        Ok(SessionFeed { context, inner: Mutex::new(inner), last: watch::Sender::new(0), run })
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function with the current sessions.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&LiveSessions) -> T) -> T {
        read(&self.lock().sessions)
    }

    /// Reads what changed on disk now, so that an answer includes what was done before the request.
    pub(crate) fn refresh(&self) {
        let mut inner = self.lock();
        // A damaged directory is shown as it was; each session says what is wrong with it.
        if inner.sessions.refresh(&self.context).unwrap_or(false) {
            self.publish(&mut inner);
        }
    }

    /// Returns the path of the stream with everything that happens from now on.
    pub(crate) fn stream_path(&self) -> String {
        format!("/api/v1/events?after={}", self.event_id(*self.last.borrow()))
    }

    /// Returns the id of an event.
    pub(crate) fn event_id(&self, number: u64) -> String {
        format!("{}-{number}", self.run)
    }

    /// Returns a receiver of the number of the last change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// Parses the id of an event of this server.
    pub(crate) fn number(&self, event_id: &str) -> Option<u64> {
        event_id.strip_prefix(&self.run)?.strip_prefix('-')?.parse().ok()
    }

    /// Returns the last number, and what changed after an earlier one.
    pub(crate) fn changes_since(&self, number: Option<u64>) -> (u64, FeedChange) {
        let inner = self.lock();
        let last = *self.last.borrow();
        let first_known = inner.changes.front().map_or(last + 1, |(first, _)| *first);
        let Some(number) = number.filter(|it| *it <= last && *it + 1 >= first_known) else {
            return (last, FeedChange::Everything);
        };
        let newer = inner.changes.iter().filter(|(at, _)| *at > number);
        (last, FeedChange::Sessions(newer.flat_map(|(_, ids)| ids.iter().cloned()).collect()))
    }

    /// Records which sessions look different now.
    fn publish(&self, inner: &mut FeedState) {
        let rows = row_hashes(&inner.sessions);
        let is_other = |(id, hash): &(&Id, &u64)| inner.seen_rows.get(*id) != Some(*hash);
        let mut changed: BTreeSet<Id> =
            rows.iter().filter(is_other).map(|(id, _)| id.clone()).collect();
        changed.extend(inner.seen_rows.keys().filter(|id| !rows.contains_key(*id)).cloned());
        inner.seen_rows = rows;
        if changed.is_empty() {
            return;
        }
        let number = *self.last.borrow() + 1;
        inner.changes.push_back((number, changed));
        if inner.changes.len() > MAX_CHANGES {
            inner.changes.pop_front();
        }
        self.last.send_replace(number);
    }

    /// Reads changes on disk until the future is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut changes = DirectoryWatcher::start();
        let root = self.context.store.root().to_owned();
        changes.add(&root);
        changes.add(&root.join("sessions"));
        let mut watched = BTreeSet::new();
        loop {
            let new: Vec<Id> = self.with(|sessions| {
                let open = sessions.views().filter(|view| !view.state.is_over());
                let ids = open.map(|view| view.record.id.clone());
                ids.filter(|id| !watched.contains(id)).collect()
            });
            for id in new {
                changes.add(&self.context.store.dir(&id));
                watched.insert(id);
            }
            let feed = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || {
                let begin = Instant::now();
                feed.refresh();
                let cost = begin.elapsed();
                feed.compare();
                cost
            });
            // The thread ends only by a panic, which the next reading repeats.
            if let Ok(cost) = looked.await {
                changes.set_cost(cost);
            }
            tokio::time::sleep(REFRESH_INTERVAL).await;
            changes.next().await;
        }
    }

    /// Compares the sessions with their branches and with each other, if that may have another result.
    fn compare(&self) {
        let (version, mut views) = {
            let inner = self.lock();
            let version = inner.sessions.comparison_version(&self.context);
            if inner.compared == Some(version) {
                return;
            }
            let views: Vec<SessionView> = inner.sessions.compared_views().cloned().collect();
            (version, views)
        };
        let project: &Project = &self.context;
        let has_more = standing::compare(&project.repository, &project.store, &mut views);
        for view in &mut views {
            view.tampered = import::tampering_warning(&view.record.session_repo);
        }
        let mut inner = self.lock();
        inner.compared = (!has_more).then_some(version);
        let changed = views.iter().filter(|view| inner.sessions.apply(view)).count();
        if changed > 0 {
            self.publish(&mut inner);
        }
    }
}

fn row_hashes(sessions: &LiveSessions) -> BTreeMap<Id, u64> {
    let mut hashers: BTreeMap<Id, DefaultHasher> = BTreeMap::new();
    for row in Overview::of(&sessions.oldest_first()).rows {
        format!("{row:?}").hash(hashers.entry(row.key.id.clone()).or_default());
    }
    hashers.into_iter().map(|(id, hasher)| (id, hasher.finish())).collect()
}
