//! Points at which a fault can be injected: every durable step, and every function here that
//! opens, writes, syncs, renames or locks. Only test builds inject one ([`crate::test_hooks`]).
//!
//! A point has a name such as `step accept.intended`, `write journal.jsonl` or `take lock`. A test
//! records the points that a command passes, and then names the point and the fault.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::test_hooks::TestHook;

/// How far the clock jumps, in seconds: 400 days.
const CLOCK_JUMP: i64 = 400 * 86_400;

/// What happens at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process gets SIGKILL.
    Kill,
    /// The call fails: no space left on the device. A write has written half of its bytes.
    NoSpace,
    /// The call fails: input/output error.
    Io,
    /// The call fails: too many open files.
    TooManyFiles,
    /// From here on no file grows: every write of this process and its children fails.
    FullDisk,
    /// From here on this process and its new children can open no more files.
    NoFiles,
    /// The clock of this process jumps forward by 400 days.
    Forward,
    /// The clock of this process jumps back by 400 days.
    Backward,
    /// The process loses its locks, and their files are deleted. It waits until the test has run
    /// other commands: until `POINTS.go` exists beside the file of recorded points.
    LostLocks,
}

impl Fault {
    /// All faults, with the names by which a test sets them.
    pub const ALL: [(&'static str, Fault); 9] = [
        ("kill", Fault::Kill),
        ("nospace", Fault::NoSpace),
        ("io", Fault::Io),
        ("emfile", Fault::TooManyFiles),
        ("full-disk", Fault::FullDisk),
        ("no-files", Fault::NoFiles),
        ("forward", Fault::Forward),
        ("backward", Fault::Backward),
        ("lost-locks", Fault::LostLocks),
    ];

    /// Returns the error of a call that fails.
    fn error(self) -> Option<io::Error> {
        let code = match self {
            Fault::NoSpace => libc::ENOSPC,
            Fault::Io => libc::EIO,
            Fault::TooManyFiles => libc::EMFILE,
            Fault::Kill
            | Fault::FullDisk
            | Fault::NoFiles
            | Fault::Forward
            | Fault::Backward
            | Fault::LostLocks => return None,
        };
        Some(io::Error::from_raw_os_error(code))
    }
}

/// Passes the point of a call on a file; fails if a test injects an error here.
pub(crate) fn at(call: &str, path: &Path) -> io::Result<()> {
    pass(call, path)?.and_then(Fault::error).map_or(Ok(()), Err)
}

/// Passes the point of a write; before it fails, half of the bytes are written.
pub(crate) fn at_write(path: &Path, file: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    match pass("write", path)?.and_then(Fault::error) {
        Some(error) => file.write_all(&bytes[..bytes.len() / 2]).and(Err(error)),
        None => file.write_all(bytes),
    }
}

/// Passes a durable step.
pub(crate) fn at_step(name: &str) {
    let _ = pass("step", Path::new(name));
}

/// Returns the seconds by which the clock of this process jumped.
pub(crate) fn clock_offset() -> i64 {
    CLOCK_OFFSET.load(Ordering::Relaxed)
}

static CLOCK_OFFSET: AtomicI64 = AtomicI64::new(0);

/// Records the point, and causes the fault that a test set for it.
fn pass(call: &str, path: &Path) -> io::Result<Option<Fault>> {
    let Some(points) = TestHook::Points.value() else { return Ok(None) };
    let point = format!("{} {call} {}", role(), generic_name(path));
    // One write per line: several processes append to the file.
    let record = |mark: &str| -> io::Result<()> {
        let line = format!("{}\t{mark}\t{point}\n", std::process::id());
        let mut file = OpenOptions::new().append(true).create(true).open(&points)?;
        file.write_all(line.as_bytes())
    };
    if HAPPENED.load(Ordering::Relaxed) > 0 {
        return Ok(None);
    }
    record("passed")?;
    let Some((fault, target, number)) = wanted() else { return Ok(None) };
    if target != point || count_pass(&point) != number {
        return Ok(None);
    }
    HAPPENED.store(1, Ordering::Relaxed);
    record("fault")?;
    cause(fault, &points);
    Ok(Some(fault))
}

static HAPPENED: AtomicU32 = AtomicU32::new(0);

/// Returns the fault that a test set, `FAULT@POINT:N`: at the N-th pass of the point in a process.
fn wanted() -> Option<(Fault, String, u32)> {
    let text = TestHook::Fault.value()?;
    let (name, rest) = text.split_once('@')?;
    let (point, number) = rest.rsplit_once(':')?;
    let (_, fault) = Fault::ALL.into_iter().find(|(known, _)| *known == name)?;
    Some((fault, point.to_owned(), number.parse().ok()?))
}

/// Returns `studio`, or the internal command that this process runs.
fn role() -> String {
    let first = std::env::args().nth(1).unwrap_or_default();
    if first.starts_with("__") { first } else { "main".to_owned() }
}

/// Returns the file name without what differs from run to run: ids and numbers.
fn generic_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.starts_with('.') {
        true => "temporary".to_owned(),
        false => name.into_owned(),
    }
}

