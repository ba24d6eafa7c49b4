//! Sessions on disk: `sessions/<id>/` in the state directory of the working directory, which
//! belongs to the user. Sessions inside the working directory itself are never treated as the
//! user's own, since a repository or a command could have put them there.

pub mod checkpoint;
pub mod errors;
pub mod export;
pub mod fork;
pub mod import;
pub mod inbox;
pub mod journal;
pub mod snapshot;

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::lock::Lock;
use base::test_hooks::TestHook;

use crate::context::ConversationEntry;

/// A session that this process owns. No other g3 process can write to it at the same time.
#[derive(Debug)]
pub struct Session {
    /// Its id.
    pub id: Id,
    /// Its directory.
    pub dir: PathBuf,
    _lock: Lock,
}

impl Session {
    /// Creates a session for a task in a working directory.
    pub fn create(cwd: &Path, task: &str) -> Result<Session> {
        base::user_dirs::workspace_state(cwd)
            .or_fail(|| "cannot create the session")
            .map_err(|failure| failure.hint("set HOME or XDG_STATE_HOME"))?;
        let sessions = sessions_dir(cwd);
        make_dir(&sessions).or_fail(|| format!("cannot make {}", sessions.display()))?;
        let random = random();
        for _ in 0..1_000 {
            // Makes the id unique within this process too, which may have sessions of several
            // directories.
            static CREATED_COUNT: AtomicU64 = AtomicU64::new(0);
            let nth = CREATED_COUNT.fetch_add(1, Ordering::Relaxed);
            let bytes = random.wrapping_add(nth).to_le_bytes();
            let id = Id::new(first_line(task), [bytes[0], bytes[1], bytes[2], bytes[3]]);
            let dir = sessions.join(id.as_str());
            base::files::step("g3.session.create");
            match fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Session::with_lock(id, dir),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e).or_fail(|| format!("cannot make {}", dir.display())),
            }
        }
        Err(Failure::failed("cannot find a free session id")
            .because(sessions.display().to_string()))
    }

    /// Opens an existing session: the one with this id or unique id prefix, or the latest.
    pub(crate) fn resume(cwd: &Path, prefix: Option<&str>) -> Result<Session> {
        let id = find(cwd, prefix)?;
        let dir = sessions_dir(cwd).join(id.as_str());
        Session::with_lock(id, dir)
    }

    /// Opens a child conversation in this session, which is not listed. Returns the existing one if
    /// there is one.
    pub(crate) fn open_child(&self, name: &str) -> Result<Session> {
        let dir = self.dir.join(name);
        make_dir(&dir).or_fail(|| format!("cannot make {}", dir.display()))?;
        let id = Id::parse(&format!("{}-{name}", self.id)).unwrap_or_else(|_| self.id.clone());
        Session::with_lock(id, dir)
    }

    /// Like [`Session::open_child`], with an unused name: `stem-1`, `stem-2` and so on.
    pub(crate) fn open_numbered_child(&self, stem: &str) -> Result<Session> {
        for nth in 1..10_000 {
            let name = format!("{stem}-{nth}");
            match fs::DirBuilder::new().mode(0o700).create(self.dir.join(&name)) {
                Ok(()) => return self.open_child(&name),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    return Err(e).or_fail(|| format!("cannot make {name} in the session"));
                }
            }
        }
        Err(Failure::failed(format!("the session has too many parts named {stem}")))
    }

    /// Fails if the session was started with another persona, since its messages would not match
    /// this one.
    pub(crate) fn check_agent(
        &self,
        agent: Option<&str>,
        entries: &[ConversationEntry],
    ) -> Result<()> {
        let Some(started_with) =
            agent_of(entries).filter(|started_with| started_with.as_deref() != agent)
        else {
            return Ok(());
        };
        let id = &self.id;
        Err(match started_with {
            Some(name) => Failure::usage(format!("session `{id}` belongs to the agent `{name}`"))
                .hint(format!("g3 --agent {name} --resume {id}")),
            None => Failure::usage(format!("session `{id}` was started without --agent"))
                .hint(format!("g3 --resume {id}")),
        })
    }

    fn with_lock(id: Id, dir: PathBuf) -> Result<Session> {
        let Some(lock) = lock(&dir.join("lock")).or_fail(|| "cannot lock the session")? else {
            return Err(Failure::failed(format!("session `{id}` is in use by another g3"))
                .hint("end that one, or start another: g3 --new-session"));
        };
        Ok(Session { id, dir, _lock: lock })
    }

    /// Returns the path of its journal.
    pub fn journal_path(&self) -> PathBuf {
        self.dir.join("session.jsonl")
    }
}

