//! Open-file-description locks: owned by the descriptor, released by the kernel when its last copy
//! is closed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::fault;

/// The lock types as one integer type, which differs between systems.
const EXCLUSIVE: libc::c_short = libc::F_WRLCK as libc::c_short;
const SHARED: libc::c_short = libc::F_RDLCK as libc::c_short;

/// A lock that is held as long as the value (or a copy of its descriptor) lives.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock; returns `None` if it is already held.
    pub fn try_take(path: &Path) -> io::Result<Option<Lock>> {
        Lock::try_lock(path, EXCLUSIVE)
    }

    /// Takes a shared lock; returns `None` if the exclusive lock is held.
    pub fn try_share(path: &Path) -> io::Result<Option<Lock>> {
        Lock::try_lock(path, SHARED)
    }

    fn try_lock(path: &Path, kind: libc::c_short) -> io::Result<Option<Lock>> {
        let file = open(path)?;
        match fcntl(&file, libc::F_OFD_SETLK, kind) {
            Ok(_) => Ok(Some(Lock { file })),
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::EACCES) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Takes the lock; blocks until it is released.
    pub fn take(path: &Path) -> io::Result<Lock> {
        let file = open(path)?;
        loop {
            match fcntl(&file, libc::F_OFD_SETLKW, EXCLUSIVE) {
                Ok(_) => return Ok(Lock { file }),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Returns whether the lock is held, without taking it.
    pub fn is_held(path: &Path) -> io::Result<bool> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        let range = fcntl(&file, libc::F_OFD_GETLK, EXCLUSIVE)?;
        Ok(range.l_type != libc::F_UNLCK as libc::c_short)
    }

    /// Returns whether this lock, an exclusive one, is still held and its file still exists. A network
    /// file system can lose a lock, and another program can delete the file.
    pub fn confirm(&self) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        if self.file.metadata()?.nlink() == 0 {
            return Ok(false);
        }
        match fcntl(&self.file, libc::F_OFD_SETLK, EXCLUSIVE) {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Returns a descriptor for a child process: the lock is held until both copies are closed.
    pub fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Holds the lock until this process ends, for threads that cannot be stopped before.
    pub fn hold_until_exit(&self) -> io::Result<()> {
        let _stays_open = self.file.try_clone()?.into_raw_fd();
        Ok(())
    }

    /// Returns the lock of a descriptor that a parent process passed down.
    pub fn inherited(fd: OwnedFd) -> Lock {
        Lock { file: File::from(fd) }
    }
}

fn open(path: &Path) -> io::Result<File> {
    fault::at("lock", path)?;
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[allow(unsafe_code)]
fn fcntl(file: &File, command: libc::c_int, kind: libc::c_short) -> io::Result<libc::flock> {
    let mut range = libc::flock {
        l_type: kind,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for the whole call and `range` is a valid `struct flock`.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &mut range) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_visible_to_others_and_released_on_drop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(!Lock::is_held(&path).unwrap());
        let lock = Lock::try_take(&path).unwrap().unwrap();
        assert!(Lock::is_held(&path).unwrap());
        assert!(Lock::try_take(&path).unwrap().is_none());
        let copy = Lock::inherited(lock.share().unwrap());
        drop(lock);
        assert!(Lock::is_held(&path).unwrap(), "a handed-down descriptor keeps the lock");
        drop(copy);
        assert!(!Lock::is_held(&path).unwrap());
    }

    #[test]
    fn a_lock_whose_file_was_deleted_is_not_confirmed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = Lock::take(&path).unwrap();
        assert!(lock.confirm().unwrap());
        std::fs::remove_file(&path).unwrap();
        let other = Lock::try_take(&path).unwrap().expect("the new file is not locked");
        assert!(!lock.confirm().unwrap());
        assert!(other.confirm().unwrap());
    }

    #[test]
    fn shared_locks_coexist_and_exclude_the_exclusive_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let one = Lock::try_share(&path).unwrap().unwrap();
        let two = Lock::try_share(&path).unwrap().unwrap();
        drop(one);
        assert!(Lock::is_held(&path).unwrap());
        assert!(Lock::try_take(&path).unwrap().is_none());
        drop(two);
        let all = Lock::try_take(&path).unwrap().unwrap();
        assert!(Lock::try_share(&path).unwrap().is_none());
        drop(all);
    }
}