fn cause(fault: Fault, points: &str) {
    match fault {
        Fault::Kill => {
            use rustix::process::{Signal, getpid, kill_process};
            let _ = kill_process(getpid(), Signal::KILL);
        }
        Fault::NoSpace | Fault::Io | Fault::TooManyFiles => {}
        Fault::FullDisk => limit_file_size(),
        Fault::NoFiles => limit_open_files(),
        Fault::Forward => CLOCK_OFFSET.store(CLOCK_JUMP, Ordering::Relaxed),
        Fault::Backward => CLOCK_OFFSET.store(-CLOCK_JUMP, Ordering::Relaxed),
        Fault::LostLocks => {
            lose_locks();
            wait_for(&format!("{points}.go"));
        }
    }
}

/// Counts how often this process passed a point.
pub(crate) fn count_pass(name: &str) -> u32 {
    use std::collections::HashMap;
    use std::sync::Mutex;
    static PASSES: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);
    let mut passes = crate::sync::lock(&PASSES);
    let count = passes.get_or_insert_default().entry(name.to_owned()).or_insert(0);
    *count += 1;
    *count
}

/// Releases all locks of this process and deletes their files, as another program could.
#[allow(unsafe_code)]
fn lose_locks() {
    for entry in std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let Ok(path) = std::fs::read_link(entry.path()) else { continue };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(number) = number.filter(|_| name == "lock" || name.ends_with(".lock")) {
            let range = libc::flock {
                l_type: libc::F_UNLCK as libc::c_short,
                l_whence: libc::SEEK_SET as libc::c_short,
                l_start: 0,
                l_len: 0,
                l_pid: 0,
            };
            // SAFETY: the call takes a number, which may be closed, and a valid `struct flock`.
            unsafe { libc::fcntl(number, libc::F_OFD_SETLK, &range) };
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Waits until a file exists, at most 30 seconds.
fn wait_for(path: &str) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !Path::new(path).exists() && std::time::Instant::now() < end {
        let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let _ = rustix::event::poll(&mut [], Some(&moment));
    }
}

/// Makes every write that would lengthen a file fail, in this process and its children. The kernel
/// reports it as `EFBIG`, with a signal that is ignored.
#[allow(unsafe_code)]
fn limit_file_size() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    // SAFETY: ignoring a signal installs no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let _ = setrlimit(Resource::Fsize, Rlimit { current: Some(0), maximum: None });
}

/// Makes every call fail that would need one more descriptor.
fn limit_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::AsRawFd;
    let Ok(free) = std::fs::File::open("/dev/null") else { return };
    let lowest = u64::try_from(free.as_raw_fd()).unwrap_or(3);
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(lowest), maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_contains_nothing_that_differs_from_run_to_run() {
        assert_eq!(generic_name(Path::new("/a/.tmp-x7Yz")), "temporary");
        assert_eq!(generic_name(Path::new("/a/journal.jsonl")), "journal.jsonl");
    }
}
