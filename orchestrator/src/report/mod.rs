//! What people and scripts read: data to stdout, talk to stderr.

pub mod journal;
pub mod progress;
pub mod table;
pub mod view;

use std::io::Write;

use base::failure::Failure;
use serde_json::{Value, json};

/// Data: one text to stdout. A closed pipe is no error: the reader has seen enough.
pub fn out(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
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
        json_line(&json!({
            "schema": 1,
            "error": {
                "what": failure.what,
                "why": failure.why,
                "try": failure.next,
                "exit": failure.exit_code(),
            },
        }));
    }
    say(&failure.to_string());
}
