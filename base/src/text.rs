//! Truncates and sanitizes text without splitting characters.

use std::fmt::Write;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The prompt for an agent that continues without other input.
pub const CONTINUE_PROMPT: &str = "Go on with the task where you left off.";

/// Returns the longest prefix of at most `max` bytes that ends at a character boundary.
pub fn head(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the longest suffix of at most `max` bytes that starts at a character boundary.
pub fn tail(text: &str, max: usize) -> &str {
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Returns bytes as hexadecimal digits, two for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the known names that a word may be a misspelling of, the most similar first.
pub fn similar<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let scored = known.into_iter().map(|name| (strsim::jaro_winkler(name, word), name));
    let mut matches: Vec<(f64, &str)> = scored.filter(|(score, _)| *score > 0.75).collect();
    matches.sort_by(|a, b| b.0.total_cmp(&a.0));
    matches.into_iter().map(|(_, name)| name).collect()
}

/// Returns the number of columns that a text takes on a terminal.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// Truncates a text to this many columns, with `…` as the last one if something is omitted.
pub fn cut_columns(text: &str, max: usize) -> String {
    if columns(text) <= max {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > max {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// Returns a number with its noun: `1 file`, `2 files`.
pub fn count<N: PartialEq + From<u8> + std::fmt::Display>(n: N, word: &str) -> String {
    format!("{n} {word}{}", if n == N::from(1) { "" } else { "s" })
}

/// The binary units of sizes, smallest first.
const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/// Returns a number of bytes in the largest unit that keeps it readable: `512 bytes`, `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    let Some(unit) = (bytes.max(1).ilog2() / 10).checked_sub(1) else {
        return count(bytes, "byte");
    };
    let unit = (unit as usize).min(UNITS.len() - 1);
    let whole = 1_u64 << (10 * (unit + 1));
    match bytes.is_multiple_of(whole) {
        true => format!("{} {}", bytes / whole, UNITS[unit]),
        false => format!("{:.1} {}", bytes as f64 / whole as f64, UNITS[unit]),
    }
}

/// Parses a number of bytes: an integer, with an optional unit `K`, `M`, `G` or `T` (powers of
/// 1,024; `GB` and `GiB` mean the same).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err("must be a whole number of bytes, or one with K, M, G or T".to_owned()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "must be a whole number of bytes, or one with K, M, G or T".to_owned())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(|| match number {
        0 => "must be more than 0".to_owned(),
        _ => "is too large".to_owned(),
    })
}

/// Returns a text as one word for a shell, in quotes if it needs them.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Makes text safe for display on a terminal or in a page: every character that a terminal would
/// interpret or would not display is escaped. Control characters are written as in `cat -v` (`^[`,
/// `^M`), others by their code point (`<U+202E>`). Newline and tab are kept, and no character is
/// dropped.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut previous = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\0'..='\u{1f}' | '\u{7f}' => {
                out.push('^');
                out.push(char::from(c as u8 ^ 0x40));
            }
            c if is_hidden(c) && !is_part_of_emoji(previous, c, chars.peek().copied()) => {
                let _ = write!(out, "<U+{:04X}>", u32::from(c));
            }
            c => out.push(c),
        }
        previous = Some(c);
    }
    out
}

/// Makes the bytes of a file safe for display, like [`printable`]; bytes that are not UTF-8 are
/// written as `<FF>`.
pub fn printable_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(out, "<{byte:02X}>");
        }
    }
    out
}

/// Escapes the hidden characters of a JSON text, so that it is safe on a terminal. They can only
/// occur in its strings.
pub fn json_escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hidden(c) || c == '\u{7f}' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Makes the output of a program safe for display: like [`printable`], without complete color
/// sequences (`ESC [ 1 ; 31 m`, `ESC [ K`, `ESC ( B`) and without the carriage return of a line
/// end. Everything else is escaped, so an incomplete or unknown sequence hides nothing after it.
pub fn printable_output(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(index) = rest.find(['\u{1b}', '\r']) {
        plain.push_str(&rest[..index]);
        rest = &rest[index..];
        let skipped = style_length(rest).unwrap_or(0);
        if skipped == 0 {
            let first = rest.chars().next().map_or(0, char::len_utf8);
            plain.push_str(&rest[..first]);
            rest = &rest[first..];
        } else {
            rest = &rest[skipped..];
        }
    }
    plain.push_str(rest);
    printable(&plain)
}

