//! Starts processes: own process group, explicit directory and environment, a timeout that kills
//! the whole group, bounded output, closed stdin. Nothing else in the workspace starts processes.

mod background;
mod bounds;
mod collect;
mod descriptors;
mod output;
mod pty;
mod running;
mod system;
mod watcher;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

pub use bounds::ResourceLimits;
use collect::Collector;
pub use descriptors::{close_on_exec_except, inherited};
pub use output::{Output, OutputLimits, exit_code};
pub use pty::Pty;
pub use system::is_in_foreground;
use system::{Group, ProcessPlacement, with_program};
use watcher::Watched;

use crate::sandbox::Confinement;
use crate::sandbox::network::NetworkConfinement;

/// How long a group may take to exit after SIGTERM before it gets SIGKILL.
pub const GRACE: Duration = Duration::from_millis(500);
/// How long pipes are read after the process exited, while a grandchild holds them open.
const DRAIN: Duration = Duration::from_secs(2);

/// The target of a standard stream of the child.
#[derive(Debug)]
pub enum Stream {
    /// `/dev/null`.
    Null,
    /// The parent's own stream.
    Inherit,
    /// A pipe to the parent.
    Piped,
    /// An open file.
    File(std::fs::File),
}

impl From<Stream> for Stdio {
    fn from(stream: Stream) -> Stdio {
        match stream {
            Stream::Null => Stdio::null(),
            Stream::Inherit => Stdio::inherit(),
            Stream::Piped => Stdio::piped(),
            Stream::File(file) => file.into(),
        }
    }
}

/// A program to start and its settings. Nothing here passes through a shell.
#[derive(Debug)]
pub struct Command {
    command: std::process::Command,
    program: OsString,
    input: Option<Vec<u8>>,
    descriptors: Vec<(OwnedFd, i32)>,
    placement: ProcessPlacement,
    last_signal: Signal,
    bounds: Option<ResourceLimits>,
    /// Kept open until the child has inherited it.
    terminal: Option<OwnedFd>,
    confinement: Option<Arc<Confinement>>,
    network: Option<Arc<NetworkConfinement>>,
    /// The directory of the child's cgroup.
    cgroup: Option<OwnedFd>,
    oom_victim: bool,
    watched: bool,
}

