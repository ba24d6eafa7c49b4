//! Files that survive a crash: atomic replacement, journals of whole lines, named durable steps.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rustix::fs::OFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fault;
use crate::test_hooks::TestHook;

/// The prefix of the file that replaces another one: a kill leaves it behind.
pub const TEMPORARY_PREFIX: &str = ".tmp-";

/// Says what failed when a file in the directory of temporary files, `TMPDIR`, cannot be made.
pub fn cannot_make_temporary() -> String {
    format!("cannot make a temporary file in {}", std::env::temp_dir().display())
}

/// Replaces a file atomically: readers see the old content or the new. State files are readable by
/// their owner only.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_with_mode(path, content, 0o600)
}

/// Like [`replace`], with the given permission bits.
pub fn replace_with_mode(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    fault::at("create", path)?;
    let mut temp =
        tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempfile_in(parent_of(path))?;
    fault::at_write(path, &mut temp, content)?;
    temp.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    fault::at("sync", path)?;
    temp.as_file().sync_data()?;
    fault::at("rename", path)?;
    temp.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Like [`replace`], for a file that is computed again when it is needed: it is not durable, and after
/// a crash of the machine it may be empty.
pub fn replace_cache(path: &Path, content: &[u8]) -> io::Result<()> {
    fault::at("create", path)?;
    let mut temp =
        tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempfile_in(parent_of(path))?;
    fault::at_write(path, &mut temp, content)?;
    fault::at("rename", path)?;
    temp.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Writes new files of a directory and makes them durable together, which takes about as long as
/// for one of them.
pub fn write_durably(dir: &Path, files: &[(&str, &[u8])], mode: u32) -> io::Result<()> {
    write_new(dir, files, mode)?.sync()
}

/// Writes new files of a directory, without making them durable.
pub fn write_new(dir: &Path, files: &[(&str, &[u8])], mode: u32) -> io::Result<WrittenFiles> {
    let mut written = Vec::with_capacity(files.len());
    for (name, content) in files {
        let path = dir.join(name);
        fault::at("create", &path)?;
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&path)?;
        fault::at_write(&path, &mut file, content)?;
        written.push((path, file));
    }
    Ok(WrittenFiles { files: written })
}

/// Files that are written and not durable yet.
#[derive(Debug)]
#[must_use = "their content may be lost with the power"]
pub struct WrittenFiles {
    files: Vec<(PathBuf, File)>,
}

impl WrittenFiles {
    /// Makes them durable, all at the same time.
    pub fn sync(&self) -> io::Result<()> {
        let sync = |(path, file): &(PathBuf, File)| {
            fault::at("sync", path)?;
            file.sync_data()
        };
        let Some((first, rest)) = self.files.split_first() else { return Ok(()) };
        std::thread::scope(|scope| {
            let threads: Vec<_> = rest.iter().map(|file| scope.spawn(move || sync(file))).collect();
            let result = sync(first);
            let failed = || io::Error::other("a thread failed");
            threads.into_iter().fold(result, |result, thread| {
                result.and(thread.join().unwrap_or_else(|_| Err(failed())))
            })
        })
    }

    /// Begins to make them durable, for a caller that has something else to do until it must know.
    pub fn start_sync(self) -> PendingSync {
        PendingSync { thread: std::thread::spawn(move || self.sync()) }
    }
}

/// Files that are being made durable.
#[derive(Debug)]
#[must_use = "the files are durable after `wait` only"]
pub struct PendingSync {
    thread: JoinHandle<io::Result<()>>,
}

impl PendingSync {
    /// Waits until the files are durable.
    pub fn wait(self) -> io::Result<()> {
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread failed")))
    }
}

/// Maximum number of bytes of a file that is read whole.
pub const MAX_READ_BYTES: u64 = 64 << 20;

/// Reads a file that an agent or a repository may have made: a regular one of at most
/// [`MAX_READ_BYTES`]. A named pipe, a socket or a device is an error and does not block.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_bounded(path, MAX_READ_BYTES)
}

/// Like [`read`], for a text.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Like [`read`], with this limit. A file that is larger is an error. The pipes of a shell (`<(…)`,
/// `/dev/stdin`) have a writer and are read to their end.
pub fn read_bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = open_readable(path)?;
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("it has more than {max} bytes")));
    }
    Ok(bytes)
}

