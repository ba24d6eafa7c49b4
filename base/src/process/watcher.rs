//! Kills the process groups of children when this process is killed: a separate watcher process
//! learns each group through a pipe, and the death of this process by the closed pipe.

#[cfg(target_os = "linux")]
pub(crate) use linux::{Watched, prepare};

/// Unsupported on this system.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct Watched;

#[cfg(not(target_os = "linux"))]
impl Watched {
    /// Returns `None`: unsupported on this system.
    pub(crate) fn group(_group: rustix::process::Pid) -> Option<Watched> {
        None
    }
}

/// Does nothing: unsupported on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn prepare() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
    use std::sync::OnceLock;

    use rustix::process::Pid;

    /// The maximum number of watched groups; further ones are not watched.
    const MAX_GROUPS: usize = 1024;

    /// A process group that is killed when this process dies. Dropping it ends the watch.
    #[derive(Debug)]
    pub(crate) struct Watched(i32);

    impl Watched {
        /// Watches a group; returns `None` if the watcher cannot be started.
        pub(crate) fn group(group: Pid) -> Option<Watched> {
            let group = group.as_raw_nonzero().get();
            notify(group).then_some(Watched(group))
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            notify(-self.0);
        }
    }

    /// Starts the watcher before the first child, which would be unwatched until the watcher runs.
    pub(crate) fn prepare() {
        let _ = pipe();
    }

    /// Sends a group to the watcher, or its negative number to end the watch.
    fn notify(group: i32) -> bool {
        // Four bytes are written atomically (pipe(7)).
        pipe().is_some_and(|pipe| rustix::io::write(pipe, &group.to_ne_bytes()).is_ok())
    }

    /// Returns the pipe to the watcher, which is started if it does not run.
    fn pipe() -> Option<&'static OwnedFd> {
        static WATCHER: OnceLock<Option<OwnedFd>> = OnceLock::new();
        WATCHER.get_or_init(|| start().ok()).as_ref()
    }

    #[allow(unsafe_code)]
    fn start() -> io::Result<OwnedFd> {
        let mut fds = [0; 2];
        // SAFETY: the kernel writes two numbers to the pointer's target.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both are open and owned by this function.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
        // SAFETY: the child only makes system calls on memory that exists already, and exits.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(read.as_raw_fd()),
            _ => Ok(write),
        }
    }

    /// Runs the watcher: in its own process session, without inherited files.
    #[allow(unsafe_code)]
    fn watch(pipe: RawFd) -> ! {
        let mut groups = [0_i32; MAX_GROUPS];
        // SAFETY: these calls take numbers, or pointers to memory that lives until they return.
        unsafe {
            libc::setsid();
            libc::prctl(libc::PR_SET_NAME, c"g3-watcher".as_ptr(), 0, 0, 0);
            let number = pipe.cast_unsigned();
            if number > 0 {
                libc::syscall(libc::SYS_close_range, 0_u32, number - 1, 0_u32);
            }
            libc::syscall(libc::SYS_close_range, number + 1, u32::MAX, 0_u32);
            loop {
                let mut bytes = [0_u8; 4];
                let count = libc::read(pipe, bytes.as_mut_ptr().cast(), 4);
                if count == -1 && *libc::__errno_location() == libc::EINTR {
                    continue;
                }
                if count != 4 {
                    break;
                }
                let value = i32::from_ne_bytes(bytes);
                let (from, to) = if value > 0 { (0, value) } else { (-value, 0) };
                if let Some(slot) = groups.iter_mut().find(|group| **group == from) {
                    *slot = to;
                }
            }
            for group in groups {
                if group > 1 {
                    libc::kill(-group, libc::SIGKILL);
                }
            }
            libc::_exit(0)
        }
    }
}
