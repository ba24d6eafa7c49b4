//! How a child gets into a cgroup before exec.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;

/// Moves the calling process into the cgroup of this directory. That takes about 10 ms, because the
/// kernel waits until all processors have passed through it. Makes only system calls.
pub(crate) fn join(directory: RawFd) -> io::Result<()> {
    // SAFETY: the texts are constant and live until the calls return.
    unsafe {
        let procs =
            libc::openat(directory, c"cgroup.procs".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if procs == -1 {
            return Err(io::Error::last_os_error());
        }
        let written = libc::write(procs, b"0".as_ptr().cast(), 1);
        let failed = (written == -1).then(io::Error::last_os_error);
        libc::close(procs);
        failed.map_or(Ok(()), Err)
    }
}

/// Starts a process that is a copy of this one, with these flags of clone(2), in the cgroup of this
/// directory; returns 0 in it. Fails without effect where the kernel or a filter lacks clone3(2)
/// (Linux 5.7).
#[cfg(target_os = "linux")]
pub(super) fn fork_into(directory: RawFd, flags: libc::c_int) -> io::Result<libc::pid_t> {
    /// `CLONE_INTO_CGROUP` (linux/sched.h).
    const INTO_CGROUP: u64 = 1 << 33;
    // SAFETY: zeros are valid: no stack and no descriptors.
    let mut args = unsafe { std::mem::zeroed::<libc::clone_args>() };
    args.flags = u64::from(flags.cast_unsigned()) | INTO_CGROUP;
    args.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    args.cgroup = u64::from(directory.cast_unsigned());
    // SAFETY: without a stack and with copied memory the call behaves like `fork`; the structure
    // lives until it returns.
    let child =
        unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) };
    super::system_calls::check_long(child)?;
    libc::pid_t::try_from(child).map_err(io::Error::other)
}
