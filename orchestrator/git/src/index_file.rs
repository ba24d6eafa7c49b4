//! Writes git's index in version 2 (git documents it in `gitformat-index`), with the state of the
//! files that it describes and the extension `TREE`, so that the first `git status` reads no file
//! and compares no tree.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use git2::ObjectFormat;

use crate::object_format;

/// The flags of an entry: the length of its path, if that is shorter, and whether it has extended flags.
pub(crate) const PATH_LENGTH_MASK: u16 = 0x0FFF;
pub(crate) const EXTENDED: u16 = 0x4000;

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

/// Writes an index. The entries are sorted by path; the trees are all directories, the root first.
pub(crate) fn write(path: &Path, files: &[IndexedFile], trees: &[IndexedTree]) -> io::Result<()> {
    let bytes = encode(files, trees)?;
    let lock = path.with_extension("lock");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o666).open(&lock)?;
    file.write_all(&bytes)?;
    drop(file);
    std::fs::rename(lock, path)
}

/// Appends an entry. `extended_flags` are stored in version 3 only.
pub(crate) fn push_entry(bytes: &mut Vec<u8>, file: &IndexedFile, flags: u16, extended_flags: u16) {
    let start = bytes.len();
    let FileStat { ctime, mtime, dev, ino, uid, gid, size } = file.stat;
    for number in [ctime.0, ctime.1, mtime.0, mtime.1, dev, ino, file.mode, uid, gid, size] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(file.id.as_bytes());
    let length = u16::try_from(file.path.len()).unwrap_or(PATH_LENGTH_MASK).min(PATH_LENGTH_MASK);
    let flags = (flags & !(PATH_LENGTH_MASK | EXTENDED)) | length;
    match extended_flags {
        0 => bytes.extend(flags.to_be_bytes()),
        _ => {
            bytes.extend((flags | EXTENDED).to_be_bytes());
            bytes.extend(extended_flags.to_be_bytes());
        }
    }
    bytes.extend(&file.path);
    // One to eight NUL bytes, to a multiple of eight.
    let length = bytes.len() - start;
    bytes.resize(start + length / 8 * 8 + 8, 0);
}

fn encode(files: &[IndexedFile], trees: &[IndexedTree]) -> io::Result<Vec<u8>> {
    let count = u32::try_from(files.len()).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(files.len() * 112 + trees.len() * 48 + 64);
    bytes.extend(b"DIRC");
    bytes.extend(2u32.to_be_bytes());
    bytes.extend(count.to_be_bytes());
    for file in files {
        push_entry(&mut bytes, file, 0, 0);
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
    let format = trees.first().map_or(ObjectFormat::Sha1, |root| root.id.object_format());
    let checksum = object_format::digest(format, &[&bytes]);
    bytes.extend(checksum);
    Ok(bytes)
}
