//! All sessions of a repository, kept up to date: only what changed on disk is read again. It has
//! no terminal in it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::failure::{Failure, Result};
use base::id::Id;
use base::parallel;

use crate::project::{self, Project};
use crate::queue_reasons::{self, QueueReasons};
use crate::seen;
use crate::session::disposition::Dispositions;
use crate::session::journal::{JournalTail, WorkSummary};
use crate::session::state::SessionState;
use crate::session::summary::JournalSummary;
use crate::session::{prepared_message, target_check};
use crate::session_view::SessionView;
use studio_git::names::BranchName;
use studio_git::refs;

/// A directory that changed this recently may change again without a new time of modification.
const DIRECTORY_TIME_STEP: Duration = Duration::from_millis(50);
/// The minimum number of sessions for reading them on several threads.
const MIN_SESSIONS_PER_THREAD: usize = 100;

/// The sessions of a repository.
pub struct LiveSessions {
    sessions: BTreeMap<Id, LiveSession>,
    dispositions: Arc<Dispositions>,
    operations: FileVersion,
    directory: FileVersion,
    /// What the queued sessions wait for, as of this version of the file.
    reasons: QueueReasons,
    queue: FileVersion,
}

/// One session.
pub struct LiveSession {
    /// Its current state, or why it cannot be read.
    pub view: Result<SessionView>,
    /// Whether the user has looked at it since it settled.
    pub is_seen: bool,
    /// The order of creation, beyond the resolution of the clock.
    created: u128,
    journal: FileVersion,
    seen: FileVersion,
    /// The files that prepare its landing.
    prepared: [FileVersion; 2],
    /// What was read of the journal since the first change.
    reader: Option<SummaryReader>,
}

/// Summarizes a growing journal.
struct SummaryReader {
    tail: JournalTail,
    summary: JournalSummary,
}

/// What is compared to find out whether a file changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct FileVersion {
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl FileVersion {
    /// Returns the version of a file; the default one if it does not exist.
    fn of(path: &Path) -> FileVersion {
        std::fs::metadata(path).map_or_else(
            |_| FileVersion::default(),
            |meta| FileVersion {
                inode: meta.ino(),
                bytes: meta.len(),
                modified: meta.modified().ok(),
            },
        )
    }

    /// Like [`FileVersion::of`], for a directory.
    fn of_directory(path: &Path) -> FileVersion {
        let version = FileVersion::of(path);
        let age = version.modified.and_then(|time| time.elapsed().ok());
        match age.is_some_and(|age| age < DIRECTORY_TIME_STEP) {
            // It equals no other version.
            true => FileVersion { inode: 0, bytes: u64::MAX, modified: None },
            false => version,
        }
    }
}

impl LiveSessions {
    /// Reads all sessions.
    pub fn read(project: &Project) -> Result<LiveSessions> {
        let operations = FileVersion::of(&operations_path(project));
        let mut sessions = LiveSessions {
            sessions: BTreeMap::new(),
            dispositions: project.dispositions()?,
            operations,
            directory: FileVersion::default(),
            reasons: QueueReasons::default(),
            queue: FileVersion::default(),
        };
        sessions.read_directory(project)?;
        sessions.explain_queued(project);
        Ok(sessions)
    }

    /// Returns the readable sessions, oldest first, each with whether the user has looked at it
    /// since it settled.
    pub fn oldest_first(&self) -> Vec<(&SessionView, bool)> {
        let readable = self.sessions.values().filter_map(|it| Some((it.view.as_ref().ok()?, it)));
        let mut sessions: Vec<_> = readable.collect();
        sessions.sort_by_key(|(view, session)| (&view.record.created_at, session.created));
        sessions.into_iter().map(|(view, session)| (view, session.is_seen)).collect()
    }

    /// Returns one session.
    pub fn get(&self, id: &Id) -> Option<&LiveSession> {
        self.sessions.get(id)
    }

    /// Returns the readable sessions, sorted by id.
    pub fn views(&self) -> impl Iterator<Item = &SessionView> {
        self.sessions.values().filter_map(|session| session.view.as_ref().ok())
    }

    /// Reads what changed; returns whether anything did.
    pub fn refresh(&mut self, project: &Project) -> Result<bool> {
        let mut is_changed = self.read_directory(project)?;
        let operations = FileVersion::of(&operations_path(project));
        if operations != self.operations {
            self.dispositions = project.dispositions()?;
            self.operations = operations;
            for (id, session) in &mut self.sessions {
                session.reload(project, id, &self.dispositions);
            }
            self.explain_queued(project);
            return Ok(true);
        }
        for (id, session) in &mut self.sessions {
            is_changed |= session.refresh(project, id, &self.dispositions);
        }
        is_changed |= self.explain_queued(project);
        Ok(is_changed)
    }

