//! The live area below the text: running calls with their elapsed time and last lines of output. It
//! is erased when they end.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base::text::printable_output;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::wrap::cut_columns;

/// Number of last lines shown of a single call, and of each of several calls.
const LINES: usize = 5;
const LINES_OF_SEVERAL: usize = 2;
/// Maximum number of calls shown.
const CALLS: usize = 4;
/// Maximum number of bytes kept of a line.
const LINE_BYTES: usize = 2_000;
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
/// Time between two frames.
const TICK: Duration = Duration::from_millis(120);

/// The live area of the terminal.
pub(crate) struct LiveArea {
    calls: Arc<Mutex<Vec<Call>>>,
    bar: Option<ProgressBar>,
    width: usize,
}

/// A running call, or the wait for a model.
#[derive(Clone)]
struct Call {
    id: String,
    title: String,
    since: Instant,
    tail: Tail,
}

/// The last lines of an output.
#[derive(Clone, Default)]
struct Tail {
    lines: VecDeque<String>,
    /// The line that is not complete yet.
    partial: String,
}

impl LiveArea {
    /// Creates an empty live area.
    pub(crate) fn new() -> LiveArea {
        LiveArea { calls: Arc::default(), bar: None, width: 80 }
    }

    /// Sets the width to which lines are cut; 80 columns if it is unknown.
    pub(crate) fn fit(&mut self, width: Option<usize>) {
        self.width = width.unwrap_or(80);
    }

    /// Adds a running call.
    pub(crate) fn begin(&mut self, id: &str, title: &str) {
        let (id, title) = (id.to_owned(), title.to_owned());
        self.calls().push(Call { id, title, since: Instant::now(), tail: Tail::default() });
    }

    /// Appends to the output of a call.
    pub(crate) fn append(&mut self, id: &str, text: &str) {
        if let Some(call) = self.calls().iter_mut().find(|call| call.id == id) {
            call.tail.push(text);
        }
    }

    /// Removes a call and returns its title.
    pub(crate) fn end(&mut self, id: &str) -> Option<String> {
        let mut calls = self.calls();
        let index = calls.iter().position(|call| call.id == id)?;
        Some(calls.remove(index).title)
    }

    /// Draws the running calls, if there are any, until [`LiveArea::hide`].
    pub(crate) fn show(&mut self) {
        if self.bar.is_some() || self.calls().is_empty() {
            return;
        }
        let (calls, width) = (self.calls.clone(), self.width);
        let draw = move |_: &ProgressState, out: &mut dyn Write| {
            let calls = base::sync::lock(&calls);
            let _ = out.write_str(&lines(&calls, width).join("\n"));
        };
        let Ok(style) = ProgressStyle::with_template("{live}") else { return };
        let bar = ProgressBar::new_spinner().with_style(style.with_key("live", draw));
        bar.enable_steady_tick(TICK);
        self.bar = Some(bar);
    }

    /// Erases the live area.
    pub(crate) fn hide(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Returns whether a call is running.
    #[cfg(test)]
    pub(crate) fn is_waiting(&self) -> bool {
        !self.calls().is_empty()
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        base::sync::lock(&self.calls)
    }
}

impl Default for LiveArea {
    fn default() -> LiveArea {
        LiveArea::new()
    }
}

/// Renders the running calls as lines.
fn lines(calls: &[Call], width: usize) -> Vec<String> {
    let each = if calls.len() > 1 { LINES_OF_SEVERAL } else { LINES };
    let mut out = Vec::new();
    for call in calls.iter().take(CALLS) {
        let time = call.since.elapsed();
        let frame = FRAMES[(time.as_millis() / TICK.as_millis()) as usize % FRAMES.len()];
        let time = elapsed(time);
        let title = cut_columns(&call.title, width.saturating_sub(time.len() + 4));
        out.push(format!("{frame} {title} {time}"));
        let tail = call.tail.last(each);
        out.extend(tail.iter().map(|line| cut_columns(&format!("  {line}"), width - 1)));
    }
    if calls.len() > CALLS {
        out.push(format!("  and {} more", calls.len() - CALLS));
    }
    out
}

/// Formats a duration for people: `7s`, `2m05s`.
fn elapsed(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds => format!("{}m{:02}s", seconds / 60, seconds % 60),
    }
}

impl Tail {
    fn push(&mut self, text: &str) {
        for piece in text.split_inclusive('\n') {
            self.partial.push_str(piece.trim_end_matches('\n'));
            if self.partial.len() > LINE_BYTES {
                self.partial = base::text::tail(&self.partial, LINE_BYTES).to_owned();
            }
            if piece.ends_with('\n') {
                let line = std::mem::take(&mut self.partial);
                if !line.trim().is_empty() {
                    self.lines.push_back(line);
                }
                if self.lines.len() > LINES {
                    self.lines.pop_front();
                }
            }
        }
    }

    /// Returns the last lines, including the incomplete one.
    fn last(&self, most: usize) -> Vec<String> {
        let partial = Some(&self.partial).filter(|line| !line.trim().is_empty());
        let all: Vec<String> =
            self.lines.iter().chain(partial).map(|line| rendered(line)).collect();
        all[all.len().saturating_sub(most)..].to_vec()
    }
}

/// Returns a line as a terminal would finally show it: a carriage return discards the text before
/// it.
fn rendered(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    let last = line.rsplit('\r').next().unwrap_or_default();
    printable_output(last).replace('\t', "    ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_running_calls_are_shown_and_fit_the_width() {
        let mut live = LiveArea::new();
        live.begin("a", "shell make");
        live.append("a", "1\n2\n3\n4\n5\n6\n\n10%\r20%\r");
        live.append("a", "30");
        let shown = lines(&live.calls(), 12);
        assert_eq!(shown[1..], ["  3", "  4", "  5", "  6", "  30"].map(str::to_owned));
        live.begin("b", "a title that does not fit");
        live.append("b", "one line that does not fit\n");
        let shown = lines(&live.calls(), 12);
        assert_eq!(shown.len(), 5);
        assert!(shown.iter().all(|line| crate::ui::wrap::columns(line) <= 12), "{shown:?}");
        assert_eq!(live.end("a").as_deref(), Some("shell make"));
        assert_eq!(lines(&live.calls(), 12).len(), 2);
    }

    #[test]
    fn durations_are_formatted_briefly() {
        assert_eq!(
            [7, 65, 3600].map(|s| elapsed(Duration::from_secs(s))),
            ["7s", "1m05s", "60m00s"]
        );
    }
}
