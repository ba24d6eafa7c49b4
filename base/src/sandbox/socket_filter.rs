//! The system call filter of a sandbox whose network is limited without a namespace: only TCP and
//! local sockets can be created.

#![cfg(target_os = "linux")]

use std::io;

/// The architecture number that the kernel reports with each system call.
const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xC000_003E)
} else if cfg!(target_arch = "aarch64") {
    Some(0xC000_00B7)
} else {
    None
};

/// The bits of a socket type without its flags.
const TYPE_MASK: u32 = 0xF;

/// Offsets in `struct seccomp_data` (seccomp(2)).
const NUMBER: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

/// Returns the offset of the lower half of an argument, on a little-endian processor.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// A comparison, with the distances to jump.
fn jump(condition: u32, k: u32, yes: u8, no: u8) -> libc::sock_filter {
    let code = u16::try_from(libc::BPF_JMP | condition | libc::BPF_K).unwrap_or_default();
    libc::sock_filter { code, jt: yes, jf: no, k }
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or_default(), jt: 0, jf: 0, k }
}

/// Returns the BPF program that the kernel runs at each system call.
pub(super) fn filter() -> io::Result<Vec<libc::sock_filter>> {
    let Some(architecture) = ARCHITECTURE else {
        return Err(io::Error::other("the sandbox is not supported on this processor"));
    };
    let load = |offset: u32| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let ret = |action: u32| statement(libc::BPF_RET | libc::BPF_K, action);
    let errno = |error: libc::c_int| ret(libc::SECCOMP_RET_ERRNO | error.cast_unsigned());
    let allow = ret(libc::SECCOMP_RET_ALLOW);
    // Opening a connection with the first data does not pass the kernel's rules for connections.
    let without_fast_open = |flags: u32| {
        vec![
            load(flags),
            jump(libc::BPF_JSET, libc::MSG_FASTOPEN.cast_unsigned(), 0, 1),
            errno(libc::EOPNOTSUPP),
            allow,
        ]
    };
    let calls = [
        // It can create sockets, too.
        (libc::SYS_io_uring_setup, vec![errno(libc::ENOSYS)]),
        (libc::SYS_sendto, without_fast_open(argument(3))),
        (libc::SYS_sendmsg, without_fast_open(argument(2))),
        (libc::SYS_sendmmsg, without_fast_open(argument(3))),
        (libc::SYS_socket, socket_creation(load, errno, allow)),
    ];
    let mut filter = vec![
        load(ARCHITECTURE_OFFSET),
        jump(libc::BPF_JEQ, architecture, 1, 0),
        ret(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
        // The second system call table of this architecture (x32).
        jump(libc::BPF_JGE, 0x4000_0000, 0, 1),
        errno(libc::ENOSYS),
    ];
    for (call, instructions) in calls {
        let number = u32::try_from(call).map_err(io::Error::other)?;
        let length = u8::try_from(instructions.len()).map_err(io::Error::other)?;
        filter.push(jump(libc::BPF_JEQ, number, 0, length));
        filter.extend(instructions);
    }
    filter.push(allow);
    Ok(filter)
}

/// The instructions for `socket(family, type, protocol)`: local sockets, TCP, and the list of
/// network interfaces.
fn socket_creation(
    load: impl Fn(u32) -> libc::sock_filter,
    errno: impl Fn(libc::c_int) -> libc::sock_filter,
    allow: libc::sock_filter,
) -> Vec<libc::sock_filter> {
    let family = |family: libc::c_int| family.cast_unsigned();
    vec![
        load(argument(0)),
        jump(libc::BPF_JEQ, family(libc::AF_UNIX), 5, 0),
        jump(libc::BPF_JEQ, family(libc::AF_INET), 5, 0),
        jump(libc::BPF_JEQ, family(libc::AF_INET6), 4, 0),
        // The list of interfaces comes from the routing protocol (0).
        jump(libc::BPF_JEQ, family(libc::AF_NETLINK), 0, 8),
        load(argument(2)),
        jump(libc::BPF_JEQ, 0, 0, 6),
        allow,
        load(argument(1)),
        statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, TYPE_MASK),
        jump(libc::BPF_JEQ, libc::SOCK_STREAM.cast_unsigned(), 0, 2),
        load(argument(2)),
        // The protocol of a stream: the default (0) or TCP. The rules do not limit another one.
        jump(libc::BPF_JEQ, 0, 2, 1),
        errno(libc::EAFNOSUPPORT),
        jump(libc::BPF_JEQ, libc::IPPROTO_TCP.cast_unsigned(), 0, 1),
        allow,
        errno(libc::EAFNOSUPPORT),
    ]
}

/// Installs the program in the kernel. The kernel requires `no_new_privs`.
#[allow(unsafe_code)]
pub(super) fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel reads `len` steps from the pointer, and both live until the call returns.
    let result = unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