    /// Sets what the queued sessions wait for; returns whether that changes anything.
    fn explain_queued(&mut self, project: &Project) -> bool {
        let root = project.store.root();
        let queue = FileVersion::of(&queue_reasons::path(root));
        if queue != self.queue {
            self.queue = queue;
            self.reasons = QueueReasons::read(root);
        }
        let mut is_changed = false;
        for view in self.sessions.values_mut().filter_map(|session| session.view.as_mut().ok()) {
            is_changed |= project::explain_queued(view, &self.reasons);
        }
        is_changed
    }

    /// Adds new sessions and removes those that are gone; returns whether there were any.
    fn read_directory(&mut self, project: &Project) -> Result<bool> {
        let directory = FileVersion::of_directory(&project.store.root().join("sessions"));
        if directory == self.directory && directory != FileVersion::default() {
            return Ok(false);
        }
        let ids: BTreeSet<Id> = project.store.ids()?.into_iter().collect();
        let before = self.sessions.len();
        self.sessions.retain(|id, _| ids.contains(id));
        let is_removed = self.sessions.len() < before;
        let new: Vec<&Id> = ids.iter().filter(|id| !self.sessions.contains_key(id)).collect();
        let added = read_all(project, &new, &self.dispositions);
        let is_added = !added.is_empty();
        self.sessions.extend(added);
        self.directory = directory;
        Ok(is_added || is_removed)
    }
}

impl LiveSession {
    fn read(project: &Project, id: &Id, dispositions: &Dispositions) -> LiveSession {
        // The versions are read first: what changes after that is read again.
        let journal = FileVersion::of(&project.store.file(id, "journal.jsonl"));
        let seen = FileVersion::of(&seen::path(&project.repository, id));
        let prepared = prepared_versions(project, id);
        let view = project.view_without_reason(id, dispositions);
        let created = project.store.dir_created_at(id);
        let mut session =
            LiveSession { view, is_seen: false, created, journal, seen, prepared, reader: None };
        session.read_seen(project);
        session
    }

    /// Reads everything again, after a change of the operation log.
    fn reload(&mut self, project: &Project, id: &Id, dispositions: &Dispositions) {
        self.journal = FileVersion::of(&project.store.file(id, "journal.jsonl"));
        self.seen = FileVersion::of(&seen::path(&project.repository, id));
        self.reader = None;
        self.set_view(project, project.view_without_reason(id, dispositions));
    }

    /// Reads what changed; returns whether anything did.
    fn refresh(&mut self, project: &Project, id: &Id, dispositions: &Dispositions) -> bool {
        let view = self.view.as_ref().ok();
        let state = view.map(|view| &view.state);
        if state.is_some_and(SessionState::is_over) {
            // Only an operation reopens it.
            return false;
        }
        let is_active = state.is_some_and(SessionState::is_active);
        let is_away = view.is_some_and(SessionView::is_away);
        let is_held = is_active || is_away;
        let journal = FileVersion::of(&project.store.file(id, "journal.jsonl"));
        let locked = (is_held || journal != self.journal) && project.store.is_locked(id);
        let is_at_work = locked || (is_away && project.is_away(id));
        let is_lock_changed = is_held && view.is_some_and(|view| view.facts.locked != is_at_work);
        if journal != self.journal || is_lock_changed {
            self.journal = journal;
            let view = self.read_journal(project, id, dispositions, locked);
            self.set_view(project, view);
            return true;
        }
        if !is_active {
            let seen = FileVersion::of(&seen::path(&project.repository, id));
            if seen != self.seen {
                self.seen = seen;
                self.read_seen(project);
                return true;
            }
        }
        self.refresh_preparation(project, id)
    }

    /// Reads what was prepared for the landing of a ready session; returns whether it changed.
    fn refresh_preparation(&mut self, project: &Project, id: &Id) -> bool {
        let Ok(view) = &mut self.view else { return false };
        let prepared = prepared_versions(project, id);
        // An obstacle is gone when the target has another tip.
        if view.state != SessionState::Ready
            || (prepared == self.prepared && view.obstacle.is_none())
        {
            return false;
        }
        self.prepared = prepared;
        let (message, obstacle) = (view.message.take(), view.obstacle.take());
        project.read_preparation(view);
        view.message != message || view.obstacle != obstacle
    }

