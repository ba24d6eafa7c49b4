//! Formats diffs for a terminal: hidden characters escaped, with colours.

use std::io::{self, BufRead, Read, Write};

use base::text::printable_bytes;

/// Maximum number of bytes of a line that are processed at once; longer lines are processed in
/// chunks.
const MAX_CHUNK: u64 = 64 << 10;

const BOLD: &str = "\u{1b}[1m";
const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const CYAN: &str = "\u{1b}[36m";
const RESET: &str = "\u{1b}[m";

/// The format of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// A unified diff.
    Patch,
    /// Changed words, in git's line format for programs.
    Words,
    /// One line per file with a bar of `+` and `-`.
    Stat,
    /// Plain lines.
    Lines,
}

/// Copies git's output to a terminal: escapes control characters, and optionally adds colours.
/// Memory is limited, however long the output and its lines are.
pub(crate) fn show(
    reader: impl Read,
    mut writer: impl Write,
    kind: PatchKind,
    colours: bool,
) -> io::Result<()> {
    let mut reader = io::BufReader::with_capacity(MAX_CHUNK as usize, reader);
    let mut painter = Painter { kind, colours, position: PatchPlace::Header, style: "" };
    let mut chunk = Vec::new();
    let mut starts_line = true;
    loop {
        // Bytes of an incomplete character come first.
        let carried = chunk.len();
        let read = (&mut reader).take(MAX_CHUNK).read_until(b'\n', &mut chunk)?;
        if read == 0 && carried == 0 {
            return writer.flush();
        }
        let ends_line = chunk.last() == Some(&b'\n');
        let incomplete = if ends_line || read == 0 { 0 } else { incomplete_char_len(&chunk) };
        let complete = chunk.len() - incomplete;
        let text = &chunk[..complete - usize::from(ends_line)];
        painter.write_chunk(&mut writer, LinePart { text, starts_line, ends_line })?;
        starts_line = ends_line;
        chunk.drain(..complete);
    }
}

/// Returns the number of bytes at the end that may be an incomplete character.
fn incomplete_char_len(bytes: &[u8]) -> usize {
    let start = bytes.len().saturating_sub(3);
    let lead = bytes[start..].iter().rposition(|byte| *byte >= 0xc0);
    let Some(index) = lead.map(|index| start + index) else { return 0 };
    match std::str::from_utf8(&bytes[index..]) {
        Err(error) if error.error_len().is_none() => bytes.len() - index,
        Ok(_) | Err(_) => 0,
    }
}

/// The position within a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchPlace {
    Header,
    /// Within a hunk: the remaining lines of the old and of the new file.
    Hunk {
        old: u64,
        new: u64,
    },
}

/// A chunk of a line.
#[derive(Clone, Copy)]
struct LinePart<'a> {
    text: &'a [u8],
    /// Whether it is the start of the line.
    starts_line: bool,
    /// Whether it is the end of the line.
    ends_line: bool,
}

struct Painter {
    kind: PatchKind,
    colours: bool,
    position: PatchPlace,
    /// The colour of the current line.
    style: &'static str,
}

impl Painter {
    fn write_chunk(&mut self, writer: &mut impl Write, chunk: LinePart<'_>) -> io::Result<()> {
        let LinePart { text, starts_line, ends_line } = chunk;
        match self.kind {
            PatchKind::Patch => {
                if starts_line {
                    self.style = self.style_of(text);
                }
                self.write_styled(writer, self.style, text)?;
            }
            PatchKind::Words => return self.write_words(writer, chunk),
            PatchKind::Stat => self.write_bar(writer, text)?,
            PatchKind::Lines => self.write_styled(writer, "", text)?,
        }
        if ends_line { writer.write_all(b"\n") } else { Ok(()) }
    }

    fn write_styled(&self, writer: &mut impl Write, style: &str, text: &[u8]) -> io::Result<()> {
        let text = printable_bytes(text);
        match style.is_empty() || !self.colours || text.is_empty() {
            true => writer.write_all(text.as_bytes()),
            false => write!(writer, "{style}{text}{RESET}"),
        }
    }

