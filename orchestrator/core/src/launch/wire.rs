//! The lines between studio and an ACP agent: one JSON object each, of limited length.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::{Sink, Stream};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::oneshot;

use crate::launch::exit_reason;
use crate::launch::log::OutputLog;

/// Maximum length of a line in bytes; a longer one ends the conversation.
const MAX_LINE: usize = 16 << 20;

/// Returns the sink for outgoing messages.
pub(crate) fn lines_out(
    stdin: ChildStdin,
) -> impl Sink<String, Error = io::Error> + Send + 'static {
    futures_util::sink::unfold(stdin, |mut stdin, line: String| async move {
        let mut bytes = line.into_bytes();
        bytes.push(b'\n');
        stdin.write_all(&bytes).await?;
        stdin.flush().await?;
        Ok(stdin)
    })
}

/// Returns the stream of incoming messages, without lines that are not JSON.
pub(crate) fn lines_in(
    stdout: ChildStdout,
    sorter: Sorter,
) -> impl Stream<Item = io::Result<String>> + Send + 'static {
    let start = Some((BufReader::new(stdout), sorter));
    futures_util::stream::unfold(start, |state| async move {
        let (mut reader, mut sorter) = state?;
        loop {
            match next_line(&mut reader).await {
                Ok(Some(line)) => {
                    if let Some(line) = sorter.filter_json(line) {
                        return Some((Ok(line), Some((reader, sorter))));
                    }
                }
                Ok(None) => return None,
                Err(e) => return Some((Err(e), None)),
            }
        }
    })
}

/// Separates the protocol from other output on a program's stdout.
pub(crate) struct Sorter {
    /// Whether a line of JSON has arrived.
    pub received_json: Arc<AtomicBool>,
    /// Receives the first line that is not JSON.
    first_invalid: Option<oneshot::Sender<String>>,
    /// Receives all lines that are not JSON.
    log: SharedLog,
}

impl Sorter {
    /// Creates a sorter: lines that are not JSON go to the log, and the first of them to `first_invalid`.
    pub(crate) fn new(first_invalid: oneshot::Sender<String>, log: SharedLog) -> Sorter {
        Sorter { received_json: Arc::default(), first_invalid: Some(first_invalid), log }
    }

    /// Returns the line if it is JSON.
    fn filter_json(&mut self, line: String) -> Option<String> {
        if line.trim_start().starts_with(['{', '[']) {
            self.received_json.store(true, Ordering::Relaxed);
            return Some(line);
        }
        if !line.trim().is_empty() {
            self.log.write(format!("{line}\n").as_bytes());
            let _ = self.first_invalid.take().map(|tx| tx.send(line));
        }
        None
    }
}

/// The agent's log, shared by both of its streams. If it cannot be written, output is discarded.
#[derive(Clone)]
pub(crate) struct SharedLog(Arc<Mutex<Option<OutputLog>>>);

impl SharedLog {
    /// Opens a log with a limit in bytes.
    pub(crate) fn open(path: &Path, max_bytes: u64) -> SharedLog {
        SharedLog(Arc::new(Mutex::new(OutputLog::open(path, max_bytes).ok())))
    }

    fn write(&self, bytes: &[u8]) {
        let mut log = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let _ = log.as_mut().map(|log| log.write(bytes));
    }
}

async fn next_line(reader: &mut BufReader<impl AsyncRead + Unpin>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut limited = reader.take(MAX_LINE as u64);
    limited.read_until(b'\n', &mut line).await?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() >= MAX_LINE {
        return Err(io::Error::other(format!("a line of more than {MAX_LINE} bytes")));
    } else if line.is_empty() {
        return Ok(None);
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

/// Copies stderr to the agent's log; returns its end.
pub(crate) async fn log_stream(stream: Option<ChildStderr>, log: SharedLog) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut tail = OutputTail::default();
    let mut buffer = vec![0; 16 << 10];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        log.write(&buffer[..n]);
        tail.push(&buffer[..n]);
    }
    tail.text()
}

/// The end of a stream.
#[derive(Debug, Default)]
pub(crate) struct OutputTail(Vec<u8>);

