//! Descriptors that pass from parent to child: taken over, or kept back.

use std::io;
use std::os::fd::OwnedFd;

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
