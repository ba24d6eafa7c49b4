//! Renders diffs for people: a header for each file, numbered lines, colours.

use base::text::{count, printable};

use super::markdown::RESET;
use super::wrap::cut_columns;

const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";

/// How a diff is rendered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiffView {
    /// Whether lines have colours; they always have their signs.
    pub colours: bool,
    /// Width in columns to which lines are cut; `None` keeps them whole.
    pub width: Option<usize>,
    /// Maximum number of lines.
    pub most: usize,
}

/// A line of a unified diff.
#[derive(Debug, PartialEq)]
enum DiffLine<'a> {
    /// The header of a file.
    File {
        from: &'a str,
        to: &'a str,
    },
    /// The header of a hunk, with the numbers of its first lines.
    Hunk {
        old: usize,
        new: usize,
    },
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
    /// Any other line: `\ No newline at end of file`, a binary file.
    Other(&'a str),
}

/// Renders a unified diff as lines. If lines are omitted, the last line says how many.
pub(crate) fn draw(diff: &str, view: DiffView) -> Vec<String> {
    let lines = parse(diff);
    let mut drawn = Vec::new();
    let (mut old, mut new, mut in_file) = (0, 0, false);
    for (index, line) in lines.iter().enumerate() {
        let text = match line {
            DiffLine::File { from, to } => {
                in_file = false;
                file(from, to, &lines[index + 1..], view)
            }
            DiffLine::Hunk { old: o, new: n } => {
                let gap = in_file.then(|| coloured(DIM, "      …", view));
                (old, new, in_file) = (*o, *n, true);
                let Some(gap) = gap else { continue };
                gap
            }
            DiffLine::Same(text) => {
                (old, new) = (old + 1, new + 1);
                numbered(new - 1, ' ', text, "", view)
            }
            DiffLine::Removed(text) => {
                old += 1;
                numbered(old - 1, '-', text, RED, view)
            }
            DiffLine::Added(text) => {
                new += 1;
                numbered(new - 1, '+', text, GREEN, view)
            }
            DiffLine::Other(text) => coloured(DIM, &format!("  {}", printable(text)), view),
        };
        drawn.push(text);
    }
    if drawn.len() > view.most {
        let more = drawn.len() - view.most;
        drawn.truncate(view.most);
        drawn.push(coloured(DIM, &format!("  … {}", count(more, "more line")), view));
    }
    drawn
}

/// Renders the header of a file: its path and the numbers of added and removed lines.
fn file(from: &str, to: &str, rest: &[DiffLine<'_>], view: DiffView) -> String {
    let lines = rest.iter().take_while(|line| !matches!(line, DiffLine::File { .. }));
    let (mut added, mut removed) = (0, 0);
    for line in lines {
        match line {
            DiffLine::Added(_) => added += 1,
            DiffLine::Removed(_) => removed += 1,
            DiffLine::Same(_)
            | DiffLine::Hunk { .. }
            | DiffLine::Other(_)
            | DiffLine::File { .. } => {}
        }
    }
    let (path, kind) = match (from, to) {
        (NO_FILE, to) => (to.strip_prefix("b/").unwrap_or(to), " (new)"),
        (from, NO_FILE) => (from.strip_prefix("a/").unwrap_or(from), " (deleted)"),
        (_, to) => (to.strip_prefix("b/").unwrap_or(to), ""),
    };
    let path = printable(path);
    match view.colours {
        true => {
            format!("  {BOLD}{path}{RESET}{kind}  {GREEN}+{added}{RESET} {RED}-{removed}{RESET}")
        }
        false => format!("  {path}{kind}  +{added} -{removed}"),
    }
}

fn numbered(number: usize, sign: char, text: &str, colour: &str, view: DiffView) -> String {
    let text = printable(text).replace('\t', "    ");
    let line = format!("{number:>5} {sign} {text}");
    let line = view.width.map_or_else(|| line.clone(), |width| cut_columns(&line, width));
    coloured(colour, line.trim_end(), view)
}

/// The name of the file that does not exist before or after a change.
const NO_FILE: &str = "/dev/null";
/// How the line below the last line of a text without a newline at its end begins.
const NO_NEWLINE: &str = "\\ ";

/// A hunk of a unified diff as two texts.
#[derive(Debug, PartialEq)]
pub(crate) struct ChangedLines {
    /// The file's name, as in the diff.
    pub file: String,
    /// The lines before the change; `None` if the change creates the file.
    pub old: Option<String>,
    /// The lines after the change.
    pub new: String,
}

/// Splits a unified diff into its hunks.
pub(crate) fn hunks(diff: &str) -> Vec<ChangedLines> {
    let mut all: Vec<ChangedLines> = Vec::new();
    let (mut file, mut is_created) = (String::new(), false);
    // Whether the last line belongs to the text before the change, and to the one after it.
    let (mut in_old, mut in_new) = (false, false);
    for line in parse(diff) {
        let text = match line {
            DiffLine::File { from, to } => {
                is_created = from == NO_FILE;
                let name = if to == NO_FILE { from } else { to };
                let bare = name.strip_prefix("a/").or_else(|| name.strip_prefix("b/"));
                file = bare.unwrap_or(name).to_owned();
                continue;
            }
            DiffLine::Hunk { .. } => {
                let old = (!is_created).then(String::new);
                all.push(ChangedLines { file: file.clone(), old, new: String::new() });
                continue;
            }
            DiffLine::Same(text) => {
                (in_old, in_new) = (true, true);
                text
            }
            DiffLine::Removed(text) => {
                (in_old, in_new) = (true, false);
                text
            }
            DiffLine::Added(text) => {
                (in_old, in_new) = (false, true);
                text
            }
            DiffLine::Other(text) => {
                if let Some(last) = all.last_mut().filter(|_| text.starts_with(NO_NEWLINE)) {
                    last.new.truncate(last.new.len() - usize::from(in_new));
                    last.old.as_mut().filter(|_| in_old).map(String::pop);
                }
                continue;
            }
        };
        let Some(last) = all.last_mut() else { continue };
        if in_new {
            last.new.extend([text, "\n"]);
        }
        if let Some(old) = last.old.as_mut().filter(|_| in_old) {
            old.extend([text, "\n"]);
        }
    }
    all
}

fn coloured(colour: &str, text: &str, view: DiffView) -> String {
    match view.colours && !colour.is_empty() {
        true => format!("{colour}{text}{RESET}"),
        false => text.to_owned(),
    }
}

/// Parses a unified diff. The counts of a hunk determine which lines are its content, regardless of
/// how they start.
fn parse(diff: &str) -> Vec<DiffLine<'_>> {
    let mut out = Vec::new();
    let mut lines = diff.split('\n').peekable();
    let (mut old_left, mut new_left) = (0, 0);
    while let Some(line) = lines.next() {
        if lines.peek().is_none() && line.is_empty() {
            break;
        }
        let in_hunk = old_left > 0 || new_left > 0;
        let marked = |sign: char| line.strip_prefix(sign).filter(|_| in_hunk);
        if let Some(text) = marked('-') {
            old_left = usize::saturating_sub(old_left, 1);
            out.push(DiffLine::Removed(text));
        } else if let Some(text) = marked('+') {
            new_left = usize::saturating_sub(new_left, 1);
            out.push(DiffLine::Added(text));
        } else if let Some(text) =
            marked(' ').or_else(|| Some(line).filter(|l| in_hunk && l.is_empty()))
        {
            old_left = usize::saturating_sub(old_left, 1);
            new_left = usize::saturating_sub(new_left, 1);
            out.push(DiffLine::Same(text));
        } else if let Some(hunk) = hunk(line) {
            (old_left, new_left) = (hunk[1], hunk[3]);
            out.push(DiffLine::Hunk { old: hunk[0], new: hunk[2] });
        } else if let Some(from) = line.strip_prefix("--- ") {
            let to = lines.next().and_then(|next| next.strip_prefix("+++ ")).unwrap_or(from);
            out.push(DiffLine::File { from, to });
        } else if !is_git_header(line) {
            out.push(DiffLine::Other(line));
        }
    }
    out
}

