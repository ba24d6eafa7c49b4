//! Where a session's processes run: its worktree, in its box, with an environment without secrets.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::config::Config;
use base::config::agent::SandboxConfig;
use base::config::studio::AgentRow;
use base::failure::{OrFail, Result};
use base::lock::Lock;
use base::process::{AsyncRunning, GRACE, Stream};
use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::exec::build_caches::BuildCaches;
use crate::exec::hidden_trees;
use crate::sandbox::session_rules::SessionPaths;
use crate::sandbox::{self, FrozenProcesses, Lifeline, SandboxJob, SandboxSpec, StartReport};
use crate::session::record::SessionRecord;
use studio_git::repo::Repository;
use studio_git::session_repo::{self, SessionRepo};

/// The number under which an agent finds its connection to the model host.
const HOST_FD: i32 = 6;
/// Bytes of each stream of a check that are kept.
const TAIL: usize = 4096;

/// Where a session's processes run.
#[derive(Clone)]
pub struct SandboxedRunner {
    spec: SandboxSpec,
    host: Option<Arc<OwnedFd>>,
    tasks: TaskTracker,
    /// The guards of the boxes that were started here.
    guards: Arc<Mutex<Vec<u32>>>,
}

/// Directories that a room's processes may write besides the worktree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directories<'a> {
    /// For temporary files.
    pub temporary: &'a Path,
    /// For the caches of build tools.
    pub cache: &'a Path,
}

/// A started program and what keeps it alive. Dropped, everything in its box ends.
#[derive(Debug)]
pub(crate) struct Process {
    /// The program.
    pub running: AsyncRunning,
    /// The lifeline of its box.
    pub lifeline: Lifeline,
    /// Says after its end whether it was started at all.
    pub report: StartReport,
}

/// How a program ended, and the end of what it wrote.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// Its exit code; 124 when the time was up.
    pub exit: i32,
    /// The end of both its streams together.
    pub tail: String,
    /// How long it took.
    pub took: Duration,
}

/// What runs in a session's box.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// The agent; its row says what it alone may read and know.
    Agent(&'a AgentRow),
    /// The configured lines that prepare a worktree.
    Setup,
    /// The checks.
    Checks,
    /// A person's shell.
    Shell,
}

impl SandboxedRunner {
    /// Returns the room of a session.
    pub fn of(
        repository: &Repository,
        record: &SessionRecord,
        config: &Config,
        purpose: Purpose<'_>,
    ) -> Result<SandboxedRunner> {
        let temporary = repository.session_dir(&record.id).join("tmp");
        let sandbox = SandboxConfig {
            enabled: config.sandbox.enabled && record.manner.boxed,
            ..config.sandbox.clone()
        };
        let caches = BuildCaches::of(repository, &record.id);
        let (cache, row) = match purpose {
            Purpose::Agent(row) => (caches.agent(), Some(row)),
            Purpose::Shell => (caches.agent(), None),
            Purpose::Setup => (caches.setup(), None),
            Purpose::Checks => (caches.checks(), None),
        };
        let directories = Directories { temporary: &temporary, cache: &cache };
        SandboxedRunner::at(repository, &record.place, directories, &sandbox, row)
    }

    /// Returns a room in any worktree of ours.
    pub(crate) fn at(
        repository: &Repository,
        place: &SessionRepo,
        directories: Directories<'_>,
        sandbox: &SandboxConfig,
        row: Option<&AgentRow>,
    ) -> Result<SandboxedRunner> {
        let home = home();
        let closed = hidden_trees::closed(repository, place, &home);
        let fixed = session_repo::fixed(&place.worktree, &place.git_dir);
        let places = SessionPaths {
            home: &home,
            worktree: &place.worktree,
            private_git: &place.git_dir,
            repository_git: &repository.common_dir,
            temp: directories.temporary,
            cache: directories.cache,
            closed: &closed,
            fixed: &fixed,
        };
        let spec =
            SandboxSpec::for_session(&places, row, sandbox).or_fail(|| "cannot plan the box")?;
        Ok(SandboxedRunner { spec, host: None, tasks: TaskTracker::new(), guards: Arc::default() })
    }

