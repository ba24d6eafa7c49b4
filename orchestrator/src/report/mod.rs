//! What people and scripts read: data to stdout, talk to stderr.

pub mod coach;
pub mod journal;
pub mod markdown;
pub mod progress;
pub mod rounds;
pub mod served;
pub mod table;
pub mod traced;
pub mod verified;
pub mod view;

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use base::failure::Failure;
use serde_json::{Value, json};

/// Why the first text that did not get through did not.
static LOST: OnceLock<String> = OnceLock::new();

/// Data: one text to stdout. A closed pipe is no error: the reader has seen enough.
pub fn out(text: &str) {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            let _ = LOST.set(e.to_string());
        }
        Ok(()) | Err(_) => {}
    }
}

/// Data as it is, without a newline of ours.
pub fn part(text: &str) {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            let _ = LOST.set(e.to_string());
        }
        Ok(()) | Err(_) => {}
    }
}

/// The failure to be told at the end, when data did not get through.
pub fn lost() -> Option<Failure> {
    LOST.get().map(|why| Failure::failed("cannot write to stdout").because(why))
}

/// Data: one JSON value on one line.
pub fn json_line(value: &Value) {
    out(&value.to_string());
}

/// Talk: one sentence to stderr, control sequences removed.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", base::text::printable(text));
}

/// A failure, as people read it; with `--json` also as an object on stdout.
pub fn failure(failure: &Failure, json: bool) {
    if json {
        json_line(&json!({"schema": 1, "error": failure.to_json()}));
    }
    say(&failure.to_string());
}
