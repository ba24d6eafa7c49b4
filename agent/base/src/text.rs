//! Cutting and cleaning text without breaking a character.

/// What an agent is told that is to go on by itself, because nobody has anything else to say.
pub const GO_ON: &str = "Go on with the task where you left off.";

/// The longest prefix of at most `max` bytes that ends at a character boundary.
pub fn head(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The longest suffix of at most `max` bytes that starts at a character boundary.
pub fn tail(text: &str, max: usize) -> &str {
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Text for a terminal: control sequences, other control characters and bidirectional overrides
/// are removed; newline and tab stay.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_sequence(&mut chars),
            '\n' | '\t' => out.push(c),
            '\u{9b}' => skip_csi(&mut chars),
            c if c.is_control() => {}
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            c => out.push(c),
        }
    }
    out
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Skips what follows an escape: CSI up to its final byte, OSC and its kin up to BEL or ST.
fn skip_sequence(chars: &mut Chars<'_>) {
    match chars.next() {
        Some('[') => skip_csi(chars),
        Some(']' | 'P' | '^' | '_' | 'X') => {
            while let Some(c) = chars.next() {
                if c == '\u{7}' {
                    return;
                }
                if c == '\u{1b}' {
                    chars.next_if_eq(&'\\');
                    return;
                }
            }
        }
        Some('(' | ')' | '#' | '%') => {
            chars.next();
        }
        Some(_) | None => {}
    }
}

fn skip_csi(chars: &mut Chars<'_>) {
    for c in chars.by_ref() {
        if ('\u{40}'..='\u{7e}').contains(&c) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_keeps_characters_whole() {
        assert_eq!(head("aé", 2), "a");
        assert_eq!(head("aé", 3), "aé");
        assert_eq!(tail("éa", 2), "a");
        assert_eq!(tail("éa", 9), "éa");
    }

    #[test]
    fn control_sequences_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\u{1b}[0mc"), "abc");
        assert_eq!(printable("x\u{1b}]52;c;aGk=\u{7}y\u{1b}]0;t\u{1b}\\z"), "xyz");
        assert_eq!(printable("a\rb\u{202e}c\td\n"), "abc\td\n");
    }
}
