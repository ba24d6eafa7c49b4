//! Files in directories that an agent can write: opened so that no symlink leads outside.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// A directory held open. Everything in it is reached by name from here, one step at a time.
#[derive(Debug)]
pub struct Dir(OwnedFd);

const OPEN: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Dir {
    /// Opens a directory that we know; its last part must not be a symlink.
    pub fn open(path: &Path) -> io::Result<Dir> {
        Ok(Dir(rustix::fs::open(path, OPEN | OFlags::RDONLY, Mode::empty())?))
    }

    /// A directory in it. What stands there and is no directory is removed, what is missing made.
    pub fn sub(&self, name: &str) -> io::Result<Dir> {
        match rustix::fs::openat(&self.0, name, OPEN | OFlags::RDONLY, Mode::empty()) {
            Ok(fd) => return Ok(Dir(fd)),
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR | Errno::LOOP) => {
                rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?;
            }
            Err(e) => return Err(e.into()),
        }
        match rustix::fs::mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(Dir(rustix::fs::openat(&self.0, name, OPEN | OFlags::RDONLY, Mode::empty())?))
    }

    /// A directory in it, when there is one.
    pub fn existing(&self, name: &str) -> io::Result<Option<Dir>> {
        match rustix::fs::openat(&self.0, name, OPEN | OFlags::RDONLY, Mode::empty()) {
            Ok(fd) => Ok(Some(Dir(fd))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// A directory in it, made when nothing has that name; none when something else has it.
    pub fn existing_or_made(&self, name: &str) -> io::Result<Option<Dir>> {
        match rustix::fs::mkdirat(&self.0, name, Mode::RWXU | Mode::RGRP | Mode::XGRP) {
            Ok(()) | Err(Errno::EXIST) => self.existing(name),
            Err(e) => Err(e.into()),
        }
    }

    /// Moves an entry into another directory of the same file system, unless one of that name is
    /// there.
    pub fn move_to(&self, name: &str, other: &Dir) -> io::Result<()> {
        if rustix::fs::statat(&other.0, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        Ok(rustix::fs::renameat(&self.0, name, &other.0, name)?)
    }

    /// The content of a regular file of at most `limit` bytes; none when it is missing or is
    /// something else.
    pub fn read(&self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::RDONLY;
        let fd = match rustix::fs::openat(&self.0, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        File::from(fd).take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(io::Error::other(format!("`{name}` is larger than {limit} bytes")));
        }
        Ok(Some(bytes))
    }

    /// Replaces a file by rename, unless it has this content already.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        if self
            .read(name, content.len() as u64)
            .is_ok_and(|found| found.as_deref() == Some(content))
        {
            return Ok(());
        }
        let temp = format!(".studio-{}", std::process::id());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let _ = rustix::fs::unlinkat(&self.0, &temp, AtFlags::empty());
        let fd = rustix::fs::openat(&self.0, &temp, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(fd).write_all(content)?;
        if rustix::fs::renameat(&self.0, &temp, &self.0, name).is_ok() {
            return Ok(());
        }
        self.remove_all(name)?;
        Ok(rustix::fs::renameat(&self.0, &temp, &self.0, name)?)
    }

    /// Removes a file, or a directory with what is in it. Symlinks are removed, not followed.
    pub fn remove_all(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = name.as_ref();
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
        let fd = rustix::fs::openat(&self.0, name, OPEN | OFlags::RDONLY, Mode::empty())?;
        Dir(fd).empty()?;
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes everything in it.
    pub fn empty(&self) -> io::Result<()> {
        for name in self.names()? {
            self.remove_all(&name)?;
        }
        Ok(())
    }

    /// The names in it.
    pub fn names(&self) -> io::Result<Vec<std::ffi::OsString>> {
        use std::os::unix::ffi::OsStrExt;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_write_never_goes_through_a_symlink() {
        let temp = tempfile::tempdir().unwrap();
        let (inside, outside) = (temp.path().join("in"), temp.path().join("out"));
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("file"), "theirs").unwrap();
        symlink(&outside, inside.join("info")).unwrap();
        symlink(outside.join("file"), inside.join("config")).unwrap();
        let dir = Dir::open(&inside).unwrap();
        assert_eq!(dir.read("config", 100).unwrap(), None);
        dir.write("config", b"ours").unwrap();
        dir.sub("info").unwrap().write("exclude", b"ours").unwrap();
        assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"theirs");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(std::fs::read(inside.join("info/exclude")).unwrap(), b"ours");
    }

    #[test]
    fn emptying_leaves_the_targets_of_symlinks() {
        let temp = tempfile::tempdir().unwrap();
        let (inside, outside) = (temp.path().join("in"), temp.path().join("out"));
        std::fs::create_dir_all(inside.join("a/b")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("file"), "theirs").unwrap();
        std::fs::write(inside.join("a/b/c"), "x").unwrap();
        symlink(&outside, inside.join("a/link")).unwrap();
        Dir::open(&inside).unwrap().empty().unwrap();
        assert_eq!(std::fs::read_dir(&inside).unwrap().count(), 0);
        assert!(outside.join("file").exists());
    }
}
