//! A line of text that the user edits: the filter, or a message.

use crate::dashboard::keys::Key;

/// The text and the cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineInput {
    /// The text; pasted text can have several lines.
    pub text: String,
    /// The byte offset of the cursor, at a character boundary.
    pub cursor: usize,
}

impl LineInput {
    /// Creates an input with the cursor at its end.
    pub(crate) fn new(text: &str) -> LineInput {
        LineInput { text: text.to_owned(), cursor: text.len() }
    }

    /// Inserts a text at the cursor.
    pub(crate) fn insert(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
    }

    /// Edits the text; returns whether the key is an editing key.
    pub(crate) fn edit(&mut self, key: Key) -> bool {
        match key {
            Key::Char(c) => self.insert(c.encode_utf8(&mut [0; 4])),
            Key::Backspace => self.delete(self.previous()),
            Key::Delete => {
                let next = self.next();
                let cursor = std::mem::replace(&mut self.cursor, next);
                self.delete(cursor);
            }
            Key::Left => self.cursor = self.previous(),
            Key::Right => self.cursor = self.next(),
            Key::Home | Key::Ctrl('a') => self.cursor = 0,
            Key::End | Key::Ctrl('e') => self.cursor = self.text.len(),
            Key::Ctrl('u') => self.delete(0),
            Key::Ctrl('w') => {
                let before = self.text[..self.cursor].trim_end();
                let start = before.rfind(char::is_whitespace);
                let after = |at| before[at..].chars().next().map_or(0, char::len_utf8);
                self.delete(start.map_or(0, |at| at + after(at)));
            }
            Key::Ctrl(_)
            | Key::Up
            | Key::Down
            | Key::PageUp
            | Key::PageDown
            | Key::Enter
            | Key::Esc
            | Key::Tab
            | Key::BackTab => return false,
        }
        true
    }

    fn previous(&self) -> usize {
        let before = self.text[..self.cursor].chars().next_back();
        self.cursor - before.map_or(0, char::len_utf8)
    }

    fn next(&self) -> usize {
        let after = self.text[self.cursor..].chars().next();
        self.cursor + after.map_or(0, char::len_utf8)
    }

    /// Deletes from this offset to the cursor.
    fn delete(&mut self, from: usize) {
        self.text.replace_range(from..self.cursor, "");
        self.cursor = from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_edited_by_characters_and_words() {
        let mut input = LineInput::new("fix é");
        input.edit(Key::Backspace);
        input.insert("the é\r\nb");
        assert_eq!(input.text, "fix the é\nb");
        input.edit(Key::Ctrl('w'));
        assert_eq!(input.text, "fix the é\n");
        input.edit(Key::Ctrl('w'));
        assert_eq!(input.text, "fix the ");
        input.edit(Key::Home);
        input.edit(Key::Delete);
        input.edit(Key::Right);
        input.edit(Key::Char('漢'));
        assert_eq!((input.text.as_str(), input.cursor), ("i漢x the ", 4));
        input.edit(Key::Left);
        input.edit(Key::Ctrl('u'));
        assert_eq!((input.text.as_str(), input.cursor), ("漢x the ", 0));
        assert!(!input.edit(Key::Enter));
    }
}