/// Returns the first bytes of a regular file, at most `max`.
pub fn read_start(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_readable(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a regular file of the program's own, which is replaced and never changed. Needs fewer system
/// calls than [`fs::read`] if it is small.
pub fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut start = [0; 8192];
    let count = loop {
        match file.read(&mut start) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => break result?,
        }
    };
    let mut bytes = start[..count].to_vec();
    if count == start.len() {
        file.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Opens a regular file, or a pipe of a shell.
fn open_readable(path: &Path) -> io::Result<File> {
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
    let blocking = rustix::fs::fcntl_getfl(&file)?.difference(OFlags::NONBLOCK);
    rustix::fs::fcntl_setfl(&file, blocking)?;
    Ok(file)
}

/// Returns whether the path names a descriptor that a shell passed down.
fn is_descriptor(path: &Path) -> bool {
    let places = ["/dev/stdin", "/dev/fd", "/proc/self/fd"];
    places.iter().any(|place| path.starts_with(place))
}

/// The content of `.g3/.gitignore`: excludes everything but skills, which may be versioned.
const GITIGNORE: &str = "/*\n!/skills/\n";

/// Creates `.g3` in a working directory; in a git work tree, with a `.gitignore` that hides it.
pub fn keep_out_of_git(cwd: &Path) -> io::Result<()> {
    let dir = cwd.join(".g3");
    if fs::symlink_metadata(&dir).is_ok_and(|meta| meta.is_symlink()) {
        return Err(io::Error::other(format!("{} is a symbolic link", dir.display())));
    }
    fs::create_dir_all(&dir)?;
    let file = dir.join(".gitignore");
    let in_git = cwd.ancestors().any(|dir| dir.join(".git").exists());
    if !in_git || file.exists() {
        return Ok(());
    }
    replace_with_mode(&file, GITIGNORE.as_bytes(), 0o644)
}

/// Replaces a file by a value as pretty JSON.
pub fn replace_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    replace(path, &json_text(value)?)
}

/// Returns a value as the text of a file: pretty JSON.
pub fn json_text(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}

/// Makes the entries of a directory durable.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    fault::at("sync-directory", path)?;
    File::open(path)?.sync_all()
}

/// Begins to make the entries of a directory durable.
pub fn start_sync_dir(path: PathBuf) -> PendingSync {
    PendingSync { thread: std::thread::spawn(move || sync_dir(&path)) }
}

/// Makes the entries of several directories durable, all at the same time.
pub fn sync_dirs(paths: &BTreeSet<PathBuf>) -> io::Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            paths.iter().map(|path| scope.spawn(move || sync_dir(path))).collect();
        let failed = |_| Err(io::Error::other("a thread failed"));
        let results = threads.into_iter().map(|thread| thread.join().unwrap_or_else(failed));
        results.fold(Ok(()), io::Result::and)
    })
}

/// Disk space that is allocated beside a file before the content is known: for content that must
/// not be lost once it arrives. If it is dropped unfilled, the file is unchanged.
#[derive(Debug)]
pub struct DiskReservation {
    temp: tempfile::NamedTempFile,
    path: PathBuf,
}

impl DiskReservation {
    /// Allocates this many bytes beside a file; fails if they cannot be written.
    pub fn create(path: &Path, bytes: usize) -> io::Result<DiskReservation> {
        let mut temp =
            tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempfile_in(parent_of(path))?;
        temp.write_all(&vec![b' '; bytes])?;
        temp.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
        temp.as_file().sync_data()?;
        Ok(DiskReservation { temp, path: path.to_owned() })
    }

    /// Replaces the file by this content atomically.
    pub fn fill(mut self, content: &[u8]) -> io::Result<()> {
        self.temp.rewind()?;
        self.temp.write_all(content)?;
        self.temp.as_file().set_len(content.len() as u64)?;
        self.temp.as_file().sync_data()?;
        self.temp.persist(&self.path).map_err(|e| e.error)?;
        Ok(())
    }
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// An append-only file of JSON lines. Each line is written by one call, so a crash can only tear
/// the last one.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Whether the last line may be incomplete because a write failed.
    torn: bool,
}

