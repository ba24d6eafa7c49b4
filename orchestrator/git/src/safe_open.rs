//! Files in directories that an agent can write: opened so that no symlink leads outside.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// An open directory. Everything in it is opened by name from here, one component at a time.
#[derive(Debug)]
pub struct SafeDir(OwnedFd);

/// The time in which a program writes the content of a file that it has created.
const WRITE_TIME: Duration = Duration::from_secs(10);
const OPEN_FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl SafeDir {
    /// Opens a known directory; its last component must not be a symlink.
    pub fn open(path: &Path) -> io::Result<SafeDir> {
        Ok(SafeDir(rustix::fs::open(path, OPEN_FLAGS | OFlags::RDONLY, Mode::empty())?))
    }

    /// Opens a subdirectory. Creates it if it is missing, and replaces anything that is not a
    /// directory.
    pub(crate) fn open_or_create(&self, name: &str) -> io::Result<SafeDir> {
        match rustix::fs::openat(&self.0, name, OPEN_FLAGS | OFlags::RDONLY, Mode::empty()) {
            Ok(fd) => return Ok(SafeDir(fd)),
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
        Ok(SafeDir(rustix::fs::openat(&self.0, name, OPEN_FLAGS | OFlags::RDONLY, Mode::empty())?))
    }

    /// Opens a subdirectory, if it exists.
    pub fn open_existing(&self, name: &str) -> io::Result<Option<SafeDir>> {
        match rustix::fs::openat(&self.0, name, OPEN_FLAGS | OFlags::RDONLY, Mode::empty()) {
            Ok(fd) => Ok(Some(SafeDir(fd))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Opens a subdirectory, creating it if the name is free; `None` if the name is taken by
    /// something else.
    pub(crate) fn open_or_create_if_free(&self, name: &str) -> io::Result<Option<SafeDir>> {
        match rustix::fs::mkdirat(&self.0, name, Mode::RWXU | Mode::RGRP | Mode::XGRP) {
            Ok(()) | Err(Errno::EXIST) => self.open_existing(name),
            Err(e) => Err(e.into()),
        }
    }

    /// Moves an entry to another directory of the same file system, unless the name exists there.
    pub(crate) fn move_to(&self, name: &str, other: &SafeDir) -> io::Result<()> {
        if rustix::fs::statat(&other.0, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Ok(());
        }
        Ok(rustix::fs::renameat(&self.0, name, &other.0, name)?)
    }

    /// Returns the content of a regular file of at most `limit` bytes; `None` if it is missing or
    /// not a regular file.
    pub fn read(&self, name: impl AsRef<OsStr>, limit: u64) -> io::Result<Option<Vec<u8>>> {
        read_at(&self.0, name.as_ref(), limit)
    }

    /// Returns when an entry was changed, in seconds and nanoseconds; `None` if it is missing or
    /// unreadable. A symlink is not followed.
    pub(crate) fn changed_at(&self, name: &str) -> Option<(i64, i64)> {
        let stat = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((stat.st_ctime as i64, stat.st_ctime_nsec as i64))
    }

    /// Copies a regular file of at most `limit` bytes with its modification time; returns `false`
    /// if it is missing, larger, or not a regular file.
    pub fn copy(
        &self,
        name: impl AsRef<OsStr>,
        limit: u64,
        target_path: &Path,
    ) -> io::Result<bool> {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::RDONLY;
        let fd = match rustix::fs::openat(&self.0, name.as_ref(), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let source = File::from(fd);
        let metadata = source.metadata()?;
        if !metadata.is_file() || metadata.len() > limit {
            return Ok(false);
        }
        let mut target = File::create(target_path)?;
        let copied = io::copy(&mut (&source).take(limit + 1), &mut target)?;
        if copied > limit {
            drop(target);
            std::fs::remove_file(target_path)?;
            return Ok(false);
        }
        target.set_modified(metadata.modified()?)?;
        Ok(true)
    }

    /// Removes what git could not read below this directory of objects, up to `depth` levels:
    /// everything that is neither a directory nor a regular file, because reading a pipe may never
    /// end and a symlink leads elsewhere; and loose objects without content, as a loss of power leaves
    /// them, because git takes them for the objects themselves.
    pub(crate) fn remove_unreadable(&self, depth: u32) -> io::Result<()> {
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let stat = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW);
                    stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
                }
                kind => kind,
            };
            match kind {
                FileType::RegularFile if !is_of_loose_object(name) => {}
                FileType::RegularFile => {
                    let stat = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW);
                    if stat.is_ok_and(|stat| is_left_empty(&stat)) {
                        let _ = rustix::fs::unlinkat(&self.0, name, AtFlags::empty());
                    }
                }
                FileType::Directory if depth > 0 => {
                    match rustix::fs::openat(
                        &self.0,
                        name,
                        OPEN_FLAGS | OFlags::RDONLY,
                        Mode::empty(),
                    ) {
                        Ok(fd) => SafeDir(fd).remove_unreadable(depth - 1)?,
                        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                        Err(e) => return Err(e.into()),
                    }
                }
                FileType::Directory => {}
                _ => match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT | Errno::ISDIR | Errno::PERM) => {}
                    Err(e) => return Err(e.into()),
                },
            }
        }
        Ok(())
    }

    /// Replaces a file by rename, unless it already has this content.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        if self
            .read(name, content.len() as u64)
            .is_ok_and(|target| target.as_deref() == Some(content))
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

    /// Removes a file, or a directory with its contents. Symlinks are removed, not followed.
    pub(crate) fn remove_all(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = name.as_ref();
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
        let fd = rustix::fs::openat(&self.0, name, OPEN_FLAGS | OFlags::RDONLY, Mode::empty())?;
        SafeDir(fd).remove_entries()?;
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes all entries.
    pub(crate) fn remove_entries(&self) -> io::Result<()> {
        for name in self.names()? {
            self.remove_all(&name)?;
        }
        Ok(())
    }

    /// Returns the names of all entries.
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

/// Returns whether a file is empty and is not being written any more: not every git writes objects
/// under another name first.
fn is_left_empty(stat: &rustix::fs::Stat) -> bool {
    let modified = UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    let age = SystemTime::now().duration_since(modified).unwrap_or_default();
    stat.st_size == 0 && age >= WRITE_TIME
}

/// Returns whether a file has the name of a loose object: all digits of an id but the first two.
fn is_of_loose_object(name: &std::ffi::CStr) -> bool {
    matches!(name.count_bytes(), 38 | 62) && name.to_bytes().iter().all(u8::is_ascii_hexdigit)
}

/// Returns the content of a regular file of at most `limit` bytes, by path; `None` if it is missing
/// or not a regular file (a symlink, or a pipe, which would block forever). Its directory belongs to
/// studio or was checked by the caller.
pub(crate) fn read_file(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    read_at(rustix::fs::CWD, path.as_os_str(), limit)
}

fn read_at(directory: impl AsFd, name: &OsStr, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::RDONLY;
    let fd = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let stat = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let too_large = || {
        let name = Path::new(name).file_name().unwrap_or(name).to_string_lossy();
        io::Error::other(format!("`{name}` is larger than {limit} bytes"))
    };
    let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
    if size as u64 > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(size + 1);
    File::from(fd).take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit {
        true => Err(too_large()),
        false => Ok(Some(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_write_never_goes_through_a_symlink() {
        let temp = tempfile::tempdir().unwrap();
        let (inner, outer) = (temp.path().join("in"), temp.path().join("out"));
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::create_dir_all(&outer).unwrap();
        std::fs::write(outer.join("file"), "theirs").unwrap();
        symlink(&outer, inner.join("info")).unwrap();
        symlink(outer.join("file"), inner.join("config")).unwrap();
        let dir = SafeDir::open(&inner).unwrap();
        assert_eq!(dir.read("config", 100).unwrap(), None);
        dir.write("config", b"ours").unwrap();
        dir.open_or_create("info").unwrap().write("exclude", b"ours").unwrap();
        assert_eq!(std::fs::read(outer.join("file")).unwrap(), b"theirs");
        assert_eq!(std::fs::read_dir(&outer).unwrap().count(), 1);
        assert_eq!(std::fs::read(inner.join("info/exclude")).unwrap(), b"ours");
    }

    #[test]
    fn pipes_and_symlinks_are_neither_read_nor_preserved() {
        let temp = tempfile::tempdir().unwrap();
        let deep_dir = temp.path().join("objects/ab");
        std::fs::create_dir_all(&deep_dir).unwrap();
        std::fs::write(deep_dir.join("kept"), "x").unwrap();
        symlink("/etc/hostname", deep_dir.join("link")).unwrap();
        let pipe = temp.path().join("objects/pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(read_file(&pipe, 10).unwrap(), None);
        assert_eq!(read_file(&deep_dir.join("link"), 10).unwrap(), None);
        assert_eq!(read_file(&deep_dir.join("kept"), 10).unwrap().as_deref(), Some(&b"x"[..]));
        let sparse = File::create(temp.path().join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        assert!(read_file(&temp.path().join("sparse"), 10).is_err());
        let objects = ["0", "1", "2"].map(|digit| deep_dir.join(digit.repeat(38)));
        let long_ago = SystemTime::now() - WRITE_TIME;
        File::create(&objects[0]).unwrap().set_modified(long_ago).unwrap();
        File::create(&objects[1]).unwrap();
        std::fs::write(&objects[2], "x").unwrap();
        std::fs::write(deep_dir.join("tmp_obj_a1b2c3"), "").unwrap();
        SafeDir::open(temp.path()).unwrap().remove_unreadable(2).unwrap();
        assert!(deep_dir.join("kept").exists() && !pipe.exists());
        assert!(deep_dir.join("link").symlink_metadata().is_err());
        assert_eq!(objects.map(|object| object.exists()), [false, true, true]);
        assert!(deep_dir.join("tmp_obj_a1b2c3").exists(), "git is writing it");
    }

    #[test]
    fn emptying_preserves_the_targets_of_symlinks() {
        let temp = tempfile::tempdir().unwrap();
        let (inner, outer) = (temp.path().join("in"), temp.path().join("out"));
        std::fs::create_dir_all(inner.join("a/b")).unwrap();
        std::fs::create_dir_all(&outer).unwrap();
        std::fs::write(outer.join("file"), "theirs").unwrap();
        std::fs::write(inner.join("a/b/c"), "x").unwrap();
        symlink(&outer, inner.join("a/link")).unwrap();
        SafeDir::open(&inner).unwrap().remove_entries().unwrap();
        assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 0);
        assert!(outer.join("file").exists());
    }
}