/// Maximum time that the processes of a killed g3 may hold the lock of its session.
const LOCK_GRACE: Duration = Duration::from_secs(1);

/// Takes the lock of a session. Returns `None` if another g3 process holds it. A killed process may
/// hold it until the kernel has closed its files, so this waits briefly for a held lock.
fn lock(path: &Path) -> io::Result<Option<Lock>> {
    if let Some(lock) = Lock::try_take(path)? {
        return Ok(Some(lock));
    }
    let (tx, rx) = mpsc::channel();
    let path = path.to_owned();
    // If the lock is taken too late, it is dropped with the unreceived message.
    thread::spawn(move || tx.send(Lock::take(&path)));
    rx.recv_timeout(LOCK_GRACE).map_or(Ok(None), |lock| lock.map(Some))
}

/// Returns the id that a text refers to in a working directory.
pub fn find(cwd: &Path, prefix: Option<&str>) -> Result<Id> {
    let ids = list(cwd)?;
    let Some(prefix) = prefix else {
        return ids.into_iter().next().ok_or_else(|| {
            let failure = Failure::usage(format!("no sessions in {}", cwd.display()));
            match import::can_be_imported(cwd) {
                true => failure
                    .because("the sessions in .g3/sessions are not taken for yours by themselves")
                    .hint("g3 sessions import, if you started them"),
                false => failure.hint("start one: g3 TASK"),
            }
        });
    };
    if prefix.is_empty() {
        return Err(Failure::usage("the session's id is empty")
            .hint("g3 sessions list")
            .hint("g3 --resume, for the latest"));
    }
    if let Some(exact) = ids.iter().find(|id| id.as_str() == prefix) {
        return Ok(exact.clone());
    }
    let mut matching = ids.iter().filter(|id| id.as_str().starts_with(prefix));
    match (matching.next(), matching.next()) {
        (Some(id), None) => Ok(id.clone()),
        (None, _) => {
            Err(Failure::usage(format!("no such session: `{prefix}`")).hint("g3 sessions list"))
        }
        (Some(a), Some(b)) => {
            Err(Failure::usage(format!("several sessions begin with `{prefix}`"))
                .because(format!("{a}, {b} …"))
                .hint("give more characters of the id"))
        }
    }
}

/// How the name of a session's directory begins while it is deleted: no id begins like this.
const DELETING: &str = ".deleting-";

