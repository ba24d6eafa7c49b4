//! The process id namespace of a sandbox. Between the program and its parent stand two processes:
//! the first one of the namespace, which adopts orphans, and the one that waits for it. When the first
//! one ends, the kernel kills all others at once, however fast they start new ones, and they see no
//! processes but their own.
//!
//! ```text
//! parent ── waiter ── first process (id 1) ── program (id 2)
//! ```

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;

use super::system_calls::{self as sys, check, check_long};
use super::{GRACE, cgroup};

/// How long the first process sleeps between two looks at what remains.
const STEP_MILLISECONDS: libc::c_int = 5;
/// What the first process writes when it has started the program; the status of the program follows.
/// If it cannot start it, it writes the number of the error.
const STARTED: libc::c_int = -1;
const PROC: &CStr = c"/proc";
/// `LANDLOCK_RULE_PATH_BENEATH`, and the rights to execute, to read files and to read directories
/// (linux/landlock.h).
const PATH_BENEATH: libc::c_int = 1;
const READ: u64 = 1 | 1 << 2 | 1 << 3;
/// The rights to write to files and to truncate them.
const WRITE: u64 = 1 << 1 | 1 << 14;

/// `struct landlock_path_beneath_attr` (landlock_add_rule(2)).
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    directory: libc::c_int,
}

/// Moves the calling process, a child before exec, into a new namespace: it returns in the program's
/// process, and the calling one becomes the waiter. With a ruleset, a rule that permits to read the
/// namespace's `/proc` is added to it; if `is_writable`, the files of processes there can be changed.
/// The program and the first process are in the cgroup of this directory, if there is one: created in
/// it, or, where that is impossible, moved with the waiter. Where the system refuses the namespace or
/// its `/proc` (containers that hide parts of theirs), the calling process goes on as it is. Makes
/// only system calls.
pub(super) fn enter(
    ruleset: Option<RawFd>,
    is_writable: bool,
    cgroup: Option<RawFd>,
) -> io::Result<()> {
    let (reader, writer) = pipe()?;
    let join = || cgroup.map_or(Ok(()), cgroup::join);
    let created = cgroup.map(|directory| cgroup::fork_into(directory, libc::CLONE_NEWPID));
    let is_created_inside = matches!(created, Some(Ok(_)));
    let first = match created {
        Some(Ok(first)) => Ok(first),
        Some(Err(_)) | None => join().and_then(|()| fork(libc::CLONE_NEWPID)),
    };
    match first {
        Ok(0) => {
            sys::close(reader);
            become_first(ruleset, is_writable, writer)
        }
        Ok(first) => {
            sys::close(writer);
            match receive(reader) {
                Some(STARTED) => become_waiter(first, reader),
                Some(number) => {
                    sys::close(reader);
                    wait(first);
                    Err(io::Error::from_raw_os_error(number))
                }
                None => {
                    sys::close(reader);
                    wait(first);
                    if is_created_inside { join() } else { Ok(()) }
                }
            }
        }
        Err(_) => {
            sys::close(reader);
            sys::close(writer);
            Ok(())
        }
    }
}

/// Mounts the namespace's `/proc` and starts the program's process, in which it returns. The
/// calling process, the first of the namespace, adopts orphans until no process is left. It does not
/// return: errors are reported by the waiter.
fn become_first(ruleset: Option<RawFd>, is_writable: bool, writer: RawFd) -> io::Result<()> {
    die_with_parent();
    let is_writable = is_writable && mount_writable_proc().is_ok();
    if !is_writable && mount_proc(libc::MS_RDONLY).is_err() {
        exit(1);
    }
    let start = || {
        ruleset.map_or(Ok(()), |ruleset| permit_proc(ruleset, is_writable))?;
        fork(0)
    };
    let program = start().unwrap_or_else(|error| {
        send(writer, error.raw_os_error().unwrap_or(libc::EIO));
        exit(1)
    });
    if program == 0 {
        sys::close(writer);
        // Groups of the parent's namespace have no number here.
        return own_group();
    }
    // The memory of this process is a copy of the parent's: it is hidden as that one is.
    protect(writer);
    if super::landlock::drop_capabilities().is_err() || !send(writer, STARTED) {
        exit(1);
    }
    send(writer, wait(program));
    // The others get a signal and a short time; what remains then ends with this process.
    // SAFETY: the call takes two numbers; -1 are all processes of the namespace but this one.
    unsafe { libc::kill(-1, libc::SIGTERM) };
    wait_for_orphans();
    exit(0)
}

/// Waits for the first process, and ends as the program ended.
fn become_waiter(first: libc::pid_t, reader: RawFd) -> ! {
    die_with_parent();
    protect(reader);
    wait(first);
    // Without a status, the first process was killed.
    let status = receive(reader).unwrap_or(libc::SIGKILL);
    if libc::WIFEXITED(status) {
        exit(libc::WEXITSTATUS(status));
    }
    let signal = libc::WTERMSIG(status);
    // SAFETY: the set is initialised by the first call, and lives until the last one returns.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::signal(signal, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
    }
    exit(128 + signal)
}

