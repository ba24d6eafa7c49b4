//! A filter of system calls (seccomp) that denies with `EPERM` what neither file rules nor
//! namespaces hold. It is built once and installed between fork and exec, after everything else.
//!
//! Landlock already holds `ptrace`, `process_vm_readv`, `kcmp` and `pidfd_getfd` on processes
//! outside the sandbox, so debuggers and leak checkers work inside. A new user namespace gets no
//! map of ids, because `/proc` is read-only.

use std::io;

/// Architecture values of `struct seccomp_data` (`linux/audit.h`).
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;
#[cfg(target_arch = "x86_64")]
const FOREIGN: u32 = 0x4000_0003;
#[cfg(target_arch = "aarch64")]
const FOREIGN: u32 = 0x4000_0028;

/// The bit in the number of a system call of x32, which has other numbers for some calls.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Offsets in `struct seccomp_data`: the call, the architecture, and the low half of an argument.
const CALL: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// What is denied of a system call.
#[derive(Clone, Copy, Debug)]
enum Denied {
    /// All of it.
    Call,
    /// An argument other than 0, which names another process.
    NonZero(u32),
    /// One of two values of an argument.
    Values(u32, [u32; 2]),
}

/// `ioctl` requests that type into a terminal or the console.
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

/// Families of sockets that no network namespace separates, or that reach much of the kernel: those of
/// virtual machines, Bluetooth, cryptography, and clusters.
const AF_VSOCK: u32 = 40;
const AF_BLUETOOTH: u32 = 31;
const AF_ALG: u32 = 38;
const AF_TIPC: u32 = 30;

/// The denied calls of 64-bit programs.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const NATIVE_CALLS: &[(libc::c_long, Denied)] = &[
    (libc::SYS_add_key, Denied::Call),
    (libc::SYS_request_key, Denied::Call),
    (libc::SYS_keyctl, Denied::Call),
    (libc::SYS_io_uring_setup, Denied::Call),
    (libc::SYS_io_uring_enter, Denied::Call),
    (libc::SYS_io_uring_register, Denied::Call),
    (libc::SYS_perf_event_open, Denied::Call),
    (libc::SYS_bpf, Denied::Call),
    (libc::SYS_userfaultfd, Denied::Call),
    (libc::SYS_open_by_handle_at, Denied::Call),
    (libc::SYS_mount, Denied::Call),
    (libc::SYS_umount2, Denied::Call),
    (libc::SYS_pivot_root, Denied::Call),
    (libc::SYS_open_tree, Denied::Call),
    (libc::SYS_move_mount, Denied::Call),
    (libc::SYS_fsopen, Denied::Call),
    (libc::SYS_fsconfig, Denied::Call),
    (libc::SYS_fsmount, Denied::Call),
    (libc::SYS_fspick, Denied::Call),
    (libc::SYS_mount_setattr, Denied::Call),
    (libc::SYS_setns, Denied::Call),
    (libc::SYS_kexec_load, Denied::Call),
    (libc::SYS_init_module, Denied::Call),
    (libc::SYS_finit_module, Denied::Call),
    (libc::SYS_delete_module, Denied::Call),
    (libc::SYS_process_madvise, Denied::Call),
    (libc::SYS_migrate_pages, Denied::NonZero(0)),
    (libc::SYS_move_pages, Denied::NonZero(0)),
    (libc::SYS_prlimit64, Denied::NonZero(0)),
    (libc::SYS_setpriority, Denied::NonZero(1)),
    (libc::SYS_ioprio_set, Denied::NonZero(1)),
    (libc::SYS_sched_setparam, Denied::NonZero(0)),
    (libc::SYS_sched_setscheduler, Denied::NonZero(0)),
    (libc::SYS_sched_setaffinity, Denied::NonZero(0)),
    (libc::SYS_sched_setattr, Denied::NonZero(0)),
    (libc::SYS_ioctl, Denied::Values(1, [TIOCSTI, TIOCLINUX])),
    (libc::SYS_socket, Denied::Values(0, [AF_VSOCK, AF_BLUETOOTH])),
    (libc::SYS_socket, Denied::Values(0, [AF_ALG, AF_TIPC])),
];

/// The same calls of 32-bit programs on x86 (`asm/unistd_32.h`), which have no number in `libc`.
#[cfg(target_arch = "x86_64")]
const FOREIGN_CALLS: &[(libc::c_long, Denied)] = &[
    (286, Denied::Call),       // add_key
    (287, Denied::Call),       // request_key
    (288, Denied::Call),       // keyctl
    (425, Denied::Call),       // io_uring_setup
    (426, Denied::Call),       // io_uring_enter
    (427, Denied::Call),       // io_uring_register
    (336, Denied::Call),       // perf_event_open
    (357, Denied::Call),       // bpf
    (374, Denied::Call),       // userfaultfd
    (342, Denied::Call),       // open_by_handle_at
    (21, Denied::Call),        // mount
    (22, Denied::Call),        // umount
    (52, Denied::Call),        // umount2
    (217, Denied::Call),       // pivot_root
    (428, Denied::Call),       // open_tree
    (429, Denied::Call),       // move_mount
    (430, Denied::Call),       // fsopen
    (431, Denied::Call),       // fsconfig
    (432, Denied::Call),       // fsmount
    (433, Denied::Call),       // fspick
    (442, Denied::Call),       // mount_setattr
    (346, Denied::Call),       // setns
    (440, Denied::Call),       // process_madvise
    (294, Denied::NonZero(0)), // migrate_pages
    (317, Denied::NonZero(0)), // move_pages
    (340, Denied::NonZero(0)), // prlimit64
    (97, Denied::NonZero(1)),  // setpriority
    (289, Denied::NonZero(1)), // ioprio_set
    (154, Denied::NonZero(0)), // sched_setparam
    (156, Denied::NonZero(0)), // sched_setscheduler
    (241, Denied::NonZero(0)), // sched_setaffinity
    (351, Denied::NonZero(0)), // sched_setattr
    (54, Denied::Values(1, [TIOCSTI, TIOCLINUX])),
    (102, Denied::Call), // socketcall, whose arguments a filter cannot read
    (359, Denied::Values(0, [AF_VSOCK, AF_BLUETOOTH])), // socket
    (359, Denied::Values(0, [AF_ALG, AF_TIPC])),
];