impl Journal {
    /// Opens or creates a journal. An incomplete last line is dropped; a complete one that only
    /// lacks its newline is terminated.
    pub fn open(path: &Path) -> io::Result<Journal> {
        fault::at("open", path)?;
        let file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let mut journal = Journal { path: path.to_owned(), file, torn: false };
        let (offset, tail) = journal.tail()?;
        if tail.is_empty() {
            return Ok(journal);
        }
        match serde_json::from_slice::<serde::de::IgnoredAny>(&tail) {
            Ok(_) => journal.file.write_all(b"\n")?,
            Err(_) => journal.file.set_len(offset)?,
        }
        Ok(journal)
    }

    /// Returns the bytes after the last newline, and their offset.
    fn tail(&self) -> io::Result<(u64, Vec<u8>)> {
        use std::os::unix::fs::FileExt;
        let mut offset = self.file.metadata()?.len();
        let mut tail = Vec::new();
        let mut block = [0u8; 4096];
        while offset > 0 {
            let bytes = offset.min(4096);
            let block = &mut block[..usize::try_from(bytes).map_err(io::Error::other)?];
            self.file.read_exact_at(block, offset - bytes)?;
            let line_start =
                block.iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index + 1);
            tail.splice(0..0, block[line_start..].iter().copied());
            offset -= bytes - line_start as u64;
            if line_start > 0 {
                break;
            }
        }
        Ok((offset, tail))
    }

    /// Appends a value as one line of JSON.
    pub fn append(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.append_line(&serde_json::to_vec(value)?)
    }

    /// Appends one line, given without its line break. After a failed write, the partial line is
    /// removed.
    pub fn append_line(&mut self, line: &[u8]) -> io::Result<()> {
        let mut line = [line, b"\n"].concat();
        if self.torn {
            line.insert(0, b'\n');
        }
        let old_length = self.file.metadata()?.len();
        let Err(error) = fault::at_write(&self.path, &mut self.file, &line) else {
            self.torn = false;
            return Ok(());
        };
        self.torn |= !self.undo_append(old_length, &line);
        Err(error)
    }

    /// Truncates a partial line, if nothing else was appended after it.
    fn undo_append(&self, old_length: u64, line: &[u8]) -> bool {
        use std::os::unix::fs::FileExt;
        let truncate = || -> io::Result<bool> {
            let length = usize::try_from(self.file.metadata()?.len() - old_length);
            let mut written = vec![0; length.unwrap_or(usize::MAX).min(line.len())];
            self.file.read_exact_at(&mut written, old_length)?;
            let is_ours =
                length.is_ok_and(|length| length <= line.len()) && line.starts_with(&written);
            if is_ours {
                self.file.set_len(old_length)?;
            }
            Ok(is_ours)
        };
        truncate().unwrap_or(false)
    }

    /// Makes appended lines durable (about 4 ms: once a turn, and before every landing).
    pub fn sync(&mut self) -> io::Result<()> {
        fault::at("sync", &self.path)?;
        self.file.sync_data()
    }

    /// Begins to make appended lines durable.
    pub fn start_sync(&self) -> io::Result<PendingSync> {
        let files = vec![(self.path.clone(), self.file.try_clone()?)];
        Ok(WrittenFiles { files }.start_sync())
    }

    /// Returns the length of the file in bytes.
    pub fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// An unreadable line of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableLine {
    /// The line number, starting at 1.
    pub number: usize,
    /// The content; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The reason, for display.
    pub reason: String,
    /// The number of readable lines before it.
    pub after: usize,
}

/// Reads all lines of a journal that parse, in order. A missing file has no lines; incomplete and
/// unknown lines are skipped. Use it for display only; decisions need [`read_lines`].
pub fn read_journal<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    Ok(read_lines(path)?.0)
}

/// Reads the lines of a journal that parse, in order, and those that do not. A missing file has no
/// lines; only an incomplete last line is dropped.
pub fn read_lines<T: DeserializeOwned>(path: &Path) -> io::Result<(Vec<T>, Vec<UnreadableLine>)> {
    let read = read_lines_after(path, None)?;
    Ok((read.values, read.unreadable))
}

