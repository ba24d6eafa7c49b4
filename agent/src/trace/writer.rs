//! Where the lines of a trace go.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use base::files::Journal;
use tracing_subscriber::fmt::MakeWriter;

use crate::ui;

/// The destination of a trace.
pub(crate) enum TraceOutput {
    /// A file to append to, which other processes may append to as well.
    File(Journal),
    /// The person at the terminal.
    Stderr,
}

/// Writes each line with one write.
pub(crate) struct TraceWriter(Mutex<State>);

struct State {
    output: TraceOutput,
    has_failed: bool,
}

impl TraceWriter {
    /// Writes to `output`.
    pub(crate) fn new(output: TraceOutput) -> TraceWriter {
        TraceWriter(Mutex::new(State { output, has_failed: false }))
    }
}

impl<'a> MakeWriter<'a> for TraceWriter {
    type Writer = &'a TraceWriter;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &TraceWriter {
    /// Takes one line. If it cannot be written it is lost: the run continues, and the first failure
    /// is reported.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let (path, error) = match &mut state.output {
            TraceOutput::Stderr => {
                ui::say(&String::from_utf8_lossy(text));
                return Ok(line.len());
            }
            TraceOutput::File(file) => match file.append_line(text) {
                Ok(()) => return Ok(line.len()),
                Err(error) => (file.path(), error),
            },
        };
        let warning = format!("warning: the trace in {} is not complete: {error}", path.display());
        if !std::mem::replace(&mut state.has_failed, true) {
            ui::say(&warning);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
