//! What people and programs see: every event goes out through here, and nothing below prints.

pub mod ask;
pub mod clipboard;
pub mod coach_rounds;
pub mod diff;
pub mod json;
pub mod live_area;
pub mod markdown;
pub mod plain_output;
pub mod rich_output;
pub mod session_recap;
pub mod table;
pub mod terminal;
pub mod wrap;

use std::io::Write;

use base::event::{RunStatus, Usage};
use base::failure::{Failure, OrFail, Result};
use base::text::count;

/// Prints data on stdout.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever read it has had enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done.or_fail(|| "cannot write to stdout"),
    }
}

/// Says a line to the person, on stderr.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Shows a failure: the one place where they are printed.
pub(crate) fn fail(failure: &Failure) {
    say(&base::text::printable(&failure.to_string()));
}

/// A number of tokens for people, e.g. `12.3k`.
pub(crate) fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{:.1}k", count as f64 / 1e3),
        1_000_000.. => format!("{:.2}M", count as f64 / 1e6),
    }
}

/// The line under a turn: that it was interrupted, and what the session came to so far; `None`
/// where there is nothing to say.
pub(crate) fn summed_up(
    status: RunStatus,
    turns: u32,
    usage: Usage,
    between: &str,
) -> Option<String> {
    let mut said = Vec::new();
    if status == RunStatus::Cancelled {
        said.push("interrupted".to_owned());
    }
    if turns > 0 {
        let sent = tokens(usage.sent());
        let turns = count(turns, "turn");
        said.extend([turns, format!("{sent} in"), format!("{} out", tokens(usage.output))]);
        said.extend(usage.cost_text());
    }
    (!said.is_empty()).then(|| said.join(between))
}

/// What so many questions cost, in one line.
pub(crate) fn bill(calls: u32, usage: Usage) -> String {
    let cost = usage.cost_text().unwrap_or_else(|| "cost unknown".to_owned());
    let calls = count(calls, "call");
    format!(
        "{calls}, {} in, {} from cache, {} out, {cost}",
        tokens(usage.input.saturating_add(usage.cache_write)),
        tokens(usage.cache_read),
        tokens(usage.output)
    )
}