/// Starts a process that is a copy of this one; returns 0 in it.
fn fork(flags: libc::c_int) -> io::Result<libc::pid_t> {
    // SAFETY: without a stack and with copied memory the call behaves like `fork`; both processes make
    // only system calls on memory that exists already.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0) };
    check_long(child)?;
    libc::pid_t::try_from(child).map_err(io::Error::other)
}

/// Waits for a child, and for all others that end before it; returns its status.
fn wait(child: libc::pid_t) -> libc::c_int {
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes one number to the pointer's target.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        if ended == child || (ended == -1 && !is_interrupted()) {
            return status;
        }
    }
}

/// Waits until no other process of the namespace is left, for a limited time.
fn wait_for_orphans() {
    let mut milliseconds = 0;
    while milliseconds < GRACE.as_millis() {
        let mut status = 0;
        // SAFETY: the kernel writes one number to the pointer's target.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) } {
            -1 if !is_interrupted() => return,
            0 => {
                // SAFETY: without descriptors the call only waits.
                unsafe { libc::poll(std::ptr::null_mut(), 0, STEP_MILLISECONDS) };
                milliseconds += STEP_MILLISECONDS.unsigned_abs() as u128;
            }
            _ => {}
        }
    }
}

fn is_interrupted() -> bool {
    io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
}

/// Makes the kernel kill this process when its parent ends.
fn die_with_parent() {
    // SAFETY: the call takes only numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
}

/// Blocks all signals, hides the memory of this process from the program, and closes everything but
/// one descriptor: a pipe of the program ends with the program.
fn protect(kept: RawFd) {
    let (kept, last) = (kept.cast_unsigned(), libc::c_uint::MAX);
    // SAFETY: the calls take numbers, a constant text, and a set that lives until they return.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::chdir(c"/".as_ptr());
        if kept > 0 {
            libc::syscall(libc::SYS_close_range, 0, kept - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, kept + 1, last, 0);
    }
}

/// Gives this process a process group of its own.
fn own_group() -> io::Result<()> {
    // SAFETY: the call takes two numbers.
    check(unsafe { libc::setpgid(0, 0) })
}

/// Mounts the namespace's `/proc`.
fn mount_proc(read_only: libc::c_ulong) -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | read_only;
    sys::mount(Some(c"proc"), PROC, Some(c"proc"), flags, None)
}

/// Mounts the namespace's `/proc` so that only the directories of processes are writable: not the
/// settings of the kernel, for example.
fn mount_writable_proc() -> io::Result<()> {
    mount_proc(0)?;
    sys::for_each_entry(PROC, |path, name, is_link| {
        let is_process = name.iter().all(u8::is_ascii_digit);
        if is_link || is_process || matches!(name, b"." | b"..") {
            return Ok(());
        }
        sys::mount(Some(path), path, None, libc::MS_BIND, None)?;
        sys::make_read_only(path, false)
    })
}

/// Adds a rule that permits to read the namespace's `/proc`, or to change it as well.
fn permit_proc(ruleset: RawFd, is_writable: bool) -> io::Result<()> {
    let directory = sys::open_path(PROC)?;
    let allowed = if is_writable { READ | WRITE } else { READ };
    let rule = PathBeneath { allowed, directory };
    // SAFETY: the structure lives until the call returns.
    let added = unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset, PATH_BENEATH, &raw const rule, 0)
    };
    let result = check_long(added);
    sys::close(directory);
    result
}

fn pipe() -> io::Result<(RawFd, RawFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two numbers to the array.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((ends[0], ends[1]))
}

/// Writes a number to a pipe.
fn send(writer: RawFd, number: libc::c_int) -> bool {
    let size = size_of::<libc::c_int>();
    // SAFETY: the number lives until the call returns.
    let written = unsafe { libc::write(writer, (&raw const number).cast(), size) };
    usize::try_from(written) == Ok(size)
}

/// Reads a number from a pipe; `None` at its end.
fn receive(reader: RawFd) -> Option<libc::c_int> {
    let mut number = 0;
    let size = size_of::<libc::c_int>();
    loop {
        // SAFETY: the kernel writes at most one number to the pointer's target.
        let read = unsafe { libc::read(reader, (&raw mut number).cast(), size) };
        if read != -1 || !is_interrupted() {
            return (usize::try_from(read) == Ok(size)).then_some(number);
        }
    }
}

/// Ends the calling process at once.
fn exit(code: libc::c_int) -> ! {
    // SAFETY: the call does not return, and runs no exit handlers.
    unsafe { libc::_exit(code) }
}
