//! Parses server-sent events from bytes, split at any position.
//!
//! Format: <https://html.spec.whatwg.org/multipage/server-sent-events.html>. This is our own parser
//! because known crates reject invalid UTF-8 and rescan a long line with every chunk.

/// Maximum length of a line in bytes. Models write whole files as one line of JSON.
const MAX_LINE: usize = 64 << 20;

/// An event with its joined data lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event:` field; empty if absent.
    pub name: String,
    /// The `data:` lines, joined by newlines. Invalid UTF-8 is replaced.
    pub data: String,
}

/// A line is longer than [`MAX_LINE`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of the stream is longer than {} MB", MAX_LINE >> 20)]
pub struct LineTooLong;

/// Parses bytes into events. Lines may end in LF, CRLF or CR, and may be split anywhere.
#[derive(Debug, Default)]
pub struct SseReader {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    after_cr: bool,
    has_read_first_line: bool,
}

impl SseReader {
    /// Parses the next bytes and appends the events that they complete.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        events: &mut Vec<SseEvent>,
    ) -> Result<(), LineTooLong> {
        if std::mem::take(&mut self.after_cr) {
            match bytes.first() {
                Some(b'\n') => bytes = &bytes[1..],
                Some(_) => {}
                None => self.after_cr = true,
            }
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.append(&bytes[..end])?;
            self.end_line(events);
            let is_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            match bytes.first() {
                Some(b'\n') if is_cr => bytes = &bytes[1..],
                None if is_cr => self.after_cr = true,
                Some(_) | None => {}
            }
        }
        self.append(bytes)
    }

    /// Ends the stream. An event without its closing empty line is accepted.
    pub fn end(&mut self, events: &mut Vec<SseEvent>) {
        if !self.line.is_empty() {
            self.end_line(events);
        }
        self.dispatch(events);
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), LineTooLong> {
        if self.line.len() + bytes.len() > MAX_LINE {
            return Err(LineTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<SseEvent>) {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.has_read_first_line, true)
            && line.starts_with(b"\xef\xbb\xbf")
        {
            line.drain(..3);
        }
        if line.is_empty() {
            self.dispatch(events);
        } else {
            self.field(&line);
        }
        line.clear();
        self.line = line;
    }

    fn field(&mut self, line: &[u8]) {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match &line[..colon] {
            b"event" => self.event.name = value.into_owned(),
            // llama.cpp's server sends errors in an `error:` field in place of the event name.
            b"data" | b"error" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(&value);
            }
            _ => {}
        }
    }

    fn dispatch(&mut self, events: &mut Vec<SseEvent>) {
        let event = std::mem::take(&mut self.event);
        if std::mem::take(&mut self.has_data) {
            events.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<SseEvent> {
        let mut reader = SseReader::default();
        let mut events = Vec::new();
        for chunk in chunks {
            reader.push(chunk, &mut events).unwrap();
        }
        reader.end(&mut events);
        events
    }

    fn data(text: &str) -> Vec<String> {
        read(&[text.as_bytes()]).into_iter().map(|event| event.data).collect()
    }

    #[test]
    fn fields_comments_and_line_endings_follow_the_specification() {
        assert_eq!(data("data: a\n\ndata:b\n\n"), ["a", "b"]);
        assert_eq!(data("data: a\r\n\r\ndata: b\r\rdata: c\n\n"), ["a", "b", "c"]);
        assert_eq!(data("\u{feff}data: a\ndata: b\n\n"), ["a\nb"]);
        assert_eq!(data(": comment\n\nid: 7\nretry: 9\ndata:  two\nodd\n\n"), [" two"]);
        assert_eq!(data("data\n\n"), [""]);
        assert_eq!(data("event: x\n\ndata: a"), ["a"]);
        assert_eq!(data("error: {}\n\n"), ["{}"]);
        let named = read(&[b"event: ping\ndata: {}\n\ndata: a\n\n"]);
        assert_eq!((named[0].name.as_str(), named[1].name.as_str()), ("ping", ""));
    }

    #[test]
    fn an_endless_line_is_rejected_before_it_fills_the_memory() {
        let mut reader = SseReader::default();
        let chunk = vec![b'x'; 1 << 20];
        let refused = (0..80).find_map(|_| reader.push(&chunk, &mut Vec::new()).err());
        assert_eq!(refused, Some(LineTooLong));
        assert!(reader.line.len() <= MAX_LINE);
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_chunk_boundaries(
            text in proptest::collection::vec(
                prop_oneof![Just("data: é\u{1f600}"), Just("\r\n"), Just("\n"), Just("\r"),
                    Just(":c"), Just("event: e"), Just("\u{feff}"), Just("data:")], 0..40),
            size in 1usize..9,
        ) {
            let text = text.concat();
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(read(&pieces), read(&[text.as_bytes()]));
        }
    }
}