/// Returns the length of the color sequence, or of the carriage return of a line end, at the start.
fn style_length(text: &str) -> Option<usize> {
    if text.starts_with("\r\n") {
        return Some(1);
    }
    let after = text.strip_prefix('\u{1b}')?;
    if after.starts_with("(B") {
        return Some(3);
    }
    let parameters = after.strip_prefix('[')?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':')?;
    parameters[end..].starts_with(['m', 'K']).then_some(end + 3)
}

/// Returns whether a terminal does not display this character, or changes the display of others
/// because of it: C1 controls, bidirectional marks, line separators, and Unicode's default
/// ignorable characters.
fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether a hidden character only joins or styles the surrounding pictographs, as in many
/// emoji.
fn is_part_of_emoji(previous: Option<char>, c: char, next: Option<char>) -> bool {
    let is_picture = |c: char| {
        matches!(c, '\u{a9}' | '\u{ae}' | '\u{203c}'..='\u{3299}' | '\u{1f000}'..='\u{1faff}')
            && !is_hidden(c)
    };
    let previous_is = |test: &dyn Fn(char) -> bool| previous.is_some_and(test);
    match c {
        '\u{fe0e}' | '\u{fe0f}' => {
            previous_is(&|it| is_picture(it) || it.is_ascii_digit() || matches!(it, '#' | '*'))
        }
        '\u{200d}' => {
            previous_is(&|it| is_picture(it) || it == '\u{fe0f}') && next.is_some_and(is_picture)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_and_read_in_binary_units() {
        for (bytes, text) in [
            (1, "1 byte"),
            (512, "512 bytes"),
            (1 << 10, "1 KiB"),
            (3 << 29, "1.5 GiB"),
            (8 << 30, "8 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        for (text, bytes) in [("7", 7), ("64K", 64 << 10), ("1 MiB", 1 << 20), ("8g", 8 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "G", "1.5G", "-1", "0", "9X", "99999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn columns_are_counted_instead_of_characters() {
        assert_eq!(cut_columns("abc", 3), "abc");
        assert_eq!(cut_columns("数据库", 6), "数据库");
        assert_eq!(cut_columns("数据库", 5), "数据…");
        assert_eq!(cut_columns("abcdef", 4), "abc…");
    }

    #[test]
    fn truncation_keeps_characters_whole() {
        assert_eq!(head("aé", 2), "a");
        assert_eq!(head("aé", 3), "aé");
        assert_eq!(tail("éa", 2), "a");
        assert_eq!(tail("éa", 9), "éa");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|n| count(n, "line")), ["0 lines", "1 line", "2 lines"]);
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\u{1b}[31mb\u{1b}[0mc"), "a^[[31mb^[[0mc");
        assert_eq!(printable("x\u{1b}]52;c;aGk=\u{7}y"), "x^[]52;c;aGk=^Gy");
        assert_eq!(printable("a\rb\u{202e}c\td\r\n"), "a^Mb<U+202E>c\td^M\n");
        assert_eq!(printable("\0\u{7f}\u{9b}2J\u{85}"), "^@^?<U+009B>2J<U+0085>");
        assert_eq!(printable("a\u{200b}b\u{61c}c\u{feff}"), "a<U+200B>b<U+061C>c<U+FEFF>");
        assert_eq!(printable("x\u{e0041}\u{e007f}y"), "x<U+E0041><U+E007F>y");
        assert_eq!(printable("a\u{2028}b\u{2066}c"), "a<U+2028>b<U+2066>c");
    }

    #[test]
    fn an_unclosed_sequence_hides_nothing() {
        for opening in ['[', ']', 'P', 'X', '^', '_', '(', 'c'] {
            let text = format!("one\u{1b}{opening} rm -rf\nthree\n");
            let printed = format!("one^[{opening} rm -rf\nthree\n");
            assert_eq!(printable(&text), printed);
            assert_eq!(printable_output(&text), printed);
        }
        assert_eq!(printable("one\u{9d}two\u{90}three"), "one<U+009D>two<U+0090>three");
    }

    #[test]
    fn emoji_and_accents_are_unchanged() {
        let text = "é e\u{301} ⚠\u{fe0f} 👩\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3} 漢字 →";
        assert_eq!(printable(text), text);
        assert_eq!(printable("a\u{fe0f}b\u{200d}c"), "a<U+FE0F>b<U+200D>c");
        assert_eq!(printable("⚠\u{fe0f}\u{fe0f}"), "⚠\u{fe0f}<U+FE0F>");
    }

    #[test]
    fn only_complete_color_sequences_are_removed_from_output() {
        assert_eq!(printable_output("a\u{1b}[1;31mb\u{1b}[0m\u{1b}[K\u{1b}(Bc\r\n"), "abc\n");
        assert_eq!(printable_output("10%\r20%\u{1b}[2Jx\u{1b}[?25l"), "10%^M20%^[[2Jx^[[?25l");
        assert_eq!(printable_output("end\u{1b}[3"), "end^[[3");
        assert_eq!(printable_output("\u{1b}[8mhidden\u{1b}[é"), "hidden^[[é");
    }

    #[test]
    fn bytes_that_are_not_utf8_are_escaped() {
        assert_eq!(printable_bytes(b"a\xff\xc3\xa9\xc3\r"), "a<FF>é<C3>^M");
    }

    #[test]
    fn escaped_json_is_safe_on_a_terminal_and_equivalent() {
        let text = "a\u{9b}2J\u{202e}b\u{e0041}\u{7f}é";
        let json = serde_json::to_string(text).unwrap();
        let escaped = json_escaped(&json);
        assert_eq!(escaped, r#""a\u009b2J\u202eb\udb40\udc41\u007fé""#);
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
    }

    /// Tests all texts of at most four of these characters.
    #[test]
    fn a_word_for_a_shell_is_quoted_only_if_it_has_to_be() {
        assert_eq!(shell_word("/srv/a-b_c.d"), "/srv/a-b_c.d");
        assert_eq!(shell_word("/srv/my repo"), "'/srv/my repo'");
        assert_eq!(shell_word("it's $(x)"), r"'it'\''s $(x)'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn no_character_is_dropped_and_none_that_a_terminal_interprets_is_left() {
        let alphabet =
            ['a', 'm', '[', ']', 'P', '\\', ';', '\u{1b}', '\u{9b}', '\u{7}', '\r', '\n', 'é'];
        let mut texts = vec![String::new()];
        for _ in 0..4 {
            let longer = texts.iter().flat_map(|text| alphabet.map(|c| format!("{text}{c}")));
            texts = std::iter::once(String::new()).chain(longer).collect();
        }
        for text in texts {
            let printed = printable(&text);
            let is_active = |c: char| c.is_control() && c != '\n' && c != '\t';
            assert!(
                !printed.contains(is_active) && !printable_output(&text).contains(is_active),
                "{text:?}"
            );
            assert_eq!(printable(&printed), printed, "{text:?}");
            let visible = |text: &str| text.replace(['^', '<', '>', '+'], "");
            let mut remaining = visible(&printed);
            for c in text.chars().filter(|c| !is_active(*c)) {
                let index = remaining
                    .find(c)
                    .unwrap_or_else(|| panic!("{c:?} of {text:?} is missing in {printed:?}"));
                remaining.drain(..index + c.len_utf8());
            }
        }
    }
}
