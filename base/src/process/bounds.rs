//! Resource limits of a process in the sandbox, and the system calls that it may not make: sockets,
//! and process groups that would escape a kill.

use std::io;
use std::process::Command;

/// The limits of each process of a command, unless a field applies to all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Writable memory in bytes.
    pub memory: u64,
    /// Address space in bytes.
    pub addresses: u64,
    /// CPU time in seconds.
    pub seconds: u64,
    /// Size of a written file in bytes.
    pub file: u64,
    /// Number of processes and threads, of all together.
    pub processes: u64,
}

/// Applies the limits in the child, after all other preparations before its program starts.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(crate) fn before_exec(command: &mut Command, bounds: ResourceLimits) -> io::Result<()> {
    use std::os::unix::process::CommandExt;
    let filter = linux::filter()?;
    let user = linux::user();
    let other_tasks = linux::tasks_of(user.as_raw());
    // SAFETY: between fork and exec only system calls run (`setrlimit`, `prctl`, `setresuid` and
    // similar, `capset`), each on memory that exists already; nothing allocates.
    unsafe {
        command.pre_exec(move || {
            linux::limit(bounds, other_tasks)?;
            linux::become_user(user)?;
            linux::install(&filter)
        });
    }
    Ok(())
}

/// Fails: the sandbox is not supported on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn before_exec(_command: &mut Command, _bounds: ResourceLimits) -> io::Result<()> {
    Err(io::Error::other("the sandbox is not supported on this system"))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io;

    use rustix::process::{Gid, Resource, Rlimit, Uid, setrlimit};
    use rustix::thread::{self, CapabilitySet, CapabilitySets};

    use super::ResourceLimits;

    /// The user id of `nobody`, the same on all supported systems.
    const NOBODY: u32 = 65_534;

    /// The system calls that the kernel rejects.
    const DENIED_SYSCALLS: [libc::c_long; 14] = [
        libc::SYS_socket,
        // It can create sockets, too.
        libc::SYS_io_uring_setup,
        libc::SYS_setsid,
        libc::SYS_setpgid,
        libc::SYS_ptrace,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
    ];

    /// The architecture number that the kernel reports with each system call.
    const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
        Some(0xC000_003E)
    } else if cfg!(target_arch = "aarch64") {
        Some(0xC000_00B7)
    } else {
        None
    };

    /// Returns the BPF program that the kernel runs at each system call.
    pub(crate) fn filter() -> io::Result<Vec<libc::sock_filter>> {
        let Some(architecture) = ARCHITECTURE else {
            return Err(io::Error::other("the sandbox is not supported on this processor"));
        };
        let instruction = |code: u32, k: u32, yes: usize, no: usize| {
            let jump = |distance: usize| u8::try_from(distance).unwrap_or(u8::MAX);
            let code = u16::try_from(code).unwrap_or(u16::MAX);
            libc::sock_filter { code, jt: jump(yes), jf: jump(no), k }
        };
        let load =
            |index: u32| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, index, 0, 0);
        let ret = |action: u32| instruction(libc::BPF_RET | libc::BPF_K, action, 0, 0);
        let jump_if_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        let mut filter = vec![
            load(4),
            instruction(jump_if_equal, architecture, 1, 0),
            ret(libc::SECCOMP_RET_KILL_PROCESS),
            load(0),
            // The second system call table of this architecture (x32).
            instruction(
                libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K,
                0x4000_0000,
                DENIED_SYSCALLS.len() + 1,
                0,
            ),
        ];
        for (index, call) in DENIED_SYSCALLS.iter().enumerate() {
            let call = u32::try_from(*call).map_err(io::Error::other)?;
            filter.push(instruction(jump_if_equal, call, DENIED_SYSCALLS.len() - index, 0));
        }
        filter.push(ret(libc::SECCOMP_RET_ALLOW));
        filter.push(ret(libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()));
        Ok(filter)
    }

    /// Installs the program in the kernel. The kernel requires `no_new_privs`, which the
    /// confinement has already set.
    #[allow(unsafe_code)]
    pub(crate) fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
        let len = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
        // SAFETY: the kernel reads `len` steps from the pointer, and both live until the call
        // returns.
        let result = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns the user of the child: the current one, or `nobody` for root, whose processes the
    /// kernel does not limit.
    pub(crate) fn user() -> Uid {
        let effective_user = rustix::process::geteuid();
        if effective_user.is_root() { Uid::from_raw(NOBODY) } else { effective_user }
    }

    /// Returns the number of processes and threads of a user.
    pub(crate) fn tasks_of(user: u32) -> u64 {
        let Ok(entries) = fs::read_dir("/proc") else { return 0 };
        let threads = |entry: fs::DirEntry| {
            let status = fs::read_to_string(entry.path().join("status")).ok()?;
            let value = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name))?;
                line.split_whitespace().next()?.parse::<u64>().ok()
            };
            (value("Uid:")? == u64::from(user)).then(|| value("Threads:")).flatten()
        };
        entries.flatten().filter_map(threads).sum()
    }

    pub(crate) fn limit(bounds: ResourceLimits, other_tasks: u64) -> io::Result<()> {
        let limits = [
            (Resource::Data, bounds.memory),
            (Resource::As, bounds.addresses),
            (Resource::Cpu, bounds.seconds),
            (Resource::Fsize, bounds.file),
            (Resource::Nproc, bounds.processes + other_tasks),
            (Resource::Core, 0),
        ];
        for (resource, max) in limits {
            // A stricter existing limit is kept.
            let hard_limit = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
            let max = Some(max.min(hard_limit));
            setrlimit(resource, Rlimit { current: max, maximum: max })?;
        }
        Ok(())
    }

    /// Changes the user. `nobody` keeps root's read access: the kernel's file rules define what may
    /// be read.
    pub(crate) fn become_user(user: Uid) -> io::Result<()> {
        if user == rustix::process::geteuid() {
            return Ok(());
        }
        thread::set_keep_capabilities(true)?;
        let group = Gid::from_raw(NOBODY);
        thread::set_thread_groups(&[])?;
        thread::set_thread_res_gid(group, group, group)?;
        thread::set_thread_res_uid(user, user, user)?;
        let capabilities = thread::capabilities(None)?.permitted & CapabilitySet::DAC_OVERRIDE;
        let sets = CapabilitySets {
            effective: capabilities,
            permitted: capabilities,
            inheritable: capabilities,
        };
        thread::set_capabilities(None, sets)?;
        if !capabilities.is_empty() {
            thread::configure_capability_in_ambient_set(capabilities, true)?;
        }
        Ok(())
    }
}
