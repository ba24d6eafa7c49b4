//! A terminal: painted words, a line for each tool call, a spinner while something is awaited.

use std::io::Write;
use std::time::Duration;

use base::event::{Event, Level, TodoItem, What};
use base::text::{printable, printable_output};
use indicatif::{ProgressBar, ProgressStyle};

use super::markdown::Painter;
use super::{Sink, call_line, cut_to, summed_up};

const DIM: &str = "\u{1b}[2m";
const RED: &str = "\u{1b}[31m";
const YELLOW: &str = "\u{1b}[33m";
const GREEN: &str = "\u{1b}[32m";
const RESET: &str = "\u{1b}[0m";
/// Lines of a tool's result that are shown.
const RESULT_LINES: usize = 5;

/// Draws on a terminal.
pub struct Rich<O: Write + Send> {
    out: O,
    painter: Painter,
    colours: bool,
    at_line_start: bool,
    thinking: bool,
    spinner: Option<ProgressBar>,
}

impl<O: Write + Send> Rich<O> {
    /// Draws on this; without colours when the user set `NO_COLOR`.
    pub fn new(out: O) -> Rich<O> {
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let painter = Painter::default();
        Rich { out, painter, colours, at_line_start: true, thinking: false, spinner: None }
    }

    fn write(&mut self, text: &str) {
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }

    fn words(&mut self, text: &str) {
        self.stop_spinner();
        let text = printable(text);
        if text.is_empty() {
            return;
        }
        self.at_line_start = text.ends_with('\n');
        let painted = if self.colours { self.painter.paint(&text) } else { text };
        self.write(&painted);
    }

    fn thought(&mut self, text: &str) {
        self.stop_spinner();
        let text = printable(text);
        self.thinking = true;
        self.at_line_start = text.ends_with('\n');
        let painted = self.coloured(DIM, &text);
        self.write(&painted);
    }

    /// Ends the words so far; what follows begins a line.
    fn end_words(&mut self) {
        self.stop_spinner();
        if self.colours {
            let rest = self.painter.finish();
            self.write(&rest);
        }
        if !self.at_line_start {
            self.write("\n");
            self.at_line_start = true;
        }
        self.thinking = false;
    }

    fn line(&mut self, colour: &str, text: &str) {
        self.end_words();
        let painted = self.coloured(colour, text);
        self.write(&format!("{painted}\n"));
    }

    fn coloured(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("{colour}{text}{RESET}") } else { text.to_owned() }
    }

    fn spin(&mut self, what: &str) {
        self.stop_spinner();
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        let spinner = ProgressBar::new_spinner().with_message(what.to_owned());
        let spinner = style.map(|style| spinner.clone().with_style(style)).unwrap_or(spinner);
        spinner.enable_steady_tick(Duration::from_millis(120));
        self.spinner = Some(spinner);
    }

    fn stop_spinner(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }

    fn result(&mut self, ok: bool, text: &str, ms: u64) {
        let text = printable_output(text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        for line in lines.iter().take(RESULT_LINES) {
            let colour = if ok { DIM } else { RED };
            self.line(colour, &format!("  {}", cut_to(line, 96)));
        }
        let more = lines.len().saturating_sub(RESULT_LINES);
        let lines = (more > 0).then(|| format!("{more} more lines"));
        let seconds = (more > 0 || ms >= 1_000).then(|| format!("{:.1} s", ms as f64 / 1e3));
        let told: Vec<String> = lines.into_iter().chain(seconds).collect();
        if !told.is_empty() {
            self.line(DIM, &format!("  {}", told.join(", ")));
        }
    }

    fn todo(&mut self, items: &[TodoItem]) {
        for item in items {
            let mark = match item.status.as_str() {
                "completed" => "x",
                "in_progress" => ">",
                "cancelled" => "-",
                _ => " ",
            };
            self.line("", &format!("  [{mark}] {}", printable(&item.content)));
        }
    }
}

