//! Parses the patch format: `*** Begin Patch`, then files that are added, deleted, updated or
//! moved, then `*** End Patch`.

use super::hunks::{Hunk, HunkLine};

/// A parsed patch: its file operations in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patch {
    /// The file operations.
    pub steps: Vec<FileStep>,
    /// Notes about ignored input, one sentence each.
    pub notes: Vec<String>,
}

/// An operation on one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileStep {
    /// Creates or replaces the file.
    Add {
        /// The path as written.
        path: String,
        /// The complete text.
        text: String,
    },
    /// Deletes the file.
    Delete {
        /// The path as written.
        path: String,
    },
    /// Changes the file, and moves it if a new path is given.
    Update {
        /// The path as written.
        path: String,
        /// The new path.
        to: Option<String>,
        /// The changes, from top to bottom.
        chunks: Vec<Chunk>,
    },
}

/// A change within a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Lines that precede the change, from the outermost to the nearest.
    pub context: Vec<String>,
    /// The changed lines.
    pub hunk: Hunk,
    /// Whether the change is at the end of the file.
    pub at_end: bool,
}

/// A parse error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PatchError {
    /// The line number, from 1; `None` if the error concerns the whole patch.
    pub line: Option<usize>,
    /// The error, as a clause.
    pub reason: String,
}

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// Parses a patch. Ignores missing markers and surrounding code fences, with a note.
pub(crate) fn read(text: &str) -> Result<Patch, PatchError> {
    let all_lines: Vec<&str> = text.lines().collect();
    let begin_line = all_lines.iter().position(|line| line.trim() == BEGIN);
    let first = all_lines.iter().position(|line| is_header(line));
    let mut notes = Vec::new();
    // Text after the first header is content, so a begin marker after it is ignored.
    let start = match (begin_line, first) {
        (Some(begin_line), first) if first.is_none_or(|first| begin_line < first) => begin_line + 1,
        (_, Some(first)) => {
            notes.push(format!("`{BEGIN}` is missing"));
            first
        }
        (_, None) => {
            return Err(PatchError::whole_patch_error(format!(
                "it has neither `{BEGIN}` nor a file"
            )));
        }
    };
    let end = all_lines.iter().rposition(|line| line.trim() == END).filter(|end| *end >= start);
    if end.is_none() {
        notes.push(format!("`{END}` is missing"));
    }
    let lines = &all_lines[..end.unwrap_or(all_lines.len())];
    let mut reader = Reader { lines, line_index: start, last_line: all_lines.len() };
    let mut steps = Vec::new();
    while let Some(step) = reader.step()? {
        steps.push(step);
    }
    if steps.is_empty() {
        return Err(PatchError::whole_patch_error(
            "patch rejected: empty patch. No valid hunks are in it",
        ));
    }
    Ok(Patch { steps, notes })
}

impl FileStep {
    /// Returns the paths of the operation, as written.
    pub(crate) fn paths(&self) -> Vec<&str> {
        match self {
            FileStep::Add { path, .. } | FileStep::Delete { path } => vec![path],
            FileStep::Update { path, to, .. } => {
                std::iter::once(path.as_str()).chain(to.as_deref()).collect()
            }
        }
    }
}

impl PatchError {
    fn whole_patch_error(reason: impl Into<String>) -> PatchError {
        PatchError { line: None, reason: reason.into() }
    }

    /// Returns the error as a sentence for the model.
    pub(crate) fn message(&self) -> String {
        match self.line {
            Some(line) => format!("the patch cannot be read: line {line}: {}", self.reason),
            None => format!("the patch cannot be read: {}", self.reason),
        }
    }
}

fn is_header(line: &str) -> bool {
    [ADD, DELETE, UPDATE].iter().any(|header| line.trim().starts_with(header))
}

/// Returns the path in a header.
fn path<'l>(line: &'l str, header: &str) -> Option<&'l str> {
    line.trim().strip_prefix(header).map(str::trim)
}

struct Reader<'l> {
    lines: &'l [&'l str],
    line_index: usize,
    /// The number of the last line of the text, from 1.
    last_line: usize,
}

