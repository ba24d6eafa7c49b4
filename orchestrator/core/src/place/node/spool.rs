//! The directory of studio's data at a place: programs, repositories and sessions.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::lock::Lock;
use studio_git::repo::Repository;

use crate::place::protocol::PlacedSession;
use crate::project::pause;
use crate::session::store::SessionStore;

/// How long the first program of a job may take to start.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The file of a session with the number of its delivery.
const ATTEMPT: &str = "attempt";

/// The directory.
#[derive(Debug)]
pub(super) struct Spool {
    root: PathBuf,
}

impl Spool {
    /// Opens or creates the directory, relative to the home directory. Refuses one that belongs to
    /// somebody else or that others can write.
    pub(super) fn open(path: &Path) -> Result<Spool> {
        let home = base::user_dirs::home_dir()
            .ok_or_else(|| Failure::usage("cannot find the spool: HOME is not set"))?;
        let root = home.join(path);
        let fail = || format!("cannot make {}", root.display());
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&root).or_fail(fail)?;
        let root = root.canonicalize().or_fail(fail)?;
        let metadata = root.metadata().or_fail(fail)?;
        let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
        if !is_ours || metadata.mode() & 0o022 != 0 {
            return Err(Failure::refused(format!("{} is not safe", root.display()))
                .because("it belongs to somebody else, or others can write it")
                .hint(format!("chmod 700 {}", root.display()))
                .hint("[studio.places.NAME] spool = \"another/directory\""));
        }
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o700)).or_fail(fail)?;
        for name in ["repos", "jobs"] {
            let path = root.join(name);
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).or_fail(fail)?;
        }
        Ok(Spool { root })
    }

    /// Returns its path.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of a repository.
    pub(super) fn repository_path(&self, query: &PlacedSession) -> Result<PathBuf> {
        let name = &query.repository;
        if !is_file_name(name) {
            return Err(Failure::usage("home sent an invalid name of a repository"));
        }
        Ok(self.root.join("repos").join(format!("{name}.git")))
    }

    /// Returns a repository; `None` if it is not there.
    pub(super) fn existing_repository(&self, query: &PlacedSession) -> Result<Option<Repository>> {
        let path = self.repository_path(query)?;
        path.join("HEAD").exists().then(|| Repository::discover(&path)).transpose()
    }

    /// Returns a repository that must be there.
    pub(super) fn repository(&self, query: &PlacedSession) -> Result<Repository> {
        crate::place::protocol::refuse_other_protocol(query)?;
        self.existing_repository(query)?.ok_or_else(|| {
            Failure::not_found("the repository of the session is not here")
                .because(self.root.display().to_string())
        })
    }

    /// Takes the lock of a repository, for deliveries.
    pub(super) fn lock(&self, query: &PlacedSession) -> Result<Lock> {
        let path = self.repository_path(query)?.with_extension("lock");
        Lock::take(&path).or_fail(|| format!("cannot lock {}", path.display()))
    }

    /// Returns the number of sessions that run, in all repositories.
    pub(super) fn running_sessions(&self) -> u64 {
        let repositories = std::fs::read_dir(self.root.join("repos")).into_iter().flatten();
        let paths = repositories.flatten().map(|entry| entry.path());
        let stores = paths.filter(|path| path.is_dir()).map(|path| SessionStore::new(&path));
        let running = |store: SessionStore| {
            let ids = store.ids().unwrap_or_default();
            ids.iter().filter(|id| store.is_locked(id)).count() as u64
        };
        stores.map(running).sum()
    }
}

/// Returns whether a name that home sent may be that of a file of the spool.
fn is_file_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_plain)
}

/// A job of a cluster, as its node knows it.
#[derive(Debug)]
pub(super) struct JobFiles {
    session: PathBuf,
    settled: PathBuf,
    /// Exists if the job has begun since the session was delivered.
    begun: PathBuf,
    lock: PathBuf,
    checks_lock: PathBuf,
}