/// Deletes a session with everything that it saved: conversation, checkpoints, undone writes.
/// Refuses one that a g3 process uses.
pub fn delete(cwd: &Path, id: &Id) -> Result<()> {
    let sessions = sessions_dir(cwd);
    let dir = sessions.join(id.as_str());
    let cannot = || format!("cannot delete the session `{id}`");
    let session = Session::with_lock(id.clone(), dir.clone())?;
    // A kill leaves either the whole session or one that is listed nowhere.
    let deleted = sessions.join(format!("{DELETING}{id}"));
    fs::rename(&dir, &deleted).or_fail(cannot)?;
    drop(session);
    for entry in fs::read_dir(&sessions).or_fail(cannot)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(DELETING) {
            // Another process may be removing it as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    match fs::remove_dir_all(&deleted) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).or_fail(cannot),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the persona that a session was started with; the outer `None` means that the session has
/// no start entry.
pub fn agent_of(entries: &[ConversationEntry]) -> Option<Option<String>> {
    entries.iter().find_map(|entry| {
        let ConversationEntry::Opened { agent, .. } = entry else { return None };
        Some(agent.clone())
    })
}

/// Returns the sessions of a working directory, the most recently written first.
pub fn list(cwd: &Path) -> Result<Vec<Id>> {
    let dir = sessions_dir(cwd);
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(e) => return Err(e).or_fail(|| format!("cannot read {}", dir.display())),
    };
    let mut sessions: Vec<(SystemTime, Id)> = entries
        .flatten()
        .filter_map(|entry| {
            let id = Id::parse(entry.file_name().to_str()?).ok()?;
            let journal = fs::metadata(entry.path().join("session.jsonl")).ok()?;
            Some((journal.modified().ok()?, id))
        })
        .collect();
    sessions.sort_by(|a, b| b.cmp(a));
    Ok(sessions.into_iter().map(|(_, id)| id).collect())
}

/// Returns the state directory of a working directory. Without a home directory, returns a path
/// that does not exist and cannot be created, not even by root.
#[cfg(not(test))]
pub fn workspace(cwd: &Path) -> PathBuf {
    let fallback = |_| PathBuf::from("/dev/null/g3");
    base::user_dirs::workspace_state(cwd).unwrap_or_else(fallback)
}

/// Returns a directory outside of the user's state, for unit tests.
#[cfg(test)]
pub(crate) fn workspace(cwd: &Path) -> PathBuf {
    cwd.join(".state")
}

/// Returns the directory of the sessions of a working directory.
pub fn sessions_dir(cwd: &Path) -> PathBuf {
    workspace(cwd).join("sessions")
}

/// Fails if `.g3` is a symbolic link, so that a repository cannot redirect what g3 writes there.
pub fn refuse_links(cwd: &Path) -> Result<()> {
    let dir = cwd.join(".g3");
    if fs::symlink_metadata(&dir).is_ok_and(|meta| meta.is_symlink()) {
        return Err(Failure::usage(format!("{} is a symbolic link", dir.display()))
            .because("g3 writes there, in the directory that it works in")
            .hint(format!("rm {}", dir.display())));
    }
    Ok(())
}

fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn first_line(task: &str) -> &str {
    task.trim().lines().next().unwrap_or_default()
}

/// Returns a random number, or the seed set by a test.
fn random() -> u64 {
    // The standard library's random hash keys make the hash of no input a random number.
    TestHook::Seed.number().unwrap_or_else(|| RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(cwd: &Path, task: &str) -> Session {
        let session = Session::create(cwd, task).unwrap();
        fs::write(session.journal_path(), "").unwrap();
        session
    }

    #[test]
    fn a_session_is_found_by_its_id_prefix() {
        let dir = tempfile::tempdir().unwrap();
        let one = made(dir.path(), "fix login").id.clone();
        let two = made(dir.path(), "write docs").id.clone();
        assert_eq!(find(dir.path(), Some("fix")).unwrap(), one);
        assert_eq!(find(dir.path(), Some(two.as_str())).unwrap(), two);
        assert!(find(dir.path(), Some("zzz")).unwrap_err().what.contains("no such session"));
        made(dir.path(), "fix logout");
        assert!(find(dir.path(), Some("fix")).unwrap_err().what.contains("several"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_session_of_a_killed_process_opens_when_its_lock_is_free() {
        use std::os::unix::fs::MetadataExt;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::try_take(&path).unwrap().unwrap();
        let inode = format!(":{} ", fs::metadata(&path).unwrap().ino());
        let waits = thread::spawn(move || lock(&path).unwrap());
        let is_waited_for = |line: &str| line.contains("->") && line.contains(&inode);
        while !fs::read_to_string("/proc/locks").unwrap().lines().any(is_waited_for) {
            thread::yield_now();
        }
        drop(held);
        assert!(waits.join().unwrap().is_some());
    }

    #[test]
    fn a_deleted_session_is_gone_unless_it_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().canonicalize().unwrap();
        let (open, other) = (made(&cwd, "open"), made(&cwd, "other"));
        let (used, id) = (open.id.clone(), other.id.clone());
        drop(other);
        delete(&cwd, &id).unwrap();
        assert!(delete(&cwd, &used).unwrap_err().what.contains("in use"));
        assert_eq!(list(&cwd).unwrap(), [used]);
        assert_eq!(fs::read_dir(sessions_dir(&cwd)).unwrap().count(), 1);
    }

    #[test]
    fn sessions_are_deleted_at_the_same_time() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().canonicalize().unwrap();
        let ids: Vec<Id> = (0..16).map(|_| made(&cwd, "one").id.clone()).collect();
        for id in &ids {
            for n in 0..20 {
                fs::write(sessions_dir(&cwd).join(id.as_str()).join(n.to_string()), "").unwrap();
            }
        }
        let failed = |id: &Id| delete(&cwd, id).err();
        let failures: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = ids.iter().map(|id| scope.spawn(|| failed(id))).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(failures.is_empty(), "{failures:?}");
        assert_eq!(fs::read_dir(sessions_dir(&cwd)).unwrap().count(), 0);
    }

    #[test]
    fn two_processes_cannot_open_the_same_session() {
        let dir = tempfile::tempdir().unwrap();
        let session = made(dir.path(), "task");
        let refused = Session::resume(dir.path(), None).unwrap_err();
        assert!(refused.what.contains("in use"), "{refused}");
        drop(session);
        Session::resume(dir.path(), None).unwrap();
    }
}
