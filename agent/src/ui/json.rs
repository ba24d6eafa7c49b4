//! Writes events as JSON lines: `--json` on stdout, `--events FILE`.

use std::io::Write;

use base::event::Event;

use agent_core::bus::EventSink;

/// Writes each event as one line.
pub(crate) struct JsonLines<W: Write + Send> {
    out: W,
}

impl<W: Write + Send> JsonLines<W> {
    /// Creates a sink that writes to `out`.
    pub(crate) fn new(out: W) -> JsonLines<W> {
        JsonLines { out }
    }
}

impl<W: Write + Send> EventSink for JsonLines<W> {
    fn on_event(&mut self, event: &Event) {
        let Ok(mut line) = serde_json::to_vec(event) else { return };
        line.push(b'\n');
        // The reader may have exited; the work continues.
        let _ = self.out.write_all(&line).and_then(|()| self.out.flush());
    }
}
