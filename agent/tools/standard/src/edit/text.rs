//! A text file during an edit: searched with plain newlines, written back with its own line
//! endings.

use std::ops::Range;
use std::path::Path;

use tools::call::Invocation;
use tools::fs::open;
use tools::fs::read_tracker::{self, ChangedFile, EditFit};
use tools::output::ToolError;

const BOM: char = '\u{feff}';

/// The text of a file. Offsets are byte offsets in [`FileText::plain`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileText {
    raw: String,
    /// The text without byte order mark and without the `\r` of `\r\n`.
    plain: String,
    /// Offsets in `plain` of each `\n` that had a `\r` before it.
    carriage_returns: Vec<usize>,
    bom: bool,
}

/// A replacement of a part of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextChange {
    /// The range to replace.
    pub span: Range<usize>,
    /// The new text, with plain newlines.
    pub by: String,
}

impl FileText {
    /// Creates a text whose line endings and byte order mark are kept and are ignored in searches.
    pub(crate) fn new(raw: String) -> FileText {
        let body = raw.strip_prefix(BOM);
        let bom = body.is_some();
        let body = body.unwrap_or(&raw);
        let mut plain = String::with_capacity(body.len());
        let mut carriage_returns = Vec::new();
        for line in body.split_inclusive('\n') {
            match line.strip_suffix("\r\n") {
                Some(content) => {
                    plain.push_str(content);
                    carriage_returns.push(plain.len());
                    plain.push('\n');
                }
                None => plain.push_str(line),
            }
        }
        FileText { raw, plain, carriage_returns, bom }
    }

    /// Creates a text that is searched exactly as it is.
    pub(crate) fn exact(raw: String) -> FileText {
        FileText { plain: raw.clone(), raw, carriage_returns: Vec::new(), bom: false }
    }

    /// Returns the text to search.
    pub(crate) fn plain(&self) -> &str {
        &self.plain
    }

    /// Returns the text as in the file.
    pub(crate) fn raw(&self) -> &str {
        &self.raw
    }

    /// Converts a character position in the file, counted from 0, to an offset in the plain text.
    /// Returns `None` past the end.
    pub(crate) fn position(&self, character: usize) -> Option<usize> {
        let end = std::iter::once(self.raw.len());
        let byte = self.raw.char_indices().map(|(offset, _)| offset).chain(end).nth(character)?;
        let byte = byte.saturating_sub(if self.bom { BOM.len_utf8() } else { 0 });
        // The k-th `\r` (from 0) is k bytes further in the file than in the plain text.
        let returns_before = self
            .carriage_returns
            .iter()
            .enumerate()
            .take_while(|(k, offset)| **offset + k < byte)
            .count();
        Some(byte - returns_before)
    }

    /// Returns the file's text after some changes, which must not overlap.
    pub(crate) fn apply_changes(&self, mut changes: Vec<TextChange>) -> String {
        changes.sort_by_key(|change| (change.span.start, change.span.end));
        let mut out = String::with_capacity(self.raw.len());
        let mut copied = 0;
        for change in changes {
            let (start, end) =
                (self.raw_offset(change.span.start), self.raw_offset(change.span.end));
            out.push_str(&self.raw[copied..start]);
            if self.ends_with_return(change.span.start) {
                out.push_str(&change.by.replace("\r\n", "\n").replace('\n', "\r\n"));
            } else {
                out.push_str(&change.by);
            }
            copied = end;
        }
        out.push_str(&self.raw[copied..]);
        out
    }

    fn raw_offset(&self, plain: usize) -> usize {
        let bom = if self.bom { BOM.len_utf8() } else { 0 };
        bom + plain + self.carriage_returns.partition_point(|index| *index < plain)
    }

    /// Whether the line at an offset ends with `\r\n`; the last line follows the one before it.
    fn ends_with_return(&self, plain: usize) -> bool {
        if self.carriage_returns.is_empty() {
            return false;
        }
        let newline = self.plain[plain..].find('\n').map(|offset| plain + offset);
        let newline = newline.or_else(|| self.plain[..plain].rfind('\n'));
        newline.is_some_and(|offset| self.carriage_returns.binary_search(&offset).is_ok())
    }
}

/// The text of a file before an edit.
#[derive(Debug)]
pub(crate) struct LoadedText {
    /// The text.
    pub text: String,
    /// Set if the session saw the file and its content is different now.
    pub changed: Option<ChangedFile>,
}

impl LoadedText {
    /// Rejects an inexact edit of a file that has changed since this session saw it. Returns a note
    /// about the change if the edit is allowed.
    pub(crate) fn check(
        &self,
        call: &Invocation<'_>,
        path: &Path,
        fit: EditFit,
    ) -> Result<Option<String>, ToolError> {
        let before = (self.text.as_bytes(), self.changed.as_ref());
        read_tracker::check_edit(&call.context.session_dir, path, before, fit)
    }