    /// Returns the colour of a line of a unified diff. The header of a hunk has its length, so that
    /// no line of a file can be mistaken for a header.
    fn style_of(&mut self, line: &[u8]) -> &'static str {
        if let PatchPlace::Hunk { old, new } = self.position
            && (old > 0 || new > 0 || line.starts_with(b"\\"))
        {
            let (old, new, style) = match line.first() {
                Some(b'+') => (old, new.saturating_sub(1), GREEN),
                Some(b'-') => (old.saturating_sub(1), new, RED),
                Some(b'\\') => (old, new, ""),
                _ => (old.saturating_sub(1), new.saturating_sub(1), ""),
            };
            self.position = PatchPlace::Hunk { old, new };
            return style;
        }
        match hunk(line) {
            Some((old, new)) => {
                self.position = PatchPlace::Hunk { old, new };
                CYAN
            }
            None => {
                self.position = PatchPlace::Header;
                BOLD
            }
        }
    }

    /// Formats changed words: each part of a line is a separate line, `~` ends the line of the
    /// file.
    fn write_words(&mut self, writer: &mut impl Write, chunk: LinePart<'_>) -> io::Result<()> {
        let LinePart { mut text, starts_line, ends_line } = chunk;
        if starts_line {
            let is_hunk = hunk(text).is_some();
            let starts_file = text.starts_with(b"diff --git ");
            if is_hunk || starts_file || self.position == PatchPlace::Header {
                self.position = match is_hunk {
                    true => PatchPlace::Hunk { old: 0, new: 0 },
                    false => PatchPlace::Header,
                };
                self.style = if is_hunk { CYAN } else { BOLD };
            } else {
                let (mark, rest) = text.split_at(text.len().min(1));
                self.style = match mark {
                    b"+" => GREEN,
                    b"-" => RED,
                    b"~" => return writer.write_all(b"\n"),
                    _ => "",
                };
                text = rest;
                return self.write_styled(writer, self.style, text);
            }
        }
        self.write_styled(writer, self.style, text)?;
        let is_line = matches!(self.style, CYAN | BOLD);
        if ends_line && is_line { writer.write_all(b"\n") } else { Ok(()) }
    }

    /// Formats ` path | 3 ++-` with a coloured bar.
    fn write_bar(&self, writer: &mut impl Write, text: &[u8]) -> io::Result<()> {
        let bar =
            text.iter().rposition(|byte| !matches!(byte, b'+' | b'-')).map_or(0, |index| index + 1);
        let is_bar = text[..bar].windows(3).any(|part| part == b" | ");
        if !is_bar {
            return self.write_styled(writer, "", text);
        }
        let (head, bar) = text.split_at(bar);
        let plus = bar.iter().take_while(|byte| **byte == b'+').count();
        self.write_styled(writer, "", head)?;
        self.write_styled(writer, GREEN, &bar[..plus])?;
        self.write_styled(writer, RED, &bar[plus..])
    }
}

/// Returns the lengths in `@@ -1,2 +3,4 @@`.
fn hunk(line: &[u8]) -> Option<(u64, u64)> {
    let line = line.strip_prefix(b"@@ -")?;
    let end = line.windows(3).position(|part| part == b" @@")?;
    let ranges = std::str::from_utf8(&line[..end]).ok()?;
    let (old, new) = ranges.split_once(" +")?;
    let length = |range: &str| match range.split_once(',') {
        Some((_, length)) => length.parse().ok(),
        None => range.parse::<u64>().ok().map(|_| 1),
    };
    Some((length(old)?, length(new)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &[u8], kind: PatchKind, colours: bool) -> String {
        let mut out = Vec::new();
        show(text, &mut out, kind, colours).unwrap();
        String::from_utf8(out).unwrap().replace('\u{1b}', "ESC")
    }

    #[test]
    fn lines_of_a_patch_are_coloured_by_position() {
        let patch = b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1 @@ fn\n--- old\n+++ new\n-x\n\\ No newline\ndiff --git a/b b/b\n";
        insta::assert_snapshot!(render(patch, PatchKind::Patch, true), @r"
        ESC[1mdiff --git a/a b/aESC[m
        ESC[1m--- a/aESC[m
        ESC[1m+++ b/aESC[m
        ESC[36m@@ -1,2 +1 @@ fnESC[m
        ESC[31m--- oldESC[m
        ESC[32m+++ newESC[m
        ESC[31m-xESC[m
        \ No newline
        ESC[1mdiff --git a/b b/bESC[m
        ");
    }

    #[test]
    fn nothing_of_a_line_is_hidden() {
        let patch = b"@@ -0,0 +1,3 @@\n+a\r\n+b\x1b[8mc\x1b]x\n+\xe2\x80\xae\xff\n";
        let rendered = render(patch, PatchKind::Patch, false);
        assert_eq!(rendered, "@@ -0,0 +1,3 @@\n+a^M\n+b^[[8mc^[]x\n+<U+202E><FF>\n");
    }

    #[test]
    fn changed_words_are_joined_to_lines() {
        let words =
            b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n one \n-two\n+three\n four\n~\n";
        assert_eq!(
            render(words, PatchKind::Words, true),
            "ESC[1mdiff --git a/a b/aESC[m\nESC[1m--- a/aESC[m\nESC[1m+++ b/aESC[m\n\
             ESC[36m@@ -1 +1 @@ESC[m\none ESC[31mtwoESC[mESC[32mthreeESC[m four\n"
                .replace("m four", "mfour")
        );
    }

    #[test]
    fn only_the_bars_of_a_stat_are_coloured() {
        let stat = b" a+b | 3 ++-\n x => y | Bin\n 2 files changed\n";
        assert_eq!(
            render(stat, PatchKind::Stat, true),
            " a+b | 3 ESC[32m++ESC[mESC[31m-ESC[m\n x => y | Bin\n 2 files changed\n"
        );
    }

    #[test]
    fn long_lines_are_copied_in_chunks_without_splitting_a_character() {
        let mut line = "+".to_owned();
        line.push_str(&"é\u{202e}".repeat(200_000));
        let patch = format!("@@ -0,0 +1 @@\n{line}\n");
        let expected = format!("@@ -0,0 +1 @@\n+{}\n", "é<U+202E>".repeat(200_000));
        assert!(render(patch.as_bytes(), PatchKind::Patch, false) == expected);
        assert!(render(b"+\xc3", PatchKind::Patch, false) == "+<C3>");
    }
}
