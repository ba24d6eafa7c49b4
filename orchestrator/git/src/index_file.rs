//! Writes git's index in version 2 (git documents it in `gitformat-index`), with the state of the
//! files that it describes and the extension `TREE`, so that the first `git status` reads no file
//! and compares no tree.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use sha1::{Digest, Sha1};

/// The length of an entry before its path.
const FIXED_LENGTH: usize = 62;
/// The length of a path from which the entry does not record it.
const MAX_RECORDED_LENGTH: usize = 0xFFF;

/// What the index knows about a file, so that git need not read it. All zero: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileStat {
    /// The time of the last change of the inode: seconds and nanoseconds.
    pub ctime: (u32, u32),
    /// The time of the last change of the content: seconds and nanoseconds.
    pub mtime: (u32, u32),
    /// The device.
    pub dev: u32,
    /// The inode.
    pub ino: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The size.
    pub size: u32,
}

impl FileStat {
    /// Returns the numbers of a file as git truncates them.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as git does")]
    pub(crate) fn of(stat: &rustix::fs::Stat) -> FileStat {
        FileStat {
            ctime: (stat.st_ctime as u32, stat.st_ctime_nsec as u32),
            mtime: (stat.st_mtime as u32, stat.st_mtime_nsec as u32),
            dev: stat.st_dev as u32,
            ino: stat.st_ino as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size as u32,
        }
    }
}

/// An entry of the index.
#[derive(Clone, Debug)]
pub(crate) struct IndexedFile {
    /// The path, with `/` between its components.
    pub path: Vec<u8>,
    /// The blob, or the commit of a submodule.
    pub id: git2::Oid,
    /// The mode, as in a tree.
    pub mode: u32,
    /// The file in the worktree.
    pub stat: FileStat,
}

/// A directory whose tree is known; in the order of a walk from the root.
#[derive(Clone, Debug)]
pub(crate) struct IndexedTree {
    /// Its name in the directory above; empty for the root.
    pub name: Vec<u8>,
    /// The number of entries below it.
    pub entries: usize,
    /// The number of directories directly in it.
    pub subtrees: usize,
    /// The tree.
    pub id: git2::Oid,
}

/// Writes an index. The entries are sorted by path; the trees are all directories.
pub(crate) fn write(path: &Path, files: &[IndexedFile], trees: &[IndexedTree]) -> io::Result<()> {
    let bytes = encode(files, trees)?;
    let lock = path.with_extension("lock");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o666).open(&lock)?;
    file.write_all(&bytes)?;
    drop(file);
    std::fs::rename(lock, path)
}

/// Returns whether a directory contains exactly the files that an index of [`write`] describes, none
/// of them changed since, and no other file or directory.
pub(crate) fn describes(index: &Path, directory: &Path) -> io::Result<bool> {
    let bytes = std::fs::read(index)?;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let root = rustix::fs::open(directory, flags, Mode::empty())?;
    let Some(entries) = decode(&bytes) else { return Ok(false) };
    let chunk_size = entries.len().div_ceil(2).max(1);
    let is_unchanged = |(path, stat, mode): &(&[u8], FileStat, u32)| {
        let found = rustix::fs::statat(&root, *path, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| {
            let is_kind = (found.st_mode & 0o170_000) == (mode & 0o170_000)
                || (mode & 0o170_000) == 0o160_000 && (found.st_mode & 0o170_000) == 0o040_000;
            is_kind && FileStat::of(&found) == *stat
        })
    };
    let are_unchanged = std::thread::scope(|scope| {
        let threads: Vec<_> = entries
            .chunks(chunk_size)
            .map(|chunk| scope.spawn(|| chunk.iter().all(is_unchanged)))
            .collect();
        threads.into_iter().all(|thread| thread.join().unwrap_or(false))
    });
    Ok(are_unchanged && count_files(directory)? == entries.len())
}

/// Returns the number of entries below a directory that are not directories, and of empty
/// directories.
fn count_files(directory: &Path) -> io::Result<usize> {
    let (mut files, mut is_empty) = (0, true);
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        is_empty = false;
        files += match entry.file_type()?.is_dir() {
            true => count_files(&entry.path())?,
            false => 1,
        };
    }
    Ok(if is_empty { 1 } else { files })
}

/// Returns path, state and mode of each entry; `None` for an index that [`write`] did not write.
fn decode(bytes: &[u8]) -> Option<Vec<(&[u8], FileStat, u32)>> {
    let (head, mut rest) = bytes.split_at_checked(12)?;
    let number = |bytes: &[u8], index: usize| -> Option<u32> {
        Some(u32::from_be_bytes(bytes.get(index * 4..index * 4 + 4)?.try_into().ok()?))
    };
    if !head.starts_with(b"DIRC") || number(head, 1)? != 2 {
        return None;
    }
    let count = number(head, 2)? as usize;
    let mut entries = Vec::with_capacity(count.min(rest.len()));
    for _ in 0..count {
        let field = |index| number(rest, index);
        let stat = FileStat {
            ctime: (field(0)?, field(1)?),
            mtime: (field(2)?, field(3)?),
            dev: field(4)?,
            ino: field(5)?,
            uid: field(7)?,
            gid: field(8)?,
            size: field(9)?,
        };
        let mode = field(6)?;
        let path = rest.get(FIXED_LENGTH..)?;
        let length = path.iter().position(|byte| *byte == 0)?;
        entries.push((&path[..length], stat, mode));
        rest = rest.get((FIXED_LENGTH + length) / 8 * 8 + 8..)?;
    }
    Some(entries)
}

fn encode(files: &[IndexedFile], trees: &[IndexedTree]) -> io::Result<Vec<u8>> {
    let count = u32::try_from(files.len()).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(files.len() * 112 + trees.len() * 48 + 64);
    bytes.extend(b"DIRC");
    bytes.extend(2u32.to_be_bytes());
    bytes.extend(count.to_be_bytes());
    for file in files {
        let start = bytes.len();
        let FileStat { ctime, mtime, dev, ino, uid, gid, size } = file.stat;
        for number in [ctime.0, ctime.1, mtime.0, mtime.1, dev, ino, file.mode, uid, gid, size] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(file.id.as_bytes());
        let length = u16::try_from(file.path.len().min(MAX_RECORDED_LENGTH));
        bytes.extend(length.map_err(io::Error::other)?.to_be_bytes());
        bytes.extend(&file.path);
        // One to eight NUL bytes, to a multiple of eight.
        let length = bytes.len() - start;
        bytes.resize(start + length / 8 * 8 + 8, 0);
    }
    let mut extension = Vec::with_capacity(trees.len() * 48);
    for tree in trees {
        extension.extend(&tree.name);
        extension.extend(format!("\0{} {}\n", tree.entries, tree.subtrees).as_bytes());
        extension.extend(tree.id.as_bytes());
    }
    bytes.extend(b"TREE");
    bytes.extend(u32::try_from(extension.len()).map_err(io::Error::other)?.to_be_bytes());
    bytes.append(&mut extension);
    let checksum = Sha1::digest(&bytes);
    bytes.extend(checksum);
    Ok(bytes)
}
