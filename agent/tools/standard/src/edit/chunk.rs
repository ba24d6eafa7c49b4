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
    for (at, chunk) in chunks.iter().enumerate() {
        let number = at + 1;
        let found = find(&lines, chunk, cursor).map_err(|why| format!("part {number}: {why}"))?;
        cursor = found.place.lines.end;
        notes.extend(found.notes.into_iter().map(|note| format!("part {number} {note}")));
        changes.push(diff::change(&lines, file.plain(), &chunk.hunk, &found.place));
    }
    let mut text = file.changed(changes);
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
        let (at, is_whole) = behind(lines, context, cursor)
            .ok_or_else(|| format!("the line `{context}` behind `@@` is not found"))?;
        if !is_whole {
            notes.push(format!(
                "was found after line {}, which contains more than `{context}`",
                at + 1
            ));
        }
        cursor = at + 1;
    }
    let old = chunk.hunk.before();
    if old.is_empty() {
        let at = if chunk.context.is_empty() || chunk.at_end { lines.count() } else { cursor };
        let place = HunkPlace { lines: at..at, pass: LineTolerance::Exact, dropped: 0 };
        return Ok(ChunkPlace { place, notes });
    }
    // The line after `@@` may also be one of the change's lines.
    let before = cursor.saturating_sub(usize::from(!chunk.context.is_empty())).max(from);
    let starts = if before < cursor { vec![cursor, before] } else { vec![cursor] };
    let dropped = usize::from(ends_empty(&chunk.hunk) && old.len() > 1);
    for (dropped, start) in [0, dropped]
        .into_iter()
        .take(dropped + 1)
        .flat_map(|dropped| starts.iter().map(move |start| (dropped, *start)))
    {
        let block = &old[..old.len() - dropped];
        let Some((range, pass, places)) = first(lines, block, start, chunk.at_end) else {
            continue;
        };
        if let Some(forgiven) = pass.forgiven() {
            let line = range.start + 1;
            notes.push(format!("fits at line {line} only without regard to {forgiven}"));
        }
        if places > 1 {
            let line = range.start + 1;
            notes.push(format!("fits {places} places; the first, at line {line}, was taken"));
        }
        return Ok(ChunkPlace { place: HunkPlace { lines: range, pass, dropped }, notes });
    }
    let elsewhere =
        LineTolerance::EACH.iter().find_map(|pass| lines.find(&old, 0..from, *pass).pop());
    Err(match elsewhere {
        Some(at) => format!(
            "its lines stand at line {}, which is before the part before it: give the parts in \
             the order of the file",
            at + 1
        ),
        None => diff::not_found("it", lines, &chunk.hunk),
    })
}

/// Returns the line that a context refers to: an equal one, otherwise one that contains it.
fn behind(lines: &TextLines<'_>, context: &str, from: usize) -> Option<(usize, bool)> {
    let all = || from..lines.count();
    let equal = LineTolerance::EACH
        .iter()
        .find_map(|pass| lines.find(&[context], all(), *pass).first().copied());
    let contains = || all().find(|at| lines.line(*at).contains(context.trim()));
    equal.map(|at| (at, true)).or_else(|| contains().map(|at| (at, false)))
}

/// Finds the first match of a block with the strictest tolerance that has any, and the number of
/// matches. Looks at the end of the file first if the change is marked so.
fn first(
    lines: &TextLines<'_>,
    block: &[&str],
    from: usize,
    at_end: bool,
) -> Option<(Range<usize>, LineTolerance, usize)> {
    let places = |pass| lines.find(block, from..lines.count(), pass);
    let range = |at: usize| at..at + block.len();
    let last = |pass| places(pass).pop().filter(|at| at + block.len() == lines.count());
    let tail = || LineTolerance::EACH.iter().find_map(|pass| Some((range(last(*pass)?), *pass, 1)));
    let ahead = || {
        LineTolerance::EACH.iter().find_map(|pass| {
            let found = places(*pass);
            Some((range(*found.first()?), *pass, found.len()))
        })
    };
    if at_end { tail().or_else(ahead) } else { ahead() }
}

/// Whether the last line that must be in the file is empty and nothing follows it.
fn ends_empty(hunk: &Hunk) -> bool {
    match hunk.lines.last() {
        Some(HunkLine::Keep(text) | HunkLine::Remove(text)) => text.is_empty(),
        Some(HunkLine::Add(_)) | None => false,
    }
}

#[cfg(test)]
#[path = "chunk_tests.rs"]
mod tests;
