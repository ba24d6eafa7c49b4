//! The namespaces of a sandbox: mounts, in which everything but the writable trees is read-only and
//! sockets, terminals and shared memory of other programs do not exist, and System V IPC. They are
//! created once, in a child that exits; every confined process enters them, which takes
//! microseconds.

#[cfg(target_os = "linux")]
pub(super) use linux::missing;
#[cfg(target_os = "linux")]
pub(crate) use linux::{Namespaces, SharedDirectory};
#[cfg(target_os = "linux")]
pub use linux::{are_possible, assume_possible, is_inside};

/// Returns `false`: mount namespaces are a feature of Linux.
#[cfg(not(target_os = "linux"))]
pub fn are_possible() -> bool {
    false
}

/// Does nothing: mount namespaces are a feature of Linux.
#[cfg(not(target_os = "linux"))]
pub fn assume_possible() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::CStr;
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
    use std::path::Path;
    use std::sync::OnceLock;

    use crate::sandbox::SandboxRules;
    use crate::sandbox::mount_plan::{Mount, MountPlan, MountPoint, MountSource};
    use crate::sandbox::system_calls::{self as sys, WorkingDirectory};
    use crate::test_hooks::TestHook;

    /// Namespaces for children to enter.
    #[derive(Debug)]
    pub(crate) struct Namespaces {
        user: Option<OwnedFd>,
        mounts: OwnedFd,
        ipc: OwnedFd,
        /// Directories that exist only in them.
        pub(crate) directories: Vec<SharedDirectory>,
    }

    /// A directory that exists only in the namespaces.
    #[derive(Debug)]
    pub(crate) struct SharedDirectory {
        pub(crate) handle: OwnedFd,
        /// Whether files in it may be changed.
        pub(crate) writable: bool,
    }

    /// Whether a sandbox has namespaces.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum NamespaceSupport {
        /// It creates its own.
        Own,
        /// It stays in those of the sandbox around this process.
        Inherited,
        /// The system forbids them to this user.
        Impossible,
    }

    /// The file that marks the inside of the namespaces, as other sandboxes mark theirs.
    const MARKER: &CStr = c"/dev/.sandbox";
    /// Maximum number of descriptors that the child returns.
    const MAX_DESCRIPTORS: usize = 64;
    /// The number in a report for a descriptor that does not exist.
    const NONE: i32 = -1;
    /// Options of file systems in memory; files in them belong to the user.
    const PRIVATE: &CStr = c"mode=0755";
    const SHARED: &CStr = c"mode=1777";

    /// The user namespace in which the others are created.
    #[derive(Debug)]
    enum UserNamespace<'a> {
        /// That of this process.
        Current,
        /// One that all confined processes have entered before.
        Entered(BorrowedFd<'a>),
        /// One of their own, with these id maps.
        New(Maps),
    }

    /// The id maps of a namespace that is created without privileges: the current user.
    #[derive(Debug)]
    struct Maps {
        user: Vec<u8>,
        group: Vec<u8>,
    }

    /// What the child returns: an error number, or descriptors in the table that it shares with
    /// this process.
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Report {
        error: i32,
        user: i32,
        mounts: i32,
        ipc: i32,
        count: i32,
        directories: [(i32, i32); MAX_DESCRIPTORS],
    }

    impl Namespaces {
        /// Creates the namespaces for these rules, in the user namespace that the processes have
        /// already entered, if any: from there they could not enter a second one beside it.
        pub(crate) fn new(
            rules: &SandboxRules,
            entered: Option<BorrowedFd<'_>>,
        ) -> io::Result<Namespaces> {
            let plan = MountPlan::new(rules)?;
            let user = match entered {
                Some(entered) => UserNamespace::Entered(entered),
                None if may_mount() => UserNamespace::Current,
                None => UserNamespace::New(Maps::new()),
            };
            // Trees are held by a descriptor each until they are attached.
            let trees = vec![NONE; plan.mounts.len()];
            let report = in_child(plan, &user, trees)?;
            if report.error != 0 {
                return Err(io::Error::from_raw_os_error(report.error));
            }
            let count = usize::try_from(report.count).unwrap_or_default().min(MAX_DESCRIPTORS);
            let directories = report.directories[..count].iter().map(|(fd, writable)| {
                SharedDirectory { handle: own(*fd), writable: *writable != 0 }
            });
            Ok(Namespaces {
                user: (report.user != NONE).then(|| own(report.user)),
                mounts: own(report.mounts),
                ipc: own(report.ipc),
                directories: directories.collect(),
            })
        }

        /// Enters the namespaces. Makes only system calls.
        pub(crate) fn enter(&self) -> io::Result<()> {
            let directory = WorkingDirectory::current()?;
            if let Some(user) = &self.user {
                sys::enter_namespace(user.as_raw_fd(), libc::CLONE_NEWUSER)?;
            }
            sys::enter_namespace(self.mounts.as_raw_fd(), libc::CLONE_NEWNS)?;
            sys::enter_namespace(self.ipc.as_raw_fd(), libc::CLONE_NEWIPC)?;
            directory.restore()
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

    /// Returns whether sandboxes of this process have their own namespaces.
    pub fn are_possible() -> bool {
        support() == NamespaceSupport::Own
    }

    /// Returns whether this process is in the namespaces of a sandbox.
    pub fn is_inside() -> bool {
        support() == NamespaceSupport::Inherited
    }

    /// Takes it as known that sandboxes of this process have their own namespaces: the process that
    /// started this one has determined it. A sandbox that cannot have them fails.
    pub fn assume_possible() {
        // What was determined before stays.
        let _ = SUPPORT.set(NamespaceSupport::Own);
    }

    /// What [`support`] determined.
    static SUPPORT: OnceLock<NamespaceSupport> = OnceLock::new();

    /// Returns whether sandboxes have namespaces, determined once by creating some.
    fn support() -> NamespaceSupport {
        *SUPPORT.get_or_init(|| {
            let marker = MARKER.to_str().unwrap_or_default();
            if TestHook::Namespaces.value().is_some_and(|value| value == "off") {
                NamespaceSupport::Impossible
            } else if Path::new(marker).exists() {
                NamespaceSupport::Inherited
            } else if Namespaces::new(&SandboxRules::default(), None).is_ok() {
                NamespaceSupport::Own
            } else {
                NamespaceSupport::Impossible
            }
        })
    }

    /// Returns what is not enforced without namespaces, one sentence each.
    pub fn missing() -> &'static [&'static str] {
        match support() {
            NamespaceSupport::Own | NamespaceSupport::Inherited => &[],
            NamespaceSupport::Impossible => {
                &["no namespaces for this user: programs can connect to sockets with a path, use \
                 other terminals and shared memory, and change modes and times of files"]
            }
        }
    }

    #[allow(unsafe_code)]
    fn own(fd: i32) -> OwnedFd {
        // SAFETY: the child opened the descriptor in the shared table, for this process alone.
        unsafe { OwnedFd::from_raw_fd(fd) }
    }

    /// Creates the namespaces in a child, which shares the table of descriptors with this process
    /// and nothing else.
    #[allow(unsafe_code)]
    fn in_child(
        plan: MountPlan,
        user: &UserNamespace<'_>,
        mut trees: Vec<RawFd>,
    ) -> io::Result<Report> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let flags = libc::CLONE_FILES;
        // SAFETY: without a stack and with copied memory the call behaves like `fork`; the child
        // makes system calls on memory that exists already, and exits. It sends no signal at its
        // end, so that only the wait below sees it.
        let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        match child {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let report = create(&plan, user, &mut trees);
                // SAFETY: the structure has no padding and lives until the call returns; `_exit`
                // ends the child immediately, without running exit handlers.
                unsafe {
                    let bytes = (&raw const report).cast();
                    libc::write(writer.as_raw_fd(), bytes, size_of::<Report>());
                    libc::_exit(0)
                }
            }
            child => {
                let mut status = 0;
                let child = libc::pid_t::try_from(child).map_err(io::Error::other)?;
                // SAFETY: the kernel writes one number to the pointer's target.
                while unsafe { libc::waitpid(child, &raw mut status, libc::__WALL) } == -1 {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
                drop(writer);
                let mut bytes = [0_u8; size_of::<Report>()];
                let read = rustix::io::read(&reader, &mut bytes[..])?;
                if read != bytes.len() {
                    return Err(io::Error::other("the namespaces could not be created"));
                }
                // SAFETY: every pattern of bits is a report, and the child wrote a whole one.
                Ok(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
            }
        }
    }

    /// Creates the namespaces of this process. Makes only system calls, and closes what it opened
    /// if one fails.
    fn create(plan: &MountPlan, user: &UserNamespace<'_>, trees: &mut [RawFd]) -> Report {
        let mut report = Report {
            error: 0,
            user: NONE,
            mounts: NONE,
            ipc: NONE,
            count: 0,
            directories: [(NONE, 0); MAX_DESCRIPTORS],
        };
        let result = unshare(user).and_then(|()| set_up(plan, trees, &mut report));
        for tree in trees.iter().filter(|tree| **tree != NONE) {
            sys::close(*tree);
        }
        if let Err(error) = result {
            let opened = [report.user, report.mounts, report.ipc].into_iter();
            let directories = report.directories.iter().map(|(fd, _)| *fd);
            for fd in opened.chain(directories).filter(|fd| *fd != NONE) {
                sys::close(fd);
            }
            report.error = error.raw_os_error().unwrap_or(libc::EIO);
        } else if !matches!(user, UserNamespace::New(_)) {
            sys::close(report.user);
            report.user = NONE;
        }
        report
    }

    fn set_up(plan: &MountPlan, trees: &mut [RawFd], report: &mut Report) -> io::Result<()> {
        sys::mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None)?;
        raise_file_limit();
        for (mount, tree) in plan.mounts.iter().zip(trees.iter_mut()) {
            let path: &CStr = match &mount.source {
                MountSource::Tree { .. } => &mount.path,
                MountSource::Other { path, .. } => path,
                MountSource::Nothing => c"/dev/null",
                MountSource::Empty | MountSource::Scratch | MountSource::Devices => continue,
            };
            // A path that is gone is skipped.
            *tree = sys::clone_tree(path).or_else(|error| match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => Ok(NONE),
                _ => Err(error),
            })?;
        }
        if plan.read_only {
            sys::make_read_only(c"/", true)?;
        }
        for (mount, tree) in plan.mounts.iter().zip(trees.iter()) {
            attach(mount, *tree, report)?;
        }
        for (target, path, directories) in &plan.links {
            for directory in directories {
                sys::make_directory(directory, 0o755)?;
            }
            sys::make_link(target, path)?;
        }
        for mount in &plan.mounts {
            if matches!(mount.source, MountSource::Empty | MountSource::Devices) {
                sys::make_read_only(&mount.path, false)?;
            }
        }
        for path in &plan.parents {
            sys::mount(Some(path), path, None, libc::MS_BIND | libc::MS_REC, None)?;
        }
        for path in &plan.fixed {
            sys::mount(Some(path), path, None, libc::MS_BIND | libc::MS_REC, None)?;
            sys::make_read_only(path, true)?;
        }
        report.user = sys::open_read(c"/proc/self/ns/user")?;
        report.mounts = sys::open_read(c"/proc/self/ns/mnt")?;
        report.ipc = sys::open_read(c"/proc/self/ns/ipc")?;
        Ok(())
    }

    fn attach(mount: &Mount, tree: RawFd, report: &mut Report) -> io::Result<()> {
        let is_tree = !matches!(
            mount.source,
            MountSource::Empty | MountSource::Scratch | MountSource::Devices
        );
        if is_tree && tree == NONE {
            return Ok(());
        }
        for directory in &mount.directories {
            sys::make_directory(directory, 0o755)?;
        }
        match mount.mount_point {
            Some(MountPoint::Directory) => sys::make_directory(&mount.path, 0o755)?,
            Some(MountPoint::File) => sys::make_file(&mount.path)?,
            None => {}
        }
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        let memory = |path: &CStr, mode: &CStr| {
            sys::mount(Some(c"tmpfs"), path, Some(c"tmpfs"), flags, Some(mode))
        };
        match &mount.source {
            MountSource::Tree { writable } | MountSource::Other { writable, .. } => {
                if !writable {
                    sys::make_tree_read_only(tree)?;
                }
                sys::attach_tree(tree, &mount.path)
            }
            MountSource::Nothing => {
                sys::make_tree_read_only(tree)?;
                // A socket that is gone since it was found needs no mount.
                sys::attach_tree(tree, &mount.path).or_else(|error| match error.raw_os_error() {
                    Some(libc::ENOENT) => Ok(()),
                    _ => Err(error),
                })
            }
            MountSource::Empty => {
                memory(&mount.path, PRIVATE)?;
                share(report, &mount.path, false)
            }
            MountSource::Scratch => {
                memory(&mount.path, c"mode=0700")?;
                share(report, &mount.path, true)
            }
            MountSource::Devices => {
                memory(&mount.path, PRIVATE)?;
                share(report, &mount.path, false)?;
                add_devices(report)
            }
        }
    }

    /// Adds what a program expects in `/dev` besides devices: its own terminals and shared memory.
    fn add_devices(report: &mut Report) -> io::Result<()> {
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        sys::make_directory(c"/dev/shm", 0o755)?;
        sys::mount(Some(c"tmpfs"), c"/dev/shm", Some(c"tmpfs"), flags, Some(SHARED))?;
        share(report, c"/dev/shm", true)?;
        sys::make_directory(c"/dev/pts", 0o755)?;
        let options = c"newinstance,ptmxmode=0666,mode=0620";
        let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
        sys::mount(Some(c"devpts"), c"/dev/pts", Some(c"devpts"), flags, Some(options))?;
        share(report, c"/dev/pts", true)?;
        sys::make_link(c"pts/ptmx", c"/dev/ptmx")?;
        sys::make_link(c"/proc/self/fd", c"/dev/fd")?;
        sys::make_link(c"/proc/self/fd/0", c"/dev/stdin")?;
        sys::make_link(c"/proc/self/fd/1", c"/dev/stdout")?;
        sys::make_link(c"/proc/self/fd/2", c"/dev/stderr")?;
        sys::make_file(MARKER)
    }

    /// Adds a directory to the report.
    fn share(report: &mut Report, path: &CStr, writable: bool) -> io::Result<()> {
        let index = usize::try_from(report.count).unwrap_or(MAX_DESCRIPTORS);
        let Some(entry) = report.directories.get_mut(index) else {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        };
        *entry = (sys::open_path(path)?, i32::from(writable));
        report.count += 1;
        Ok(())
    }

    /// Raises the child's limit of open files to what the system allows.
    #[allow(unsafe_code)]
    fn raise_file_limit() {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the structure lives until the calls return.
        unsafe {
            if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            }
        }
    }

    #[allow(unsafe_code)]
    fn unshare(user: &UserNamespace<'_>) -> io::Result<()> {
        let user_flag = match user {
            UserNamespace::Current => 0,
            UserNamespace::Entered(entered) => {
                sys::enter_namespace(entered.as_raw_fd(), libc::CLONE_NEWUSER)?;
                0
            }
            UserNamespace::New(_) => {
                // A process that is not dumpable does not own its files in `/proc`; the program
                // that the child executes is dumpable in any case. SAFETY: the call takes only
                // numbers.
                unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
                libc::CLONE_NEWUSER
            }
        };
        // SAFETY: the call takes a number; the process has one thread after it was cloned.
        sys::check(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC | user_flag) })?;
        let UserNamespace::New(maps) = user else { return Ok(()) };
        sys::write(c"/proc/self/setgroups", b"deny")?;
        sys::write(c"/proc/self/uid_map", &maps.user)?;
        sys::write(c"/proc/self/gid_map", &maps.group)
    }
}
