//! The prompt line of `attach`: a line at the bottom of the terminal in which the user types, below
//! text that arrives at any time.

use base::text::{columns, printable};

use crate::report::{out, out_raw};

/// The keys that the line understands.
const ENTER: [u8; 2] = [b'\r', b'\n'];
const BACKSPACE: [u8; 2] = [8, 127];
const CTRL_D: u8 = 4;
const CTRL_U: u8 = 21;
const CTRL_W: u8 = 23;
const ESCAPE: u8 = 27;

/// A line that the user types.
#[derive(Debug, Default)]
pub(crate) struct PromptLine {
    typed: Vec<u8>,
    /// Whether an escape sequence is being skipped.
    escape: EscapeState,
}

/// The position in an escape sequence, for example of an arrow key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Outside,
    Started,
    Parameters,
}

/// What the user did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TypedInput {
    /// Entered a line.
    Line(String),
    /// Pressed Ctrl-D in an empty line.
    End,
}

impl PromptLine {
    /// Handles typed bytes; returns what was completed by them.
    pub(crate) fn handle(&mut self, bytes: &[u8]) -> Vec<TypedInput> {
        bytes.iter().filter_map(|byte| self.handle_byte(*byte)).collect()
    }

    fn handle_byte(&mut self, byte: u8) -> Option<TypedInput> {
        match (self.escape, byte) {
            (EscapeState::Started, b'[' | b'O') => self.escape = EscapeState::Parameters,
            (EscapeState::Parameters, b'0'..=b'9' | b';') => {}
            (EscapeState::Started | EscapeState::Parameters, _) => {
                self.escape = EscapeState::Outside;
            }
            (EscapeState::Outside, ESCAPE) => self.escape = EscapeState::Started,
            (EscapeState::Outside, byte) if ENTER.contains(&byte) => {
                let line = self.text();
                self.typed.clear();
                return Some(TypedInput::Line(line));
            }
            (EscapeState::Outside, CTRL_D) if self.typed.is_empty() => {
                return Some(TypedInput::End);
            }
            (EscapeState::Outside, CTRL_U) => self.typed.clear(),
            (EscapeState::Outside, CTRL_W) => {
                let text = self.text();
                let start = text.trim_end().rfind(char::is_whitespace).map_or(0, |at| at + 1);
                self.typed.truncate(start);
            }
            (EscapeState::Outside, byte) if BACKSPACE.contains(&byte) => {
                let mut text = self.text();
                text.pop();
                self.typed = text.into_bytes();
            }
            (EscapeState::Outside, b' '..) => self.typed.push(byte),
            (EscapeState::Outside, _) => {}
        }
        None
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.typed).into_owned()
    }

    /// Prints lines above the prompt line.
    pub(crate) fn print_above(&self, lines: &[String], label: &str, width: usize) {
        if lines.is_empty() {
            return;
        }
        out_raw("\r\u{1b}[K");
        lines.iter().for_each(|line| out(line));
        self.draw(label, width);
    }

    /// Draws the prompt line: the end of the text if it is too long.
    pub(crate) fn draw(&self, label: &str, width: usize) {
        let text = printable(&self.text());
        let space = width.saturating_sub(columns(label) + 2);
        let mut start = 0;
        let mut starts = text.char_indices().map(|(at, _)| at).skip(1).chain([text.len()]);
        while columns(&text[start..]) > space {
            let Some(next) = starts.next() else { break };
            start = next;
        }
        out_raw(&format!("\r\u{1b}[K{label} {}", &text[start..]));
    }

    /// Removes the prompt line from the terminal.
    pub(crate) fn clear() {
        out_raw("\r\u{1b}[K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_edited_and_keys_without_a_meaning_are_ignored() {
        let mut line = PromptLine::default();
        assert!(line.handle("fix thé".as_bytes()).is_empty());
        assert!(line.handle(&[127, b'e', 27, b'[', b'1', b';', b'5', b'C', 9]).is_empty());
        assert_eq!(
            line.handle(b" flaky test\x17tests\r"),
            [TypedInput::Line("fix the flaky tests".to_owned())]
        );
        assert!(line.handle(b"x\x04").is_empty(), "Ctrl-D in a line that is not empty");
        assert_eq!(line.handle(b"\x15\x04"), [TypedInput::End]);
    }
}
