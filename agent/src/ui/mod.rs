//! What people and programs see: every event goes out through here, and nothing below prints.

pub mod ask;
pub mod clipboard;
pub mod diff;
pub mod json;
pub mod live;
pub mod markdown;
pub mod plain;
pub mod recap;
pub mod rich;
pub mod rounds;
pub mod table;
pub mod terminal;
mod traced;
pub mod wrap;

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use base::clock::Clock;
use base::event::{Event, Status, Usage, What};
use base::failure::{Failure, OrFail, Result};
use base::text::count;

/// Somebody who hears events.
pub trait Sink: Send {
    /// Hears one event. A sink that cannot write stays silent: the work goes on.
    fn hear(&mut self, event: &Event);

    /// A question was answered: the terminal may be drawn on again.
    fn answered(&mut self) {}
}

/// Numbers and dates events, and hands them to every sink.
pub struct Bus {
    clock: Clock,
    inner: Mutex<Inner>,
}

struct Inner {
    seq: u64,
    sinks: Vec<Box<dyn Sink>>,
}

impl Bus {
    /// A bus with these sinks.
    pub fn new(clock: Clock, sinks: Vec<Box<dyn Sink>>) -> Arc<Bus> {
        Arc::new(Bus { clock, inner: Mutex::new(Inner { seq: 0, sinks }) })
    }

    /// Something happened.
    pub fn tell(&self, what: What) {
        traced::event(&what);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.seq += 1;
        let event = Event { seq: inner.seq, time: self.clock.stamp(), what };
        inner.sinks.iter_mut().for_each(|sink| sink.hear(&event));
    }

    /// A question was answered.
    pub fn answered(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.sinks.iter_mut().for_each(|sink| sink.answered());
    }
}

/// Prints data on stdout.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever read it has had enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done.or_fail(|| "cannot write to stdout"),
    }
}

/// Says a line to the person, on stderr.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Shows a failure: the one place where they are printed.
pub fn fail(failure: &Failure) {
    say(&base::text::printable(&failure.to_string()));
}

/// A call in one line for people: the tool and what it is about.
pub fn call_line(name: &str, args: &serde_json::Value) -> String {
    const TELLING: [&str; 10] = [
        "command",
        "file_path",
        "filePath",
        "path",
        "pattern",
        "query",
        "url",
        "name",
        "id",
        "text",
    ];
    let about = TELLING
        .iter()
        .find_map(|key| args[*key].as_str())
        .or_else(|| args.as_object()?.values().find_map(|value| value.as_str()))
        .unwrap_or_default();
    let about = base::text::printable(about.lines().next().unwrap_or_default());
    let name = base::text::printable(name);
    let line = if about.is_empty() { name } else { format!("{name} {about}") };
    cut_to(&line, 100)
}

/// A text cut to so many characters, with a sign that it was.
pub fn cut_to(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{head}…")
}

/// A number of tokens for people, e.g. `12.3k`.
pub fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{:.1}k", count as f64 / 1e3),
        1_000_000.. => format!("{:.2}M", count as f64 / 1e6),
    }
}

/// The line under a turn: that it was interrupted, and what the session came to so far; `None`
/// where there is nothing to say.
pub fn summed_up(status: Status, turns: u32, usage: Usage, between: &str) -> Option<String> {
    let mut said = Vec::new();
    if status == Status::Cancelled {
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
pub fn bill(calls: u32, usage: Usage) -> String {
    let cost = usage.cost_text().unwrap_or_else(|| "cost unknown".to_owned());
    let calls = count(calls, "call");
    format!(
        "{calls}, {} in, {} from cache, {} out, {cost}",
        tokens(usage.input.saturating_add(usage.cache_write)),
        tokens(usage.cache_read),
        tokens(usage.output)
    )
}
