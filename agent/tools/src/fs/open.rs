//! Opens and replaces files by resolved paths. Symbolic links are no longer followed, so that the
//! file that was checked is the file that is opened.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Maximum size in bytes of a file that is read.
const MAX_BYTES: u64 = 256 << 20;

/// A file's content and the metadata to keep when it is replaced.
#[derive(Debug)]
pub struct FileContent {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The permission bits.
    pub mode: u32,
}

impl FileContent {
    /// Creates the content of a built-in text, which is not a file.
    pub fn of(text: &str) -> FileContent {
        FileContent { bytes: text.as_bytes().to_vec(), mode: 0o644 }
    }
}

/// Reads a regular file.
pub fn read(path: &Path) -> io::Result<FileContent> {
    read_at_most(path, MAX_BYTES)
}

/// Reads a regular file of at most `max_bytes` bytes.
pub fn read_at_most(path: &Path, max_bytes: u64) -> io::Result<FileContent> {
    let file = File::from(open(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > max_bytes {
        let advice = "take a part of it with the shell";
        let reason = format!("it has {} bytes, more than {max_bytes}; {advice}", metadata.len());
        return Err(io::Error::other(reason));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.take(max_bytes).read_to_end(&mut bytes)?;
    Ok(FileContent { bytes, mode: metadata.mode() & 0o7777 })
}

/// Flags for opening a directory; where possible, they do not require permission to list it.
#[cfg(target_os = "linux")]
const DIRECTORY_FLAGS: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY;

/// Replaces or creates a file atomically. Keeps the permission bits; the directory must exist.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    };
    let directory = open(parent, DIRECTORY_FLAGS | OFlags::DIRECTORY)?;
    // Through the descriptor, replacing the directory by a symbolic link in the meantime has no
    // effect.
    let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let target = if by_descriptor.exists() { by_descriptor.join(name) } else { path.to_owned() };
    let mode = mode_to_keep(&target)?;
    base::files::replace_with_mode(&target, bytes, mode)
}

fn mode_to_keep(path: &Path) -> io::Result<u32> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0o666 & !umask()),
        Err(e) => return Err(e),
    };
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    if kind.is_symlink() {
        return Err(io::Error::other("it has become a symbolic link"));
    }
    if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.mode() & 0o200 == 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is read-only"));
    }
    Ok(metadata.mode() & 0o7777)
}

/// Returns the user's umask. The system call can only read it by setting it, but the kernel exposes
/// it in `/proc`.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o022)
}

/// Opens a resolved path. Fails if any component is a symbolic link.
#[cfg(target_os = "linux")]
fn open(path: &Path, flags: OFlags) -> io::Result<std::os::fd::OwnedFd> {
    use rustix::fs::{CWD, ResolveFlags, openat2};
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
        // A kernel before 5.6, or a seccomp filter that does not know the call.
        Err(rustix::io::Errno::NOSYS) => open_without_openat2(path, flags),
        Err(rustix::io::Errno::LOOP) => {
            Err(io::Error::other("a part of the path has become a symbolic link"))
        }
        other => Ok(other?),
    }
}

#[cfg(not(target_os = "linux"))]
fn open(path: &Path, flags: OFlags) -> io::Result<std::os::fd::OwnedFd> {
    open_without_openat2(path, flags)
}

fn open_without_openat2(path: &Path, flags: OFlags) -> io::Result<std::os::fd::OwnedFd> {
    Ok(rustix::fs::open(path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Describes a binary file, with a hint. Returns `None` for text.
pub fn describe_binary(bytes: &[u8]) -> Option<&'static str> {
    let start = &bytes[..bytes.len().min(8192)];
    if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        return Some("UTF-16 text; convert it with `iconv` in the shell first");
    }
    let is_image = [&b"\x89PNG"[..], b"\xff\xd8\xff", b"GIF8"].iter().any(|m| start.starts_with(m));
    if is_image {
        return Some("an image, not text");
    }
    start.contains(&0).then_some("a binary file; look at it with `file` or `xxd` in the shell")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_replaced_file_keeps_its_mode_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let path = root.join("run.sh");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o754)).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o754);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
    }

    #[test]
    fn a_link_created_after_the_check_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("outside")).unwrap();
        fs::write(root.join("outside/x"), "safe").unwrap();
        symlink(root.join("outside"), root.join("in")).unwrap();
        assert!(replace(&root.join("in/x"), b"evil").is_err());
        assert!(read(&root.join("in/x")).is_err());
        symlink(root.join("outside/x"), root.join("y")).unwrap();
        assert!(replace(&root.join("y"), b"evil").is_err());
        assert_eq!(fs::read(root.join("outside/x")).unwrap(), b"safe");
    }

    #[test]
    fn directories_and_read_only_files_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        assert!(read(&root).is_err() && replace(&root, b"").is_err());
        assert!(read(Path::new("/dev/zero")).is_err());
        let path = root.join("fixed");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        assert!(replace(&path, b"y").is_err());
    }
}
