//! Output on a terminal: styled text, a line with its result for each tool call, and the live area.

use std::collections::HashMap;
use std::io::Write;

use base::event::{Event, EventKind, NoticeLevel, TodoItem};
use base::text::{count, printable, printable_output};
use serde_json::Value;

use super::diff::DiffView;
use super::live_area::LiveArea;
use super::markdown::{MarkdownPainter, visible};
use super::wrap::{Wrapper, cut_columns, wrapped};
use super::{diff, summed_up, terminal};
use agent_core::bus::EventSink;
use agent_core::call_line::call_line;

const DIM: &str = "\u{1b}[2m";
const RED: &str = "\u{1b}[31m";
const YELLOW: &str = "\u{1b}[33m";
const GREEN: &str = "\u{1b}[32m";
const RESET: &str = "\u{1b}[0m";
/// Maximum number of lines shown of a tool's result.
const RESULT_LINES: usize = 5;
/// Maximum number of lines shown of a failure.
const FAILURE_LINES: usize = 15;
/// Maximum number of lines shown of a diff.
const DIFF_LINES: usize = 40;
/// The id in the live area of the wait for the model.
const MODEL: &str = "model";

/// Draws events on a terminal.
pub(crate) struct RichOutput<O: Write + Send> {
    out: O,
    painter: MarkdownPainter,
    /// Wraps the model's reasoning.
    thoughts: Wrapper,
    colours: bool,
    /// Returns the width of the terminal.
    measure: fn() -> Option<usize>,
    at_line_start: bool,
    thinking: bool,
    live: LiveArea,
    /// Running calls, by id.
    calls: HashMap<String, Shown>,
    /// Events that arrived while a question was open.
    deferred: Vec<Event>,
}

/// How a call and its result are shown.
struct Shown {
    line: String,
    is_command: bool,
}

impl<O: Write + Send> RichOutput<O> {
    /// Creates an output on `out`; without colours if the user set `NO_COLOR`.
    pub(crate) fn new(out: O) -> RichOutput<O> {
        let colours = terminal::has_colours();
        RichOutput {
            out,
            painter: MarkdownPainter::new(colours),
            thoughts: Wrapper::default(),
            colours,
            measure: terminal::width,
            at_line_start: true,
            thinking: false,
            live: LiveArea::new(),
            calls: HashMap::new(),
            deferred: Vec::new(),
        }
    }

    fn write(&mut self, text: &str) {
        if let Some(last) = visible(text).chars().last() {
            self.at_line_start = last == '\n';
        }
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }

    fn words(&mut self, text: &str) {
        self.live.end(MODEL);
        self.live.hide();
        self.painter.wrap_at((self.measure)());
        let painted = self.painter.paint(&printable(text));
        self.write(&painted);
    }

    fn thought(&mut self, text: &str) {
        self.live.end(MODEL);
        self.live.hide();
        self.thoughts.width = (self.measure)();
        self.thinking = true;
        let mut wrapped = String::new();
        for c in printable(text).chars() {
            match c {
                '\n' => self.thoughts.end_line(&mut wrapped),
                c => self.thoughts.put(c, &mut wrapped),
            }
        }
        let painted = self.coloured(DIM, &wrapped);
        self.write(&painted);
    }

    /// Ends the current text; what follows starts on a new line.
    fn end_words(&mut self) {
        self.live.hide();
        let mut rest = String::new();
        self.thoughts.flush(&mut rest);
        let rest = self.coloured(DIM, &rest) + &self.painter.finish();
        self.write(&rest);
        self.thoughts = Wrapper::default();
        if !self.at_line_start {
            self.write("\n");
        }
        self.thinking = false;
    }

    /// Writes text on lines of its own, wrapped.
    fn line(&mut self, colour: &str, text: &str) {
        self.indented(colour, "", text);
    }

    fn indented(&mut self, colour: &str, prefix: &str, text: &str) {
        self.end_words();
        let text = wrapped(text, (self.measure)(), prefix);
        let painted: Vec<String> = text.lines().map(|line| self.coloured(colour, line)).collect();
        self.write(&format!("{}\n", painted.join("\n")));
    }

    fn coloured(&self, colour: &str, text: &str) -> String {
        let plain = !self.colours || text.is_empty() || colour.is_empty();
        if plain { text.to_owned() } else { format!("{colour}{text}{RESET}") }
    }

