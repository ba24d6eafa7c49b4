//! Runs the processes of a session: in its worktree, in its sandbox, with an environment without
//! secrets.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
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

/// The descriptor number of an agent's connection to the model host.
const HOST_FD: i32 = 6;
/// Maximum number of bytes of each stream of a check that are kept.
const TAIL_BYTES: usize = 4096;

/// Starts the processes of a session in its sandbox.
#[derive(Clone)]
pub struct SandboxedRunner {
    spec: SandboxSpec,
    host: Option<Arc<OwnedFd>>,
    tasks: TaskTracker,
    /// The process ids of the sandbox guards that this runner started.
    guards: Arc<Mutex<Vec<u32>>>,
}

/// The writable directories of a sandbox besides the worktree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directories<'a> {
    /// For temporary files.
    pub temporary: &'a Path,
    /// For the caches of build tools.
    pub cache: &'a Path,
}

/// A started program and what keeps it alive. On drop, all processes in its sandbox are ended.
#[derive(Debug)]
pub(crate) struct Process {
    /// The program.
    pub running: AsyncRunning,
    /// The lifeline of its sandbox.
    pub lifeline: Lifeline,
    /// Reports after its end whether the program was started at all.
    pub report: StartReport,
}

/// The result of a program.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// Its exit code; 124 after a timeout.
    pub exit: i32,
    /// The end of both streams, combined.
    pub tail: String,
    /// The duration.
    pub duration: Duration,
}

/// The purpose of the processes in a session's sandbox.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// The agent; its entry has the paths and variables that only it gets.
    Agent(&'a AgentRow),
    /// The configured lines that prepare a worktree.
    Setup,
    /// The checks.
    Checks,
    /// The user's shell.
    Shell,
}

impl SandboxedRunner {
    /// Creates the runner of a session.
    pub fn of(
        repository: &Repository,
        record: &SessionRecord,
        config: &Config,
        purpose: Purpose<'_>,
    ) -> Result<SandboxedRunner> {
        let temporary = repository.session_dir(&record.id).join("tmp");
        let sandbox = SandboxConfig {
            enabled: config.sandbox.enabled && record.run_mode.sandboxed,
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
        SandboxedRunner::with_directories(
            repository,
            &record.session_repo,
            directories,
            &sandbox,
            row,
        )
    }

    /// Creates a runner for any worktree of studio.
    pub(crate) fn with_directories(
        repository: &Repository,
        session_repo: &SessionRepo,
        directories: Directories<'_>,
        sandbox: &SandboxConfig,
        row: Option<&AgentRow>,
    ) -> Result<SandboxedRunner> {
        let home = home();
        let hidden_trees = hidden_trees::hidden_trees(repository, session_repo, &home);
        let protected =
            session_repo::protected_paths(&session_repo.worktree, &session_repo.git_dir);
        let paths = SessionPaths {
            home: &home,
            worktree: &session_repo.worktree,
            private_git: &session_repo.git_dir,
            repository_git: &repository.common_dir,
            temp: directories.temporary,
            cache: directories.cache,
            hidden: &hidden_trees,
            protected: &protected,
        };
        let spec =
            SandboxSpec::for_session(&paths, row, sandbox).or_fail(|| "cannot plan the box")?;
        Ok(SandboxedRunner { spec, host: None, tasks: TaskTracker::new(), guards: Arc::default() })
    }

    /// Adds a connection to the model host, which runs outside all sandboxes.
    #[must_use]
    pub(crate) fn with_host(mut self, socket: OwnedFd) -> SandboxedRunner {
        let name = base::model_host::find::FD_VARIABLE.to_owned();
        self.spec.environment.push((name, HOST_FD.to_string()));
        self.spec.descriptors.push(HOST_FD);
        self.host = Some(Arc::new(socket));
        self
    }

    /// Returns the worktree, in which the programs start.
    pub(crate) fn worktree(&self) -> &Path {
        &self.spec.directory
    }

    /// Returns whether a program can write this path, so that a permission for it has an effect.
    pub(crate) fn may_write(&self, path: &Path) -> bool {
        self.spec.may_write(path)
    }

    /// Returns whether the sandbox is enabled.
    pub(crate) fn is_confined(&self) -> bool {
        self.spec.confined
    }

    /// Starts a program with piped streams.
    pub(crate) fn start(&self, argv: &[String]) -> Result<Process> {
        let cannot = || format!("cannot start `{}`", argv.first().map_or("", String::as_str));
        let (program, args) = argv.split_first().ok_or("no program is given").or_fail(cannot)?;
        let SandboxJob { command: mut job, lifeline, report } =
            sandbox::prepare_job(&self.spec, program, args).or_fail(cannot)?;
        if let Some(host) = &self.host {
            job = job.descriptor(host.try_clone().or_fail(cannot)?, HOST_FD);
        }
        let running = job.stdin(Stream::Piped).spawn_async().or_fail(cannot)?;
        let mut guards = base::sync::lock(&self.guards);
        guards.retain(|guard| base::process::is_alive(*guard));
        guards.extend(running.child.id());
        drop(guards);
        Ok(Process { running, lifeline, report })
    }

    /// Stops all processes of this runner until the result is dropped, so that their files do not
    /// change while they are read.
    pub(crate) fn freeze(&self) -> FrozenProcesses {
        let guards = base::sync::lock(&self.guards).clone();
        sandbox::freeze(&guards)
    }

    /// Runs the future that waits for a program to completion, even if its caller is cancelled.
    pub(crate) fn wait_tracked<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn(task)
    }

