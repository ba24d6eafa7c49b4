//! `str_replace`: applies a unified diff to one file, all of it or nothing.

use std::ops::Range;

use base::text::count;
use serde::Deserialize;
use serde_json::json;

use super::hunks::{self, FileDiff, Hunk, HunkLine};
use super::locate::{self, IndentShift, LineTolerance, TextLines};
use super::text::{FileText, LoadedText, TextChange, load, not_written, store};
use tools::call::Invocation;
use tools::fs::read_tracker::EditFit;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    diff: String,
    start: Option<usize>,
    end: Option<usize>,
}

/// The position of a hunk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HunkPlace {
    /// The lines that it replaces, counted from 0.
    pub lines: Range<usize>,
    /// The tolerance that was needed.
    pub pass: LineTolerance,
    /// Number of empty lines at the end of the hunk that are ignored.
    pub dropped: usize,
}

/// The result of applying a diff to a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AppliedDiff {
    /// The new text.
    pub text: String,
    /// Number of inserted lines.
    pub insertions: usize,
    /// Number of deleted lines.
    pub deletions: usize,
    /// Notes about tolerated deviations, one sentence each.
    pub notes: Vec<String>,
}

/// The tool that applies a unified diff to a file.
pub(crate) struct DiffTool;

impl Tool for DiffTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("edit.diff", Effect::Writes).with_preview()
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::writing(vec![call.path.clone()], &call.path)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(call.blocking(run))
    }
}

/// Applies the diff.
fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let args: Args = call.decode()?;
    let diff = hunks::read(&args.diff, &call.path);
    if !diff.hunks.iter().any(Hunk::changes) {
        return Err(ToolError::invalid(
            "the diff has no line that starts with `+` or `-`, so it changes nothing",
        ));
    }
    let display_path = call.display_own_path();
    let new_file = diff.creates && !call.path.exists();
    let empty = LoadedText { text: String::new(), changed: None };
    let before = if new_file { empty } else { load(call, &call.path)? };
    let mut applied = apply(&before.text, &diff, args.start, args.end).map_err(|error| {
        let message = before.explain(call, &call.path, error.text);
        ToolError::new(error.kind, format!("{display_path}: {message}"))
    })?;
    let edit_fit = if applied.notes.is_empty() { EditFit::Exact } else { EditFit::Loose };
    applied.notes.extend(before.check(call, &call.path, edit_fit)?);
    if diff.deletes && applied.text.is_empty() {
        call.remove(&call.path)
            .map_err(|e| ToolError::io(&format!("cannot remove {display_path}"), &e))?;
    } else {
        if new_file {
            call.create_parents(&call.path)
                .map_err(|e| ToolError::io(&format!("cannot write {display_path}"), &e))?;
        }
        store(call, &call.path, &applied.text)?;
    }
    let AppliedDiff { insertions, deletions, notes, .. } = &applied;
    let mut text = format!(
        "{display_path}: {}, {}",
        count(*insertions, "insertion"),
        count(*deletions, "deletion")
    );
    for note in notes {
        text.push_str(&format!("\n[note: {note}]"));
    }
    let metadata = json!({
        "path": call.path, "insertions": insertions, "deletions": deletions, "notes": notes,
    });
    Ok(ToolOutput::success(text).titled(format!("edited {display_path}")).with(metadata))
}

/// Applies a diff to a text. `start` and `end` (characters, end exclusive) limit the positions of
/// hunks.
pub(crate) fn apply(
    before: &str,
    diff: &FileDiff,
    start: Option<usize>,
    end: Option<usize>,
) -> Result<AppliedDiff, ToolError> {
    let file = FileText::new(before.to_owned());
    let lines = TextLines::new(file.plain());
    let search_range = range(&file, &lines, start, end)?;
    let mut used: Vec<Range<usize>> = Vec::new();
    let mut changes = Vec::new();
    let mut applied =
        AppliedDiff { text: String::new(), insertions: 0, deletions: 0, notes: Vec::new() };
    for (i, hunk) in diff.hunks.iter().enumerate().filter(|(_, hunk)| hunk.changes()) {
        let place = find_place(&lines, hunk, &search_range, &used)
            .map_err(|error| error.message(i + 1, &lines, hunk))?;
        if let Some(note) = place.pass.tolerance_note() {
            let line = place.lines.start + 1;
            applied
                .notes
                .push(format!("hunk {} fits at line {line} only without regard to {note}", i + 1));
        }
        used.push(place.lines.clone());
        changes.push(change(&lines, file.plain(), hunk, &place));
        let count =
            |is_kind: fn(&HunkLine) -> bool| hunk.lines.iter().filter(|line| is_kind(line)).count();
        applied.insertions += count(|line| matches!(line, HunkLine::Add(_)));
        applied.deletions += count(|line| matches!(line, HunkLine::Remove(_)));
    }
    applied.text = file.apply_changes(changes);
    Ok(applied)
}

