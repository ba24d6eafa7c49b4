//! Output for people and scripts: data to stdout, messages to stderr.

pub mod agents;
pub mod coach;
pub mod compare;
pub mod conflicts;
pub mod doctor;
pub mod inbox;
pub mod journal;
pub mod list;
pub mod man;
pub mod markdown;
pub mod pager;
pub mod patch;
pub mod progress;
pub mod prompt_line;
pub mod requirements;
pub mod review;
pub mod selftest;
pub mod stats;
pub mod table;
pub mod trace;
pub mod verify;

use std::io::{ErrorKind, Read, Write};
use std::sync::OnceLock;

use base::failure::Failure;
use serde_json::{Value, json};

/// The first error of writing to stdout.
static WRITE_ERROR: OnceLock<String> = OnceLock::new();

/// Writes data with a newline to stdout. A closed pipe is not an error.
pub(crate) fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            let _ = WRITE_ERROR.set(e.to_string());
        }
        Ok(()) | Err(_) => {}
    }
}

/// Writes data to stdout without a newline.
pub(crate) fn out_raw(text: &str) {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            let _ = WRITE_ERROR.set(e.to_string());
        }
        Ok(()) | Err(_) => {}
    }
}

/// Returns the failure to report at the end if stdout could not be written.
pub fn write_error() -> Option<Failure> {
    WRITE_ERROR
        .get()
        .map(|reason| Failure::failed("cannot write to stdout").because(reason.as_str()))
}

/// Rings the bell of the terminal on stderr, if it is one.
pub(crate) fn bell() {
    let mut stderr = std::io::stderr().lock();
    if std::io::IsTerminal::is_terminal(&stderr) {
        let _ = stderr.write_all(b"\x07").and_then(|()| stderr.flush());
    }
}

/// Writes a JSON value on one line; hidden characters in its strings are escaped.
pub(crate) fn json_line(value: &Value) {
    out(&base::text::json_escaped(&value.to_string()));
}

/// Returns whether the terminal can be drawn on.
pub(crate) fn can_redraw() -> bool {
    std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Erases the content of the terminal.
pub(crate) fn clear() {
    out_raw("\u{1b}[H\u{1b}[2J");
}

/// Replaces the content of the terminal by a text.
pub(crate) fn redraw(text: &str) {
    let lines: String = text.lines().map(|line| format!("{line}\u{1b}[K\r\n")).collect();
    // From the first line on; what was below the text is erased.
    out_raw(&format!("\u{1b}[H{lines}\u{1b}[J"));
}

/// Returns stdout for streamed data.
pub(crate) fn writer() -> impl Write {
    std::io::stdout().lock()
}

/// Writes a stream as the content of a JSON string; bytes that are not UTF-8 are replaced.
pub(crate) fn write_json_string(mut from: impl Read, to: &mut impl Write) -> std::io::Result<()> {
    let mut pending = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let n = from.read(&mut buffer)?;
        pending.extend_from_slice(&buffer[..n]);
        let complete = match std::str::from_utf8(&pending) {
            // A truncated character is kept until the rest arrives.
            Err(error) if n > 0 && error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => pending.len(),
        };
        let text = String::from_utf8_lossy(&pending[..complete]).into_owned();
        let json = base::text::json_escaped(&Value::String(text).to_string());
        to.write_all(&json.as_bytes()[1..json.len() - 1])?;
        pending.drain(..complete);
        if n == 0 {
            return Ok(());
        }
    }
}

/// Returns whether colours are allowed: neither `NO_COLOR` nor git's `color.ui` disables them.
pub(crate) fn wants_colours() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !no_color && !dumb
}

/// Writes a message to stderr, with control characters escaped.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", base::text::printable(text));
}

/// Prints a failure to stderr; with `--json` also as an object on stdout.
pub fn failure(failure: &Failure, json: bool) {
    if json {
        json_line(&json!({"schema": 1, "error": failure.to_json()}));
    }
    say(&failure.to_string());
}
