//! Output for people and programs: all events are shown here, and the layers below do not print.

pub mod ask;
pub mod clipboard;
pub mod coach_rounds;
pub mod diff;
pub mod form;
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
        // The reader closed the pipe early.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done.or_fail(|| "cannot write to stdout"),
    }
}

/// Prints a line for the user on stderr.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints a failure; all failures are printed here.
pub(crate) fn fail(failure: &Failure) {
    say(&base::text::printable(&failure.to_string()));
}

/// What is shown after the conversation was replaced with a summary.
pub(crate) const COMPACTED: &str = "the conversation was compacted";

/// Returns the line about a model request that is tried again.
pub(crate) fn retry_line(why: &str, after_ms: u64) -> String {
    format!("retry in {:.1} s: {why}", after_ms as f64 / 1e3)
}

/// Formats a number of tokens for people, e.g. `12.3k`.
pub(crate) fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{:.1}k", count as f64 / 1e3),
        1_000_000.. => format!("{:.2}M", count as f64 / 1e6),
    }
}

/// Returns the line after a turn: whether it was interrupted, and the usage of the session so far.
/// Returns `None` if there is nothing to show.
pub(crate) fn summed_up(
    status: RunStatus,
    turns: u32,
    usage: Usage,
    separator: &str,
) -> Option<String> {
    let mut parts = Vec::new();
    if status == RunStatus::Cancelled {
        parts.push("interrupted".to_owned());
    }
    if turns > 0 {
        let sent = tokens(usage.sent());
        let turns = count(turns, "turn");
        parts.extend([turns, format!("{sent} in"), format!("{} out", tokens(usage.output))]);
        parts.extend(usage.cost_text());
    }
    (!parts.is_empty()).then(|| parts.join(separator))
}

/// Formats the usage and cost of a number of model requests in one line.
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