impl<O: Write + Send> Sink for Rich<O> {
    fn hear(&mut self, event: &Event) {
        match &event.what {
            What::Turn { .. } => {
                self.end_words();
                self.spin("thinking");
            }
            What::Text { text } => {
                if self.thinking {
                    self.end_words();
                }
                self.words(text);
            }
            What::Reasoning { text } => self.thought(text),
            What::ToolStart { name, args, .. } => {
                let line = format!("● {}", call_line(name, args));
                self.line(GREEN, &line);
                self.spin(&printable(name));
            }
            What::ToolEnd { ok, text, ms, .. } => self.result(*ok, text, *ms),
            What::Todo { items } => self.todo(items),
            What::Retry { why, after_ms, .. } => {
                let seconds = *after_ms as f64 / 1e3;
                self.line(YELLOW, &format!("retry in {seconds:.1} s: {}", printable(why)));
                self.spin("waiting");
            }
            What::Notice { level, text } => match level {
                Level::Info => self.line(DIM, &printable(text)),
                Level::Warning => self.line(YELLOW, &printable(text)),
            },
            What::Plan { plan } => {
                super::rounds::lines(plan).iter().for_each(|line| self.line(DIM, line));
            }
            What::Thinned { .. } => self.line(DIM, "old results were moved into files"),
            What::Compacted { .. } => self.line(DIM, "the conversation was summarised"),
            What::Ask { .. } => self.end_words(),
            What::End { status, turns, usage, .. } => {
                self.end_words();
                if let Some(line) = summed_up(*status, *turns, *usage, " · ") {
                    self.line(DIM, &line);
                }
            }
            What::Error { .. } => self.end_words(),
            What::Start { .. }
            | What::ToolOutput { .. }
            | What::Usage { .. }
            | What::Context { .. } => {}
        }
    }
}

/// How full the context is, for the prompt: ten dots and a number.
pub fn context_bar(percent: u64) -> String {
    let full = (percent.min(100) as usize).div_ceil(10);
    let colour = match percent {
        0..40 => GREEN,
        40..60 => YELLOW,
        60.. => RED,
    };
    let (dots, rest) = ("●".repeat(full), "○".repeat(10 - full));
    format!("{colour}{dots}{RESET}{DIM}{rest}{RESET} {percent}%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::event::Status;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn hear(rich: &mut Rich<Screen>, what: What) {
        rich.hear(&Event { seq: 1, time: String::new(), what });
    }

    #[test]
    fn a_turn_that_is_cancelled_before_its_first_word_says_so_and_spins_no_more() {
        let screen = Screen::default();
        let mut rich = Rich::new(screen.clone());
        hear(&mut rich, What::Turn { n: 1 });
        assert!(rich.spinner.is_some());
        let usage = base::event::Usage::default();
        hear(&mut rich, What::End { status: Status::Cancelled, exit: 130, turns: 0, usage });
        assert!(rich.spinner.is_none());
        let shown = String::from_utf8(screen.0.lock().unwrap().clone()).unwrap();
        assert!(shown.contains("interrupted") && !shown.contains("turn"), "{shown:?}");
    }

    #[test]
    fn control_sequences_of_models_and_tools_do_not_reach_the_terminal() {
        let screen = Screen::default();
        let mut rich = Rich::new(screen.clone());
        let evil = "\u{1b}]52;c;aGk=\u{7}\u{1b}[2J";
        let (id, name, text) = ("i".to_owned(), format!("n{evil}"), format!("out{evil}"));
        let args = serde_json::json!({"command": format!("ls{evil}")});
        let whats = [
            What::Text { text: format!("hi{evil}") },
            What::Reasoning { text: format!("hm{evil}") },
            What::ToolStart { id: id.clone(), name: name.clone(), args },
            What::ToolEnd { id, name, ok: true, text, ms: 3 },
        ];
        for what in whats {
            hear(&mut rich, what);
        }
        drop(rich);
        let shown = String::from_utf8(screen.0.lock().unwrap().clone()).unwrap();
        assert!(shown.contains("hi") && shown.contains("ls") && shown.contains("out"));
        assert!(!shown.contains("\u{1b}]") && !shown.contains("\u{1b}[2J"), "{shown:?}");
        assert!(shown.contains("ls^[]52;c;aGk=^G^[[2J"), "{shown:?}");
    }
}
