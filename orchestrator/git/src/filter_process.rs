//! Long-running filters (gitattributes(5), "Long Running Filter Process"): one process converts many
//! files. It speaks version 2 of git's protocol, in packets whose first four bytes are their length in
//! hexadecimal. Its output is read within limits of size and time, while the input is written, so that
//! a process that does something else blocks nothing.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use base::process::{Command, GRACE, Running, Stream, exit_code};
use base::text::printable_output;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::filter_program::{Direction, MAX_BYTES, MAX_ERROR_BYTES};
use crate::object_quarantine::Quarantine;

/// Maximum size of the data of a packet in bytes (`LARGE_PACKET_DATA_MAX`).
const MAX_PACKET_BYTES: usize = 65_516;
/// Size of the length of a packet in bytes.
const HEADER_BYTES: usize = 4;
/// The packet that ends a list or a content.
const FLUSH: &[u8] = b"0000";
/// Maximum size of a list of lines in bytes.
const MAX_LIST_BYTES: usize = 64 << 10;
/// How long a process may take to exit when its input ends.
const EXIT_TIME: Duration = Duration::from_secs(5);
/// How long the last output of a process that is useless is read.
const LAST_OUTPUT_TIME: Duration = Duration::from_millis(500);

/// A process that converts files. It is killed when it is dropped, or when this process ends first.
pub(crate) struct FilterProcess {
    running: Running,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// Output that is not parsed.
    received: Vec<u8>,
    /// Input that is not written.
    unsent: Vec<u8>,
    /// The number of bytes of `unsent` that are written.
    sent: usize,
    /// The end of its stderr.
    errors: Vec<u8>,
    /// What it offers.
    directions: Vec<Direction>,
    /// Its directory.
    _scratch: Quarantine,
}

/// Why a file was not converted.
#[derive(Debug)]
pub(crate) enum ConversionError {
    /// The process does not convert this file; it can convert others.
    Refused(String),
    /// The process is useless.
    Broken(String),
}

/// Why the process is useless.
enum ProtocolError {
    /// It closed its stdout.
    Ended,
    TimedOut,
    Io(io::Error),
    /// It sent something that the protocol does not have here.
    Unexpected(&'static str),
}

impl From<io::Error> for ProtocolError {
    fn from(error: io::Error) -> ProtocolError {
        ProtocolError::Io(error)
    }
}

impl From<rustix::io::Errno> for ProtocolError {
    fn from(error: rustix::io::Errno) -> ProtocolError {
        ProtocolError::Io(error.into())
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Clean => "clean",
            Direction::Smudge => "smudge",
        })
    }
}

impl FilterProcess {
    /// Starts a process and agrees with it on the version and on what it offers. The error says what
    /// went wrong, without the command.
    pub(crate) fn start(
        command: Command,
        scratch: Quarantine,
        timeout: Duration,
    ) -> Result<FilterProcess, String> {
        let mut running =
            command.stdin(Stream::Piped).spawn().map_err(|error| error.to_string())?;
        let child = &mut running.child;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut process = FilterProcess {
            running,
            stdin,
            stdout,
            stderr,
            received: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
            errors: Vec::new(),
            directions: Vec::new(),
            _scratch: scratch,
        };
        match process.negotiate(Instant::now() + timeout) {
            Ok(()) => Ok(process),
            Err(error) => Err(process.describe(&error, timeout)),
        }
    }

