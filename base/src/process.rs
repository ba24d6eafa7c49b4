//! The one door through which processes are started: own group, explicit directory and
//! environment, a time limit that ends the whole group, bounded output, closed stdin.

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
pub use descriptors::{inherited, keep_from_children};
pub use output::{Output, OutputLimits, exit_code};
pub use pty::Pty;
use system::{Group, ProcessPlacement, named};

use crate::sandbox::Confinement;

/// How long a group may take to end after TERM before it gets KILL.
pub const GRACE: Duration = Duration::from_millis(500);
/// How long pipes are drained after the process ended; a grandchild may hold them open.
const DRAIN: Duration = Duration::from_secs(2);

/// Where a stream of the child leads.
#[derive(Debug)]
pub enum Stream {
    /// `/dev/null`.
    Null,
    /// Ours.
    Inherit,
    /// A pipe to us.
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

/// What to start, and how. Nothing here passes through a shell.
#[derive(Debug)]
pub struct Command {
    command: std::process::Command,
    program: OsString,
    input: Option<Vec<u8>>,
    descriptors: Vec<(OwnedFd, i32)>,
    place: ProcessPlacement,
    last_signal: Signal,
    bounds: Option<ResourceLimits>,
    /// Kept open until the child has it.
    terminal: Option<OwnedFd>,
    confinement: Option<Arc<Confinement>>,
    watched: bool,
}

impl Command {
    /// Returns a program to be run in a directory, with our environment, closed stdin and piped
    /// output.
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    pub fn new(program: impl AsRef<OsStr>, directory: impl AsRef<Path>) -> Command {
        let mut command = std::process::Command::new(&program);
        command.current_dir(directory).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = program.as_ref().to_owned();
        let (descriptors, place) = (Vec::new(), ProcessPlacement::default());
        let (input, bounds, confinement, last_signal) = (None, None, None, Signal::KILL);
        Command {
            command,
            program,
            input,
            descriptors,
            place,
            last_signal,
            bounds,
            confinement,
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

    /// Returns where stdin comes from (closed unless said).
    #[must_use]
    pub fn stdin(mut self, stream: Stream) -> Command {
        self.command.stdin(Stdio::from(stream));
        self
    }

    /// Returns where stdout goes (a pipe unless said).
    #[must_use]
    pub fn stdout(mut self, stream: Stream) -> Command {
        self.command.stdout(Stdio::from(stream));
        self
    }

    /// Returns where stderr goes (a pipe unless said).
    #[must_use]
    pub fn stderr(mut self, stream: Stream) -> Command {
        self.command.stderr(Stdio::from(stream));
        self
    }

    /// Hands a descriptor to the child under the given number (3 or more).
    #[must_use]
    pub fn descriptor(mut self, fd: OwnedFd, number: i32) -> Command {
        self.descriptors.push((fd, number));
        self
    }

    /// Gives the child a process session of its own: it lives on when we and the terminal end.
    #[must_use]
    pub fn detached(mut self) -> Command {
        self.place.group = Group::Detached;
        self
    }

    /// Gives the child a process session of its own, with this terminal.
    #[must_use]
    pub fn on_terminal(mut self, terminal: OwnedFd) -> Command {
        self.place.group = Group::Detached;
        self.place.terminal = Some(terminal.as_raw_fd());
        self.terminal = Some(terminal);
        self
    }

    /// Keeps the child in our process group, so that the terminal's keys reach it.
    #[must_use]
    pub fn in_our_group(mut self) -> Command {
        self.place.group = Group::Ours;
        self
    }

    /// Returns the kernel sends KILL to the child when the thread that starts it ends (Linux).
    #[must_use]
    pub fn kill_on_parent_death(mut self) -> Command {
        self.place.dies_with_us = true;
        self
    }

    /// Returns the child ends by itself all that it started when it gets TERM, as a box does: it
    /// gets TERM and time for that before KILL, also when its handle is dropped.
    #[must_use]
    pub fn graceful(mut self) -> Command {
        self.last_signal = Signal::TERM;
        self
    }

    /// Returns its group gets KILL when we end while it runs, even by KILL ourselves (Linux). Holds
    /// for what [`Job::spawn_async`] starts, until the handle is told to forget it.
    #[must_use]
    pub fn ends_with_us(mut self) -> Command {
        self.watched = true;
        self
    }

    /// Puts a box around it and all that it starts.
    #[must_use]
    pub fn confined(mut self, confinement: Arc<Confinement>) -> Command {
        self.confinement = Some(confinement);
        self
    }

    /// Bounds what it and all that it starts may use, together with the kernel's rules for files
    /// ([`crate::sandbox`]): no sockets, no group of its own, only so much memory.
    #[must_use]
    pub fn bounded(mut self, bounds: ResourceLimits) -> Command {
        self.bounds = Some(bounds);
        self
    }

    /// Runs it to its end.
    pub fn output(mut self, limits: OutputLimits) -> io::Result<Output> {
        let input = self.input.take();
        let mut running = self.spawn()?;
        if let (Some(bytes), Some(mut stdin)) = (input, running.child.stdin.take()) {
            // A child that does not read its input must not block us: the write has its own thread.
            std::thread::spawn(move || stdin.write_all(&bytes));
        }
        let stdout = Collector::start(running.child.stdout.take(), limits.bytes);
        let stderr = Collector::start(running.child.stderr.take(), limits.bytes);
        let status = running.wait_until(limits.time.map(|time| Instant::now() + time))?;
        let timed_out = status.is_none();
        let status = status.map_or_else(|| running.end(GRACE), Ok)?;
        let until = Instant::now() + DRAIN;
        Ok(Output { status, timed_out, stdout: stdout.finish(until), stderr: stderr.finish(until) })
    }

    /// Starts it and gives back a handle whose group ends with it.
    pub fn spawn(self) -> io::Result<Running> {
        let last_signal = self.last_signal;
        let (mut command, program, _descriptors) = self.prepared()?;
        let child = command.spawn().map_err(|e| named(e, &program))?;
        Ok(Running { child, ended: false, last_signal })
    }

    /// Starts it on the tokio runtime; its group gets KILL when the handle is dropped.
    pub fn spawn_async(self) -> io::Result<AsyncRunning> {
        let (last_signal, watched) = (self.last_signal, self.watched);
        let (command, program, _descriptors) = self.prepared()?;
        let mut command = tokio::process::Command::from(command);
        let child = command.spawn().map_err(|e| named(e, &program))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let watched = group.filter(|_| watched).and_then(watcher::Watched::group);
        Ok(AsyncRunning { child, group, last_signal, watched })
    }

    /// Starts it and lets go of it: for processes that outlive us. Gives its process id.
    pub fn spawn_forget(self) -> io::Result<u32> {
        let (mut command, program, _descriptors) = self.prepared()?;
        let child = command.spawn().map_err(|e| named(e, &program))?;
        Ok(child.id())
    }

    /// Becomes it: replaces the running program. Returns only when that failed.
    pub fn exec(self) -> io::Error {
        match self.in_our_group().prepared() {
            Ok((mut command, program, _descriptors)) => named(command.exec(), &program),
            Err(error) => error,
        }
    }

    /// Puts group, session and descriptors into place. The descriptors must live until the start.
    fn prepared(self) -> io::Result<Prepared> {
        let Command {
            mut command, program, descriptors, place, bounds, confinement, terminal, ..
        } = self;
        // First of all: a change of privileges takes back the signal at our end, and descriptors
        // that are moved may take the place of the rules.
        if let Some(confinement) = confinement {
            system::confine_before_exec(&mut command, confinement);
        }
        if place.group == Group::Own {
            command.process_group(0);
        }
        // Moved out of the way first, so that no target number is somebody's source.
        let floor = descriptors.iter().map(|(_, number)| number + 1).max().unwrap_or(3);
        let descriptors = descriptors
            .into_iter()
            .map(|(fd, number)| Ok((rustix::io::fcntl_dupfd_cloexec(&fd, floor)?, number)))
            .collect::<io::Result<Vec<_>>>()?;
        let moves: Vec<(i32, i32)> =
            descriptors.iter().map(|(fd, number)| (fd.as_raw_fd(), *number)).collect();
        if place.needs_us() || !moves.is_empty() {
            system::before_exec(&mut command, moves, place);
        }
        if let Some(bounds) = bounds {
            bounds::before_exec(&mut command, bounds)?;
        }
        Ok((command, program, (descriptors, terminal)))
    }
}

/// A command, its name for errors, and the descriptors that must live until it started.
type Prepared = (std::process::Command, OsString, (Vec<(OwnedFd, i32)>, Option<OwnedFd>));

/// A process and its group. Dropped, the group gets KILL.
#[derive(Debug)]
pub struct Running {
    /// The process, with its pipes.
    pub child: Child,
    ended: bool,
    last_signal: Signal,
}

/// A process on the tokio runtime and its group. Dropped, the group gets KILL.
#[derive(Debug)]
pub struct AsyncRunning {
    /// The process, with its pipes.
    pub child: tokio::process::Child,
    group: Option<Pid>,
    last_signal: Signal,
    watched: Option<watcher::Watched>,
}

/// Sends a signal to a process group; one that is gone is no error.
pub fn signal_group(id: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(id.cast_signed()) {
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// Keeps what this process knows (keys above all) to itself: no other process of the user may look
/// into it, and no core file is written when it crashes. To be called first of all.
#[allow(unsafe_code)]
pub fn keep_secrets() {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes numbers.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// Returns whether a process with this id exists.
pub fn is_alive(id: u32) -> bool {
    Pid::from_raw(id.cast_signed())
        .is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Returns the directories of `PATH` searched for a program.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let runs = |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    let all = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&all).map(|dir| dir.join(name));
    places.filter(|path| path.is_file()).find(runs)
}

#[cfg(test)]
mod tests;
