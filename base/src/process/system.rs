//! The system calls behind [`super::Command`]: between fork and exec, and waiting on a descriptor.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::sandbox::network::NetworkConfinement;
use crate::sandbox::{Confinement, cgroup};

#[cfg(target_os = "linux")]
use rustix::process::Signal;

/// The process group of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Group {
    /// Its own, so that it can be killed with all its children.
    #[default]
    Own,
    /// Its own, in its own process session.
    Detached,
    /// The parent's.
    Parent,
}

/// Group, session and terminal of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessPlacement {
    /// The group.
    pub group: Group,
    /// Whether the kernel kills it when the thread that started it ends.
    pub kill_on_parent_death: bool,
    /// The descriptor of the controlling terminal of its session.
    pub terminal: Option<i32>,
}

impl ProcessPlacement {
    /// Returns whether the child needs preparation before exec.
    pub(crate) fn needs_pre_exec(self) -> bool {
        self.terminal.is_some() || self.kill_on_parent_death
    }
}

/// Makes the child the leader of its own process session.
#[allow(unsafe_code)]
pub(crate) fn lead_session_before_exec(command: &mut Command) {
    // SAFETY: between fork and exec only `setsid` runs.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
    }
}

/// Sets up the terminal and moves descriptors to their numbers, in the child.
#[allow(unsafe_code)]
pub(crate) fn before_exec(
    command: &mut Command,
    moves: Vec<(i32, i32)>,
    placement: ProcessPlacement,
) {
    // SAFETY: between fork and exec only `ioctl`, `prctl` and `dup2` run, all async-signal-safe,
    // and nothing allocates.
    unsafe {
        command.pre_exec(move || {
            if let Some(terminal) = placement.terminal
                && libc::ioctl(terminal, libc::TIOCSCTTY as _, 0) == -1
            {
                return Err(io::Error::last_os_error());
            }
            #[cfg(target_os = "linux")]
            if placement.kill_on_parent_death {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            }
            for (from, to) in &moves {
                if libc::dup2(*from, *to) == -1 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}

/// Makes the child the first victim of a lack of memory, before exec.
#[allow(unsafe_code)]
pub(crate) fn oom_victim_before_exec(command: &mut Command) {
    // SAFETY: between fork and exec only `open`, `write` and `close` run, on constant memory; nothing
    // allocates.
    unsafe {
        command.pre_exec(move || {
            // Without `/proc` the kernel chooses as it does for any program.
            let path = c"/proc/self/oom_score_adj".as_ptr();
            let file = libc::open(path, libc::O_WRONLY | libc::O_CLOEXEC);
            if file >= 0 {
                libc::write(file, OOM_SCORE.as_ptr().cast(), OOM_SCORE.len());
                libc::close(file);
            }
            Ok(())
        });
    }
}

/// Moves the child into the cgroup of this directory before exec.
#[allow(unsafe_code)]
pub(crate) fn join_cgroup_before_exec(command: &mut Command, directory: RawFd) {
    // SAFETY: between fork and exec only system calls run, on constant memory, and the descriptor is
    // open until the child has started.
    unsafe {
        command.pre_exec(move || cgroup::join(directory));
    }
}

/// What is added to the kernel's score of a sandboxed program, in thousandths of the memory.
const OOM_SCORE: &[u8] = b"500";

/// Confines the child before exec, and puts its program into the cgroup of this directory.
#[allow(unsafe_code)]
pub(crate) fn confine_before_exec(
    command: &mut Command,
    confinement: Arc<Confinement>,
    cgroup: Option<RawFd>,
) {
    // SAFETY: between fork and exec only system calls run, each on memory that exists already, and
    // the descriptor is open until the child has started; nothing allocates.
    unsafe {
        command.pre_exec(move || confinement.enter(cgroup));
    }
}

/// Enters the child's network, before its files are confined.
#[allow(unsafe_code)]
pub(crate) fn enter_network_before_exec(command: &mut Command, network: Arc<NetworkConfinement>) {
    // SAFETY: between fork and exec only system calls run, each on memory that exists already.
    unsafe {
        command.pre_exec(move || network.enter_first());
    }
}

/// Limits the child's sockets, after its files are confined.
#[allow(unsafe_code)]
pub(crate) fn limit_network_before_exec(command: &mut Command, network: Arc<NetworkConfinement>) {
    // SAFETY: between fork and exec only system calls run, each on memory that exists already.
    unsafe {
        command.pre_exec(move || network.enter_last());
    }
}

/// Returns whether this process leads its process session. The session's leader is 0 if it is in another
/// namespace of process ids, which the functions of `rustix` do not expect.
#[allow(unsafe_code)]
pub(crate) fn leads_session() -> bool {
    // SAFETY: both take and return numbers.
    unsafe { libc::getsid(0) == libc::getpid() }
}

/// Returns whether this process may read from a terminal and change it: whether it is in the
/// terminal's foreground group. Groups that began in another namespace of process ids have the number 0,
/// and count as the same one.
#[allow(unsafe_code)]
pub fn is_in_foreground(terminal: impl AsFd) -> bool {
    // SAFETY: both take and return numbers, and the descriptor is open.
    unsafe { libc::tcgetpgrp(terminal.as_fd().as_raw_fd()) == libc::getpgrp() }
}

/// Waits for the exit of a process.
pub(crate) struct ExitWatch {
    /// Readable when the process exited; not every system has such a descriptor.
    handle: Option<OwnedFd>,
}

impl ExitWatch {
    /// Creates one for a child that has not been waited for.
    #[cfg(target_os = "linux")]
    pub(crate) fn process(id: u32) -> io::Result<ExitWatch> {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        let pid = Pid::from_raw(id.cast_signed())
            .ok_or_else(|| io::Error::other("a process without an id"))?;
        Ok(ExitWatch { handle: Some(pidfd_open(pid, PidfdFlags::empty())?) })
    }

    /// Creates one for a child that has not been waited for.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn process(_id: u32) -> io::Result<ExitWatch> {
        Ok(ExitWatch { handle: None })
    }

    /// Waits until it exited or the time is over; without a handle, for a short time.
    pub(crate) fn wait(&self, time: Duration) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let poll_interval = Duration::from_millis(5);
        let time = if self.handle.is_some() { time } else { time.min(poll_interval) };
        let mut fds: Vec<PollFd<'_>> =
            self.handle.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// Returns an error that names the program which could not be started.
pub(crate) fn with_program(error: io::Error, program: &OsStr) -> io::Error {
    io::Error::new(error.kind(), format!("cannot start `{}`: {error}", program.to_string_lossy()))
}