    fn negotiate(&mut self, deadline: Instant) -> Result<(), ProtocolError> {
        let stdin = self.stdin.as_ref().map(AsFd::as_fd);
        let stdout = self.stdout.as_ref().map(AsFd::as_fd);
        let stderr = self.stderr.as_ref().map(AsFd::as_fd);
        for pipe in [stdin, stdout, stderr].into_iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        self.queue_list(&[b"git-filter-client", b"version=2"]);
        let answer = self.read_list(deadline)?;
        if answer.first().is_none_or(|line| line != b"git-filter-server") {
            return Err(ProtocolError::Unexpected("it is not a long-running filter"));
        }
        if !answer[1..].iter().any(|line| line == b"version=2") {
            return Err(ProtocolError::Unexpected("it does not support version 2"));
        }
        self.queue_list(&[b"capability=clean", b"capability=smudge"]);
        let answer = self.read_list(deadline)?;
        let offered = |name: &[u8]| answer.iter().any(|line| line == name);
        if offered(b"capability=clean") {
            self.directions.push(Direction::Clean);
        }
        if offered(b"capability=smudge") {
            self.directions.push(Direction::Smudge);
        }
        Ok(())
    }

    /// Converts the content of one file. After [`ConversionError::Broken`] the process has ended.
    pub(crate) fn convert(
        &mut self,
        direction: Direction,
        path: &Path,
        content: &[u8],
        timeout: Duration,
    ) -> Result<Vec<u8>, ConversionError> {
        if !self.directions.contains(&direction) {
            return Err(ConversionError::Refused(format!("it does not offer `{direction}`")));
        }
        let path = path.as_os_str().as_bytes();
        if path.len() > MAX_PACKET_BYTES / 2 || path.contains(&b'\n') {
            return Err(ConversionError::Refused("the protocol cannot name this path".to_owned()));
        }
        match self.exchange(direction, path, content, Instant::now() + timeout) {
            Ok(Status::Success(converted)) => Ok(converted),
            Ok(Status::Error) => Err(ConversionError::Refused(self.refusal("error"))),
            Ok(Status::Abort) => {
                self.directions.retain(|offered| *offered != direction);
                Err(ConversionError::Refused(self.refusal("abort")))
            }
            Err(error) => Err(ConversionError::Broken(self.describe(&error, timeout))),
        }
    }

    fn exchange(
        &mut self,
        direction: Direction,
        path: &[u8],
        content: &[u8],
        deadline: Instant,
    ) -> Result<Status, ProtocolError> {
        self.errors.clear();
        let command = format!("command={direction}");
        self.queue_list(&[command.as_bytes(), &[b"pathname=", path].concat()]);
        self.unsent.reserve(content.len() + content.len() / MAX_PACKET_BYTES * HEADER_BYTES + 64);
        for data in content.chunks(MAX_PACKET_BYTES) {
            self.queue_packet(data);
        }
        self.unsent.extend_from_slice(FLUSH);
        let status = match self.read_status(deadline)?.as_deref() {
            Some(b"success") => {
                let converted = self.read_content(deadline)?;
                // It can withdraw the content.
                match self.read_status(deadline)?.as_deref() {
                    None | Some(b"success") => Status::Success(converted),
                    Some(other) => Status::without_content(other)?,
                }
            }
            Some(other) => Status::without_content(other)?,
            None => return Err(ProtocolError::Unexpected("its answer has no status")),
        };
        while self.sent < self.unsent.len() && self.received.is_empty() {
            self.transfer(deadline)?;
        }
        match self.received.is_empty() {
            true => Ok(status),
            false => Err(ProtocolError::Unexpected("it sent more than an answer")),
        }
    }

    /// Ends the process: closes its stdin, waits for it, and kills it if it does not exit.
    pub(crate) fn end(mut self) {
        let deadline = Instant::now() + EXIT_TIME;
        self.read_rest(deadline);
        if !matches!(self.running.wait_until(Some(deadline)), Ok(Some(_))) {
            let _ = self.running.end(GRACE);
        }
    }

    /// Ends a process that is useless. Returns what happened, with its last words.
    fn describe(&mut self, error: &ProtocolError, timeout: Duration) -> String {
        let deadline = Instant::now() + LAST_OUTPUT_TIME;
        self.read_rest(deadline);
        let exited = self.running.wait_until(Some(deadline)).ok().flatten();
        if exited.is_none() {
            let _ = self.running.end(GRACE);
        }
        let what = match (error, exited) {
            (ProtocolError::TimedOut, _) => format!("timed out after {} s", timeout.as_secs()),
            (ProtocolError::Unexpected(what), _) => (*what).to_owned(),
            (_, Some(status)) => format!("exit code {}", exit_code(status)),
            (ProtocolError::Ended, None) => "it closed its output".to_owned(),
            (ProtocolError::Io(error), None) => error.to_string(),
        };
        self.with_last_words(what)
    }

