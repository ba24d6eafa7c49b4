//! A terminal of a program's own: a pair of descriptors, of which one is the terminal.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A pseudo-terminal.
#[derive(Debug)]
pub struct Pty {
    /// Our side: what is written here was typed, what is read here was printed.
    pub controller: OwnedFd,
    /// The terminal.
    pub terminal: OwnedFd,
}

impl Pty {
    /// Returns a new one; no program that we start inherits it by itself.
    #[allow(unsafe_code)]
    pub fn open() -> io::Result<Pty> {
        let (mut controller, mut terminal) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: the two numbers are ours to write, and the other arguments may be null.
        let made = unsafe {
            libc::openpty(&raw mut controller, &raw mut terminal, null, null.cast(), null.cast())
        };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were just opened and have no other owner.
        let pty = unsafe {
            Pty {
                controller: OwnedFd::from_raw_fd(controller),
                terminal: OwnedFd::from_raw_fd(terminal),
            }
        };
        for fd in [&pty.controller, &pty.terminal] {
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
        }
        Ok(pty)
    }
}