/// The end of the lines of a journal that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEnd {
    offset: u64,
    lines: usize,
    values: usize,
    last_bytes: Vec<u8>,
}

/// The number of bytes before an end that must be unchanged for reading to go on after it.
const COMPARED_BYTES: usize = 1024;

/// Lines of a journal.
#[derive(Debug)]
pub struct LinesRead<T> {
    /// The values of the lines that parse.
    pub values: Vec<T>,
    /// The other lines.
    pub unreadable: Vec<UnreadableLine>,
    /// Where the lines end; `None` if the last one is incomplete.
    pub end: Option<JournalEnd>,
    /// Whether these are only the lines after the given end; otherwise they are all.
    pub is_continued: bool,
}

/// Like [`read_lines`], but reads only the lines after `known` if the bytes before it are still
/// those that were read.
pub fn read_lines_after<T: DeserializeOwned>(
    path: &Path,
    known: Option<&JournalEnd>,
) -> io::Result<LinesRead<T>> {
    let continued = match known {
        Some(end) => read_after(path, end)?.map(|bytes| (end, bytes)),
        None => None,
    };
    let is_continued = continued.is_some();
    let (start, bytes) = match continued {
        Some((end, bytes)) => (end.clone(), bytes),
        None => {
            let bytes = match fs::read(path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
                bytes => bytes?,
            };
            (JournalEnd { offset: 0, lines: 0, values: 0, last_bytes: Vec::new() }, bytes)
        }
    };
    let (mut values, mut unreadable) = (Vec::new(), Vec::new());
    let mut lines = bytes.split(|b| *b == b'\n').enumerate().peekable();
    let mut line_count = 0;
    while let Some((index, line)) = lines.next() {
        let is_torn = lines.peek().is_none();
        line_count = index;
        match serde_json::from_slice(line) {
            Ok(value) => values.push(value),
            Err(_) if line.is_empty() || is_torn => {}
            Err(error) => unreadable.push(UnreadableLine {
                number: start.lines + index + 1,
                text: String::from_utf8_lossy(line).into_owned(),
                reason: why_unreadable(line, &error),
                after: start.values + values.len(),
            }),
        }
    }
    let is_complete = bytes.last().is_none_or(|last| *last == b'\n');
    let end = is_complete.then(|| {
        let before = [&start.last_bytes, &bytes[..]].concat();
        JournalEnd {
            offset: start.offset + bytes.len() as u64,
            lines: start.lines + line_count,
            values: start.values + values.len(),
            last_bytes: before[before.len().saturating_sub(COMPARED_BYTES)..].to_vec(),
        }
    });
    Ok(LinesRead { values, unreadable, end, is_continued })
}

/// Returns the bytes of a journal after an end; `None` if those before it have changed.
fn read_after(path: &Path, end: &JournalEnd) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    file.seek(io::SeekFrom::Start(end.offset - end.last_bytes.len() as u64))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes.strip_prefix(&end.last_bytes[..]).map(<[u8]>::to_vec))
}

/// Returns why a line cannot be read. A whole object that is unknown was written by a newer
/// version.
fn why_unreadable(line: &[u8], error: &serde_json::Error) -> String {
    let is_object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line);
    match is_object {
        Ok(_) => format!("written by a newer version ({error})"),
        Err(_) => format!("damaged ({error})"),
    }
}

