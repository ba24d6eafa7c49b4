//! The one door through which processes are started: own group, explicit directory and
//! environment, a time limit that ends the whole group, bounded output, closed stdin.

mod collect;
mod running;
mod system;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use collect::Collector;
use system::{Group, Place, named};

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
pub struct Job {
    command: Command,
    program: OsString,
    input: Option<Vec<u8>>,
    descriptors: Vec<(OwnedFd, i32)>,
    place: Place,
    last_signal: Signal,
}

impl Job {
    /// A program to be run in a directory, with our environment, closed stdin and piped output.
    #[expect(clippy::disallowed_methods, reason = "this is the door")]
    pub fn new(program: impl AsRef<OsStr>, directory: impl AsRef<Path>) -> Job {
        let mut command = Command::new(&program);
        command.current_dir(directory).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = program.as_ref().to_owned();
        let (descriptors, place) = (Vec::new(), Place::default());
        Job { command, program, input: None, descriptors, place, last_signal: Signal::KILL }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Job {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Job {
        self.command.args(args);
        self
    }

    /// Sets one variable.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Job {
        self.command.env(key, value);
        self
    }

    /// Removes one variable.
    #[must_use]
    pub fn env_remove(mut self, key: impl AsRef<OsStr>) -> Job {
        self.command.env_remove(key);
        self
    }

    /// Starts from an empty environment.
    #[must_use]
    pub fn env_clear(mut self) -> Job {
        self.command.env_clear();
        self
    }

    /// Writes these bytes to stdin and closes it.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Job {
        self.command.stdin(Stdio::piped());
        self.input = Some(bytes.into());
        self
    }

    /// Where stdin comes from (closed unless said).
    #[must_use]
    pub fn stdin(mut self, stream: Stream) -> Job {
        self.command.stdin(Stdio::from(stream));
        self
    }

    /// Where stdout goes (a pipe unless said).
    #[must_use]
    pub fn stdout(mut self, stream: Stream) -> Job {
        self.command.stdout(Stdio::from(stream));
        self
    }

    /// Where stderr goes (a pipe unless said).
    #[must_use]
    pub fn stderr(mut self, stream: Stream) -> Job {
        self.command.stderr(Stdio::from(stream));
        self
    }

    /// Hands a descriptor to the child under the given number (3 or more).
    #[must_use]
    pub fn descriptor(mut self, fd: OwnedFd, number: i32) -> Job {
        self.descriptors.push((fd, number));
        self
    }

    /// Gives the child a process session of its own: it lives on when we and the terminal end.
    #[must_use]
    pub fn detached(mut self) -> Job {
        self.place.group = Group::Detached;
        self
    }

    /// Keeps the child in our process group, so that the terminal's keys reach it.
    #[must_use]
    pub fn in_our_group(mut self) -> Job {
        self.place.group = Group::Ours;
        self
    }

    /// The kernel sends KILL to the child when the thread that starts it ends (Linux).
    #[must_use]
    pub fn dies_with_us(mut self) -> Job {
        self.place.dies_with_us = true;
        self
    }

    /// The child ends by itself all that it started when it gets TERM, as a box does: it gets
    /// TERM and time for that before KILL, also when its handle is dropped.
    #[must_use]
    pub fn cleans_up(mut self) -> Job {
        self.last_signal = Signal::TERM;
        self
    }

    /// Runs it to its end.
    pub fn output(mut self, limits: Limits) -> io::Result<Output> {
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
        let last_signal = self.last_signal;
        let (command, program, _descriptors) = self.prepared()?;
        let mut command = tokio::process::Command::from(command);
        let child = command.spawn().map_err(|e| named(e, &program))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(AsyncRunning { child, group, last_signal })
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
        let Job { mut command, program, descriptors, place, .. } = self;
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
        Ok((command, program, descriptors))
    }
}

/// A command, its name for errors, and the descriptors that must live until it started.
type Prepared = (Command, OsString, Vec<(OwnedFd, i32)>);

/// How long and how much. What is past `bytes` is counted and thrown away.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time after which the group is ended.
    pub time: Option<Duration>,
    /// How many bytes of each stream are kept.
    pub bytes: usize,
}

impl Limits {
    /// So many seconds, and 64 MiB of each stream.
    pub fn seconds(seconds: u64) -> Limits {
        Limits { time: Some(Duration::from_secs(seconds)), bytes: 64 << 20 }
    }
}

