//! The system calls that set up a namespace and a confined process. None of them allocates, so that
//! they may run between fork and exec.

use std::ffi::CStr;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use rustix::fs::{FileType, Mode, OFlags, RawDir};

/// `struct mount_attr` (mount_setattr(2)).
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// `AT_RECURSIVE` of open_tree(2) and mount_setattr(2).
const RECURSIVE: libc::c_uint = libc::AT_RECURSIVE.cast_unsigned();
/// `AT_EMPTY_PATH` of mount_setattr(2).
const EMPTY_PATH: libc::c_uint = libc::AT_EMPTY_PATH.cast_unsigned();

pub(super) fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn check_long(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Writes a small file in `/proc`.
#[allow(unsafe_code)]
pub(super) fn write(path: &CStr, bytes: &[u8]) -> io::Result<()> {
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

/// Opens a file or directory as a handle without access to its content.
#[allow(unsafe_code)]
pub(super) fn open_path(path: &CStr) -> io::Result<RawFd> {
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
    check(fd).map(|()| fd)
}

/// Opens a file for reading, which may be a namespace's.
#[allow(unsafe_code)]
pub(super) fn open_read(path: &CStr) -> io::Result<RawFd> {
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    check(fd).map(|()| fd)
}

/// Closes a descriptor that the caller owns.
#[allow(unsafe_code)]
pub(super) fn close(fd: RawFd) {
    // SAFETY: the caller owns the descriptor.
    unsafe { libc::close(fd) };
}

/// Mounts a file system or binds a path.
#[allow(unsafe_code)]
pub(super) fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    data: Option<&CStr>,
) -> io::Result<()> {
    let text = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the texts end with a zero byte and live until the call returns.
    check(unsafe {
        libc::mount(text(source), target.as_ptr(), text(kind), flags, text(data).cast())
    })
}

/// Copies the mounts at a path to a detached tree.
#[allow(unsafe_code)]
pub(super) fn clone_tree(path: &CStr) -> io::Result<RawFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | RECURSIVE;
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    check_long(fd)?;
    RawFd::try_from(fd).map_err(io::Error::other)
}

/// Attaches a detached tree at a path.
#[allow(unsafe_code)]
pub(super) fn attach_tree(tree: RawFd, target: &CStr) -> io::Result<()> {
    let flags = libc::MOVE_MOUNT_F_EMPTY_PATH;
    // SAFETY: the paths end with a zero byte.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree,
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            flags,
        )
    })
}

/// Makes all mounts at a path and below read-only, or only the one at the path.
pub(super) fn make_read_only(path: &CStr, recursive: bool) -> io::Result<()> {
    set_read_only(libc::AT_FDCWD, path, if recursive { RECURSIVE } else { 0 })
}

/// Makes a detached tree read-only.
pub(super) fn make_tree_read_only(tree: RawFd) -> io::Result<()> {
    set_read_only(tree, c"", RECURSIVE | EMPTY_PATH)
}

#[allow(unsafe_code)]
fn set_read_only(directory: RawFd, path: &CStr, flags: libc::c_uint) -> io::Result<()> {
    let attributes = MountAttributes {
        set: libc::MOUNT_ATTR_RDONLY,
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    // SAFETY: the path ends with a zero byte, the size is that of the structure, and both live
    // until the call returns.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            directory,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    })
}

/// Calls a function for each entry of a directory, with its path, its name, and whether it is a link.
pub(super) fn for_each_entry(
    directory: &CStr,
    mut act: impl FnMut(&CStr, &[u8], bool) -> io::Result<()>,
) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(directory, flags, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(opened, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let mut path = [0; 512];
        let mut rest = &mut path[..];
        for part in [directory.to_bytes(), b"/", name] {
            rest.write_all(part)?;
        }
        let path = CStr::from_bytes_until_nul(&path)
            .map_err(|_| io::Error::from_raw_os_error(libc::ENAMETOOLONG))?;
        act(path, name, entry.file_type() == FileType::Symlink)?;
    }
    Ok(())
}

/// Creates a directory; one that exists is left as it is.
#[allow(unsafe_code)]
pub(super) fn make_directory(path: &CStr, mode: libc::mode_t) -> io::Result<()> {
    // SAFETY: the path ends with a zero byte.
    match check(unsafe { libc::mkdir(path.as_ptr(), mode) }) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Creates an empty file; one that exists is left as it is.
#[allow(unsafe_code)]
pub(super) fn make_file(path: &CStr) -> io::Result<()> {
    let flags = libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { libc::open(path.as_ptr(), flags, 0o444) };
    check(fd).map(|()| close(fd))
}

/// Creates a symbolic link; a file that exists is left as it is.
#[allow(unsafe_code)]
pub(super) fn make_link(target: &CStr, path: &CStr) -> io::Result<()> {
    // SAFETY: the texts end with a zero byte.
    match check(unsafe { libc::symlink(target.as_ptr(), path.as_ptr()) }) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Enters a namespace.
#[allow(unsafe_code)]
pub(super) fn enter_namespace(fd: RawFd, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes two numbers.
    check(unsafe { libc::setns(fd, kind) })
}

/// The working directory of a process, remembered across a change of its mount namespace, which
/// resets it.
pub(super) struct WorkingDirectory([u8; libc::PATH_MAX as usize]);

impl WorkingDirectory {
    /// Returns the current one.
    #[allow(unsafe_code)]
    pub(super) fn current() -> io::Result<WorkingDirectory> {
        let mut path = [0_u8; libc::PATH_MAX as usize];
        // SAFETY: the kernel writes at most as many bytes as the buffer has.
        match unsafe { libc::getcwd(path.as_mut_ptr().cast(), path.len()) } {
            pointer if pointer.is_null() => Err(io::Error::last_os_error()),
            _ => Ok(WorkingDirectory(path)),
        }
    }

    /// Changes to it.
    #[allow(unsafe_code)]
    pub(super) fn restore(&self) -> io::Result<()> {
        // SAFETY: `getcwd` ended the path with a zero byte.
        check(unsafe { libc::chdir(self.0.as_ptr().cast()) })
    }
}
