//! Reads files that a command line names: completely, up to a limit, without waiting for a writer.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Reads a file of limited size in bytes. A named pipe may have no writer and is refused; the pipes
/// of a shell (`<(…)`, `/dev/stdin`) have one.
pub(crate) fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::Error::other("it is a directory"));
    }
    if !kind.is_file() && !is_descriptor(path) {
        let what = if kind.is_fifo() { "a named pipe" } else { "not a regular file" };
        return Err(io::Error::other(format!("it is {what}")));
    }
    set_blocking(&file)?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("it has more than {max} bytes")));
    }
    Ok(bytes)
}

/// Returns whether the path names a descriptor that a shell passed down.
fn is_descriptor(path: &Path) -> bool {
    path == Path::new("/dev/stdin")
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd")
}

/// Makes reads of the file wait for data.
fn set_blocking(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags.difference(OFlags::NONBLOCK))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        assert!(read(&file, 4).unwrap_err().to_string().contains("more than 4 bytes"));
        assert!(read(dir.path(), 9).unwrap_err().to_string().contains("a directory"));
        let pipe = dir.path().join("p");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        assert!(read(&pipe, 9).unwrap_err().to_string().contains("a named pipe"));
    }
}
