//! The input of the terminal: waits for it without reading, reads it, and parses keys, pasted text
//! and the mouse. A sequence of bytes is one key even if it arrives in parts; an unknown one is
//! ignored, so that its bytes press no keys.

use std::sync::mpsc::{Sender, channel};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::dashboard::keys::Key;

/// The marks around pasted text.
const PASTE_START: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";
/// Maximum length of an escape sequence; a longer one is ignored to its end.
const MAX_SEQUENCE_BYTES: usize = 64;

/// What the user did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TerminalInput {
    /// Pressed a key.
    Key(Key),
    /// Pasted a text.
    Paste(String),
    /// Clicked at a column and a row.
    Click(u16, u16),
    /// Turned the wheel at a column and a row: down if positive.
    Wheel(u16, u16, isize),
}

/// Waits for input on stdin: a thread polls, and polls again when the input was read.
pub(crate) struct InputWatcher {
    rx: UnboundedReceiver<()>,
    read_tx: Sender<()>,
}

impl InputWatcher {
    /// Starts to wait.
    pub(crate) fn start() -> InputWatcher {
        let (tx, rx) = unbounded_channel();
        let (read_tx, read_rx) = channel();
        std::thread::spawn(move || {
            loop {
                match is_readable(None) {
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => return,
                    Ok(_) => {}
                }
                if tx.send(()).is_err() || read_rx.recv().is_err() {
                    return;
                }
            }
        });
        InputWatcher { rx, read_tx }
    }

    /// Returns when there is input.
    pub(crate) async fn wait(&mut self) {
        if self.rx.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for further input, after all of it was read.
    pub(crate) fn resume(&self) {
        // A thread that ended has reported that.
        let _ = self.read_tx.send(());
    }
}

fn is_readable(timeout: Option<&Timespec>) -> rustix::io::Result<bool> {
    let mut inputs = [PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)];
    poll(&mut inputs, timeout).map(|count| count > 0)
}

/// Reads the bytes that are there; `None` if the terminal is gone.
pub(crate) fn read_available() -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while is_readable(Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap_or(false) {
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) | Err(_) => return (!bytes.is_empty()).then_some(bytes),
            Ok(count) => bytes.extend(&buffer[..count]),
        }
    }
    Some(bytes)
}

/// Parses the bytes of a terminal.
#[derive(Debug, Default)]
pub(crate) struct InputParser {
    bytes: Vec<u8>,
    /// The text of an open paste.
    paste: Option<Vec<u8>>,
    /// Whether the rest of a sequence that is too long is skipped.
    skipping: bool,
}

/// The start of the bytes.
enum Parsed {
    /// More bytes are needed.
    Incomplete,
    /// This many bytes, with their meaning if they have one.
    Complete(usize, Option<TerminalInput>),
    /// This many bytes that start a paste.
    PasteStart(usize),
    /// This many bytes of a sequence that is too long.
    TooLong(usize),
}

impl InputParser {
    /// Adds bytes; returns what is complete.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Vec<TerminalInput> {
        self.bytes.extend(bytes);
        let mut inputs = Vec::new();
        loop {
            if let Some(paste) = &mut self.paste {
                let end = self.bytes.windows(PASTE_END.len()).position(|it| it == PASTE_END);
                // An incomplete end mark stays.
                let kept = PASTE_END.len() - 1;
                let length = end.unwrap_or(self.bytes.len().saturating_sub(kept));
                paste.extend(self.bytes.drain(..length));
                if end.is_none() {
                    return inputs;
                }
                self.bytes.drain(..PASTE_END.len());
                let text = self.paste.take().unwrap_or_default();
                inputs.push(TerminalInput::Paste(String::from_utf8_lossy(&text).into_owned()));
            }
            if self.skipping {
                let end = self.bytes.iter().position(is_final);
                self.bytes.drain(..end.map_or(self.bytes.len(), |end| end + 1));
                self.skipping = end.is_none();
            }
            match parse(&self.bytes) {
                Parsed::Incomplete => return inputs,
                Parsed::TooLong(length) => {
                    self.bytes.drain(..length);
                    self.skipping = true;
                }
                Parsed::Complete(length, input) => {
                    self.bytes.drain(..length);
                    inputs.extend(input);
                }
                Parsed::PasteStart(length) => {
                    self.bytes.drain(..length);
                    self.paste = Some(Vec::new());
                }
            }
        }
    }

    /// Returns whether bytes wait for more that may not come.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.paste.is_none() && (self.skipping || !self.bytes.is_empty())
    }

    /// Ends the wait: an escape character alone is the key, everything else is ignored.
    pub(crate) fn end(&mut self) -> Option<TerminalInput> {
        self.skipping = false;
        let bytes = std::mem::take(&mut self.bytes);
        (bytes == b"\x1b").then_some(TerminalInput::Key(Key::Esc))
    }
}

