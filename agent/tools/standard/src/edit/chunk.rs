//! Applies the changes of a patch to a text, from top to bottom.

use std::ops::Range;

use super::apply_patch::Chunk;
use super::diff::{self, HunkPlace};
use super::hunks::{Hunk, HunkLine};
use super::locate::{LineTolerance, TextLines};
use super::text::FileText;

/// A changed text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChangedText {
    /// The new text, which ends with a newline.
    pub text: String,
    /// Notes about tolerated deviations, one sentence each.
    pub notes: Vec<String>,
}

/// Applies changes to a text. The error names the change that does not match.
pub(crate) fn apply(before: &str, chunks: &[Chunk]) -> Result<ChangedText, String> {
    let file = FileText::new(before.to_owned());
    let lines = TextLines::new(file.plain());
    let (mut changes, mut notes, mut cursor) = (Vec::new(), Vec::new(), 0);
    for (index, chunk) in chunks.iter().enumerate() {
        let number = index + 1;
        let chunk_place =
            find(&lines, chunk, cursor).map_err(|error| format!("part {number}: {error}"))?;
        cursor = chunk_place.place.lines.end;
        notes.extend(chunk_place.notes.into_iter().map(|note| format!("part {number} {note}")));
        changes.push(diff::change(&lines, file.plain(), &chunk.hunk, &chunk_place.place));
    }
    let mut text = file.apply_changes(changes);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push_str(if text.contains("\r\n") { "\r\n" } else { "\n" });
    }
    Ok(ChangedText { text, notes })
}

/// The position of a change.
struct ChunkPlace {
    place: HunkPlace,
    notes: Vec<String>,
}

fn find(lines: &TextLines<'_>, chunk: &Chunk, from: usize) -> Result<ChunkPlace, String> {
    let mut notes = Vec::new();
    let mut cursor = from;
    for context in &chunk.context {
        let (line_index, is_whole) = after_context(lines, context, cursor)
            .ok_or_else(|| format!("the line `{context}` behind `@@` is not found"))?;
        if !is_whole {
            notes.push(format!(
                "was found after line {}, which contains more than `{context}`",
                line_index + 1
            ));
        }
        cursor = line_index + 1;
    }
    let old = chunk.hunk.before();
    if old.is_empty() {
        let line_index =
            if chunk.context.is_empty() || chunk.at_end { lines.count() } else { cursor };
        let place =
            HunkPlace { lines: line_index..line_index, pass: LineTolerance::Exact, dropped: 0 };
        return Ok(ChunkPlace { place, notes });
    }
    // The line after `@@` may also be one of the change's lines.
    let earlier = cursor.saturating_sub(usize::from(!chunk.context.is_empty())).max(from);
    let starts = if earlier < cursor { vec![cursor, earlier] } else { vec![cursor] };
    let dropped = usize::from(ends_with_empty_line(&chunk.hunk) && old.len() > 1);
    for (dropped, start) in [0, dropped]
        .into_iter()
        .take(dropped + 1)
        .flat_map(|dropped| starts.iter().map(move |start| (dropped, *start)))
    {
        let block = &old[..old.len() - dropped];
        let Some((range, tolerance, places)) = first_match(lines, block, start, chunk.at_end)
        else {
            continue;
        };
        if let Some(note) = tolerance.tolerance_note() {
            let line = range.start + 1;
            notes.push(format!("fits at line {line} only without regard to {note}"));
        }
        if places > 1 {
            let line = range.start + 1;
            notes.push(format!("fits {places} places; the first, at line {line}, was taken"));
        }
        return Ok(ChunkPlace {
            place: HunkPlace { lines: range, pass: tolerance, dropped },
            notes,
        });
    }
    let earlier_line =
        LineTolerance::ALL.iter().find_map(|tolerance| lines.find(&old, 0..from, *tolerance).pop());
    Err(match earlier_line {
        Some(line_index) => format!(
            "its lines stand at line {}, which is before the part before it: give the parts in \
             the order of the file",
            line_index + 1
        ),
        None => diff::not_found_message("it", lines, &chunk.hunk),
    })
}

/// Returns the line that a context refers to: an equal one, otherwise one that contains it.
fn after_context(lines: &TextLines<'_>, context: &str, from: usize) -> Option<(usize, bool)> {
    let lines_after = || from..lines.count();
    let exact = LineTolerance::ALL
        .iter()
        .find_map(|pass| lines.find(&[context], lines_after(), *pass).first().copied());
    let contains =
        || lines_after().find(|line_index| lines.line(*line_index).contains(context.trim()));
    exact
        .map(|line_index| (line_index, true))
        .or_else(|| contains().map(|line_index| (line_index, false)))
}

/// Finds the first match of a block with the strictest tolerance that has any, and the number of
/// matches. Looks at the end of the file first if the change is marked so.
fn first_match(
    lines: &TextLines<'_>,
    block: &[&str],
    from: usize,
    at_end: bool,
) -> Option<(Range<usize>, LineTolerance, usize)> {
    let matches_of = |tolerance| lines.find(block, from..lines.count(), tolerance);
    let range = |line_index: usize| line_index..line_index + block.len();
    let last = |tolerance| {
        matches_of(tolerance).pop().filter(|line_index| line_index + block.len() == lines.count())
    };
    let at_file_end = || {
        LineTolerance::ALL
            .iter()
            .find_map(|tolerance| Some((range(last(*tolerance)?), *tolerance, 1)))
    };
    let forward = || {
        LineTolerance::ALL.iter().find_map(|tolerance| {
            let matches = matches_of(*tolerance);
            Some((range(*matches.first()?), *tolerance, matches.len()))
        })
    };
    if at_end { at_file_end().or_else(forward) } else { forward() }
}

/// Whether the last line that must be in the file is empty and nothing follows it.
fn ends_with_empty_line(hunk: &Hunk) -> bool {
    match hunk.lines.last() {
        Some(HunkLine::Keep(text) | HunkLine::Remove(text)) => text.is_empty(),
        Some(HunkLine::Add(_)) | None => false,
    }
}

#[cfg(test)]
#[path = "chunk_tests.rs"]
mod tests;
