//! The workspace of a working directory: its repository, or only the directory outside of one. A
//! workspace's files for agents (AGENTS.md, notes, skills, personas) are searched for from the
//! working directory up to the workspace's root.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Returns the root of the git work tree that contains a directory; the directory itself outside of
/// one.
pub fn root(cwd: &Path) -> PathBuf {
    let tree = cwd.ancestors().find(|dir| dir.join(".git").exists());
    tree.unwrap_or(cwd).to_owned()
}

/// Returns the directories from the working directory up to the workspace's root, nearest first.
pub fn upward(cwd: &Path) -> Vec<&Path> {
    let root = cwd.ancestors().position(|dir| dir.join(".git").exists()).unwrap_or(0);
    cwd.ancestors().take(root + 1).collect()
}

/// Opens a regular file. A pipe, a socket or a device is an error and does not block.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let file = OpenOptions::new().read(true).custom_flags(flags as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Returns the first bytes of a regular file, at most `max`.
pub fn read_regular(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_at_the_root_of_the_repository() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("repo/a/b");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!((root(&deep), upward(&deep)), (deep.clone(), vec![deep.as_path()]));
        let repo = dir.path().join("repo");
        std::fs::create_dir(repo.join(".git")).unwrap();
        assert_eq!(root(&deep), repo);
        let a = repo.join("a");
        assert_eq!(upward(&deep), [deep.as_path(), a.as_path(), repo.as_path()]);
    }

    #[test]
    fn a_pipe_is_an_error_and_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("AGENTS.md");
        let mode = rustix::fs::Mode::from_bits_truncate(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let why = read_regular(&pipe, 100).unwrap_err();
        assert_eq!(why.to_string(), "it is not a regular file");
    }
}
