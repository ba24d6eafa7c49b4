//! Runs the processes of a session: in its worktree, in its sandbox, with an environment without
//! secrets.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::config::Config;
use base::config::agent::SandboxConfig;
use base::config::keyless::KeylessConfig;
use base::config::layers::user_config_file;
use base::config::network::NetworkPolicy;
use base::config::studio::{AgentRow, SessionLimits};
use base::failure::{OrFail, Result};
use base::lock::Lock;
use base::process::{AsyncRunning, GRACE, Stream};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::exec::build_caches::BuildCaches;
use crate::exec::model_services::ServiceKey;
use crate::exec::network::{self, NetworkRequest, NetworkSetup};
use crate::exec::{
    agent_services, hidden_path_hint, hidden_trees, model_services, network_hint, tool_paths,
};
use crate::leases::Leases;
use crate::path_dependencies;
use crate::sandbox::limits::SandboxLimits;
use crate::sandbox::session_rules::{SessionPaths, SessionTrees};
use crate::sandbox::{
    self, FrozenProcesses, Lifeline, ProgramSender, SandboxFailure, SandboxJob, SandboxReport,
    SandboxSpec,
};
use crate::session::record::{RunLimits, SessionRecord};
use studio_git::repo::Repository;
use studio_git::session_repo::{self, SessionRepo};

/// The descriptor number of an agent's connection to the model host.
const HOST_FD: i32 = 6;
/// Default number of ports of a session.
const DEFAULT_PORTS: u16 = 10;
/// Maximum number of bytes of each stream of a check that are kept.
const TAIL_BYTES: usize = 4096;

/// Starts the processes of a session in its sandbox.
#[derive(Clone)]
pub struct SandboxedRunner {
    spec: SandboxSpec,
    host: Option<Arc<OwnedFd>>,
    tasks: TaskTracker,
    network: NetworkSetup,
    /// The process ids of the sandbox guards that this runner started.
    guards: Arc<Mutex<Vec<u32>>>,
    /// A sandbox that was started ahead of its program.
    waiting: Arc<Mutex<Option<WaitingProcess>>>,
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
    pub report: SandboxReport,
}

/// A started sandbox, and how it is told its program.
#[derive(Debug)]
struct WaitingProcess {
    process: Process,
    program: ProgramSender,
}

impl WaitingProcess {
    /// Returns whether it still waits: nothing may have killed it.
    fn is_alive(&self) -> bool {
        self.process.running.child.id().is_some_and(base::process::is_alive)
    }
}

/// The result of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CommandOutput {
    /// Its exit code; 124 after a timeout.
    pub exit: i32,
    /// The end of both streams, combined.
    pub tail: String,
    /// The duration.
    pub duration: Duration,
    /// The limit that it reached, in words, and what the user can do.
    pub limit: Option<String>,
}

/// Returns the trees that the sandboxes of a session have in common.
pub(crate) fn trees_of(repository: &Repository, session_repo: &SessionRepo) -> SessionTrees {
    let home = home();
    let hidden = hidden_trees::hidden_trees(repository, session_repo, &home);
    SessionTrees::new(&home, hidden, &repository.common_dir)
}

/// Returns the limits of a sandbox: its own, else the configured ones, else the defaults.
pub(crate) fn limits_of(
    own: &RunLimits,
    configured: &SessionLimits,
    disk: DiskLimit,
) -> SandboxLimits {
    let limits = SandboxLimits {
        memory: own.memory_bytes.or(configured.memory_bytes),
        tasks: own.processes.or(configured.processes),
        disk: own.disk_bytes.or(configured.disk_bytes),
        free_disk: own.disk_floor_bytes.or(configured.disk_floor_bytes),
        trees: Vec::new(),
    };
    match disk {
        DiskLimit::Limited => limits.or_default(),
        DiskLimit::Unlimited => {
            SandboxLimits { disk: None, free_disk: None, ..limits.or_default() }
        }
    }
}