/// Returns the lines between two characters.
fn range(
    file: &FileText,
    lines: &TextLines<'_>,
    start: Option<usize>,
    end: Option<usize>,
) -> Result<Range<usize>, ToolError> {
    let total = file.raw().chars().count();
    let position = |name: &str, character: usize| {
        file.position(character).ok_or_else(|| {
            ToolError::invalid(format!(
                "`{name}` ({character}) is past the end: the file has {total} characters"
            ))
        })
    };
    let first = start.map_or(Ok(0), |character| position("start", character))?;
    let last = end.map_or(Ok(file.plain().len()), |character| position("end", character))?;
    if first > last {
        return Err(ToolError::invalid("`start` is past `end`"));
    }
    let count = lines.count();
    let first = (0..count).find(|line| lines.start(*line) >= first).unwrap_or(count);
    // A line is in the range if its last character is, with or without its newline.
    let line_end = |line: usize| lines.start(line) + lines.line(line).len();
    let last = (first..count)
        .take_while(|line| line_end(*line) <= last)
        .last()
        .map_or(first, |line| line + 1);
    Ok(first..last)
}

/// Why a hunk has no position.
enum Miss {
    NotFound,
    /// The line numbers, from 1, of all matches.
    Several(Vec<usize>),
    /// The hunk has no lines to match and no line number.
    Nowhere,
    /// The hunk has no lines to match, and an earlier hunk changes the lines around its line number.
    Within(usize),
}

fn find_place(
    lines: &TextLines<'_>,
    hunk: &Hunk,
    search_range: &Range<usize>,
    used: &[Range<usize>],
) -> Result<HunkPlace, Miss> {
    let old = hunk.before();
    if old.is_empty() {
        let line_index = match hunk.line {
            _ if lines.count() == 0 => 0,
            // `-10,0` inserts after line 10.
            Some(line) if used.iter().any(|t| t.start < line && line < t.end) => {
                return Err(Miss::Within(line));
            }
            Some(line) if (search_range.start..=search_range.end).contains(&line) => line,
            Some(_) | None => return Err(Miss::Nowhere),
        };
        return Ok(HunkPlace {
            lines: line_index..line_index,
            pass: LineTolerance::Exact,
            dropped: 0,
        });
    }
    let trailing = match hunk.lines.last() {
        Some(HunkLine::Keep(_)) => old.iter().rev().take_while(|line| line.is_empty()).count(),
        Some(HunkLine::Remove(_) | HunkLine::Add(_)) | None => 0,
    };
    let blocks = [0, trailing].into_iter().take(if trailing > 0 { 2 } else { 1 });
    for (dropped, tolerance) in
        blocks.flat_map(|dropped| LineTolerance::ALL.map(|tolerance| (dropped, tolerance)))
    {
        let block = &old[..old.len() - dropped];
        let mut matches = lines.find(block, search_range.clone(), tolerance);
        matches.retain(|line_index| {
            !used.iter().any(|t| line_index + block.len() > t.start && *line_index < t.end)
        });
        let line_index = match matches.as_slice() {
            [] => continue,
            [line_index] => *line_index,
            several => nearest_to(several, hunk.line).ok_or_else(|| {
                Miss::Several(several.iter().map(|line_index| line_index + 1).collect())
            })?,
        };
        return Ok(HunkPlace {
            lines: line_index..line_index + block.len(),
            pass: tolerance,
            dropped,
        });
    }
    Err(Miss::NotFound)
}

/// Selects the match at the given line number, or one that is far nearer to it than the others.
fn nearest_to(places: &[usize], line: Option<usize>) -> Option<usize> {
    let expected = line?.saturating_sub(1);
    let mut by_distance: Vec<usize> = places.to_vec();
    by_distance.sort_by_key(|line_index| line_index.abs_diff(expected));
    let (first, second) = (by_distance[0], by_distance[1]);
    (first.abs_diff(expected).saturating_mul(2) < second.abs_diff(expected)).then_some(first)
}