    /// Waits until all programs of this runner have ended.
    pub async fn wait_all(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Runs a program for the user at the terminal, holding the lock until it ends, and returns its
    /// exit code.
    pub fn enter(&self, argv: &[String], lock: &Lock) -> std::io::Result<i32> {
        let (program, args) =
            argv.split_first().ok_or_else(|| std::io::Error::other("no program is given"))?;
        let host = match &self.host {
            Some(host) => Some((host.try_clone()?, HOST_FD)),
            None => None,
        };
        sandbox::run_attended(&self.spec, lock.share()?, host, program, args)
    }

    /// Runs one `sh -c` line with a timeout. The line is ended if the future is dropped.
    pub(crate) async fn run_shell(&self, line: &str, timeout: Duration) -> Result<CommandOutput> {
        let argv = ["sh".to_owned(), "-c".to_owned(), line.to_owned()];
        let process = self.start(&argv)?;
        let (cancel_tx, cancel_rx) = oneshot::channel();
        let output = self.wait_tracked(wait_with_timeout(process, timeout, cancel_rx)).await;
        drop(cancel_tx);
        output.or_fail(|| "cannot wait for it")?
    }
}

/// Returns the user's home directory.
pub(crate) fn home() -> PathBuf {
    base::user_dirs::home_dir().unwrap_or_else(|| PathBuf::from("/"))
}

/// Waits for a line; ends it on timeout, or when its caller is gone.
async fn wait_with_timeout(
    mut process: Process,
    timeout: Duration,
    cancel_rx: oneshot::Receiver<()>,
) -> Result<CommandOutput> {
    let start = Instant::now();
    drop(process.running.child.stdin.take());
    let stdout = tokio::spawn(tail_of(process.running.child.stdout.take()));
    let stderr = tokio::spawn(tail_of(process.running.child.stderr.take()));
    let exit = tokio::select! {
        status = process.running.child.wait() => {
            base::process::exit_code(status.or_fail(|| "cannot wait for it")?)
        }
        () = tokio::time::sleep(timeout) => {
            let _ = process.running.end(GRACE).await;
            124
        }
        _ = cancel_rx => {
            let _ = process.running.end(GRACE).await;
            143
        }
    };
    let duration = start.elapsed();
    drop(process);
    let tail = format!("{}{}", stdout.await.unwrap_or_default(), stderr.await.unwrap_or_default());
    Ok(CommandOutput { exit, tail, duration })
}

async fn tail_of(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut bytes: Vec<u8> = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        bytes.extend_from_slice(&buffer[..n]);
        if bytes.len() > 8 * TAIL_BYTES {
            bytes.drain(..bytes.len() - TAIL_BYTES);
        }
    }
    base::text::tail(&String::from_utf8_lossy(&bytes), TAIL_BYTES).to_owned()
}