    /// Shows in the live area that g3 waits for the model.
    fn waits(&mut self, reason: &str) {
        self.live.end(MODEL);
        self.live.begin(MODEL, reason);
    }

    /// Draws the live area, unless a question or an incomplete line is on the screen.
    fn show_live(&mut self) {
        if self.at_line_start && !terminal::is_asking() {
            self.live.fit((self.measure)());
            self.live.show();
        }
    }

    fn begin_call(&mut self, id: &str, name: &str, args: &Value) {
        self.live.end(MODEL);
        self.end_words();
        let line = call_line(name, args);
        self.live.begin(id, &line);
        let is_command = args["command"].is_string();
        self.calls.insert(id.to_owned(), Shown { line, is_command });
    }

    /// Writes a call with its result.
    fn end_call(&mut self, id: &str, ok: bool, text: &str, diff: Option<&str>, ms: u64) {
        self.live.end(id);
        self.live.hide();
        let call = self.calls.remove(id);
        if let Some(call) = &call {
            self.line(if ok { GREEN } else { RED }, &format!("● {}", call.line));
        }
        let is_command = call.is_some_and(|call| call.is_command);
        let seconds = (ms >= 1_000).then(|| format!("{:.1} s", ms as f64 / 1e3));
        match diff.filter(|_| ok) {
            Some(diff) => self.diff(diff),
            None if is_command && was_run(text) => self.output(ok, text, seconds),
            None => self.result(ok, text, seconds),
        }
    }

    fn diff(&mut self, text: &str) {
        let view = DiffView { colours: self.colours, width: (self.measure)(), most: DIFF_LINES };
        let lines = diff::draw(text, view);
        self.write(&format!("{}\n", lines.join("\n")));
    }

