//! The paths of hosts: sockets and locks in a directory that only the user can access.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};

use crate::failure::{Failure, Result};

/// The maximum length of a socket name in the kernel, without its final zero.
const NAME_LIMIT: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The paths of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPaths {
    directory: PathBuf,
    stem: String,
}

impl HostPaths {
    /// Returns the paths of the host for a model file. A different file under the same path has
    /// other paths, so a replaced model file is never served by the old host.
    pub fn of(model: &Path) -> Result<HostPaths> {
        let missing = |e: io::Error| {
            Failure::usage(format!("no such model file: `{}`", model.display()))
                .because(e)
                .hint("g3 model pull")
                .hint("g3 model list")
        };
        let path = fs::canonicalize(model).map_err(missing)?;
        let meta = fs::metadata(&path).map_err(missing)?;
        let mut hash = Sha256::new();
        hash.update(path.as_os_str().as_encoded_bytes());
        hash.update(meta.len().to_le_bytes());
        hash.update(meta.mtime().to_le_bytes());
        hash.update(meta.ino().to_le_bytes());
        let digest = hash.finalize();
        let stem = crate::text::hex(&digest[..8]);
        Ok(HostPaths { directory: runtime_directory()?, stem: format!("model-{stem}") })
    }

    /// Returns the lock that is held while a client searches for the host or starts it.
    pub(crate) fn start_lock(&self) -> PathBuf {
        self.directory.join(format!("{}.door", self.stem))
    }

    /// Returns the lock that the host holds while it runs.
    pub fn lock(&self) -> PathBuf {
        self.directory.join(format!("{}.lock", self.stem))
    }

    /// Returns the path of the host's stderr log.
    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join(format!("{}.log", self.stem))
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(format!("{}.sock", self.stem))
    }
}

/// Connects to a socket, even if its path is too long for the kernel.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    with_short_name(socket, |name| UnixStream::connect(name))
}

/// Listens on a socket, even if its path is too long for the kernel. A stale socket is replaced;
/// the caller holds the lock that makes this safe.
pub fn listen(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    with_short_name(socket, |name| UnixListener::bind(name))
}

/// Opens a socket by a path that is short enough, however deep its directory is (on systems with
/// `/proc`).
pub fn with_short_name<T>(path: &Path, open: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= NAME_LIMIT {
        return open(path);
    }
    if cfg!(not(target_os = "linux")) {
        return Err(io::Error::other(format!("a path of more than {NAME_LIMIT} bytes")));
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("a socket without a directory"));
    };
    let directory = rustix::fs::open(
        parent,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    open(&Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name))
}

/// Returns `$XDG_RUNTIME_DIR/g3`, else `/tmp/g3-UID`, else `~/.g3/run`: the first that is, or can
/// be created as, a directory of the user that no other user can enter.
fn runtime_directory() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let candidates = candidates(variable("XDG_RUNTIME_DIR"), variable("HOME"));
    let mut reason = String::new();
    for path in candidates {
        match create_private(&path) {
            Ok(()) => return Ok(path),
            Err(e) => reason = format!("{}: {e}", path.display()),
        }
    }
    Err(Failure::failed("no private directory for the model host's socket")
        .because(reason)
        .hint("set XDG_RUNTIME_DIR to a directory of yours"))
}

fn candidates(runtime: Option<OsString>, home: Option<OsString>) -> Vec<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let mut paths: Vec<PathBuf> =
        runtime.map(|dir| Path::new(&dir).join("g3")).into_iter().collect();
    paths.push(PathBuf::from(format!("/tmp/g3-{user}")));
    paths.extend(home.map(|dir| Path::new(&dir).join(".g3/run")));
    paths
}

fn create_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && path.ends_with(".g3/run") => {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        Ok(()) | Err(_) => {}
    }
    // Does not follow links: a link in /tmp could lead to another user's directory.
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_dir() || meta.uid() != rustix::process::getuid().as_raw() {
        return Err(io::Error::other("it does not belong to this user"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(io::Error::other("others may enter it (want mode 0700)"));
    }
    // In a sandbox the directory may exist without being writable.
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_that_other_users_may_enter_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("g3");
        create_private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(create_private(&path).unwrap_err().to_string().contains("0700"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(create_private(&link).is_err(), "a link was followed");
    }

    #[test]
    fn long_paths_listen_and_connect() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        fs::create_dir_all(&deep).unwrap();
        let socket = deep.join("s.sock");
        let _listener = listen(&socket).unwrap();
        connect(&socket).unwrap();
        let _again = listen(&socket).unwrap();
        connect(&socket).unwrap();
    }

    #[test]
    fn a_replaced_model_file_has_other_paths() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("m.gguf");
        fs::write(&model, "one").unwrap();
        let paths = HostPaths::of(&model).unwrap();
        assert_eq!(HostPaths::of(&dir.path().join(".").join("m.gguf")).unwrap(), paths);
        fs::write(&model, "other").unwrap();
        assert_ne!(HostPaths::of(&model).unwrap(), paths);
        fs::remove_file(&model).unwrap();
        assert!(HostPaths::of(&model).unwrap_err().to_string().contains("g3 model pull"));
    }
}
