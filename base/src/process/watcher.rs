//! Kills the process groups of children when this process is killed: a separate watcher process
//! learns each group through a socket, and the death of this process by the closed socket. A child
//! names its group itself, before `exec`, and holds the socket open until then: it is never unwatched.

#[cfg(target_os = "linux")]
pub(crate) use linux::Watched;

/// Unsupported on this system.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct Watched;

#[cfg(not(target_os = "linux"))]
impl Watched {
    /// Returns `None`: unsupported on this system.
    pub(crate) fn start() -> Option<Watched> {
        None
    }

    /// Does nothing: unsupported on this system.
    pub(crate) fn before_exec(&self, _command: &mut std::process::Command) {}
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd, RawFd};
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI32, Ordering};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// The maximum number of watched groups; further ones are not watched.
    const MAX_GROUPS: usize = 1024;
    /// The size of a message in bytes: the number of a watch and its group, which is 0 at its end.
    const MESSAGE_BYTES: usize = 8;

    /// The watch over the process group of one child, which is killed when this process dies. Dropping
    /// it ends the watch.
    #[derive(Debug)]
    pub(crate) struct Watched {
        socket: RawFd,
        number: i32,
    }

    impl Watched {
        /// Returns a new one; `None` if the watcher cannot be started.
        pub(crate) fn start() -> Option<Watched> {
            static NEXT: AtomicI32 = AtomicI32::new(1);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            Some(Watched { socket: socket()?.as_raw_fd(), number })
        }

        /// Makes the child name its group, which it must lead by then.
        #[allow(unsafe_code)]
        pub(crate) fn before_exec(&self, command: &mut Command) {
            let (socket, number) = (self.socket, self.number);
            // SAFETY: between fork and exec only `getpid` and `send` run, on memory of the stack.
            unsafe {
                command.pre_exec(move || {
                    notify(socket, number, libc::getpid());
                    Ok(())
                });
            }
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            notify(self.socket, self.number, 0);
        }
    }

    /// Tells the watcher the group of a watch, or 0 at its end. Makes only system calls. A watcher that
    /// was killed is not an error: the group is then unwatched.
    #[allow(unsafe_code)]
    fn notify(socket: RawFd, number: i32, group: i32) {
        let message = [number, group];
        // SAFETY: the socket is never closed, and the memory lives until the calls return.
        unsafe {
            while libc::send(socket, message.as_ptr().cast(), MESSAGE_BYTES, libc::MSG_NOSIGNAL)
                == -1
                && *libc::__errno_location() == libc::EINTR
            {}
        }
    }

    /// Returns the socket of the watcher, which is started if it does not run.
    fn socket() -> Option<&'static OwnedFd> {
        static WATCHER: OnceLock<Option<OwnedFd>> = OnceLock::new();
        WATCHER.get_or_init(|| start().ok()).as_ref()
    }

    #[allow(unsafe_code)]
    fn start() -> io::Result<OwnedFd> {
        let (own, watchers) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // SAFETY: the child only makes system calls on memory that exists already, and exits.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(watchers.as_raw_fd()),
            _ => Ok(own),
        }
    }

    /// Runs the watcher: in its own process session, without inherited files.
    #[allow(unsafe_code)]
    fn watch(socket: RawFd) -> ! {
        let mut watches = [[0_i32; 2]; MAX_GROUPS];
        // SAFETY: these calls take numbers, or pointers to memory that lives until they return.
        unsafe {
            libc::setsid();
            libc::prctl(libc::PR_SET_NAME, c"g3-watcher".as_ptr(), 0, 0, 0);
            let number = socket.cast_unsigned();
            if number > 0 {
                libc::syscall(libc::SYS_close_range, 0_u32, number - 1, 0_u32);
            }
            libc::syscall(libc::SYS_close_range, number + 1, u32::MAX, 0_u32);
            loop {
                let mut message = [0_i32; 2];
                let count = libc::read(socket, message.as_mut_ptr().cast(), MESSAGE_BYTES);
                if count == -1 && *libc::__errno_location() == libc::EINTR {
                    continue;
                }
                if usize::try_from(count) != Ok(MESSAGE_BYTES) {
                    break;
                }
                let [number, group] = message;
                let (from, to) = if group > 0 { (0, message) } else { (number, [0, 0]) };
                if let Some(slot) = watches.iter_mut().find(|[number, _]| *number == from) {
                    *slot = to;
                }
            }
            for [_, group] in watches {
                if group > 1 {
                    libc::kill(-group, libc::SIGKILL);
                }
            }
            libc::_exit(0)
        }
    }
}