fn parse(bytes: &[u8]) -> Parsed {
    let key = |length, key| Parsed::Complete(length, Some(TerminalInput::Key(key)));
    match bytes {
        [] | [0x1b] => Parsed::Incomplete,
        [0x1b, b'[' | b'O', ..] => parse_sequence(bytes),
        // Two escape characters: the first one is the key.
        [0x1b, 0x1b, ..] => key(1, Key::Esc),
        // A character with Alt has no meaning.
        [0x1b, rest @ ..] => match parse(rest) {
            Parsed::Complete(length, _) => Parsed::Complete(length + 1, None),
            Parsed::Incomplete | Parsed::PasteStart(_) | Parsed::TooLong(_) => Parsed::Incomplete,
        },
        [b'\r' | b'\n', ..] => key(1, Key::Enter),
        [b'\t', ..] => key(1, Key::Tab),
        [0x7f | 0x08, ..] => key(1, Key::Backspace),
        [byte @ 1..=26, ..] => key(1, Key::Ctrl(char::from(byte + b'a' - 1))),
        [0..=31, ..] => Parsed::Complete(1, None),
        _ => parse_character(bytes),
    }
}

fn parse_character(bytes: &[u8]) -> Parsed {
    let start = &bytes[..bytes.len().min(4)];
    let chunk = start.utf8_chunks().next();
    match chunk.and_then(|chunk| chunk.valid().chars().next()) {
        Some(c) => Parsed::Complete(c.len_utf8(), Some(TerminalInput::Key(Key::Char(c)))),
        None => {
            let error = std::str::from_utf8(start).err();
            match error.and_then(|error| error.error_len()) {
                Some(length) => Parsed::Complete(length, None),
                None => Parsed::Incomplete,
            }
        }
    }
}

/// Returns whether a byte ends a sequence.
fn is_final(byte: &u8) -> bool {
    (0x40..=0x7e).contains(byte)
}

/// Parses a sequence that starts with `ESC [` or `ESC O`.
fn parse_sequence(bytes: &[u8]) -> Parsed {
    let sequence = &bytes[..bytes.len().min(MAX_SEQUENCE_BYTES)];
    let Some(end) = sequence.iter().skip(2).position(is_final).map(|at| at + 2) else {
        return match sequence.len() == MAX_SEQUENCE_BYTES {
            true => Parsed::TooLong(MAX_SEQUENCE_BYTES),
            false => Parsed::Incomplete,
        };
    };
    let sequence = &bytes[..=end];
    if sequence == PASTE_START {
        return Parsed::PasteStart(sequence.len());
    }
    let parameters = String::from_utf8_lossy(&sequence[2..end]);
    let input = match bytes[end] {
        b'M' | b'm' if parameters.starts_with('<') => mouse(&parameters[1..], bytes[end]),
        last => sequence_key(&parameters, last).map(TerminalInput::Key),
    };
    Parsed::Complete(sequence.len(), input)
}

fn sequence_key(parameters: &str, last: u8) -> Option<Key> {
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'Z' => Key::BackTab,
        b'~' => match parameters.split(';').next()? {
            "1" | "7" => Key::Home,
            "4" | "8" => Key::End,
            "3" => Key::Delete,
            "5" => Key::PageUp,
            "6" => Key::PageDown,
            _ => return None,
        },
        _ => return None,
    })
}

