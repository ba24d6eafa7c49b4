//! Fuzz target: the input of the dashboard's terminal.

use super::input::{InputParser, TerminalInput};

/// Input means the same however it is split; each byte gives at most one input, and pasted text
/// presses no keys.
pub fn terminal_input(data: &[u8]) {
    let mut parser = InputParser::default();
    let whole = parser.add(data);
    assert!(whole.len() <= data.len());
    let mut parser = InputParser::default();
    let mut pieces = Vec::new();
    for byte in data {
        pieces.extend(parser.add(&[*byte]));
    }
    assert_eq!(pieces, whole);
    let mut parser = InputParser::default();
    let text = [b"\x1b[200~", data, b"\x1b[201~"].concat();
    let is_open = data.windows(6).any(|it| it == b"\x1b[201~") || data.ends_with(b"\x1b");
    if !is_open {
        let pasted = TerminalInput::Paste(String::from_utf8_lossy(data).into_owned());
        assert_eq!(parser.add(&text), [pasted]);
    }
}

#[cfg(test)]
mod short_runs {
    #[test]
    fn any_input_means_the_same_however_it_is_split() {
        short_fuzz::run("terminal_input", super::terminal_input);
    }
}
