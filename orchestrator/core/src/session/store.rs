//! The session store on disk: `<git common directory>/studio`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::clock::Clock;
use base::config::studio::DEFAULT_WORKTREE;
use base::failure::{Failure, OrFail, Result};
use base::files;
use base::id::Id;
use base::lock::Lock;
use serde::{Deserialize, Serialize};

use crate::session::journal::{self, JournalEntry, JournalWriter};
use crate::session::record::SessionRecord;
use crate::session::summary::JournalSummary;
use studio_git::{move_worktree, moved_repository};

/// The format of cached summaries: a cache with another one is not used. Increment it whenever a
/// summary gets a field.
const SUMMARY_FORMAT: u32 = 3;

/// The directory of studio's data about a repository.
#[derive(Clone, Debug)]
pub struct SessionStore {
    root: PathBuf,
}

/// The cached summary of a journal.
#[derive(Serialize, Deserialize)]
struct Cached {
    /// [`SUMMARY_FORMAT`] of the program that wrote it.
    format: u32,
    /// The length of the journal when it was summarized, in bytes.
    journal_bytes: u64,
    #[serde(rename = "story")]
    summary: JournalSummary,
}

impl SessionStore {
    /// Returns the store of a repository, by its git common directory.
    pub(crate) fn new(common_dir: &Path) -> SessionStore {
        SessionStore { root: common_dir.join("studio") }
    }

    /// Returns the root directory, `<common>/studio`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of one session.
    pub fn dir(&self, id: &Id) -> PathBuf {
        self.root.join("sessions").join(id.as_str())
    }

    /// Returns a file of one session.
    pub fn file(&self, id: &Id, name: &str) -> PathBuf {
        self.dir(id).join(name)
    }

    /// Writes a new session and its journal with one `queued` line atomically. Returns `false` if
    /// the id is taken.
    pub(crate) fn create(&self, record: &SessionRecord, clock: Clock) -> Result<bool> {
        Ok(self.create_with(record, clock, |_| Ok(()))?.is_some())
    }

    /// Like [`SessionStore::create`], with the session's lock taken before others see it; returns
    /// `None` if the id is taken.
    pub(crate) fn create_locked(
        &self,
        record: &SessionRecord,
        clock: Clock,
    ) -> Result<Option<Lock>> {
        let fail = || format!("cannot lock `{}`", record.id);
        let lock = |directory: &Path| -> Result<Lock> {
            let lock = Lock::try_take(&directory.join("lock")).or_fail(fail)?;
            lock.ok_or("it is held").or_fail(fail)
        };
        self.create_with(record, clock, lock)
    }