impl Command {
    /// Creates a command for a program in a directory, with the parent's environment, closed stdin
    /// and piped output.
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    pub fn new(program: impl AsRef<OsStr>, directory: impl AsRef<Path>) -> Command {
        let mut command = std::process::Command::new(&program);
        command.current_dir(directory).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = program.as_ref().to_owned();
        let (descriptors, placement) = (Vec::new(), ProcessPlacement::default());
        let (input, bounds, confinement, last_signal) = (None, None, None, Signal::KILL);
        Command {
            command,
            program,
            input,
            descriptors,
            placement,
            last_signal,
            bounds,
            confinement,
            network: None,
            cgroup: None,
            oom_victim: false,
            watched: false,
            terminal: None,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Command {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Command {
        self.command.args(args);
        self
    }

    /// Sets one variable.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Command {
        self.command.env(key, value);
        self
    }

    /// Removes one variable.
    #[must_use]
    pub fn env_remove(mut self, key: impl AsRef<OsStr>) -> Command {
        self.command.env_remove(key);
        self
    }

    /// Starts from an empty environment.
    #[must_use]
    pub fn env_clear(mut self) -> Command {
        self.command.env_clear();
        self
    }

    /// Writes these bytes to stdin and closes it.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Command {
        self.command.stdin(Stdio::piped());
        self.input = Some(bytes.into());
        self
    }

    /// Sets the source of stdin (closed by default).
    #[must_use]
    pub fn stdin(mut self, stream: Stream) -> Command {
        self.command.stdin(Stdio::from(stream));
        self
    }

    /// Sets the target of stdout (a pipe by default).
    #[must_use]
    pub fn stdout(mut self, stream: Stream) -> Command {
        self.command.stdout(Stdio::from(stream));
        self
    }

    /// Sets the target of stderr (a pipe by default).
    #[must_use]
    pub fn stderr(mut self, stream: Stream) -> Command {
        self.command.stderr(Stdio::from(stream));
        self
    }

    /// Passes a descriptor to the child under the given number (3 or more).
    #[must_use]
    pub fn descriptor(mut self, fd: OwnedFd, number: i32) -> Command {
        self.descriptors.push((fd, number));
        self
    }

    /// Gives the child its own process session: it keeps running when the parent and the terminal
    /// end.
    #[must_use]
    pub fn detached(mut self) -> Command {
        self.placement.group = Group::Detached;
        self
    }

    /// Gives the child its own process session, with this controlling terminal.
    #[must_use]
    pub fn on_terminal(mut self, terminal: OwnedFd) -> Command {
        self.placement.group = Group::Detached;
        self.placement.terminal = Some(terminal.as_raw_fd());
        self.terminal = Some(terminal);
        self
    }

    /// Keeps the child in the parent's process group, so that it gets signals from the terminal's
    /// keys.
    #[must_use]
    pub fn in_parent_group(mut self) -> Command {
        self.placement.group = Group::Parent;
        self
    }

    /// Makes the kernel send SIGKILL to the child when the thread that starts it ends (Linux).
    #[must_use]
    pub fn kill_on_parent_death(mut self) -> Command {
        self.placement.kill_on_parent_death = true;
        self
    }

    /// Declares that the child ends all its own children on SIGTERM, as a sandbox does: it gets
    /// SIGTERM and time before SIGKILL, also when its handle is dropped.
    #[must_use]
    pub fn graceful(mut self) -> Command {
        self.last_signal = Signal::TERM;
        self
    }

    /// Kills the process group when this process ends first, even by SIGKILL (Linux), as long as the
    /// handle exists, or until [`AsyncRunning::forget`].
    #[must_use]
    pub fn kill_group_on_parent_death(mut self) -> Command {
        self.watched = true;
        self
    }

    /// Runs the child and all its children in a sandbox.
    #[must_use]
    pub fn confined(mut self, confinement: Arc<Confinement>) -> Command {
        self.confinement = Some(confinement);
        self
    }

    /// Confines the network of the child and all its children.
    #[must_use]
    pub fn in_network(mut self, network: Arc<NetworkConfinement>) -> Command {
        self.network = Some(network);
        self
    }

    /// Puts the child and all its children into a cgroup, whose open directory this is.
    #[must_use]
    pub fn in_cgroup(mut self, directory: OwnedFd) -> Command {
        self.cgroup = Some(directory);
        self
    }

    /// Makes the kernel end the child and its children before other programs when the machine runs
    /// out of memory (Linux).
    #[must_use]
    pub fn oom_victim(mut self) -> Command {
        self.oom_victim = true;
        self
    }

    /// Limits the resources of the child and all its children, in addition to the kernel's file
    /// rules ([`crate::sandbox`]): no sockets, no own process group, limited memory.
    #[must_use]
    pub fn bounded(mut self, bounds: ResourceLimits) -> Command {
        self.bounds = Some(bounds);
        self
    }

    /// Runs the program and waits for its end.
    pub fn output(mut self, limits: OutputLimits) -> io::Result<Output> {
        let input = self.input.take();
        let mut running = self.spawn()?;
        if let (Some(bytes), Some(mut stdin)) = (input, running.child.stdin.take()) {
            // A child that does not read its input must not block the caller, so a thread writes
            // it.
            std::thread::spawn(move || stdin.write_all(&bytes));
        }
        let stdout = Collector::start(running.child.stdout.take(), limits.bytes);
        let stderr = Collector::start(running.child.stderr.take(), limits.bytes);
        // A limit that the clock cannot count to is never reached.
        let end = limits.time.and_then(|time| Instant::now().checked_add(time));
        let status = running.wait_until(end)?;
        let timed_out = status.is_none();
        let status = status.map_or_else(|| running.end(GRACE), Ok)?;
        let deadline = Instant::now() + DRAIN;
        Ok(Output {
            status,
            timed_out,
            stdout: stdout.finish(deadline),
            stderr: stderr.finish(deadline),
        })
    }

    /// Starts the program and returns a handle that kills its group when it is dropped.
    pub fn spawn(self) -> io::Result<Running> {
        let (last_signal, watch) = (self.last_signal, self.watch());
        let (mut command, program, _descriptors) = self.prepare(watch.as_ref())?;
        let child = command.spawn().map_err(|e| with_program(e, &program))?;
        Ok(Running { child, ended: false, last_signal, _watched: watch })
    }

    /// Starts the program on the tokio runtime; its group gets SIGKILL when the handle is dropped.
    pub fn spawn_async(self) -> io::Result<AsyncRunning> {
        let (last_signal, watch) = (self.last_signal, self.watch());
        let (command, program, _descriptors) = self.prepare(watch.as_ref())?;
        let mut command = tokio::process::Command::from(command);
        let child = command.spawn().map_err(|e| with_program(e, &program))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(AsyncRunning { child, group, last_signal, watched: watch })
    }

    /// Starts a program that outlives this process, and returns its process id.
    pub fn spawn_forget(self) -> io::Result<u32> {
        let (mut command, program, _descriptors) = self.prepare(None)?;
        let child = command.spawn().map_err(|e| with_program(e, &program))?;
        Ok(child.id())
    }

    /// Replaces the running program by this one. Returns only on failure.
    pub fn exec(self) -> io::Error {
        match self.in_parent_group().prepare(None) {
            Ok((mut command, program, _descriptors)) => with_program(command.exec(), &program),
            Err(error) => error,
        }
    }

    /// Returns the watch over the group, if it was asked for and is possible.
    fn watch(&self) -> Option<Watched> {
        self.watched.then(Watched::start).flatten()
    }

    /// Prepares group, session and descriptors. The descriptors must live until the start.
    fn prepare(self, watch: Option<&Watched>) -> io::Result<Prepared> {
        let Command {
            mut command,
            program,
            descriptors,
            placement,
            bounds,
            confinement,
            network,
            terminal,
            cgroup,
            oom_victim,
            ..
        } = self;
        match placement.group {
            Group::Own => {
                command.process_group(0);
            }
            Group::Detached => system::lead_session_before_exec(&mut command),
            Group::Parent => {}
        }
        // In a sandbox the process may have another id.
        if let Some(watch) = watch {
            watch.before_exec(&mut command);
        }
        if oom_victim {
            system::oom_victim_before_exec(&mut command);
        }
        let cgroup_directory = cgroup.as_ref().map(AsRawFd::as_raw_fd);
        if let Some(network) = &network {
            system::enter_network_before_exec(&mut command, network.clone());
        }
        // This goes before the rest: a change of privileges resets the parent-death signal, and moved
        // descriptors may take the number of the ruleset.
        match (confinement, cgroup_directory) {
            (Some(confinement), directory) => {
                system::confine_before_exec(&mut command, confinement, directory);
            }
            (None, Some(directory)) => system::join_cgroup_before_exec(&mut command, directory),
            (None, None) => {}
        }
        if let Some(network) = network {
            system::limit_network_before_exec(&mut command, network);
        }
        // Moved to high numbers first, so that no target number is the source of another one.
        let floor = descriptors.iter().map(|(_, number)| number + 1).max().unwrap_or(3);
        let descriptors = descriptors
            .into_iter()
            .map(|(fd, number)| Ok((rustix::io::fcntl_dupfd_cloexec(&fd, floor)?, number)))
            .collect::<io::Result<Vec<_>>>()?;
        let moves: Vec<(i32, i32)> =
            descriptors.iter().map(|(fd, number)| (fd.as_raw_fd(), *number)).collect();
        if placement.needs_pre_exec() || !moves.is_empty() {
            system::before_exec(&mut command, moves, placement);
        }
        if let Some(bounds) = bounds {
            bounds::before_exec(&mut command, bounds)?;
        }
        Ok((command, program, (descriptors, terminal, cgroup)))
    }
}

/// A command, its name for errors, and the descriptors that must live until it has started.
type Prepared = (std::process::Command, OsString, HeldDescriptors);

/// The descriptors for the child, its terminal, and its cgroup.
type HeldDescriptors = (Vec<(OwnedFd, i32)>, Option<OwnedFd>, Option<OwnedFd>);

/// A process and its group. The group gets SIGKILL on drop.
#[derive(Debug)]
pub struct Running {
    /// The process, with its pipes.
    pub child: Child,
    ended: bool,
    last_signal: Signal,
    _watched: Option<Watched>,
}

/// A process on the tokio runtime and its group. The group gets SIGKILL on drop.
#[derive(Debug)]
pub struct AsyncRunning {
    /// The process, with its pipes.
    pub child: tokio::process::Child,
    group: Option<Pid>,
    last_signal: Signal,
    watched: Option<Watched>,
}

/// Sends a signal to a process group; a group that no longer exists is ignored.
pub fn signal_group(id: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(id.cast_signed()) {
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// Protects the memory of this process (API keys above all): other processes of the user cannot
/// inspect it, and no core file is written. Call it first of all.
#[allow(unsafe_code)]
pub fn disable_core_dumps() {
    let zero = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, zero);
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes only numbers.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// Returns the size of a page of memory in bytes.
#[allow(unsafe_code)]
pub fn page_size() -> u64 {
    // SAFETY: the call takes and returns a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// Returns whether a process with this id runs. One that has ended does not, although its parent has
/// not yet waited for it.
pub fn is_alive(id: u32) -> bool {
    let exists = Pid::from_raw(id.cast_signed())
        .is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH));
    // `pid (name) state …`; the name may contain parentheses.
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default();
    exists && !state.starts_with(" Z")
}

/// Lowers the priority of this process, by 19 at most (`nice(2)`), if the system permits it. Linux
/// shares the processors among the sessions of processes (`sched(7)`, "The autogroup feature"), and the
/// priority of a process counts only within its session: that of a session whose leader calls this is
/// lowered too.
pub fn lower_priority(by: i32) {
    let _ = rustix::process::nice(by);
    if system::leads_session() {
        let _ = std::fs::write("/proc/self/autogroup", by.to_string());
    }
}

/// Returns the program of this name in the directory of the running one, where an installation puts
/// those that belong together, if it is there.
pub fn sibling_program(name: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name(name);
    program.is_file().then_some(program)
}

/// Returns whether a file is there and this user may execute it.
pub fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Searches the directories of `PATH` for a program.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let all = std::env::var_os("PATH")?;
    std::env::split_paths(&all).map(|dir| dir.join(name)).find(|path| is_executable(path))
}

/// Like [`find_program`], but skips relative entries of `PATH`, and entries and programs that are in
/// one of these directories or lead there.
pub fn find_program_outside(name: &str, excluded: &[PathBuf]) -> Option<PathBuf> {
    let is_outside = |path: &PathBuf| {
        let target = path.canonicalize().unwrap_or_else(|_| path.clone());
        !excluded.iter().any(|dir| path.starts_with(dir) || target.starts_with(dir))
    };
    let all = std::env::var_os("PATH")?;
    let directories = std::env::split_paths(&all).filter(|dir| dir.is_absolute());
    let candidates = directories.map(|dir| dir.join(name)).filter(is_outside);
    let mut candidates = candidates;
    candidates.find(|path| is_executable(path))
}

/// Returns `PATH` without relative entries, and without entries that are in one of these directories
/// or lead there.
pub fn search_path_outside(excluded: &[PathBuf]) -> OsString {
    let is_outside = |path: &PathBuf| {
        let target = path.canonicalize().unwrap_or_else(|_| path.clone());
        let is_in = |dir: &PathBuf| path.starts_with(dir) || target.starts_with(dir);
        path.is_absolute() && !excluded.iter().any(is_in)
    };
    let all = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&all).filter(is_outside);
    std::env::join_paths(directories).unwrap_or_default()
}

#[cfg(test)]
mod tests;
