//! Ends the process groups of children when we are killed: a process of its own hears of each
//! group, and of our end by a pipe that closes.

#[cfg(target_os = "linux")]
pub(crate) use linux::Watched;

/// Nothing watches on this system.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct Watched;

#[cfg(not(target_os = "linux"))]
impl Watched {
    /// Nothing watches on this system.
    pub(crate) fn group(_group: rustix::process::Pid) -> Option<Watched> {
        None
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
    use std::sync::OnceLock;

    use rustix::process::Pid;

    /// Groups that are watched at once; further ones are not.
    const MOST: usize = 1024;

    /// A group that is ended when we are gone. Dropped, it is let go.
    #[derive(Debug)]
    pub(crate) struct Watched(i32);

    impl Watched {
        /// Watches a group; `None` when the watcher cannot be started.
        pub(crate) fn group(group: Pid) -> Option<Watched> {
            let group = group.as_raw_nonzero().get();
            tell(group).then_some(Watched(group))
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            tell(-self.0);
        }
    }

    /// Tells the watcher of a group, or with a minus that the group is let go.
    fn tell(group: i32) -> bool {
        static WATCHER: OnceLock<Option<OwnedFd>> = OnceLock::new();
        let pipe = WATCHER.get_or_init(|| start().ok()).as_ref();
        // Four bytes are written at once or not at all (pipe(7)).
        pipe.is_some_and(|pipe| rustix::io::write(pipe, &group.to_ne_bytes()).is_ok())
    }

    #[allow(unsafe_code)]
    fn start() -> io::Result<OwnedFd> {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two numbers to where the pointer leads.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both are open and ours alone.
        let (read, write) =
            unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: the child only makes system calls on memory that is there already, and ends.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(read.as_raw_fd()),
            _ => Ok(write),
        }
    }

    /// Returns the life of the watcher: in a process session of its own, without a file of ours.
    #[allow(unsafe_code)]
    fn watch(pipe: RawFd) -> ! {
        let mut groups = [0_i32; MOST];
        // SAFETY: all of these take numbers, or pointers to memory that lives until they return.
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
                let got = libc::read(pipe, bytes.as_mut_ptr().cast(), 4);
                if got == -1 && *libc::__errno_location() == libc::EINTR {
                    continue;
                }
                if got != 4 {
                    break;
                }
                let told = i32::from_ne_bytes(bytes);
                let (from, to) = if told > 0 { (0, told) } else { (-told, 0) };
                if let Some(place) = groups.iter_mut().find(|known| **known == from) {
                    *place = to;
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
