//! Wraps streamed text: words stay whole, and lines end at the terminal's width.

pub use base::text::{columns, cut_columns};
use unicode_width::UnicodeWidthChar;

/// Columns between two tab stops.
const TAB: usize = 8;

/// Wraps text at spaces. Style sequences take no columns. Without a width, nothing is wrapped.
#[derive(Debug, Default)]
pub(crate) struct Wrapper {
    /// Width of a line, in columns.
    pub width: Option<usize>,
    /// Column at which the continuation of the current line begins.
    pub indent: usize,
    /// Whether a word that is longer than a line is cut.
    pub cuts_words: bool,
    column: usize,
    spaces: usize,
    word: String,
    word_width: usize,
}

impl Wrapper {
    /// Creates a wrapper with this width.
    pub(crate) fn new(width: Option<usize>) -> Wrapper {
        Wrapper { width, ..Wrapper::default() }
    }

    /// Adds the next character of a line.
    pub(crate) fn put(&mut self, c: char, out: &mut String) {
        if self.width.is_none() {
            self.flush(out);
            return out.push(c);
        }
        match c {
            ' ' => {
                self.end_word(out);
                self.spaces += 1;
            }
            '\t' => {
                self.end_word(out);
                self.spaces += TAB - (self.column + self.spaces) % TAB;
            }
            c => {
                let width = c.width().unwrap_or(0);
                // Scripts with wide characters have no spaces, so a line may end after any
                // character.
                if width > 1 || self.cuts_words && self.fills_line(width) {
                    self.end_word(out);
                }
                self.word.push(c);
                self.word_width += width;
                if width > 1 {
                    self.end_word(out);
                }
            }
        }
    }

    fn fills_line(&self, more: usize) -> bool {
        self.width.is_some_and(|width| self.word_width + more > width.saturating_sub(self.indent))
    }

    /// Adds a style sequence.
    pub(crate) fn style(&mut self, code: &str) {
        self.word.push_str(code);
    }

    fn end_word(&mut self, out: &mut String) {
        if self.word_width == 0 {
            return out.push_str(&std::mem::take(&mut self.word));
        }
        let end = self.column + self.spaces + self.word_width;
        if self.width.is_some_and(|width| end > width) && self.column > self.indent {
            out.push('\n');
            (self.column, self.spaces) = (0, self.indent);
        }
        out.extend(std::iter::repeat_n(' ', self.spaces));
        out.push_str(&std::mem::take(&mut self.word));
        self.column += self.spaces + self.word_width;
        if let Some(width) = self.width.filter(|width| *width > 0 && self.column > *width) {
            self.column %= width;
        }
        (self.spaces, self.word_width) = (0, 0);
    }

    /// Writes the last word, even if it is incomplete.
    pub(crate) fn flush(&mut self, out: &mut String) {
        self.end_word(out);
    }

    /// Ends the line.
    pub(crate) fn end_line(&mut self, out: &mut String) {
        self.end_word(out);
        out.push('\n');
        (self.column, self.spaces, self.indent) = (0, 0, 0);
    }
}

/// Wraps a text of one or more lines. Each line starts with `prefix`, and its continuation with as
/// many spaces.
pub(crate) fn wrapped(text: &str, width: Option<usize>, prefix: &str) -> String {
    let mut out = String::new();
    let mut wrap = Wrapper::new(width);
    for line in text.lines() {
        wrap.indent = columns(prefix);
        prefix.chars().chain(line.chars()).for_each(|c| wrap.put(c, &mut out));
        wrap.end_line(&mut out);
    }
    out.pop();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_and_lines_fit() {
        let text = "one two three four\nfive";
        assert_eq!(wrapped(text, Some(9), ""), "one two\nthree\nfour\nfive");
        assert_eq!(wrapped(text, Some(9), "- "), "- one two\n  three\n  four\n- five");
        assert_eq!(wrapped(text, None, ""), text);
        assert_eq!(wrapped("a  b", Some(9), ""), "a  b");
        assert_eq!(wrapped("数据库连接", Some(6), ""), "数据库\n连接");
    }

    #[test]
    fn a_word_longer_than_a_line_starts_a_new_line() {
        let wrapped = wrapped("see https://example.org/x now then", Some(10), "");
        assert_eq!(wrapped, "see\nhttps://example.org/x now then");
    }
}
