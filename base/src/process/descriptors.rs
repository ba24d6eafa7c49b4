//! Descriptors that pass from parent to child: inherited, or closed on exec.

use std::io;
use std::os::fd::OwnedFd;

/// Takes ownership of a descriptor that the parent passed down under a number; children do not
/// inherit it. Fails if there is none. Call it once per number, before anything opens files.
#[allow(unsafe_code)]
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
    use std::os::fd::{BorrowedFd, FromRawFd};
    if number < 3 {
        return Err(io::Error::other(format!("invalid descriptor {number}")));
    }
    // SAFETY: the number is not negative, and the call checks whether it is open.
    fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) })?;
    // SAFETY: it is open, and the parent passed it to this process alone.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

/// Sets close-on-exec on every descriptor except the given ones. Call it before
/// other threads open files.
#[allow(unsafe_code)]
pub fn close_on_exec_except(kept: &[i32]) -> io::Result<()> {
    use rustix::io::{FdFlags, fcntl_setfd};
    let directory = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let names = std::fs::read_dir(directory)?.flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > 2) {
        let flags = if kept.contains(&number) { FdFlags::empty() } else { FdFlags::CLOEXEC };
        // SAFETY: only a flag is set, and the kernel rejects a number that is closed by now (the
        // one that reads the directory).
        let _ = fcntl_setfd(unsafe { std::os::fd::BorrowedFd::borrow_raw(number) }, flags);
    }
    Ok(())
}
