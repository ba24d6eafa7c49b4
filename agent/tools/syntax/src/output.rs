//! Formats the results of searches: text for the model, metadata for programs.

use serde_json::{Value, json};

use super::collector::{SearchCollector, SearchTotals};
use super::request::{SyntaxSearch, SyntaxSearchRequest};
use super::searcher::{ContextLine, SyntaxMatch};
use tools::call::Invocation;
use tools::output::ToolOutput;

/// Maximum number of bytes of matches.
const MAX_BYTES: usize = 60_000;
/// The same for a small model.
const MAX_PLAIN_BYTES: usize = 8_000;

/// A formatted search.
struct Part {
    text: String,
    json: Value,
    is_truncated: bool,
}

/// Describes why none of the searches can run.
pub(crate) fn errors(searches: &[SyntaxSearch]) -> String {
    let messages = searches
        .iter()
        .map(|search| format!("{}: {}", search.name, search.error.as_deref().unwrap_or_default()));
    messages.collect::<Vec<_>>().join("\n")
}

/// Returns the outcome of all searches, in the requested order.
pub(crate) fn to_output(
    call: &Invocation<'_>,
    request: &SyntaxSearchRequest,
    collector: &SearchCollector,
) -> ToolOutput {
    let mut remaining = if call.context.plain { MAX_PLAIN_BYTES } else { MAX_BYTES };
    let mut parts = Vec::new();
    for (index, (search, totals)) in request.searches.iter().zip(&collector.totals).enumerate() {
        // Space that an earlier search did not use is shared by the later ones.
        let part = part(call, search, totals, remaining / (request.searches.len() - index));
        remaining = remaining.saturating_sub(part.text.len());
        parts.push(part);
    }
    let mut notes = request.notes.clone();
    notes.extend(collector.notes(|path| call.display_path(path)));
    let total: usize = collector.totals.iter().map(|totals| totals.matches.len()).sum();
    let metadata = json!({
        "searches": parts.iter().map(|part| &part.json).collect::<Vec<_>>(),
        "total_matches": total,
        "total_files_searched": collector.files,
        "truncated": parts.iter().any(|part| part.is_truncated),
        "notes": notes,
    });
    let mut text: Vec<String> = parts.into_iter().map(|part| part.text).collect();
    if request.searches.len() > 1 {
        let searches = request.searches.len();
        let (matches_text, files) =
            (count_text(total, "match", "matches"), count_text(collector.files, "file", "files"));
        text.push(format!("{matches_text} of {searches} searches in {files}"));
    }
    text.extend(notes.iter().map(|note| format!("[note: {note}]")));
    ToolOutput::success(text.join("\n")).titled(format!("{total} matches")).with(metadata)
}

fn part(
    call: &Invocation<'_>,
    search: &SyntaxSearch,
    totals: &SearchTotals,
    max_bytes: usize,
) -> Part {
    let head = format!("## {} ({})", search.name, search.language);
    if let Some(reason) = &search.error {
        let json = json!({
            "name": search.name, "language": search.language, "matches": [], "match_count": 0,
            "files_searched": 0, "truncated": false, "error": reason,
        });
        return Part { text: format!("{head}: error: {reason}"), json, is_truncated: false };
    }
    let count = totals.matches.len();
    let more_than = if totals.has_more { "more than " } else { "" };
    let files = count_text(totals.files, "file", "files");
    let matches_text = count_text(count, "match", "matches");
    let mut text = format!("{head}: {more_than}{matches_text}, {files} searched");
    let mut shown_matches = Vec::new();
    for (path, matches_text) in &totals.matches {
        let file = call.display_path(path);
        let lines = lines(&file, matches_text);
        if text.len() + lines.len() > max_bytes && !shown_matches.is_empty() {
            break;
        }
        text.push_str(&lines);
        shown_matches.push(json(&file, matches_text));
    }
    let is_truncated = totals.has_more || shown_matches.len() < count;
    if is_truncated {
        // If the text is full, more matches would not be shown either.
        let (reason, alternative) = match shown_matches.len() < count {
            true => (" because the text would be too long", "or search for less at once"),
            false => ("", "or raise max_matches_per_search"),
        };
        text.push_str(&format!(
            "\n[truncated: {} of {more_than}{count} matches are shown{reason}; use a narrower query or \
             paths, {alternative}]",
            shown_matches.len()
        ));
    }
    let json = json!({
        "name": search.name, "language": search.language, "matches": shown_matches, "match_count": count,
        "files_searched": totals.files, "truncated": is_truncated,
    });
    Part { text, json, is_truncated }
}

fn count_text(count: usize, singular: &str, plural: &str) -> String {
    format!("{count} {}", if count == 1 { singular } else { plural })
}

/// Formats a match: its position and captures on one line, its context below.
fn lines(file: &str, hit: &SyntaxMatch) -> String {
    let mut text = format!("\n{file}:{}:{}", hit.line, hit.column);
    for capture in &hit.captures {
        let mut lines = capture.text.lines();
        text.push_str(&format!("  @{} {}", capture.name, lines.next().unwrap_or_default()));
        let more_lines = lines.count();
        if more_lines > 0 {
            text.push_str(&format!(" … [+{more_lines} lines]"));
        }
    }
    let width = hit.context.last().map_or(0, |line| line.number.to_string().len());
    for line in &hit.context {
        let mark = if line.is_match { '>' } else { ' ' };
        text.push_str(&format!("\n  {mark} {:>width$} | {}", line.number, line.text));
    }
    text
}

fn json(file: &str, hit: &SyntaxMatch) -> Value {
    let captures = hit.captures.iter().map(|capture| {
        json!({
            "name": capture.name, "text": capture.text,
            "line": capture.line, "column": capture.column,
        })
    });
    let mut object = json!({
        "file": file, "line": hit.line, "column": hit.column,
        "captures": captures.collect::<Vec<_>>(),
    });
    if !hit.context.is_empty() {
        let line = |line: &ContextLine| json!({ "line": line.number, "text": line.text, "match": line.is_match });
        object["context"] = hit.context.iter().map(line).collect();
    }
    object
}