/// On this architecture 32-bit programs are denied every call.
#[cfg(target_arch = "aarch64")]
const FOREIGN_CALLS: &[(libc::c_long, Denied)] = &[];

/// Calls of shared memory, semaphores and message queues of System V and POSIX, which reach other
/// programs where the sandbox has no IPC namespace.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const IPC_CALLS: &[libc::c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semctl,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// The IPC calls of 32-bit programs on x86: `ipc`, the separate calls, `mq_open`, `mq_unlink`.
#[cfg(target_arch = "x86_64")]
const FOREIGN_IPC_CALLS: &[libc::c_long] =
    &[117, 277, 278, 393, 394, 395, 396, 397, 399, 400, 401, 402, 420];
#[cfg(target_arch = "aarch64")]
const FOREIGN_IPC_CALLS: &[libc::c_long] = &[];

/// A program for the kernel's filter.
pub(super) struct SystemCallFilter(Vec<libc::sock_filter>);

impl std::fmt::Debug for SystemCallFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SystemCallFilter({} instructions)", self.0.len())
    }
}

impl SystemCallFilter {
    /// Builds the filter; `None` if this architecture has no table.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(super) fn new(has_ipc_namespace: bool) -> Option<SystemCallFilter> {
        let ipc = |calls: &'static [libc::c_long]| {
            let calls = calls.iter().filter(move |_| !has_ipc_namespace);
            calls.map(|call| (*call, Denied::Call))
        };
        let mut native = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            native.push(jump(libc::BPF_JGE, X32, 0, 1));
            native.push(deny());
        }
        for (call, denied) in NATIVE_CALLS.iter().copied().chain(ipc(IPC_CALLS)) {
            native.extend(instructions(call, denied));
        }
        native.push(statement(libc::BPF_RET, libc::SECCOMP_RET_ALLOW));
        let mut foreign = Vec::new();
        for (call, denied) in FOREIGN_CALLS.iter().copied().chain(ipc(FOREIGN_IPC_CALLS)) {
            foreign.extend(instructions(call, denied));
        }
        let end = if FOREIGN_CALLS.is_empty() { deny() } else { allow() };
        foreign.push(end);
        let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
        let mut program = vec![load(ARCHITECTURE)];
        // The targets of conditional jumps have 8 bits, those of the other one 32.
        program.push(jump(libc::BPF_JEQ, NATIVE, 1, 0));
        let native_length = u32::try_from(native.len()).ok()?;
        program.push(statement(libc::BPF_JMP | libc::BPF_JA, native_length + 1));
        program.push(load(CALL));
        program.extend(native);
        program.push(jump(libc::BPF_JEQ, FOREIGN, 1, 0));
        program.push(deny());
        program.push(load(CALL));
        program.extend(foreign);
        Some(SystemCallFilter(program))
    }

    /// Returns `None`: this architecture has no table.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(super) fn new(_has_ipc_namespace: bool) -> Option<SystemCallFilter> {
        None
    }

    /// Installs the filter in the calling thread, irrevocably. Makes one system call; the thread
    /// must have set `no_new_privs`.
    #[allow(unsafe_code)]
    pub(super) fn install(&self) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: u16::try_from(self.0.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            filter: self.0.as_ptr().cast_mut(),
        };
        let (operation, flags) = (libc::SECCOMP_SET_MODE_FILTER, 0_u32);
        // SAFETY: the kernel copies the instructions, which live until the call returns.
        let result =
            unsafe { libc::syscall(libc::SYS_seccomp, operation, flags, &raw const program) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Returns the instructions for one call, whose number is loaded and stays loaded afterwards.
fn instructions(call: libc::c_long, denied: Denied) -> Vec<libc::sock_filter> {
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let test = match denied {
        Denied::Call => vec![deny()],
        Denied::NonZero(index) => {
            vec![load(argument(index)), jump(libc::BPF_JEQ, 0, 1, 0), deny(), load(CALL)]
        }
        Denied::Values(index, [first, second]) => vec![
            load(argument(index)),
            jump(libc::BPF_JEQ, first, 1, 0),
            jump(libc::BPF_JEQ, second, 0, 1),
            deny(),
            load(CALL),
        ],
    };
    let length = u8::try_from(test.len()).unwrap_or(u8::MAX);
    let call = u32::try_from(call).unwrap_or(u32::MAX);
    [vec![jump(libc::BPF_JEQ, call, 0, length)], test].concat()
}

fn deny() -> libc::sock_filter {
    statement(libc::BPF_RET, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned())
}

fn allow() -> libc::sock_filter {
    statement(libc::BPF_RET, libc::SECCOMP_RET_ALLOW)
}

fn statement(code: u32, value: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or_default(), jt: 0, jf: 0, k: value }
}

fn jump(test: u32, value: u32, if_true: u8, if_false: u8) -> libc::sock_filter {
    let code = u16::try_from(libc::BPF_JMP | test | libc::BPF_K).unwrap_or_default();
    libc::sock_filter { code, jt: if_true, jf: if_false, k: value }
}