    fn refusal(&mut self, status: &str) -> String {
        // What it wrote before its answer is there.
        let _ = self.read_errors();
        self.with_last_words(format!("it answered `status={status}`"))
    }

    fn with_last_words(&self, what: String) -> String {
        let errors = String::from_utf8_lossy(&self.errors);
        match printable_output(errors.trim()).trim() {
            "" => what,
            words => format!("{what}: {words}"),
        }
    }

    fn queue_packet(&mut self, data: &[u8]) {
        let header = format!("{:04x}", data.len() + HEADER_BYTES);
        self.unsent.extend_from_slice(header.as_bytes());
        self.unsent.extend_from_slice(data);
    }

    fn queue_list(&mut self, lines: &[&[u8]]) {
        for line in lines {
            self.queue_packet(&[line, b"\n".as_slice()].concat());
        }
        self.unsent.extend_from_slice(FLUSH);
    }

    /// Reads lines up to a flush packet.
    fn read_list(&mut self, deadline: Instant) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while let Some(mut line) = self.read_packet(deadline)? {
            bytes += line.len() + HEADER_BYTES;
            if bytes > MAX_LIST_BYTES {
                return Err(ProtocolError::Unexpected("its answer has too many lines"));
            }
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            lines.push(line);
        }
        Ok(lines)
    }

    /// Reads a list; returns its last status.
    fn read_status(&mut self, deadline: Instant) -> Result<Option<Vec<u8>>, ProtocolError> {
        let lines = self.read_list(deadline)?;
        let mut statuses = lines.iter().rev().filter_map(|line| line.strip_prefix(b"status="));
        Ok(statuses.next().map(<[u8]>::to_vec))
    }

    /// Reads data up to a flush packet.
    fn read_content(&mut self, deadline: Instant) -> Result<Vec<u8>, ProtocolError> {
        let mut content = Vec::new();
        while let Some(data) = self.read_packet(deadline)? {
            if content.len() + data.len() > MAX_BYTES {
                return Err(ProtocolError::Unexpected("its output is larger than 1 GiB"));
            }
            content.extend_from_slice(&data);
        }
        Ok(content)
    }

    /// Reads a packet; `None` is a flush packet.
    fn read_packet(&mut self, deadline: Instant) -> Result<Option<Vec<u8>>, ProtocolError> {
        loop {
            if let Some((data, size)) = parse_packet(&self.received)? {
                let data = data.map(<[u8]>::to_vec);
                self.received.drain(..size);
                return Ok(data);
            }
            self.transfer(deadline)?;
        }
    }

    /// Waits until the process can be written to or read from, and does so.
    fn transfer(&mut self, deadline: Instant) -> Result<(), ProtocolError> {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(ProtocolError::TimedOut);
        }
        let stdout = self.stdout.as_ref().ok_or(ProtocolError::Ended)?;
        let mut fds = vec![PollFd::new(stdout, PollFlags::IN)];
        fds.extend(self.stderr.as_ref().map(|stderr| PollFd::new(stderr, PollFlags::IN)));
        let stdin = self.stdin.as_ref().filter(|_| self.sent < self.unsent.len());
        fds.extend(stdin.map(|stdin| PollFd::new(stdin, PollFlags::OUT)));
        let time = Timespec::try_from(remaining).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.read_errors()?;
        self.write_unsent()?;
        match self.read_output()? {
            true => Ok(()),
            false => Err(ProtocolError::Ended),
        }
    }

    /// Reads what is there of stdout; `false` at its end.
    fn read_output(&mut self) -> io::Result<bool> {
        let mut buffer = [0; MAX_PACKET_BYTES];
        let Some(stdout) = &mut self.stdout else { return Ok(false) };
        match read_available(stdout, &mut buffer)? {
            Some(0) => self.stdout = None,
            Some(count) => self.received.extend_from_slice(&buffer[..count]),
            None => {}
        }
        Ok(self.stdout.is_some())
    }

    /// Reads what is there of stderr, and keeps its end.
    fn read_errors(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        // More than a pipe holds is left for later.
        for _ in 0..8 {
            let Some(stderr) = &mut self.stderr else { break };
            match read_available(stderr, &mut buffer)? {
                Some(0) => self.stderr = None,
                Some(count) => {
                    self.errors.extend_from_slice(&buffer[..count]);
                    let excess = self.errors.len().saturating_sub(MAX_ERROR_BYTES);
                    self.errors.drain(..excess);
                }
                None => break,
            }
        }
        Ok(())
    }

    /// Writes what the process takes. One that closed its stdin says on stdout what is wrong.
    fn write_unsent(&mut self) -> io::Result<()> {
        while let Some(stdin) = self.stdin.as_mut().filter(|_| self.sent < self.unsent.len()) {
            match stdin.write(&self.unsent[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.stdin = None,
                Err(error) => return Err(error),
            }
        }
        if self.stdin.is_none() || self.sent == self.unsent.len() {
            self.unsent.clear();
            self.sent = 0;
        }
        Ok(())
    }

    /// Closes stdin and reads the rest of the output, which is dropped, and of the errors.
    fn read_rest(&mut self, deadline: Instant) {
        self.stdin = None;
        self.unsent.clear();
        self.sent = 0;
        while (self.stdout.is_some() || self.stderr.is_some())
            && let remaining = deadline.saturating_duration_since(Instant::now())
            && !remaining.is_zero()
            && let Ok(time) = Timespec::try_from(remaining)
        {
            self.received.clear();
            let mut fds: Vec<PollFd<'_>> =
                self.stdout.iter().map(|stdout| PollFd::new(stdout, PollFlags::IN)).collect();
            fds.extend(self.stderr.iter().map(|stderr| PollFd::new(stderr, PollFlags::IN)));
            let _ = poll(&mut fds, Some(&time));
            if self.read_output().is_err() || self.read_errors().is_err() {
                break;
            }
        }
    }
}