/// Whether the use of the disk is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskLimit {
    /// As the limits say.
    Limited,
    /// Not at all.
    Unlimited,
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
        let trees = trees_of(repository, &record.session_repo);
        SandboxedRunner::in_trees(repository, record, config, purpose, &trees)
    }

    /// Like [`SandboxedRunner::of`], with the trees of the session.
    pub(crate) fn in_trees(
        repository: &Repository,
        record: &SessionRecord,
        config: &Config,
        purpose: Purpose<'_>,
        trees: &SessionTrees,
    ) -> Result<SandboxedRunner> {
        let temporary = repository.session_dir(&record.id).join("tmp");
        let sandbox = SandboxConfig {
            enabled: config.sandbox.enabled && record.run_mode.sandboxed,
            ..config.session_sandbox()
        };
        let caches = BuildCaches::of(repository, &record.id);
        let (cache, row) = match purpose {
            Purpose::Agent(row) => (caches.agent(), Some(row)),
            Purpose::Shell => (caches.agent(), None),
            Purpose::Setup => (caches.setup(), None),
            Purpose::Checks => (caches.checks(), None),
        };
        let directories = Directories { temporary: &temporary, cache: &cache };
        let runner = SandboxedRunner::with_directories(
            repository,
            &record.session_repo,
            trees,
            directories,
            &sandbox,
            row,
        )?;
        let holder = Path::new("sessions").join(record.id.as_str());
        let runner = runner.with_leases(repository, &holder, record.id.as_str(), config);
        let config_file = record.run_mode.config.as_deref();
        let disk = match purpose {
            // The user's own shell is where space is made.
            Purpose::Shell => DiskLimit::Unlimited,
            Purpose::Agent(_) | Purpose::Setup | Purpose::Checks => DiskLimit::Limited,
        };
        let runner = runner.with_limits(&record.limits, &config.studio.limits, disk);
        let policy = policy(config, record, purpose);
        runner.with_network(config, policy, row.map(|row| (row, config_file)))
    }

    /// Adds the variables with what only this session, or these checks, use on this machine.
    #[must_use]
    pub(crate) fn with_leases(
        mut self,
        repository: &Repository,
        holder: &Path,
        name: &str,
        config: &Config,
    ) -> SandboxedRunner {
        let count = config.studio.ports.unwrap_or(DEFAULT_PORTS);
        for (name, value) in Leases::take(repository, holder, name, count).variables() {
            self.spec.environment.retain(|(existing, _)| *existing != name);
            self.spec.environment.push((name, value));
        }
        self
    }

    /// Limits what the processes use together: as the session's own limits say, else as configured.
    #[must_use]
    pub(crate) fn with_limits(
        mut self,
        own: &RunLimits,
        configured: &SessionLimits,
        disk: DiskLimit,
    ) -> SandboxedRunner {
        let trees = std::mem::take(&mut self.spec.limits.trees);
        self.spec.limits = SandboxLimits { trees, ..limits_of(own, configured, disk) };
        self
    }

    /// Adds the network; an agent has an entry, and the file given with `--config`. Processes
    /// without a sandbox have the user's.
    pub(crate) fn with_network(
        mut self,
        config: &Config,
        policy: NetworkPolicy,
        agent: Option<(&AgentRow, Option<&Path>)>,
    ) -> Result<SandboxedRunner> {
        if !self.spec.confined {
            return Ok(self);
        }
        let mut hosts = network::listed_hosts(&config.sandbox);
        let (mut services, mut keyless) = (Vec::new(), None);
        if let Some((row, config_file)) = agent {
            hosts.extend(row.hosts.iter().cloned());
            hosts.extend(model_services::url_hosts(&self.spec.environment));
            if row.proxy_keys.iter().any(|name| name == agent_services::OPENCODE) {
                let unused = agent_services::unused_by_opencode(&home());
                self.spec.environment.retain(|(name, _)| !unused.contains(&name.as_str()));
            }
            services = self.services_of(row, &hosts);
            if row.proxies_configured_services() {
                let file = config_file.map(Path::to_owned).or_else(user_config_file);
                let file = file.unwrap_or_default();
                let mut config_copy = KeylessConfig::from_file(&file, config_file.is_some())?;
                let configured = model_services::of_configuration(config, &mut config_copy)?;
                services.extend(configured);
                keyless = Some(config_copy);
            }
        }
        if policy == NetworkPolicy::Off {
            for (name, placeholder) in services.drain(..).filter_map(|it| it.placeholder()) {
                self.spec.environment.retain(|(existing, _)| *existing != name);
                self.spec.environment.push((name, placeholder));
            }
        }
        let setup = NetworkSetup::new(policy, config.sandbox.best_effort, hosts, services)?;
        self.network = match keyless {
            Some(keyless) => setup.with_configuration(keyless),
            None => setup,
        };
        Ok(self)
    }

    /// Returns the model services whose keys are in the environment and stay outside.
    fn services_of(&self, row: &AgentRow, hosts: &[String]) -> Vec<ServiceKey> {
        let (names, environment) = (&row.proxy_keys, &self.spec.environment);
        let is_listed = |name: &str| names.iter().any(|listed| listed == name);
        let mut services = model_services::with_keys(names, environment);
        let mut own = Vec::new();
        if is_listed(agent_services::CODEX) {
            own.extend(agent_services::codex(&home(), environment));
        }
        if is_listed(agent_services::OPENCODE) {
            own.extend(agent_services::opencode(&home(), environment));
        }
        // The agents can write these files: a key goes to listed hosts only.
        own.retain(|service| model_services::is_listed(&service.base_url, hosts));
        services.extend(own);
        services
    }

    /// Sends the requests of the network proxy to a supervisor.
    pub(crate) fn send_network_requests(&self, tx: UnboundedSender<NetworkRequest>) {
        self.network.send_requests(tx);
    }

    /// Returns what the kernel cannot enforce of the network, after the first start.
    pub(crate) fn missing_network(&self) -> Option<String> {
        self.network.missing()
    }

    /// Returns the likely cause of a failure in the sandbox whose output is this.
    pub(crate) fn failure_hint(&self, output: &str) -> Option<String> {
        self.dependency_hint()
            .or_else(|| hidden_path_hint::hidden_path_hint(&self.spec, output))
            .or_else(|| self.network_hint(output))
    }

    /// Returns the likely cause of a failure in the sandbox whose output is this, if it is the
    /// network.
    pub(crate) fn network_hint(&self, output: &str) -> Option<String> {
        network_hint::network_hint(self.network.policy(), &self.network.denied(), output)
    }

    /// Returns which dependency beside the repository is missing or closed in the sandbox.
    fn dependency_hint(&self) -> Option<String> {
        path_dependencies::missing_hint(self.worktree()).or_else(|| {
            let mut outside = path_dependencies::outside(self.worktree()).into_iter();
            let hidden = outside.find_map(|path| hidden_path_hint::hidden(&self.spec, &path))?;
            Some(hidden_path_hint::hint(&hidden))
        })
    }

    /// Creates a runner for any worktree of studio.
    pub(crate) fn with_directories(
        repository: &Repository,
        session_repo: &SessionRepo,
        trees: &SessionTrees,
        directories: Directories<'_>,
        sandbox: &SandboxConfig,
        row: Option<&AgentRow>,
    ) -> Result<SandboxedRunner> {
        let home = home();
        let protected =
            session_repo::protected_paths(&session_repo.worktree, &session_repo.git_dir);
        let paths = SessionPaths {
            home: &home,
            worktree: &session_repo.worktree,
            private_git: &session_repo.git_dir,
            repository_git: &repository.common_dir,
            temp: directories.temporary,
            cache: directories.cache,
            trees,
            protected: &protected,
        };
        let mut spec =
            SandboxSpec::for_session(&paths, row, sandbox).or_fail(|| "cannot plan the box")?;
        let written = [
            Some(session_repo.worktree.clone()),
            hidden_trees::worktrees_directory(repository, &session_repo.worktree),
            Some(repository.common_dir.join("studio")),
        ];
        let written: Vec<PathBuf> = written.into_iter().flatten().collect();
        tool_paths::restrict(&mut spec.environment, &written);
        tool_paths::add_last(&mut spec.environment, &directories.cache.join("cargo/bin"));
        Ok(SandboxedRunner {
            spec,
            host: None,
            tasks: TaskTracker::new(),
            network: NetworkSetup::open(),
            guards: Arc::default(),
            waiting: Arc::default(),
        })
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

    /// Starts the processes of the sandbox for the next program, which then starts sooner.
    pub(crate) fn start_ahead(&self) {
        // A program that starts at the same time waits for the sandbox.
        let mut waiting = base::sync::lock(&self.waiting);
        // If it cannot start, the start of the program tells why.
        *waiting = self.start_sandbox(|| "cannot start the sandbox".to_owned()).ok();
    }

    /// Starts a program with piped streams.
    pub(crate) fn start(&self, argv: &[String]) -> Result<Process> {
        let cannot = || format!("cannot start `{}`", argv.first().map_or("", String::as_str));
        let (program, args) = argv.split_first().ok_or("no program is given").or_fail(cannot)?;
        let waiting = base::sync::lock(&self.waiting).take().filter(WaitingProcess::is_alive);
        let waiting = waiting.map_or_else(|| self.start_sandbox(cannot), Ok)?;
        let program = std::slice::from_ref(program);
        let argv = [program, &self.network.arguments(), args].concat();
        waiting.program.send(&argv).or_fail(cannot)?;
        Ok(waiting.process)
    }

    /// Starts the processes of the sandbox, which wait for a program.
    fn start_sandbox(&self, cannot: impl Fn() -> String) -> Result<WaitingProcess> {
        let mut spec = self.spec.clone();
        let network = self.network.apply(&mut spec)?;
        let (job, program) = sandbox::prepare_waiting_job(&spec).or_fail(&cannot)?;
        let SandboxJob { command: mut job, lifeline, report } = job;
        for (fd, number) in network {
            job = job.descriptor(fd, number);
        }
        if let Some(host) = &self.host {
            job = job.descriptor(host.try_clone().or_fail(&cannot)?, HOST_FD);
        }
        let running = job.stdin(Stream::Piped).spawn_async().or_fail(cannot)?;
        let mut guards = base::sync::lock(&self.guards);
        guards.retain(|guard| base::process::is_alive(*guard));
        guards.extend(running.child.id());
        drop(guards);
        Ok(WaitingProcess { process: Process { running, lifeline, report }, program })
    }

    /// Stops all processes of this runner until the result is dropped, so that their files do not
    /// change while they are read.
    pub(crate) fn freeze(&self) -> FrozenProcesses {
        let mut guards = base::sync::lock(&self.guards);
        guards.retain(|guard| base::process::is_alive(*guard));
        let alive = guards.clone();
        drop(guards);
        sandbox::freeze(&alive)
    }

    /// Runs the future that waits for a program to completion, even if its caller is cancelled.
    pub(crate) fn wait_tracked<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn(task)
    }

    /// Waits until all programs of this runner have ended; a sandbox that got none is ended.
    pub async fn wait_all(&self) {
        let waiting = base::sync::lock(&self.waiting).take();
        if let Some(WaitingProcess { mut process, program }) = waiting {
            drop(program);
            let _ = process.running.child.wait().await;
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Runs a program for the user at the terminal, holding the lock until it ends, and returns its
    /// exit code.
    pub fn enter(&self, argv: &[String], lock: &Lock) -> std::io::Result<i32> {
        let (program, args) =
            argv.split_first().ok_or_else(|| std::io::Error::other("no program is given"))?;
        let mut spec = self.spec.clone();
        let network = self.network.apply(&mut spec);
        let mut descriptors =
            network.map_err(|failure| std::io::Error::other(failure.full_text()))?;
        if let Some(host) = &self.host {
            descriptors.push((host.try_clone()?, HOST_FD));
        }
        sandbox::run_attended(&spec, Some(lock.share()?), descriptors, program, args)
    }

    /// Runs one `sh -c` line with a timeout. The line is ended if the future is dropped.
    pub(crate) async fn run_shell(&self, line: &str, timeout: Duration) -> Result<CommandOutput> {
        let argv = ["sh".to_owned(), "-c".to_owned(), line.to_owned()];
        self.run_program(&argv, timeout).await
    }

    /// Runs one program with a timeout. It is ended if the future is dropped.
    pub(crate) async fn run_program(
        &self,
        argv: &[String],
        timeout: Duration,
    ) -> Result<CommandOutput> {
        let process = self.start(argv)?;
        let (cancel_tx, cancel_rx) = oneshot::channel();
        let output = self.wait_tracked(wait_with_timeout(process, timeout, cancel_rx)).await;
        drop(cancel_tx);
        output.or_fail(|| "cannot wait for it")?
    }
}

/// Returns the network policy of a session's processes. Only the user's configuration widens it.
fn policy(config: &Config, record: &SessionRecord, purpose: Purpose<'_>) -> NetworkPolicy {
    let (studio, general) = (&config.studio, config.sandbox.network);
    match purpose {
        Purpose::Agent(row) => {
            let is_known = !row.hosts.is_empty();
            let default = if is_known { NetworkPolicy::AllowList } else { NetworkPolicy::On };
            record.run_mode.network.or(row.network).or(general).unwrap_or(default)
        }
        Purpose::Setup => studio.setup_network.or(general).unwrap_or(NetworkPolicy::AllowList),
        Purpose::Checks => studio.check_network.or(general).unwrap_or(NetworkPolicy::AllowList),
        // The user's own commands: only a session without a network has none here.
        Purpose::Shell => match record.run_mode.network.or(general) {
            Some(NetworkPolicy::Off) => NetworkPolicy::Off,
            Some(NetworkPolicy::AllowList | NetworkPolicy::On) | None => NetworkPolicy::On,
        },
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
    let mut timed_out = false;
    let exit = tokio::select! {
        status = process.running.child.wait() => {
            base::process::exit_code(status.or_fail(|| "cannot wait for it")?)
        }
        () = tokio::time::sleep(timeout) => {
            let _ = process.running.end(GRACE).await;
            timed_out = true;
            124
        }
        _ = cancel_rx => {
            let _ = process.running.end(GRACE).await;
            143
        }
    };
    let duration = start.elapsed();
    let Process { running, lifeline, report } = process;
    drop((running, lifeline));
    let limit = match report.read() {
        Some(SandboxFailure::Limit(limit)) => Some(limit.sentence("ID")),
        Some(SandboxFailure::Start(_)) | None if timed_out => Some(format!(
            "it reached its limit of {}; `[studio.limits] check_seconds` raises it",
            base::text::count(timeout.as_secs(), "second")
        )),
        Some(SandboxFailure::Start(_)) | None => None,
    };
    let tail = format!("{}{}", stdout.await.unwrap_or_default(), stderr.await.unwrap_or_default());
    Ok(CommandOutput { exit, tail, duration, limit })
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