/// Applies a hunk to the text at its position. Context lines are copied from the file.
pub(crate) fn change(
    lines: &TextLines<'_>,
    text: &str,
    hunk: &Hunk,
    place: &HunkPlace,
) -> TextChange {
    let span = lines.span(place.lines.clone());
    let old = hunk.before();
    let original = place.lines.clone().map(|line_index| lines.line(line_index));
    let indent_shift = match place.pass {
        LineTolerance::Exact | LineTolerance::Trailing => IndentShift::None,
        LineTolerance::Indent | LineTolerance::Punctuation => {
            IndentShift::of_lines(old.iter().copied().zip(original))
        }
    };
    let count = hunk.lines.len() - place.dropped;
    let mut line_index = place.lines.start;
    let mut new: Vec<(String, bool)> = Vec::new();
    for (i, line) in hunk.lines[..count].iter().enumerate() {
        let is_unended = hunk.without_newline.contains(&i);
        match line {
            HunkLine::Keep(_) => new.push((lines.line(line_index).to_owned(), is_unended)),
            HunkLine::Add(text) => new.push((indent_shift.apply(text), is_unended)),
            HunkLine::Remove(_) => {}
        }
        line_index += usize::from(!matches!(line, HunkLine::Add(_)));
    }
    let at_end = span.end == text.len();
    let has_final_newline = text.is_empty() || text.ends_with('\n');
    // Without a marker the end of the file does not change.
    let is_unended = at_end
        && if hunk.without_newline.is_empty() {
            !has_final_newline
        } else {
            new.last().is_some_and(|(_, u)| *u)
        };
    let mut by: String = new.into_iter().map(|(line, _)| line + "\n").collect();
    if is_unended {
        by.pop();
    }
    if span.start == text.len() && !has_final_newline {
        by.insert(0, '\n');
    }
    TextChange { span, by }
}

impl Miss {
    fn message(self, number: usize, lines: &TextLines<'_>, hunk: &Hunk) -> ToolError {
        let text = match self {
            Miss::Nowhere => format!(
                "hunk {number} has neither context nor removed lines, and no line number that says \
                 where it goes; add the lines around it"
            ),
            Miss::Within(line) => format!(
                "hunk {number} inserts after line {line}, within the lines that an earlier hunk \
                 changes; make one hunk of both"
            ),
            Miss::Several(places) => format!(
                "hunk {number} fits {} places (lines {}), and its line number does not decide; add \
                 context lines, or limit the search with `start` and `end`",
                places.len(),
                places.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
            ),
            Miss::NotFound => not_found_message(&format!("hunk {number}"), lines, hunk),
        };
        ToolError::new(ToolErrorKind::Failed, not_written(&text))
    }
}

/// Whether the result of a hunk already is in the text: in exactly one place, with at least one
/// distinctive line (not only braces).
fn is_made(lines: &TextLines<'_>, hunk: &Hunk) -> bool {
    let after = hunk.after();
    let has_additions = hunk.lines.iter().any(|line| matches!(line, HunkLine::Add(_)));
    let distinctive = after.iter().filter(|line| locate::is_distinctive(line)).count();
    distinctive > usize::from(!has_additions)
        && lines.find(&after, 0..lines.count(), LineTolerance::Exact).len() == 1
}

/// Explains that a hunk does not match, with its lines and the most similar ones.
pub(crate) fn not_found_message(which: &str, lines: &TextLines<'_>, hunk: &Hunk) -> String {
    if is_made(lines, hunk) {
        return format!("{which} is not found, but its result is there (already applied?)");
    }
    let old = hunk.before();
    let preview = old.join("\n");
    let mut text = format!("{which} is not found:\n{}", base::text::head(&preview, 200));
    if let Some((line_index, _)) = lines.nearest(&old) {
        let last = (line_index + old.len().min(10)).min(lines.count());
        let actual: Vec<String> =
            (line_index..last).map(|i| format!("{}: {}", i + 1, lines.line(i))).collect();
        text.push_str(&format!("\nthe file's most similar lines:\n{}\n", actual.join("\n")));
    }
    text
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
