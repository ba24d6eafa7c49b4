//! A pseudo-terminal for a program: a pair of descriptors.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A pseudo-terminal.
#[derive(Debug)]
pub struct Pty {
    /// The controlling side: writing to it types, reading from it returns the output.
    pub controller: OwnedFd,
    /// The terminal side.
    pub terminal: OwnedFd,
}

impl Pty {
    /// Opens a pseudo-terminal; started programs do not inherit it by default.
    #[allow(unsafe_code)]
    pub fn open() -> io::Result<Pty> {
        let (mut controller, mut terminal) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: both numbers are valid to write, and the other arguments may be null.
        let result = unsafe {
            libc::openpty(&raw mut controller, &raw mut terminal, null, null.cast(), null.cast())
        };
        if result != 0 {
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
