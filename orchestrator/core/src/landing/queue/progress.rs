//! The progress of a queue, in a file that others read while it runs. It decides nothing: a run that
//! cannot write it lands all the same.

use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::lock::Lock;
use serde::{Deserialize, Serialize};

use crate::console::Console;
use crate::interrupt::Interrupt;
use crate::project::Project;

/// The file below studio's directory.
const FILE: &str = "queue.json";
/// Maximum number of bytes of it that are read.
const MAX_BYTES: u64 = 16 << 20;

/// Whether a queue runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueState {
    /// No queue has run.
    None,
    /// One runs.
    Running,
    /// The last one ended.
    Over,
    /// The last one was killed.
    Interrupted,
}

/// The progress of the last queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QueueProgress {
    /// When it began, RFC 3339.
    pub began_at: String,
    /// Whether it ended in order.
    is_over: bool,
    /// Its sessions, in the order in which it lands them.
    pub sessions: Vec<QueuedSession>,
}

/// A session in a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueuedSession {
    /// The session.
    pub id: Id,
    /// How far it is.
    pub state: QueuedState,
    /// What happens to it now, as the terminal of the command shows it: its message is written while its
    /// checks run.
    pub activities: Vec<String>,
    /// When this began, RFC 3339.
    pub since: String,
}

/// How far a session is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueuedState {
    /// It has neither landed nor was it refused.
    Waiting,
    /// It landed as this commit; `None` if its work landed elsewhere.
    Landed(Option<String>),
    /// It was refused for this reason.
    Refused(String),
}

/// Returns the paths of the file, and of the lock that a queue holds while it runs.
pub fn paths(project: &Project) -> (PathBuf, PathBuf) {
    let directory = project.repository.common_dir.join("studio");
    (directory.join(FILE), directory.join(super::LOCK_FILE))
}

/// Reads the progress of the last queue.
pub fn read(project: &Project) -> Result<(QueueState, QueueProgress)> {
    let (path, lock) = paths(project);
    let fail = || format!("cannot read {}", path.display());
    // Before the file: a queue that ends in between has written its end.
    let is_running = Lock::is_held(&lock).or_fail(fail)?;
    let progress = match load(&path) {
        Ok(progress) => progress,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((QueueState::None, QueueProgress::default()));
        }
        Err(error) => return Err(Failure::failed(fail()).because(error)),
    };
    let state = match (progress.is_over, is_running) {
        (true, _) => QueueState::Over,
        (false, true) => QueueState::Running,
        (false, false) => QueueState::Interrupted,
    };
    Ok((state, progress))
}

fn load(path: &Path) -> io::Result<QueueProgress> {
    Ok(serde_json::from_slice(&base::files::read_bounded(path, MAX_BYTES)?)?)
}

/// Writes the progress of a queue.
#[derive(Clone, Debug)]
pub(super) struct ProgressFile {
    /// `None` for a dry run.
    path: Option<PathBuf>,
    clock: Clock,
    progress: Arc<Mutex<QueueProgress>>,
}

impl ProgressFile {
    /// Begins with a queue that has no sessions yet and whose lock is held. Nothing is written about a
    /// dry run.
    pub(super) fn new(studio_dir: &Path, clock: Clock, is_dry_run: bool) -> ProgressFile {
        let progress = QueueProgress { began_at: clock.stamp(), ..QueueProgress::default() };
        let path = (!is_dry_run).then(|| studio_dir.join(FILE));
        if let Some(path) = &path
            && load(path).is_ok_and(|last| !last.is_over)
        {
            // It was killed, and would be shown as the one that runs now.
            let _ = std::fs::remove_file(path);
        }
        ProgressFile { path, clock, progress: Arc::new(progress.into()) }
    }

    /// Adds sessions at the end; those that are there already are moved there and wait again.
    pub(super) fn add(&self, ids: &[Id]) {
        self.change(|progress, now| {
            for id in ids {
                progress.sessions.retain(|session| session.id != *id);
                let (state, since) = (QueuedState::Waiting, now.clone());
                progress.sessions.push(QueuedSession {
                    id: id.clone(),
                    state,
                    activities: Vec::new(),
                    since,
                });
            }
        });
    }

    /// Records what became of a session.
    pub(super) fn settle(&self, id: &Id, state: QueuedState) {
        self.change_session(id, |session| {
            session.state = state;
            session.activities.clear();
        });
    }

    /// Records that the queue has ended.
    pub(super) fn end(&self) {
        self.change(|progress, _| progress.is_over = true);
    }

    fn change_session(&self, id: &Id, change: impl FnOnce(&mut QueuedSession)) {
        self.change(|progress, now| {
            if let Some(session) = progress.sessions.iter_mut().find(|session| session.id == *id) {
                change(session);
                session.since = now;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut QueueProgress, String)) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut progress, self.clock.stamp());
        if let Some(path) = self.path.as_ref().filter(|_| !progress.sessions.is_empty()) {
            // What lands does not depend on it.
            let _ = base::files::replace_json(path, &*progress);
        }
    }
}

/// A console that also records the steps of sessions.
pub(super) struct RecordingConsole {
    /// The console of the command.
    pub inner: Arc<dyn Console>,
    /// Where the steps are recorded.
    pub progress: ProgressFile,
}

impl Console for RecordingConsole {
    fn note(&self, text: &str) {
        self.inner.note(text);
    }

    fn confirm(&self, question: &str) -> Option<bool> {
        self.inner.confirm(question)
    }

    fn step(&self, id: &Id, activity: &str) -> Box<dyn Any> {
        self.progress.change_session(id, |session| session.activities.push(activity.to_owned()));
        let (progress, id) = (self.progress.clone(), id.clone());
        let (shown, activity) = (self.inner.step(&id, activity), activity.to_owned());
        Box::new(RecordedStep { _shown: shown, progress, id, activity })
    }

    fn edit(&self, directory: &Path, interrupt: &Interrupt, text: &str) -> Result<String> {
        self.inner.edit(directory, interrupt, text)
    }
}

/// A step until it is dropped.
struct RecordedStep {
    _shown: Box<dyn Any>,
    progress: ProgressFile,
    id: Id,
    activity: String,
}

impl Drop for RecordedStep {
    fn drop(&mut self) {
        self.progress.change_session(&self.id, |session| {
            session.activities.retain(|activity| *activity != self.activity);
        });
    }
}
