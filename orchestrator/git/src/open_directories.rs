//! Directories that are open to ask for many files below them: the system looks up one name for each file,
//! and no symlink is followed.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};

/// How a directory is opened to be read.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// How one is opened to ask for files in it.
const LOOK_UP: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The length of the buffer for the entries of a directory, in bytes.
const BUFFER_LENGTH: usize = 1 << 15;

/// The directories of a path, open, to ask for files in the order of an index.
pub(crate) struct OpenDirectories<'a> {
    root: &'a OwnedFd,
    /// The path of the last one, with a slash at its end.
    path: Vec<u8>,
    /// The length of each one's path; `None` for one that is missing or a symlink.
    open: Vec<(usize, Option<OwnedFd>)>,
}

impl OpenDirectories<'_> {
    /// Starts at a directory.
    pub(crate) fn new(root: &OwnedFd) -> OpenDirectories<'_> {
        OpenDirectories { root, path: Vec::new(), open: Vec::new() }
    }

    /// Returns the state of a file; `None` if it is missing or not below directories of the root.
    pub(crate) fn stat(&mut self, path: &[u8]) -> Option<Stat> {
        let parent_length =
            path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (parent, name) = path.split_at(parent_length);
        if parent != self.path {
            self.open(parent);
        }
        let directory = match self.open.last() {
            None => self.root,
            Some((_, directory)) => directory.as_ref()?,
        };
        rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    fn open(&mut self, parent: &[u8]) {
        while self.open.pop_if(|(length, _)| !parent.starts_with(&self.path[..*length])).is_some() {
        }
        self.path.truncate(self.open.last().map_or(0, |(length, _)| *length));
        for name in parent[self.path.len()..].split_inclusive(|byte| *byte == b'/') {
            let above = self.open.last().map_or(Some(self.root), |(_, above)| above.as_ref());
            let name_only = &name[..name.len() - 1];
            let open = |above| rustix::fs::openat(above, name_only, LOOK_UP, Mode::empty()).ok();
            let directory = above.and_then(open);
            self.path.extend(name);
            self.open.push((self.path.len(), directory));
        }
    }
}

/// Opens a directory for the files below it.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, READ, Mode::empty())?)
}

/// Returns the number of entries below a directory that are not directories, and of empty
/// directories.
pub(crate) fn count_files(directory: &OwnedFd) -> io::Result<usize> {
    count_with(directory, &mut buffer())
}

fn count_with(directory: &OwnedFd, buffer: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    let (mut files, mut directories) = (0, Vec::new());
    visit(directory, buffer, |name, is_directory| {
        match is_directory {
            true => directories.push(name.to_owned()),
            false => files += 1,
        }
        true
    })?;
    if files == 0 && directories.is_empty() {
        return Ok(1);
    }
    for name in directories {
        files += count_with(&open_below(directory, &name)?, buffer)?;
    }
    Ok(files)
}

/// Returns a buffer for [`visit`].
pub(crate) fn buffer() -> Vec<MaybeUninit<u8>> {
    vec![MaybeUninit::uninit(); BUFFER_LENGTH]
}

/// Opens a directory in a directory to read it.
pub(crate) fn open_below(directory: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(directory, name, READ, Mode::empty())?)
}

/// Visits the entries of a directory, each with whether it is a directory, as long as `see` returns
/// `true`. Returns whether it always did.
pub(crate) fn visit(
    directory: &OwnedFd,
    buffer: &mut [MaybeUninit<u8>],
    mut see: impl FnMut(&CStr, bool) -> bool,
) -> io::Result<bool> {
    let mut entries = RawDir::new(directory, buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let is_directory = match entry.file_type() {
            FileType::Unknown => {
                let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(found.st_mode).is_dir()
            }
            kind => kind.is_dir(),
        };
        if !see(name, is_directory) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_found_in_any_order_and_never_through_a_symlink() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("a/b/c")).unwrap();
        for (name, length) in [("a/b/c/four", 4), ("a/b/two", 2), ("a/one", 1), ("none", 0)] {
            fs::write(path(name), vec![b'x'; length]).unwrap();
        }
        symlink("a", path("link")).unwrap();
        let root = open_directory(directory.path()).unwrap();
        let mut directories = OpenDirectories::new(&root);
        let mut length = |name: &str| directories.stat(name.as_bytes()).map(|found| found.st_size);
        for _ in 0..2 {
            assert_eq!(length("a/b/c/four"), Some(4));
            assert_eq!(length("a/one"), Some(1));
            assert_eq!(length("a/b/two"), Some(2));
            assert_eq!(length("none"), Some(0));
            for other in ["link/one", "a/one/deeper/file", "a/bb/c", "a/b/", "x/y/z"] {
                assert_eq!(length(other), None, "{other}");
            }
        }
    }

    #[test]
    fn files_and_empty_directories_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let count = || count_files(&open_directory(directory.path()).unwrap()).unwrap();
        assert_eq!(count(), 1);
        fs::create_dir_all(path("a/b")).unwrap();
        assert_eq!(count(), 1);
        (0..2000).for_each(|number| fs::write(path(&format!("a/{number}")), "").unwrap());
        symlink("a", path("link")).unwrap();
        assert_eq!(count(), 2002);
    }
}
