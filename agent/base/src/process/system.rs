//! The system calls behind the door: between fork and exec, and waiting on a descriptor.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Moves descriptors to their numbers and, when detached, opens a process session, in the child.
#[allow(unsafe_code)]
pub fn before_exec(command: &mut Command, moves: Vec<(i32, i32)>, detached: bool) {
    // SAFETY: between fork and exec only `setsid` and `dup2` run, both async-signal-safe, and
    // nothing allocates.
    unsafe {
        command.pre_exec(move || {
            if detached {
                rustix::process::setsid()?;
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

/// Waits until a descriptor can be read or the time is over.
pub fn poll_readable(fd: &OwnedFd, time: Duration) -> io::Result<()> {
    let mut fds = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)];
    let time = rustix::event::Timespec::try_from(time).map_err(io::Error::other)?;
    match rustix::event::poll(&mut fds, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// An error that names the program which could not be started.
pub fn named(error: io::Error, program: &OsStr) -> io::Error {
    io::Error::new(error.kind(), format!("cannot start `{}`: {error}", program.to_string_lossy()))
}
