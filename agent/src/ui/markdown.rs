//! Markdown painted while it streams: headings, lists, code and emphasis, character by character,
//! so that words appear when they come and not when their paragraph is complete.

const BOLD: &str = "\u{1b}[1m";
const BOLD_AGAIN: &str = "\u{1b}[0;1m";
const CODE: &str = "\u{1b}[36m";
const HEADING: &str = "\u{1b}[1;35m";
const DIM: &str = "\u{1b}[2m";
const RESET: &str = "\u{1b}[0m";

/// Paints text that has no control sequences of its own. It never reorders or drops words: without
/// colours what comes out is what went in.
#[derive(Debug, Default)]
pub struct Painter {
    /// What may still become a marker: the beginning of a line, or one star.
    held: String,
    line: Line,
    fenced: bool,
    bold: bool,
    code: bool,
}

/// What the current line is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Line {
    /// Its first characters do not tell yet.
    #[default]
    Unknown,
    Text,
    Heading,
    Fence,
    Code,
}

impl Painter {
    /// Paints the next piece.
    pub fn paint(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 16);
        for c in text.chars() {
            match (self.line, c) {
                (_, '\n') => self.end_line(&mut out),
                (Line::Unknown, c) => self.begin(c, &mut out),
                (Line::Text, c) => self.inline(c, &mut out),
                (Line::Heading | Line::Fence | Line::Code, c) => out.push(c),
            }
        }
        out
    }

    /// Ends the text: what was held back comes out and colours are reset.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.release(&mut out);
        let plain = matches!(self.line, Line::Unknown | Line::Text) && !self.bold && !self.code;
        if !plain {
            out.push_str(RESET);
        }
        *self = Painter::default();
        out
    }

    fn end_line(&mut self, out: &mut String) {
        self.release(out);
        if self.line == Line::Fence {
            self.fenced = !self.fenced;
        }
        let painted = self.bold || self.code;
        if painted || matches!(self.line, Line::Heading | Line::Fence | Line::Code) {
            out.push_str(RESET);
        }
        (self.bold, self.code, self.line) = (false, false, Line::Unknown);
        out.push('\n');
    }

    /// Lets out what was held back, as it is.
    fn release(&mut self, out: &mut String) {
        out.push_str(&std::mem::take(&mut self.held));
    }

    /// One more character of a line's beginning.
    fn begin(&mut self, c: char, out: &mut String) {
        let mut start = std::mem::take(&mut self.held);
        start.push(c);
        let Some(line) = kind(&start, self.fenced) else {
            self.held = start;
            return;
        };
        self.line = line;
        match line {
            Line::Heading => out.push_str(HEADING),
            Line::Fence => out.push_str(DIM),
            Line::Code => out.push_str(CODE),
            Line::Text => return start.chars().for_each(|c| self.inline(c, out)),
            Line::Unknown => {}
        }
        out.push_str(&start);
    }

    fn inline(&mut self, c: char, out: &mut String) {
        let star = std::mem::take(&mut self.held) == "*";
        if star && c == '*' && !self.code {
            self.bold = !self.bold;
            return out.push_str(if self.bold { BOLD } else { RESET });
        }
        if star {
            out.push('*');
        }
        match c {
            '*' if !self.code => self.held.push('*'),
            '`' => {
                self.code = !self.code;
                let back = if self.bold { BOLD_AGAIN } else { RESET };
                out.push_str(if self.code { CODE } else { back });
            }
            c => out.push(c),
        }
    }
}

/// What a line is, told by its beginning; `None` when more is needed.
fn kind(start: &str, fenced: bool) -> Option<Line> {
    let marker = start.trim_start();
    if marker.is_empty() && start.len() < 4 {
        return None;
    }
    if marker.starts_with("```") {
        return Some(Line::Fence);
    }
    if !marker.is_empty() && "```".starts_with(marker) {
        return None;
    }
    if fenced {
        return Some(Line::Code);
    }
    let hashes = marker.bytes().take_while(|b| *b == b'#').count();
    match marker.as_bytes().get(hashes) {
        None if (1..=6).contains(&hashes) => None,
        Some(b' ') if (1..=6).contains(&hashes) => Some(Line::Heading),
        None | Some(_) => Some(Line::Text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painted(pieces: &[&str]) -> String {
        let mut painter = Painter::default();
        let mut out: String = pieces.iter().map(|piece| painter.paint(piece)).collect();
        out.push_str(&painter.finish());
        out.replace('\u{1b}', "^")
    }

    #[test]
    fn marks_become_colours() {
        assert_eq!(painted(&["# Top\n"]), "^[1;35m# Top^[0m\n");
        assert_eq!(painted(&["a **b** `c`\n"]), "a ^[1mb^[0m ^[36mc^[0m\n");
        assert_eq!(
            painted(&["```rust\nlet a = \"**\";\n```\nend"]),
            "^[2m```rust^[0m\n^[36mlet a = \"**\";^[0m\n^[2m```^[0m\nend"
        );
        assert_eq!(painted(&["2 * 3 * 4\n* item\n"]), "2 * 3 * 4\n* item\n");
    }

    #[test]
    fn where_the_stream_is_cut_makes_no_difference() {
        let text = "# T\n\n- **one** `two`\n  ```sh\n  ls *\n  ```\n#hash 1 * 2";
        let whole = painted(&[text]);
        for at in (1..text.len()).filter(|at| text.is_char_boundary(*at)) {
            assert_eq!(painted(&[&text[..at], &text[at..]]), whole, "cut at {at}");
        }
    }
}