/// What a process left.
#[derive(Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Whether it was ended by the time limit.
    pub timed_out: bool,
    /// What it wrote, as far as the limit goes.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Whether it ended by itself with exit code 0.
    pub fn ok(&self) -> bool {
        !self.timed_out && self.status.success()
    }

    /// The exit code as a shell gives it: 128 + signal for a process that a signal ended.
    pub fn code(&self) -> i32 {
        exit_code(self.status)
    }

    /// Stdout as text, without its last newline.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    /// Stderr as text, trimmed.
    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

/// The exit code as a shell gives it: 128 + signal for a process that a signal ended.
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

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
}

/// Sends a signal to a process group; one that is gone is no error.
pub fn signal_group(id: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(id.cast_signed()) {
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// Takes a descriptor over that our parent handed down under a number; no child inherits it.
/// Fails when there is none. To be called once for a number, before anything opens files.
#[allow(unsafe_code)]
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
    use std::os::fd::{BorrowedFd, FromRawFd};
    if number < 3 {
        return Err(io::Error::other(format!("descriptor {number} is not for us")));
    }
    // SAFETY: the number is not negative, and whether it is open is what the call asks.
    fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) })?;
    // SAFETY: it is open, and our parent gave it to us alone.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// Keeps every descriptor of ours from children, whoever left it open, but for the named ones.
/// To be called before other threads open files.
#[allow(unsafe_code)]
pub fn keep_from_children(but: &[i32]) -> io::Result<()> {
    use rustix::io::{FdFlags, fcntl_setfd};
    let all = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let names = std::fs::read_dir(all)?.flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > 2) {
        let flags = if but.contains(&number) { FdFlags::empty() } else { FdFlags::CLOEXEC };
        // SAFETY: only a flag is set, and a number that is closed by now (the one that reads the
        // directory) is refused by the kernel.
        let _ = fcntl_setfd(unsafe { std::os::fd::BorrowedFd::borrow_raw(number) }, flags);
    }
    Ok(())
}

/// Whether a process with this id exists.
pub fn is_alive(id: u32) -> bool {
    Pid::from_raw(id.cast_signed())
        .is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// The directories of `PATH` searched for a program.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let runs = |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    let all = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&all).map(|dir| dir.join(name));
    places.filter(|path| path.is_file()).find(runs)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn sh(line: &str) -> Job {
        Job::new("sh", "/").args(["-c", line])
    }

    #[test]
    fn both_streams_and_the_exit_code_are_reported() {
        let out = sh("echo out; echo err >&2; exit 3").output(Limits::seconds(10)).unwrap();
        assert_eq!((out.text().as_str(), out.error_text().as_str(), out.code()), ("out", "err", 3));
    }

    #[test]
    fn a_timeout_ends_the_whole_group_and_keeps_the_output() {
        let limits = Limits { time: Some(Duration::from_millis(300)), bytes: 1000 };
        let out = sh("echo early; sleep 600 & echo $!; sleep 600").output(limits).unwrap();
        assert!(out.timed_out);
        let text = out.text();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("early"));
        let grandchild: u32 = lines.next().unwrap().parse().unwrap();
        let gone = Instant::now() + Duration::from_secs(5);
        while is_alive(grandchild) && Instant::now() < gone {
            std::thread::yield_now();
        }
        let stat = std::fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
        assert!(!is_alive(grandchild) || stat.contains(") Z "), "the grandchild lives: {stat}");
    }

    #[test]
    fn a_grandchild_that_holds_the_pipe_does_not_hold_us() {
        let begin = Instant::now();
        let out = sh("setsid sleep 30 & echo done").output(Limits::seconds(20)).unwrap();
        assert_eq!(out.text(), "done");
        assert!(begin.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn output_past_the_limit_is_thrown_away_and_does_not_block() {
        let limits = Limits { time: Some(Duration::from_secs(20)), bytes: 1000 };
        let out = sh("head -c 5000000 /dev/zero").output(limits).unwrap();
        assert_eq!((out.stdout.len(), out.code()), (1000, 0));
    }

    #[test]
    fn descriptors_arrive_under_their_numbers() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let job = sh("echo hello >&5; echo world >&6").descriptor(write.try_clone().unwrap(), 5);
        assert!(job.descriptor(write, 6).output(Limits::seconds(10)).unwrap().ok());
        let mut text = String::new();
        std::fs::File::from(read).read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello\nworld\n");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Job::new("no-such-program", "/").output(Limits::seconds(1)).unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }
}
