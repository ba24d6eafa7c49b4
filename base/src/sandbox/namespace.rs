//! A mount namespace in which some files and directories are read-only: Landlock opens whole trees
//! and cannot close a part of one.

#[cfg(target_os = "linux")]
pub(crate) use linux::Namespace;
#[cfg(target_os = "linux")]
pub use linux::are_possible;

/// Returns `false`: mount namespaces are a feature of Linux.
#[cfg(not(target_os = "linux"))]
pub fn are_possible() -> bool {
    false
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{CStr, CString};
    use std::io;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;
    use std::sync::OnceLock;

    /// A namespace for a child to enter. Everything that the system calls need is prepared before.
    #[derive(Debug)]
    pub(crate) struct Namespace {
        /// Paths that are bind-mounted on themselves, so that they cannot be changed or renamed.
        fixed: Vec<CString>,
        /// Their parent directories, which cannot be renamed either.
        parents: Vec<CString>,
        user: Option<Maps>,
    }

    /// The id maps of a namespace that is created without privileges: the current user.
    #[derive(Debug)]
    struct Maps {
        user: Vec<u8>,
        group: Vec<u8>,
    }

    /// `struct mount_attr` (mount_setattr(2)).
    #[repr(C)]
    struct MountAttributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }

    impl Namespace {
        /// Prepares a namespace in which these paths are read-only.
        pub(crate) fn new(fixed: &[&PathBuf]) -> io::Result<Namespace> {
            let text = |path: &std::path::Path| {
                CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
            };
            // The parent directories of fixed files: a mount point cannot be renamed, so the file
            // cannot be moved away together with its directory.
            let mut parents: Vec<&std::path::Path> =
                fixed.iter().filter_map(|path| path.parent()).collect();
            parents.sort();
            parents.dedup();
            let is_git = |path: &&std::path::Path| path.join("HEAD").is_file();
            Ok(Namespace {
                fixed: fixed.iter().map(|path| text(path)).collect::<io::Result<_>>()?,
                parents: parents.into_iter().filter(is_git).map(text).collect::<io::Result<_>>()?,
                user: (!may_mount()).then(Maps::new),
            })
        }

        /// Enters the namespace. Makes only system calls.
        pub(crate) fn enter(&self) -> io::Result<()> {
            unshare(self.user.as_ref())?;
            mount(None, c"/", libc::MS_REC | libc::MS_PRIVATE)?;
            for path in &self.parents {
                mount(Some(path), path, libc::MS_BIND | libc::MS_REC)?;
            }
            for path in &self.fixed {
                mount(Some(path), path, libc::MS_BIND | libc::MS_REC)?;
                make_read_only(path)?;
            }
            Ok(())
        }
    }

    impl Maps {
        fn new() -> Maps {
            let identity_map = |id: u32| format!("{id} {id} 1\n").into_bytes();
            Maps {
                user: identity_map(rustix::process::geteuid().as_raw()),
                group: identity_map(rustix::process::getegid().as_raw()),
            }
        }
    }

    /// Returns whether this process may mount without a user namespace.
    fn may_mount() -> bool {
        use rustix::thread::{CapabilitySet, capabilities};
        let effective = capabilities(None).map(|sets| sets.effective);
        effective.is_ok_and(|sets| sets.contains(CapabilitySet::SYS_ADMIN))
    }

    /// Returns whether mount namespaces are available; tested once, in a child.
    #[allow(unsafe_code)]
    pub fn are_possible() -> bool {
        static POSSIBLE: OnceLock<bool> = OnceLock::new();
        *POSSIBLE.get_or_init(|| {
            let Ok(namespace) = Namespace::new(&[]) else { return false };
            // SAFETY: the child makes system calls on memory that exists already, and exits.
            match unsafe { libc::fork() } {
                -1 => false,
                0 => {
                    let code = i32::from(namespace.enter().is_err());
                    // SAFETY: it ends the child immediately, without running exit handlers.
                    unsafe { libc::_exit(code) }
                }
                child => {
                    let mut status = 0;
                    // SAFETY: the kernel writes one number to the pointer's target.
                    while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1 {
                        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                            return false;
                        }
                    }
                    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
                }
            }
        })
    }

    #[allow(unsafe_code)]
    fn unshare(user: Option<&Maps>) -> io::Result<()> {
        let user_flag = if user.is_some() { libc::CLONE_NEWUSER } else { 0 };
        if user.is_some() {
            // A process that is not dumpable does not own its files in `/proc`; the program that
            // the child executes is dumpable in any case. SAFETY: the call takes only numbers.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
        }
        // SAFETY: the call takes a number; the process has one thread after a fork.
        check(unsafe { libc::unshare(libc::CLONE_NEWNS | user_flag) })?;
        let Some(maps) = user else { return Ok(()) };
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", &maps.user)?;
        write(c"/proc/self/gid_map", &maps.group)
    }

    #[allow(unsafe_code)]
    fn write(path: &CStr, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: the path ends with a zero byte, and the bytes live until the calls return.
        unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            check(fd)?;
            let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
            let failed = (written < 0).then(io::Error::last_os_error);
            libc::close(fd);
            failed.map_or(Ok(()), Err)
        }
    }

    #[allow(unsafe_code)]
    fn mount(from: Option<&CStr>, to: &CStr, flags: libc::c_ulong) -> io::Result<()> {
        let from = from.map_or(std::ptr::null(), CStr::as_ptr);
        let null = std::ptr::null();
        // SAFETY: the paths end with a zero byte and live until the call returns.
        check(unsafe { libc::mount(from, to.as_ptr(), null, flags, null.cast()) })
    }

    #[allow(unsafe_code)]
    fn make_read_only(path: &CStr) -> io::Result<()> {
        let read_only = MountAttributes {
            set: libc::MOUNT_ATTR_RDONLY,
            clear: 0,
            propagation: 0,
            user_namespace: 0,
        };
        // SAFETY: the path ends with a zero byte, the size is that of the structure, and both live
        // until the call returns.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::AT_RECURSIVE,
                &raw const read_only,
                size_of::<MountAttributes>(),
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn check(result: libc::c_int) -> io::Result<()> {
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