/// Parses a report of the mouse: button, column and row, counted from 1.
fn mouse(parameters: &str, last: u8) -> Option<TerminalInput> {
    let numbers: Vec<u16> = parameters.split(';').filter_map(|it| it.parse().ok()).collect();
    let [button, column, row] = numbers.as_slice() else { return None };
    let (column, row) = (column.checked_sub(1)?, row.checked_sub(1)?);
    match (button, last) {
        (0, b'M') => Some(TerminalInput::Click(column, row)),
        (64, b'M') => Some(TerminalInput::Wheel(column, row, -1)),
        (65, b'M') => Some(TerminalInput::Wheel(column, row, 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(bytes: &[u8]) -> Vec<TerminalInput> {
        InputParser::default().add(bytes)
    }

    #[test]
    fn keys_pastes_and_the_mouse_are_recognized() {
        let key = TerminalInput::Key;
        assert_eq!(
            keys("yé\r\t\x7f\x03".as_bytes()),
            [Key::Char('y'), Key::Char('é'), Key::Enter, Key::Tab, Key::Backspace, Key::Ctrl('c')]
                .map(key)
        );
        assert_eq!(
            keys(b"\x1b[A\x1bOB\x1b[1;5C\x1b[6~\x1b[Z\x1b[3~\x1b[H"),
            [Key::Up, Key::Down, Key::Right, Key::PageDown, Key::BackTab, Key::Delete, Key::Home]
                .map(key)
        );
        assert_eq!(
            keys(b"\x1b[200~yA\x1b[A\n\x1b[201~\x1b[<0;3;4M\x1b[<0;3;4m\x1b[<65;1;1M"),
            [
                TerminalInput::Paste("yA\x1b[A\n".to_owned()),
                TerminalInput::Click(2, 3),
                TerminalInput::Wheel(0, 0, 1)
            ]
        );
        // Unknown sequences, and characters with Alt, press nothing.
        assert_eq!(keys(b"\x1b[?62;4c\x1b[99~\x1bA\x1b[<35;2;2M\x00"), []);
    }

    #[test]
    fn an_escape_character_is_a_key_when_nothing_follows() {
        let mut parser = InputParser::default();
        assert_eq!(parser.add(b"\x1b"), []);
        assert!(parser.is_incomplete());
        assert_eq!(parser.end(), Some(TerminalInput::Key(Key::Esc)));
        assert_eq!(parser.add(b"\x1b"), []);
        assert_eq!(parser.add(b"[A"), [TerminalInput::Key(Key::Up)]);
        assert_eq!(parser.add(b"\x1b["), []);
        assert_eq!(parser.end(), None);
        assert!(!parser.is_incomplete());
    }

    #[test]
    fn a_long_sequence_presses_no_keys_in_any_pieces() {
        let sequence = [b"\x1b[2", "0".repeat(200).as_bytes(), b"~y"].concat();
        for cut in 0..sequence.len() {
            let mut parser = InputParser::default();
            let mut inputs = parser.add(&sequence[..cut]);
            inputs.extend(parser.add(&sequence[cut..]));
            assert_eq!(inputs, [TerminalInput::Key(Key::Char('y'))], "cut at {cut}");
        }
        let mut parser = InputParser::default();
        assert_eq!(parser.add(&sequence[..100]), []);
        assert!(parser.is_incomplete());
        assert_eq!(parser.end(), None);
        assert_eq!(parser.add(b"y"), [TerminalInput::Key(Key::Char('y'))]);
    }

    proptest! {
        #[test]
        fn input_means_the_same_however_it_is_split(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    &b"\x1b[A"[..], b"\x1bOP", b"y", "é漢".as_bytes(), b"\x1b[200~A\x1b[201~",
                    b"\x1b[<0;1;1M", b"\r", b"\xff",
                ]),
                0..6,
            ),
            cut in 0usize..40,
        ) {
            let bytes = parts.concat();
            let (start, rest) = bytes.split_at(cut.min(bytes.len()));
            let mut parser = InputParser::default();
            let mut inputs = parser.add(start);
            inputs.extend(parser.add(rest));
            prop_assert_eq!(inputs, keys(&bytes));
            prop_assert!(!parser.is_incomplete());
        }
    }
}
