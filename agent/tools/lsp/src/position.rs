//! Positions: g3 counts columns in characters; a server counts them in the negotiated encoding.

use serde_json::{Value, json};

/// The unit in which a server counts columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PositionEncoding {
    /// Bytes.
    Utf8,
    /// UTF-16 code units, which every server supports.
    Utf16,
    /// Characters.
    Utf32,
}

/// A place in a file: line and column in characters, both counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl PositionEncoding {
    /// The supported encodings, in order of preference.
    pub(crate) const EACH: [PositionEncoding; 3] =
        [PositionEncoding::Utf32, PositionEncoding::Utf8, PositionEncoding::Utf16];

    /// Returns its name in the protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PositionEncoding::Utf8 => "utf-8",
            PositionEncoding::Utf16 => "utf-16",
            PositionEncoding::Utf32 => "utf-32",
        }
    }

    /// Returns the encoding that a server chose, which is UTF-16 if it names none.
    pub(crate) fn chosen(capabilities: &Value) -> Result<PositionEncoding, String> {
        let Some(name) = capabilities["positionEncoding"].as_str() else {
            return Ok(PositionEncoding::Utf16);
        };
        let known = PositionEncoding::EACH.into_iter().find(|encoding| encoding.name() == name);
        known.ok_or_else(|| format!("it counts columns in `{name}`, which it was not offered"))
    }

    fn units(self, c: char) -> usize {
        match self {
            PositionEncoding::Utf8 => c.len_utf8(),
            PositionEncoding::Utf16 => c.len_utf16(),
            PositionEncoding::Utf32 => 1,
        }
    }

    /// Converts a position for the server. A column past the end of a line becomes the end.
    pub(crate) fn to_server(self, text: &str, position: Position) -> Value {
        let line = line(text, position.line).unwrap_or_default();
        let units: usize = line.chars().take(position.column).map(|c| self.units(c)).sum();
        json!({ "line": position.line, "character": units })
    }

    /// Converts a position of the server. A position within a character becomes that character.
    pub(crate) fn of_server(self, text: Option<&str>, position: &Value) -> Position {
        let number = |key: &str| usize::try_from(position[key].as_u64().unwrap_or(0)).unwrap_or(0);
        let (row, units) = (number("line"), number("character"));
        let Some(line) = text.and_then(|text| line(text, row)) else {
            return Position { line: row, column: units };
        };
        let mut column_ends = line.chars().scan(0, |sum, c| {
            *sum += self.units(c);
            Some(*sum)
        });
        let all = line.chars().count();
        Position { line: row, column: column_ends.position(|end| end > units).unwrap_or(all) }
    }
}

/// Returns a line of a text without its line ending.
pub(crate) fn line(text: &str, index: usize) -> Option<&str> {
    text.split('\n').nth(index).map(|line| line.strip_suffix('\r').unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_are_counted_in_the_negotiated_encoding() {
        let text = "first\r\nä𝄞x\r\n";
        let at = Position { line: 1, column: 2 };
        for (encoding, units) in [
            (PositionEncoding::Utf8, 6),
            (PositionEncoding::Utf16, 3),
            (PositionEncoding::Utf32, 2),
        ] {
            let sent = encoding.to_server(text, at);
            assert_eq!(sent, json!({ "line": 1, "character": units }), "{encoding:?}");
            assert_eq!(encoding.of_server(Some(text), &sent), at, "{encoding:?}");
        }
        // Within the two units of a character, past the end of a line, past the last line.
        let of = |line, units| {
            let at = json!({ "line": line, "character": units });
            PositionEncoding::Utf16.of_server(Some(text), &at).column
        };
        assert_eq!((of(1, 2), of(1, 99), of(9, 7)), (1, 3, 7));
        let far = PositionEncoding::Utf16.to_server(text, Position { line: 1, column: 99 });
        assert_eq!(far["character"], 4);
    }

    #[test]
    fn the_server_chooses_one_of_the_offered_encodings() {
        let chosen = |value: Value| PositionEncoding::chosen(&json!({ "positionEncoding": value }));
        assert_eq!(PositionEncoding::chosen(&json!({})), Ok(PositionEncoding::Utf16));
        assert_eq!(chosen(json!("utf-8")), Ok(PositionEncoding::Utf8));
        assert!(chosen(json!("utf-7")).unwrap_err().contains("`utf-7`"));
    }

    proptest! {
        #[test]
        fn a_position_survives_the_conversion_to_the_server_and_back(text in "[a-zäß𝄞😀\n]{0,40}", line in 0usize..4, column in 0usize..12) {
            let most = super::line(&text, line).map_or(0, |line| line.chars().count());
            let at = Position { line, column: column.min(most) };
            for encoding in PositionEncoding::EACH {
                let back = encoding.of_server(Some(&text), &encoding.to_server(&text, at));
                prop_assert_eq!(back, at);
            }
        }
    }
}