impl<'l> Reader<'l> {
    fn line(&self) -> Option<&'l str> {
        self.lines.get(self.line_index).copied()
    }

    fn error_here<T>(&self, reason: impl Into<String>) -> Result<T, PatchError> {
        let line = (self.line_index + 1).min(self.last_line);
        Err(PatchError { line: Some(line), reason: reason.into() })
    }

    fn step(&mut self) -> Result<Option<FileStep>, PatchError> {
        let is_separator = |line: &str| line.trim().is_empty() || line.trim().starts_with("```");
        while self.line().is_some_and(is_separator) {
            self.line_index += 1;
        }
        let Some(line) = self.line() else { return Ok(None) };
        let header_and_path = [ADD, DELETE, UPDATE]
            .into_iter()
            .find_map(|header_text| Some((header_text, path(line, header_text)?)));
        let Some((header, path)) = header_and_path else {
            let shown_line = base::text::head(line.trim(), 80);
            return self.error_here(format!(
                "`{shown_line}` is not a file header; use `{ADD} PATH`, `{DELETE} PATH` and \
                 `{UPDATE} PATH`"
            ));
        };
        if path.is_empty() {
            return self.error_here(format!("`{header}` names no file"));
        }
        self.line_index += 1;
        let path = path.to_owned();
        match header {
            ADD => Ok(Some(FileStep::Add { path, text: self.added_lines() })),
            DELETE => Ok(Some(FileStep::Delete { path })),
            _ => self.update(path).map(Some),
        }
    }

    fn added_lines(&mut self) -> String {
        let mut text = String::new();
        while let Some(line) = self.line().and_then(|line| line.strip_prefix('+')) {
            text.push_str(line);
            text.push('\n');
            self.line_index += 1;
        }
        text
    }

    fn update(&mut self, path: String) -> Result<FileStep, PatchError> {
        let to = self.line().and_then(|line| self::path(line, MOVE)).map(str::to_owned);
        self.line_index += usize::from(to.is_some());
        let mut chunks = Vec::new();
        while self.line().is_some_and(|line| !is_header(line) && !line.trim().starts_with("```")) {
            let blank = self.line().is_some_and(|line| line.trim().is_empty());
            if blank && self.only_blanks_until_a_header() {
                break;
            }
            chunks.push(self.chunk(chunks.is_empty())?);
        }
        if chunks.is_empty() && to.is_none() {
            return self.error_here(format!("the update of `{path}` has no lines"));
        }
        Ok(FileStep::Update { path, to, chunks })
    }

    fn only_blanks_until_a_header(&self) -> bool {
        let rest = self.lines[self.line_index..].iter().find(|line| !line.trim().is_empty());
        rest.is_none_or(|line| is_header(line))
    }

    fn chunk(&mut self, first: bool) -> Result<Chunk, PatchError> {
        let mut chunk = Chunk::default();
        let start = self.line_index;
        while let Some(context) = self.line().and_then(|line| line.strip_prefix("@@")) {
            chunk.context.extend(context_of(context));
            self.line_index += 1;
        }
        if self.line_index == start && !first {
            return self.error_here("a further part of a file begins with `@@`");
        }
        while let Some(line) = self.line() {
            let mut chars = line.chars();
            let content = match chars.next() {
                Some(' ') => HunkLine::Keep(chars.as_str().to_owned()),
                Some('-') => HunkLine::Remove(chars.as_str().to_owned()),
                Some('+') => HunkLine::Add(chars.as_str().to_owned()),
                None if self.only_blanks_until_a_header() => break,
                None => HunkLine::Keep(String::new()),
                Some('@') => break,
                Some(_) if line.trim() == END_OF_FILE => {
                    chunk.at_end = true;
                    self.line_index += 1;
                    break;
                }
                Some(_) if is_header(line) || line.starts_with("```") => break,
                Some(_) => {
                    let shown_line = base::text::head(line, 80);
                    return self.error_here(format!(
                        "`{shown_line}` must start with ` `, `-`, `+` or `@@`"
                    ));
                }
            };
            chunk.hunk.lines.push(content);
            self.line_index += 1;
        }
        if chunk.hunk.lines.is_empty() {
            return self.error_here("a part of a file has no lines");
        }
        Ok(chunk)
    }
}

/// Returns the text after `@@`, or `None` if it contains only line numbers, which are not used.
fn context_of(text: &str) -> Option<String> {
    let text = text.strip_prefix(' ').unwrap_or(text);
    let numbers = text.trim_end().strip_suffix("@@").unwrap_or(text).trim();
    let is_number = |word: &str| {
        word.strip_prefix(['-', '+']).is_some_and(|rest| {
            !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit() || c == ',')
        })
    };
    let has_only_numbers = !numbers.is_empty() && numbers.split_whitespace().all(is_number);
    (!text.trim().is_empty() && !has_only_numbers).then(|| text.to_owned())
}

#[cfg(test)]
#[path = "apply_patch_tests.rs"]
mod tests;
