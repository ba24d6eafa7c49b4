//! Output without a terminal: the model's text on stdout, everything else on stderr, no colours.

use std::io::Write;

use base::event::{Event, EventKind, NoticeLevel};
use base::text::{count, printable, printable_output};

use super::summed_up;
use agent_core::bus::EventSink;
use agent_core::call_line::call_line;

/// Maximum number of lines shown of a failure.
const LINES: usize = 10;

/// Plain text output. `talk` receives everything but the model's text; `None` discards it.
pub(crate) struct PlainOutput<O: Write + Send, T: Write + Send> {
    out: O,
    talk: Option<T>,
    /// Whether the model's text ended with a newline.
    at_line_start: bool,
    spoke: bool,
}

impl<O: Write + Send, T: Write + Send> PlainOutput<O, T> {
    /// Creates an output that writes the model's text to `out` and the rest to `talk`.
    pub(crate) fn new(out: O, talk: Option<T>) -> PlainOutput<O, T> {
        PlainOutput { out, talk, at_line_start: true, spoke: false }
    }

    fn words(&mut self, text: &str) {
        let text = printable(text);
        if text.is_empty() {
            return;
        }
        self.at_line_start = text.ends_with('\n');
        self.spoke = true;
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }

    fn end_line(&mut self) {
        if !self.at_line_start {
            self.words("\n");
        }
    }

    /// Shows why a call failed. The reason is in the last lines of a command's output, and
    /// otherwise in the first lines, where a call that did not run names the rule to add.
    fn failure(&mut self, text: &str) {
        let text = printable_output(text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let is_output = lines.last().is_some_and(|line| line.starts_with("[exit code "));
        let left_out = lines.len().saturating_sub(LINES);
        let (before, visible, after) = match is_output {
            true => (left_out, &lines[left_out..], 0),
            false => (0, &lines[..lines.len() - left_out], left_out),
        };
        let note = |n: usize, word: &str| (n > 0).then(|| format!("  … {}", count(n, word)));
        let mut report: Vec<String> = note(before, "earlier line").into_iter().collect();
        report.extend(visible.iter().map(|line| format!("  {line}")));
        report.extend(note(after, "more line"));
        if let Some(first) = report.first_mut() {
            *first = format!("  failed: {}", first.trim_start());
        }
        report.iter().for_each(|line| self.say(line));
    }

    fn say(&mut self, line: &str) {
        if let Some(talk) = &mut self.talk {
            let _ = writeln!(talk, "{line}");
        }
    }
}

impl<O: Write + Send, T: Write + Send> EventSink for PlainOutput<O, T> {
    fn on_event(&mut self, event: &Event) {
        match &event.what {
            EventKind::Text { text } => self.words(text),
            EventKind::Turn { .. } => self.end_line(),
            EventKind::ToolStart { name, args, .. } => {
                self.end_line();
                self.say(&format!("· {}", call_line(name, args)));
            }
            EventKind::ToolEnd { ok: false, text, .. } => self.failure(text),
            EventKind::Retry { why, after_ms, .. } => {
                self.end_line();
                self.say(&printable(&super::retry_line(why, *after_ms)));
            }
            EventKind::Notice { level, text } => {
                let mark = match level {
                    NoticeLevel::Info => "note",
                    NoticeLevel::Warning => "warning",
                };
                self.say(&format!("{mark}: {}", printable(text)));
            }
            EventKind::Plan { plan } => {
                let lines = super::coach_rounds::lines(plan);
                if !lines.is_empty() {
                    self.end_line();
                }
                lines.iter().for_each(|line| self.say(line));
            }
            EventKind::Compacted { .. } => {
                self.say(&format!("note: {}", super::COMPACTED));
            }
            EventKind::End { status, turns, usage, .. } => {
                self.end_line();
                if let Some(line) = summed_up(*status, *turns, *usage, ", ") {
                    self.say(&line);
                }
            }
            EventKind::Start { .. }
            | EventKind::Reasoning { .. }
            | EventKind::ToolOutput { .. }
            | EventKind::ToolEnd { .. }
            | EventKind::Usage { .. }
            | EventKind::Context { .. }
            | EventKind::Todo { .. }
            | EventKind::Thinned { .. }
            | EventKind::Ask { .. }
            | EventKind::Error { .. } => {}
        }
    }
}