/// Marks a durable step. Tests can make the process kill itself here with SIGKILL, or append the
/// name to a file, from which the crash tests learn all names.
pub fn step(name: &str) {
    fault::at_step(name);
    if let Some(file) = TestHook::Steps.value()
        && let Ok(mut file) = OpenOptions::new().append(true).create(true).open(file)
    {
        let _ = file.write_all(format!("{name}\n").as_bytes());
    }
    let Some(kill_at) = TestHook::KillAt.value() else { return };
    let (target, min_pass) = kill_at
        .split_once(':')
        .map_or((kill_at.as_str(), 1), |(name, n)| (name, n.parse::<u32>().unwrap_or(1)));
    if target == name && fault::count_pass(name) >= min_pass {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "12345").unwrap();
        assert_eq!(read_bounded(&file, 5).unwrap(), b"12345");
        assert_eq!(read_start(&file, 2).unwrap(), b"12");
        let error = |path: &Path, max| read_bounded(path, max).unwrap_err().to_string();
        assert_eq!(error(&file, 4), "it has more than 4 bytes");
        assert_eq!(error(dir.path(), 9), "it is a directory");
        let pipe = dir.path().join("p");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        assert_eq!(error(&pipe, 9), "it is a named pipe");
        assert_eq!(read_start(&pipe, 9).unwrap_err().to_string(), "it is a named pipe");
        let link = dir.path().join("l");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        assert_eq!(error(&link, 9), "it is not a regular file");
        fs::write(&file, b"\xff").unwrap();
        assert_eq!(read_text(&file).unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::File::create(&file).unwrap().set_len(MAX_READ_BYTES + 1).unwrap();
        assert!(read(&file).is_err(), "a sparse file is not read whole");
    }

    #[test]
    fn a_journal_survives_a_torn_last_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.jsonl");
        Journal::open(&path).unwrap().append(&1).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"[2, ").unwrap();
        Journal::open(&path).unwrap().append(&3).unwrap();
        assert_eq!(read_journal::<u32>(&path).unwrap(), vec![1, 3]);
        assert_eq!(read_lines::<u32>(&path).unwrap().1, [], "the torn line is gone");
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"4").unwrap();
        Journal::open(&path).unwrap().append(&5).unwrap();
        assert_eq!(read_journal::<u32>(&path).unwrap(), [1, 3, 4, 5], "only its end was missing");
    }

    #[test]
    fn every_line_is_read_or_reported_except_a_torn_last_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.jsonl");
        fs::write(&path, "1\n{\"new\":true}\n2\nx\n\n3\n[4, ").unwrap();
        let (read, unreadable) = read_lines::<u32>(&path).unwrap();
        assert_eq!(read, [1, 2, 3]);
        let positions: Vec<_> = unreadable.iter().map(|line| (line.number, line.after)).collect();
        assert_eq!(positions, [(2, 1), (4, 2)]);
        assert!(unreadable[0].reason.starts_with("written by a newer version"));
        assert!(unreadable[1].reason.starts_with("damaged"));
    }

    #[test]
    fn lines_that_are_appended_are_read_after_those_that_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.jsonl");
        let append = |text: &str| {
            let mut file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        append("1\n2\n");
        let first = read_lines_after::<u32>(&path, None).unwrap();
        assert_eq!((first.values, first.is_continued), (vec![1, 2], false));
        append("3\nx\n4\n");
        let next = read_lines_after::<u32>(&path, first.end.as_ref()).unwrap();
        assert_eq!((next.values, next.is_continued), (vec![3, 4], true));
        assert_eq!((next.unreadable[0].number, next.unreadable[0].after), (4, 3));
        assert_eq!(next.end, read_lines_after::<u32>(&path, None).unwrap().end);
        append("5");
        let torn = read_lines_after::<u32>(&path, next.end.as_ref()).unwrap();
        assert_eq!((torn.values, torn.end), (vec![5], None), "more digits may follow");
        fs::write(&path, "1\n2\n9\nx\n8\n6\n").unwrap();
        let changed = read_lines_after::<u32>(&path, next.end.as_ref()).unwrap();
        assert_eq!((changed.values, changed.is_continued), (vec![1, 2, 9, 8, 6], false));
        fs::remove_file(&path).unwrap();
        let gone = read_lines_after::<u32>(&path, next.end.as_ref()).unwrap();
        assert_eq!((gone.values, gone.is_continued), (vec![], false));
    }

    #[test]
    fn a_torn_line_of_any_length_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.jsonl");
        for length in [1, 4095, 4096, 4097, 20_000] {
            fs::write(&path, "7\n").unwrap();
            let torn = format!("\"{}", "x".repeat(length));
            OpenOptions::new()
                .append(true)
                .open(&path)
                .unwrap()
                .write_all(torn.as_bytes())
                .unwrap();
            drop(Journal::open(&path).unwrap());
            assert_eq!(fs::read(&path).unwrap(), b"7\n", "{length} bytes");
        }
    }

    #[test]
    fn a_replaced_file_is_private_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