/// Returns whether git writes this line between two files. The lines below it say the same.
fn is_git_header(line: &str) -> bool {
    const WORDS: [&str; 3] = ["diff --git ", "index ", "similarity index "];
    WORDS.iter().any(|word| line.starts_with(word))
}

/// Parses the numbers of `@@ -old,lines +new,lines @@`.
fn hunk(line: &str) -> Option<[usize; 4]> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let range = |text: &str| -> Option<(usize, usize)> {
        match text.split_once(',') {
            Some((start, lines)) => Some((start.parse().ok()?, lines.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    let ((old, old_lines), (new, new_lines)) = (range(old)?, range(new)?);
    Some([old, old_lines, new, new_lines])
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,3 +1,3 @@\n fn main() {\n-    one();\n+    two();\n }\n@@ -9,2 +9,3 @@\n x\n+-- not a header\n y\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+hi\u{1b}[2J\n\\ No newline at end of file\n";

    fn view(most: usize) -> DiffView {
        DiffView { colours: false, width: Some(30), most }
    }

    #[test]
    fn files_lines_and_numbers_are_shown() {
        insta::assert_snapshot!(draw(DIFF, view(99)).join("\n"), @r#"
        src/a.rs  +2 -1
          1   fn main() {
          2 -     one();
          2 +     two();
          3   }
            …
          9   x
         10 + -- not a header
         11   y
        new.txt (new)  +1 -0
          1 + hi^[[2J
        \ No newline at end of file
        "#);
    }

    #[test]
    fn a_hunk_is_two_texts() {
        let file = "src/a.rs".to_owned();
        let old = Some("fn main() {\n    one();\n}\n".to_owned());
        let new = "fn main() {\n    two();\n}\n".to_owned();
        let all = hunks(DIFF);
        assert_eq!(all[0], ChangedLines { file, old, new });
        assert_eq!(all[1].new, "x\n-- not a header\ny\n");
        let created =
            ChangedLines { file: "new.txt".to_owned(), old: None, new: "hi\u{1b}[2J".into() };
        assert_eq!(all[2..], [created]);
        let deleted = hunks("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-hi\n");
        assert_eq!((deleted[0].old.as_deref(), &*deleted[0].new), (Some("hi\n"), ""));
        assert_eq!(deleted[0].file, "x");
    }

    #[test]
    fn omitted_lines_are_counted() {
        let drawn = draw(DIFF, view(3));
        assert_eq!(drawn.len(), 4);
        assert_eq!(drawn[3], "  … 9 more lines");
    }

    #[test]
    fn removed_and_added_lines_are_coloured() {
        let drawn = draw(DIFF, DiffView { colours: true, ..view(99) }).join("\n");
        assert!(drawn.contains("\u{1b}[31m    2 -     one();\u{1b}[0m"), "{drawn:?}");
        assert!(drawn.contains("\u{1b}[32m    2 +     two();\u{1b}[0m"), "{drawn:?}");
    }
}