impl OutputTail {
    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        if self.0.len() > 16 << 10 {
            self.0.drain(..self.0.len() - (4 << 10));
        }
    }

    /// Returns the last lines without stack frames, safe for display. A line that reports a
    /// permission error comes first, wherever it was.
    pub(crate) fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !is_frame(line));
        let lines: Vec<&str> = lines.collect();
        let last_start = lines.len().saturating_sub(3);
        let denied = lines[..last_start].iter().rfind(|line| exit_reason::reports_denial(line));
        let selected: Vec<&str> = denied.into_iter().chain(&lines[last_start..]).copied().collect();
        base::text::printable_output(base::text::tail(&selected.join("\n"), 600))
    }
}

/// Returns whether a line belongs to a stack trace: `at FUNCTION (FILE:LINE)` of JavaScript, `12:
/// FUNCTION` and `at FILE:LINE` of Rust.
fn is_frame(line: &str) -> bool {
    let line = line.trim_start();
    let number = line.split_once(": ").map(|(number, _)| number);
    line.starts_with("at ")
        || line == "Stack backtrace:"
        || number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns a protocol error as a sentence: its message, and the agent's details.
pub(crate) fn sentence(error: &agent_client_protocol::Error) -> String {
    match &error.data {
        Some(serde_json::Value::String(details)) => format!("{}: {details}", error.message),
        Some(details) => match detail_text(details) {
            Some(text) => format!("{}: {text}", error.message),
            None => format!("{}: {details}", error.message),
        },
        None => error.message.clone(),
    }
}

/// Returns the text of an error's details, if they are nothing but a text with a name, or the text
/// about a message of the agent that cannot be understood.
fn detail_text(details: &serde_json::Value) -> Option<&str> {
    let fields = details.as_object()?;
    let is_about_message = fields.get("phase").is_some_and(|phase| phase == "deserialization");
    let names = ["details", "message", "error"];
    let text = names.iter().find_map(|name| fields.get(*name)?.as_str());
    text.filter(|_| fields.len() == 1 || is_about_message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn lines_are_split_and_an_endless_line_is_an_error() {
        let mut reader = BufReader::new(&b"one\n\xff\nlast"[..]);
        assert_eq!(next_line(&mut reader).await.unwrap().as_deref(), Some("one"));
        assert_eq!(next_line(&mut reader).await.unwrap().as_deref(), Some("\u{fffd}"));
        assert_eq!(next_line(&mut reader).await.unwrap().as_deref(), Some("last"));
        assert_eq!(next_line(&mut reader).await.unwrap(), None);
        let long_line = vec![b'x'; MAX_LINE + 1];
        assert!(next_line(&mut BufReader::new(&long_line[..])).await.is_err());
    }

    #[test]
    fn the_details_of_an_error_are_a_sentence() {
        let of = |data| sentence(&agent_client_protocol::Error::internal_error().data(data));
        assert_eq!(of(serde_json::json!({"details": "terminated"})), "Internal error: terminated");
        assert_eq!(of(serde_json::json!("terminated")), "Internal error: terminated");
        let invalid = serde_json::json!({"error": "unknown variant `x`", "json": {"a": "x"},
            "phase": "deserialization"});
        assert_eq!(of(invalid), "Internal error: unknown variant `x`");
        assert_eq!(of(serde_json::json!({"code": 3})), "Internal error: {\"code\":3}");
    }

    /// The output of qwen, codex-acp and opencode when the sandbox denies them their directory.
    #[test]
    fn the_end_of_a_stream_contains_the_error_without_the_stack() {
        let tail_of = |text: &str| {
            let mut tail = OutputTail::default();
            tail.push(text.as_bytes());
            tail.text()
        };
        let qwen = "An unexpected critical error occurred:\n\
            Error: EACCES: permission denied, mkdir '/home/you/.qwen'\n    \
            at Module.mkdirSync (node:fs:1386:26)\n    at main (file:///cli.js:573235:5)\n";
        assert!(tail_of(qwen).ends_with("mkdir '/home/you/.qwen'"), "{}", tail_of(qwen));
        let codex = "Error: Permission denied (os error 13)\n\nStack backtrace:\n   \
            0: anyhow::error::from\n  12: clone3\n             at ./nptl/pthread_create.c:442:8\n";
        assert_eq!(tail_of(codex), "Error: Permission denied (os error 13)");
        let opencode = "EACCES: permission denied, mkdir '/home/you/.local/share'\n \
            syscall: \"mkdir\",\n   errno: -13,\n    code: \"EACCES\"\n\nBun v1.3.14\n";
        assert!(
            tail_of(opencode).starts_with("EACCES: permission denied, mkdir '/home"),
            "{opencode}"
        );
    }
}