    /// Explains why an edit did not match, with the change that may be the reason.
    pub(crate) fn explain(&self, call: &Invocation<'_>, path: &Path, reason: String) -> String {
        match &self.changed {
            None => reason,
            Some(change) => {
                change.explain(&call.context.session_dir, path, self.text.as_bytes(), &reason)
            }
        }
    }
}

/// Reads a file of a call in order to change it. Fails for binary files.
pub(crate) fn load(call: &Invocation<'_>, path: &Path) -> Result<LoadedText, ToolError> {
    let display_path = call.display_path(path);
    let content = call.load(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            let tried_paths = call.tried_paths(path);
            ToolError::io(&format!("Failed to edit file {display_path} (tried: {tried_paths})"), &e)
        }
        _ => ToolError::io(&format!("Failed to edit file {display_path}"), &e),
    })?;
    let changed = read_tracker::changed(&call.context.session_dir, path, &content.bytes)?;
    Ok(LoadedText { text: decode_text(&display_path, content.bytes)?, changed })
}

/// Converts the bytes of a file to text.
pub(crate) fn decode_text(display_path: &str, bytes: Vec<u8>) -> Result<String, ToolError> {
    if let Some(kind) = open::describe_binary(&bytes) {
        return Err(ToolError::failed(format!("Failed to edit file {display_path}: it is {kind}")));
    }
    String::from_utf8(bytes).map_err(|_| {
        ToolError::failed(format!(
            "Failed to edit file {display_path}: it is not valid UTF-8, and writing it back would change \
             other bytes; edit it with the shell"
        ))
    })
}

/// Writes a text that was read by [`load`].
pub(crate) fn store(call: &Invocation<'_>, path: &Path, text: &str) -> Result<(), ToolError> {
    call.store(path, text).map_err(|e| {
        ToolError::io(&format!("Failed to edit file {}", call.display_path(path)), &e)
    })?;
    read_tracker::record(&call.context.session_dir, path, text.as_bytes());
    Ok(())
}

/// Formats a failure after which every file is unchanged. A multi-line error gets a separate line
/// for that.
pub(crate) fn not_written(reason: &str) -> String {
    let reason = reason.trim_end();
    let joint = if reason.contains('\n') { "\n" } else { ". " };
    format!("{reason}{joint}Nothing was written")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tools::text_diff::difference;

    #[test]
    fn line_endings_and_byte_order_mark_survive_a_change() {
        let file = FileText::new("\u{feff}a\r\nb\r\nc\n".to_owned());
        assert_eq!(file.plain(), "a\nb\nc\n");
        let change = TextChange { span: 2..3, by: "x\ny".to_owned() };
        assert_eq!(file.apply_changes(vec![change]), "\u{feff}a\r\nx\r\ny\r\nc\n");
        let last = TextChange { span: 4..6, by: "z\n".to_owned() };
        assert_eq!(file.apply_changes(vec![last]), "\u{feff}a\r\nb\r\nz\n");
    }

    #[test]
    fn an_empty_change_changes_nothing() {
        for raw in ["", "a", "\r\n", "a\r\n\r\nb\n\r", "\u{feff}\r\nx"] {
            let file = FileText::new(raw.to_owned());
            for at in 0..=file.plain().len() {
                let nothing = TextChange { span: at..at, by: String::new() };
                assert_eq!(file.apply_changes(vec![nothing]), raw);
            }
        }
    }

    #[test]
    fn a_lone_carriage_return_does_not_end_a_line() {
        let file = FileText::new("one\r\ntwo\rthree\r\n".to_owned());
        assert_eq!(file.plain(), "one\ntwo\rthree\n");
        let shown = difference("two\rthree\n", "two\rTHREE\n");
        assert_eq!((shown.additions, shown.deletions), (1, 1));
        assert!(shown.unified.ends_with("-two\rthree\n+two\rTHREE\n"), "{:?}", shown.unified);
    }

    #[test]
    fn characters_of_the_file_are_found_in_the_plain_text() {
        let file = FileText::new("\u{feff}é\r\nb\r\nc".to_owned());
        // Characters: mark 0, é 1, \r 2, \n 3, b 4, \r 5, \n 6, c 7, end 8.
        let at: Vec<Option<usize>> = (1..=9).map(|n| file.position(n)).collect();
        let expected = [0, 2, 2, 3, 4, 4, 5, 6].map(Some);
        assert_eq!(at[..8], expected);
        assert_eq!(at[8], None);
    }
}