impl JobFiles {
    /// Returns the files of a job.
    pub(super) fn new(spool: &Spool, name: &str) -> Result<JobFiles> {
        if !is_file_name(name) {
            return Err(Failure::usage("home sent an invalid name of a job"));
        }
        let path = |end: &str| spool.root.join("jobs").join(format!("{name}{end}"));
        Ok(JobFiles {
            session: path(".json"),
            settled: path(".settled"),
            begun: path(".begun"),
            lock: path(".lock"),
            checks_lock: path(".checks.lock"),
        })
    }

    /// Begins the job: a session that an earlier start of it had is not its session any more. The job
    /// runs as long as the lock exists.
    pub(super) fn begin(&self) -> Result<Lock> {
        let fail = || format!("cannot begin {}", self.lock.display());
        if self.begun.exists() {
            self.remove();
        }
        base::files::replace(&self.begun, b"").or_fail(fail)?;
        Lock::take(&self.lock).or_fail(fail)
    }

    /// Returns whether the job runs.
    pub(super) fn runs(&self) -> bool {
        Lock::is_held(&self.lock).unwrap_or(false)
    }

    /// Waits until the job runs: a job may be looked at before its first program has started.
    pub(super) fn await_begin(&self) -> Result<()> {
        let deadline = Instant::now() + BEGIN_TIMEOUT;
        while !self.runs() {
            if Instant::now() > deadline {
                return Err(Failure::failed("the job of the session does not begin")
                    .because(format!("{} is not locked", self.lock.display())));
            }
            pause();
        }
        Ok(())
    }

    /// Lets the job stay until the result is dropped: checks run in it.
    pub(super) fn begin_checks(&self) -> Result<Lock> {
        self.await_begin()?;
        let fail = || format!("cannot lock {}", self.checks_lock.display());
        Lock::take(&self.checks_lock).or_fail(fail)
    }

    /// Returns whether checks run in the job.
    pub(super) fn runs_checks(&self) -> bool {
        Lock::is_held(&self.checks_lock).unwrap_or(false)
    }

    /// Returns the session that was delivered to the job.
    pub(super) fn session(&self) -> Option<PlacedSession> {
        serde_json::from_slice(&std::fs::read(&self.session).ok()?).ok()
    }

    /// Saves which session was delivered to the job.
    pub(super) fn set_session(&self, session: &PlacedSession) -> Result<()> {
        base::files::replace_json(&self.session, session)
            .or_fail(|| format!("cannot save {}", self.session.display()))?;
        if !self.runs() {
            // Its next start has this session.
            let _ = std::fs::remove_file(&self.begun);
        }
        Ok(())
    }

    /// Returns the number of the last delivery of which home has everything.
    pub(super) fn settled(&self) -> Option<u32> {
        std::fs::read_to_string(&self.settled).ok()?.trim().parse().ok()
    }

    /// Saves that home has everything of a delivery.
    pub(super) fn set_settled(&self, attempt: u32) -> Result<()> {
        base::files::replace(&self.settled, format!("{attempt}\n").as_bytes())
            .or_fail(|| format!("cannot save {}", self.settled.display()))
    }

    /// Deletes them, but for the lock.
    pub(super) fn remove(&self) {
        for file in [&self.session, &self.settled, &self.begun, &self.checks_lock] {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Returns the number of the delivery of a session; `None` if it was not delivered completely.
pub(super) fn attempt(store: &SessionStore, id: &Id) -> Option<u32> {
    std::fs::read_to_string(store.file(id, ATTEMPT)).ok()?.trim().parse().ok()
}

/// Saves the number of the delivery: the session is delivered.
pub(super) fn set_attempt(store: &SessionStore, id: &Id, attempt: u32) -> Result<()> {
    base::files::replace(&store.file(id, ATTEMPT), format!("{attempt}\n").as_bytes())
        .or_fail(|| format!("cannot save the delivery of `{id}`"))
}