    fn create_with<T>(
        &self,
        record: &SessionRecord,
        clock: Clock,
        prepare: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<Option<T>> {
        let id = &record.id;
        let sessions = self.root.join("sessions");
        let fail = || format!("cannot save session `{id}`");
        fs::create_dir_all(&sessions).or_fail(fail)?;
        let temporary = tempfile::Builder::new().prefix(".new-").tempdir_in(&sessions);
        let temporary = temporary.or_fail(fail)?;
        let record_text = files::json_text(record).or_fail(fail)?;
        let journal = journal::first_line(JournalEntry::Queued { prompt: None }, clock);
        let journal = journal.or_fail(fail)?;
        let new_files = [("session.json", &*record_text), ("journal.jsonl", &*journal)];
        files::write_durably(temporary.path(), &new_files, 0o600).or_fail(fail)?;
        let prepared = prepare(temporary.path())?;
        files::step("run.recorded");
        match fs::rename(temporary.path(), self.dir(id)) {
            Ok(()) => {
                let _ = temporary.keep();
            }
            Err(e) if self.dir(id).exists() && e.kind() != io::ErrorKind::PermissionDenied => {
                return Ok(None);
            }
            Err(e) => return Err(e).or_fail(fail),
        }
        files::step("run.visible");
        files::sync_dir(&sessions).or_fail(fail)?;
        Ok(Some(prepared))
    }

    /// Rewrites the record of a session that has not started; for the holder of its lock.
    pub(crate) fn rewrite(&self, record: &SessionRecord) -> Result<()> {
        let fail = || format!("cannot write down session `{}`", record.id);
        files::replace_json(&self.file(&record.id, "session.json"), record).or_fail(fail)
    }

    /// Returns all session ids, sorted.
    pub fn ids(&self) -> Result<Vec<Id>> {
        let entries = match fs::read_dir(self.root.join("sessions")) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e).or_fail(|| "cannot list the sessions"),
        };
        let mut ids: Vec<Id> =
            entries.filter_map(|entry| Id::parse(entry.ok()?.file_name().to_str()?).ok()).collect();
        ids.sort();
        Ok(ids)
    }

    /// Returns the record of a session.
    pub fn load(&self, id: &Id) -> Result<SessionRecord> {
        let path = self.file(id, "session.json");
        let mut record: SessionRecord = match files::read_small(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).map_err(|e| unreadable(id, "session.json", e))?
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound && !self.dir(id).exists() => {
                return Err(Failure::not_found(format!("no such session: `{id}`")).because(e));
            }
            Err(e) => return Err(unreadable(id, "session.json", e)),
        };
        match fs::read(self.file(id, move_worktree::PATHS_FILE)) {
            Ok(text) => {
                let fail = |e| unreadable(id, move_worktree::PATHS_FILE, e);
                record.session_repo = serde_json::from_slice(&text).map_err(fail)?;
                // The template of its creation no longer describes its location.
                record.templates.worktree = DEFAULT_WORKTREE.to_owned();
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(unreadable(id, move_worktree::PATHS_FILE, e)),
        }
        if let Some(common) = self.root.parent() {
            record.session_repo = moved_repository::current_paths(common, &record.session_repo);
        }
        Ok(record)
    }

    /// Returns the creation time in nanoseconds of the file system's clock: it orders sessions that
    /// were created within the same millisecond.
    pub(crate) fn dir_created_at(&self, id: &Id) -> u128 {
        let modified =
            fs::metadata(self.file(id, "session.json")).and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        age.map_or(0, |time| time.as_nanos())
    }

    /// Returns the summary of the journal, from the cache if it is up to date.
    pub(crate) fn summary(&self, id: &Id) -> Result<JournalSummary> {
        let journal = self.file(id, "journal.jsonl");
        let bytes = fs::metadata(&journal).map(|meta| meta.len()).unwrap_or(0);
        let cache = self.file(id, "status.json");
        if let Some(cached) = files::read_small(&cache)
            .ok()
            .and_then(|text| serde_json::from_slice::<Cached>(&text).ok())
            && (cached.format, cached.journal_bytes) == (SUMMARY_FORMAT, bytes)
        {
            return Ok(cached.summary);
        }
        let fail = |e| unreadable(id, "journal.jsonl", e);
        let (lines, unreadable) = files::read_lines(&journal).map_err(fail)?;
        if let Some(line) = unreadable.first() {
            // The state depends on all lines: without one of them it would be a guess.
            let reason = format!("line {} is {}", line.number, line.reason);
            return Err(fail(io::Error::other(reason)));
        }
        if lines.is_empty() {
            // Every journal starts with a line; without one, the session would appear to be queued.
            return Err(match self.dir(id).exists() {
                true => fail(io::Error::other("it is missing or unreadable")),
                false => Failure::not_found(format!("no such session: `{id}`")),
            });
        }
        let summary = JournalSummary::of(&lines);
        // If the cache cannot be written, the journal is summarized every time.
        let cached =
            Cached { format: SUMMARY_FORMAT, journal_bytes: bytes, summary: summary.clone() };
        if let Ok(text) = serde_json::to_vec(&cached) {
            let _ = files::replace_cache(&cache, &text);
        }
        Ok(summary)
    }

    /// Returns whether the session's lock is held.
    pub fn is_locked(&self, id: &Id) -> bool {
        Lock::is_held(&self.file(id, "lock")).unwrap_or(false)
    }

    /// Returns whether the lock of any session is held.
    pub(crate) fn any_locked(&self) -> Result<bool> {
        Ok(self.ids()?.iter().any(|id| self.is_locked(id)))
    }

    /// Takes the session's lock; returns `None` if it is held.
    pub fn lock(&self, id: &Id) -> Result<Option<Lock>> {
        Lock::try_take(&self.file(id, "lock")).or_fail(|| format!("cannot lock `{id}`"))
    }

    /// Records that a shell of this process is open in the session, for the lifetime of the lock.
    pub(crate) fn open_shell(&self, id: &Id) -> Result<Lock> {
        let fail = || format!("cannot lock `{id}`");
        let path = self.file(id, "shell.lock");
        let Some(lock) = Lock::try_share(&path).or_fail(fail)? else {
            return Err(Failure::refused(format!("session `{id}` is in use"))
                .because("it is being landed, discarded or repaired")
                .hint("try again"));
        };
        let mut shells = running_shells(&path);
        shells.push(std::process::id().to_string());
        fs::write(&path, shells.join(" ")).or_fail(fail)?;
        Ok(lock)
    }

    /// Prevents shells from being opened in a session; fails if one is open.
    pub fn lock_shell(&self, id: &Id) -> Result<Lock> {
        let path = self.file(id, "shell.lock");
        let lock = Lock::try_take(&path).or_fail(|| format!("cannot lock `{id}`"))?;
        lock.ok_or_else(|| {
            let in_use = Failure::refused(format!("session `{id}` is in use"));
            match running_shells(&path).as_slice() {
                [] => in_use
                    .because("another command is landing, discarding or repairing it")
                    .hint(format!("wait for it, then: studio status {id}")),
                pids => in_use
                    .because(format!("a shell is open in it (pid {})", pids.join(", ")))
                    .hint("exit that shell, then try again"),
            }
        })
    }

    /// Returns whether a shell is open in a session.
    pub(crate) fn has_open_shell(&self, id: &Id) -> bool {
        !running_shells(&self.file(id, "shell.lock")).is_empty()
    }

    /// Opens the journal for the holder of the session's lock.
    pub fn writer(&self, id: &Id, clock: Clock) -> Result<JournalWriter> {
        JournalWriter::open(&self.file(id, "journal.jsonl"), clock)
            .or_fail(|| format!("cannot write the journal of `{id}`"))
    }
}

/// Returns the failure for a damaged file of a session. Other sessions are not affected.
fn unreadable(id: &Id, name: &str, reason: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("session `{id}` cannot be read"))
        .because(format!("{name}: {reason}"))
        .hint("studio doctor")
}

/// Returns the processes that opened a shell and are still alive.
fn running_shells(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let is_alive = |pid: &&str| pid.parse().is_ok_and(base::process::is_alive);
    text.split_whitespace().filter(is_alive).map(str::to_owned).collect()
}