/// The answer to one file.
enum Status {
    Success(Vec<u8>),
    Error,
    Abort,
}

impl Status {
    fn without_content(status: &[u8]) -> Result<Status, ProtocolError> {
        match status {
            b"error" => Ok(Status::Error),
            b"abort" => Ok(Status::Abort),
            _ => Err(ProtocolError::Unexpected("its answer has an unknown status")),
        }
    }
}

/// Returns the data of the first packet (`None` for a flush packet) and the size of the packet; `None`
/// if it is incomplete.
#[allow(clippy::type_complexity)]
fn parse_packet(bytes: &[u8]) -> Result<Option<(Option<&[u8]>, usize)>, ProtocolError> {
    let Some(header) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
    let is_hexadecimal = header.iter().all(u8::is_ascii_hexdigit);
    let header = std::str::from_utf8(header).ok().filter(|_| is_hexadecimal);
    let length = header.and_then(|header| usize::from_str_radix(header, 16).ok());
    match length {
        Some(0) => Ok(Some((None, HEADER_BYTES))),
        Some(length @ HEADER_BYTES..) if length <= MAX_PACKET_BYTES + HEADER_BYTES => {
            Ok(bytes.get(HEADER_BYTES..length).map(|data| (Some(data), length)))
        }
        Some(_) | None => Err(ProtocolError::Unexpected("its output is not in packets")),
    }
}

/// Reads what is there; `None` if nothing is, 0 at the end.
fn read_available(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match stream.read(buffer) {
        Ok(count) => Ok(Some(count)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}