    /// Returns the room with a connection to the model host, which lives outside every box.
    #[must_use]
    pub(crate) fn with_host(mut self, socket: OwnedFd) -> SandboxedRunner {
        let name = base::host::find::HANDED_DOWN.to_owned();
        self.spec.environment.push((name, HOST_FD.to_string()));
        self.spec.descriptors.push(HOST_FD);
        self.host = Some(Arc::new(socket));
        self
    }

    /// Returns the worktree that its programs start in.
    pub(crate) fn worktree(&self) -> &Path {
        &self.spec.directory
    }

    /// Returns whether a program here can write this path, so that permission to do it means
    /// something.
    pub(crate) fn may_write(&self, path: &Path) -> bool {
        self.spec.may_write(path)
    }

    /// Returns whether the box confines programs here.
    pub(crate) fn is_confined(&self) -> bool {
        self.spec.confined
    }

    /// Starts a program with piped streams.
    pub(crate) fn start(&self, argv: &[String]) -> Result<Process> {
        let cannot = || format!("cannot start `{}`", argv.first().map_or("", String::as_str));
        let (program, args) = argv.split_first().ok_or("no program is given").or_fail(cannot)?;
        let SandboxJob { mut job, lifeline, report } =
            sandbox::job(&self.spec, program, args).or_fail(cannot)?;
        if let Some(host) = &self.host {
            job = job.descriptor(host.try_clone().or_fail(cannot)?, HOST_FD);
        }
        let running = job.stdin(Stream::Piped).spawn_async().or_fail(cannot)?;
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.retain(|guard| base::process::is_alive(*guard));
        guards.extend(running.child.id());
        drop(guards);
        Ok(Process { running, lifeline, report })
    }

    /// Stops everything that was started here until the result is dropped: what it may write to
    /// holds still while we look at it.
    pub(crate) fn freeze(&self) -> FrozenProcesses {
        let guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sandbox::freeze(&guards)
    }

    /// Runs what sees a program to its end, also when nobody waits for that any more.
    pub(crate) fn wait_tracked<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn(task)
    }

    /// Waits until every program that was started here has ended.
    pub async fn emptied(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Runs a program for the person at the terminal, in this room, and holds the lock until it
    /// ends. Gives its exit code.
    pub fn enter(&self, argv: &[String], lock: &Lock) -> std::io::Result<i32> {
        let (program, args) =
            argv.split_first().ok_or_else(|| std::io::Error::other("no program is given"))?;
        sandbox::attended(&self.spec, lock.share()?, program, args)
    }

    /// Runs one `sh -c` line to its end, at most so long. Dropped, it ends the line.
    pub(crate) async fn run_shell(&self, line: &str, most: Duration) -> Result<CommandOutput> {
        let argv = ["sh".to_owned(), "-c".to_owned(), line.to_owned()];
        let process = self.start(&argv)?;
        let (wanted, unwanted) = oneshot::channel();
        let ended = self.wait_tracked(to_its_end(process, most, unwanted)).await;
        drop(wanted);
        ended.or_fail(|| "cannot wait for it")?
    }
}

/// Returns the user's home directory.
pub(crate) fn home() -> PathBuf {
    std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// Waits for a line; ends it when its time is up, or when nobody wants it any more.
async fn to_its_end(
    mut process: Process,
    most: Duration,
    unwanted: oneshot::Receiver<()>,
) -> Result<CommandOutput> {
    let begin = Instant::now();
    drop(process.running.child.stdin.take());
    let out = tokio::spawn(tail_of(process.running.child.stdout.take()));
    let err = tokio::spawn(tail_of(process.running.child.stderr.take()));
    let exit = tokio::select! {
        status = process.running.child.wait() => {
            base::process::exit_code(status.or_fail(|| "cannot wait for it")?)
        }
        () = tokio::time::sleep(most) => {
            let _ = process.running.end(GRACE).await;
            124
        }
        _ = unwanted => {
            let _ = process.running.end(GRACE).await;
            143
        }
    };
    let took = begin.elapsed();
    drop(process);
    let tail = format!("{}{}", out.await.unwrap_or_default(), err.await.unwrap_or_default());
    Ok(CommandOutput { exit, tail, took })
}

async fn tail_of(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut kept: Vec<u8> = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..n]);
        if kept.len() > 8 * TAIL {
            kept.drain(..kept.len() - TAIL);
        }
    }
    base::text::tail(&String::from_utf8_lossy(&kept), TAIL).to_owned()
}