    /// Writes the last lines of a command's output.
    fn output(&mut self, ok: bool, text: &str, seconds: Option<String>) {
        let text = output_of(text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let earlier = lines.len().saturating_sub(RESULT_LINES);
        let more = (earlier > 0).then(|| format!("… {}", count(earlier, "earlier line")));
        self.note_line([more]);
        for line in &lines[earlier..] {
            self.cut_line(ok, line);
        }
        self.note_line([seconds]);
    }

    /// Writes the first lines of another tool's result. A failure gets more lines, wrapped instead
    /// of cut.
    fn result(&mut self, ok: bool, text: &str, seconds: Option<String>) {
        let text = printable_output(text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let most = if ok { RESULT_LINES } else { FAILURE_LINES };
        for line in lines.iter().take(most) {
            match ok {
                true => self.cut_line(ok, line),
                false => self.indented(RED, "  ", line),
            }
        }
        let more = lines.len().saturating_sub(most);
        self.note_line([(more > 0).then(|| format!("… {}", count(more, "more line"))), seconds]);
    }

    fn cut_line(&mut self, ok: bool, line: &str) {
        let line = format!("  {}", line.replace('\t', "    "));
        let line = (self.measure)().map_or_else(|| line.clone(), |width| cut_columns(&line, width));
        let painted = self.coloured(if ok { DIM } else { RED }, &line);
        self.write(&format!("{painted}\n"));
    }

    /// Writes a dim line of notes about a result, if there are any.
    fn note_line<const N: usize>(&mut self, parts: [Option<String>; N]) {
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if !parts.is_empty() {
            self.indented(DIM, "  ", &parts.join(", "));
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
            self.indented("", &format!("  [{mark}] "), &printable(&item.content));
        }
    }

    fn draw(&mut self, event: &Event) {
        match &event.what {
            EventKind::Turn { .. } => {
                self.end_words();
                self.waits("thinking");
            }
            EventKind::Text { text } => {
                if self.thinking {
                    self.end_words();
                }
                self.words(text);
            }
            EventKind::Reasoning { text } => self.thought(text),
            EventKind::ToolStart { id, name, args } => self.begin_call(id, name, args),
            EventKind::ToolOutput { id, text } => self.live.append(id, text),
            EventKind::ToolEnd { id, ok, text, ms, diff, .. } => {
                self.end_call(id, *ok, text, diff.as_deref(), *ms);
            }
            EventKind::Todo { items } => self.todo(items),
            EventKind::Retry { why, after_ms, .. } => {
                self.line(YELLOW, &printable(&super::retry_line(why, *after_ms)));
                self.waits("waiting");
            }
            EventKind::Notice { level, text } => match level {
                NoticeLevel::Info => self.line(DIM, &printable(text)),
                NoticeLevel::Warning => self.line(YELLOW, &printable(text)),
            },
            EventKind::Plan { plan } => {
                super::coach_rounds::lines(plan).iter().for_each(|line| self.line(DIM, line));
            }
            EventKind::Thinned { .. } => self.line(DIM, "old tool results were moved into files"),
            EventKind::Compacted { .. } => self.line(DIM, super::COMPACTED),
            EventKind::Ask { .. } | EventKind::Error { .. } => self.end_words(),
            EventKind::End { status, turns, usage, .. } => {
                self.live.end(MODEL);
                self.end_words();
                self.calls.drain().for_each(|(id, _)| drop(self.live.end(&id)));
                if let Some(line) = summed_up(*status, *turns, *usage, " · ") {
                    self.line(DIM, &line);
                }
            }
            EventKind::Start { .. } | EventKind::Usage { .. } | EventKind::Context { .. } => {}
        }
        self.show_live();
    }
}

/// Returns whether this is the result of a command that ran, not the reason why it did not run.
fn was_run(text: &str) -> bool {
    !["denied", "not run"].iter().any(|word| text.starts_with(word))
}

/// Extracts a command's output from the result that the model reads. The core tools return JSON.
fn output_of(text: &str) -> String {
    let object = serde_json::from_str::<Value>(text).ok();
    let Some(object) = object.filter(|object| object["stdout"].is_string()) else {
        return printable_output(text);
    };
    let of = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let code = object["exit_code"].as_i64().filter(|code| *code != 0);
    let code = code.map(|code| format!("[exit code {code}]")).unwrap_or_default();
    printable_output(&format!("{}\n{}\n{code}", of("stdout"), of("stderr")))
}

impl<O: Write + Send> EventSink for RichOutput<O> {
    fn on_event(&mut self, event: &Event) {
        match &event.what {
            EventKind::Ask { .. } => self.draw(event),
            _ if terminal::is_asking() => self.deferred.push(event.clone()),
            _ => self.draw(event),
        }
    }

    fn on_question_answered(&mut self) {
        for event in std::mem::take(&mut self.deferred) {
            self.draw(&event);
        }
        self.show_live();
    }
}

/// Renders how full the context is, for the prompt: ten dots and a percentage.
pub(crate) fn context_bar(percent: u64) -> String {
    let full = (percent.min(100) as usize).div_ceil(10);
    let (dots, rest) = ("●".repeat(full), "○".repeat(10 - full));
    if !terminal::has_colours() {
        return format!("{dots}{rest} {percent}%");
    }
    let colour = match percent {
        0..40 => GREEN,
        40..60 => YELLOW,
        60.. => RED,
    };
    format!("{colour}{dots}{RESET}{DIM}{rest}{RESET} {percent}%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::event::RunStatus;
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

    fn hear(rich: &mut RichOutput<Screen>, what: EventKind) {
        rich.on_event(&Event { seq: 1, time: String::new(), what });
    }

    #[test]
    fn a_turn_cancelled_before_its_first_word_says_so_and_stops_the_spinner() {
        let screen = Screen::default();
        let mut rich = RichOutput::new(screen.clone());
        hear(&mut rich, EventKind::Turn { n: 1 });
        assert!(rich.live.is_waiting());
        let usage = base::event::Usage::default();
        hear(
            &mut rich,
            EventKind::End { status: RunStatus::Cancelled, exit: 130, turns: 0, usage },
        );
        assert!(!rich.live.is_waiting());
        let shown = String::from_utf8(screen.0.lock().unwrap().clone()).unwrap();
        assert!(shown.contains("interrupted") && !shown.contains("turn"), "{shown:?}");
    }

    #[test]
    fn control_sequences_of_models_and_tools_do_not_reach_the_terminal() {
        let screen = Screen::default();
        let mut rich = RichOutput::new(screen.clone());
        let evil = "\u{1b}]52;c;aGk=\u{7}\u{1b}[2J";
        let (id, name, text) = ("i".to_owned(), format!("n{evil}"), format!("out{evil}"));
        let args = serde_json::json!({"command": format!("ls{evil}")});
        let whats = [
            EventKind::Text { text: format!("hi{evil}") },
            EventKind::Reasoning { text: format!("hm{evil}") },
            EventKind::ToolStart { id: id.clone(), name: name.clone(), args },
            EventKind::ToolEnd { id, name, ok: true, text, ms: 3, diff: None },
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