    /// Reads the new lines of the journal; all of them for the first time.
    fn read_journal(
        &mut self,
        project: &Project,
        id: &Id,
        dispositions: &Dispositions,
        locked: bool,
    ) -> Result<SessionView> {
        let path = project.store.file(id, "journal.jsonl");
        let reader = self.reader.get_or_insert_with(|| SummaryReader {
            tail: JournalTail::from_start(path),
            summary: JournalSummary::default(),
        });
        match reader.tail.read_new() {
            Ok(lines) if reader.tail.unreadable() == 0 => {
                lines.iter().for_each(|line| reader.summary.add_line(line));
                let summary = reader.summary.clone();
                dispositions.refuse_unknown(id)?;
                project.view_of_summary(id, dispositions, locked, summary)
            }
            // The state depends on all lines; the complete reading says which one is damaged.
            Ok(_) | Err(_) => {
                self.reader = None;
                project.view_without_reason(id, dispositions)
            }
        }
    }

    /// Replaces the view; what was determined in addition to the files is kept for the same work.
    fn set_view(&mut self, project: &Project, view: Result<SessionView>) {
        let previous = std::mem::replace(&mut self.view, view);
        if let (Ok(view), Ok(previous)) = (&mut self.view, previous)
            && view.work() == previous.work()
            && !view.state.is_over()
        {
            view.standing = previous.standing;
            view.conflicts_with = previous.conflicts_with;
            view.tampered = previous.tampered;
        }
        self.read_seen(project);
    }

    fn read_seen(&mut self, project: &Project) {
        self.is_seen = self
            .view
            .as_ref()
            .is_ok_and(|view| view.state.is_settled() && seen::is_seen(&project.repository, view));
    }
}

fn prepared_versions(project: &Project, id: &Id) -> [FileVersion; 2] {
    [prepared_message::FILE, target_check::FILE]
        .map(|name| FileVersion::of(&project.store.file(id, name)))
}

fn operations_path(project: &Project) -> PathBuf {
    project.store.root().join("operations.jsonl")
}

/// Reads these sessions, on several threads if there are many.
fn read_all(
    project: &Project,
    ids: &[&Id],
    dispositions: &Dispositions,
) -> BTreeMap<Id, LiveSession> {
    let read = |id: &&Id| {
        let session = LiveSession::read(project, id, dispositions);
        // It may have been removed after its name was read.
        let exists = session.view.is_ok() || project.store.dir(id).exists();
        exists.then(|| ((*id).clone(), session))
    };
    parallel::map(ids, MIN_SESSIONS_PER_THREAD, read).into_iter().flatten().collect()
}

impl LiveSessions {
    /// Adds what [`crate::standing::compare`] and the check for tampering determined for a session,
    /// unless its work has changed since. Returns whether that changes anything.
    pub fn apply(&mut self, compared: &SessionView) -> bool {
        let session = self.sessions.get_mut(&compared.record.id);
        let Some(Ok(view)) = session.map(|session| &mut session.view) else { return false };
        let is_same_work = view.work() == compared.work() && !view.state.is_over();
        let is_known = view.standing == compared.standing
            && view.conflicts_with == compared.conflicts_with
            && view.tampered == compared.tampered;
        if !is_same_work || is_known {
            return false;
        }
        view.standing.clone_from(&compared.standing);
        view.conflicts_with.clone_from(&compared.conflicts_with);
        view.tampered.clone_from(&compared.tampered);
        true
    }

    /// Returns a number that differs when a comparison of the sessions with their branches and with
    /// each other may have another result.
    pub fn comparison_version(&self, project: &Project) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut refs = BTreeSet::from(["packed-refs".to_owned()]);
        for view in self.compared_views() {
            view.record.id.as_str().hash(&mut hasher);
            view.work().map(WorkSummary::commit).hash(&mut hasher);
            refs.extend(view.record.base.branch.as_ref().map(BranchName::full));
        }
        for name in refs {
            let file = refs::file_of(&project.repository.common_dir, &name);
            FileVersion::of(&file).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Returns the sessions that are compared with their branches, once they settled, and with each
    /// other.
    pub fn compared_views(&self) -> impl Iterator<Item = &SessionView> {
        let is_compared = |view: &&SessionView| view.state.is_settled() || view.work().is_some();
        self.views().filter(|view| !view.state.is_over()).filter(is_compared)
    }

    /// Returns the sessions that cannot be read, and why.
    pub fn unreadable(&self) -> impl Iterator<Item = (&Id, &Failure)> {
        self.sessions.iter().filter_map(|(id, session)| Some((id, session.view.as_ref().err()?)))
    }
}
