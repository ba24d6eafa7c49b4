//! Formats the results of searches: text for the model, metadata for programs.

use serde_json::{Value, json};

use super::collector::{SearchCollector, SearchTotals};
use super::request::{SyntaxSearch, SyntaxSearchRequest};
use super::searcher::{ContextLine, SyntaxMatch};
use tools::call::Invocation;
use tools::output::ToolOutput;

/// Maximum number of bytes of matches.
const BYTES: usize = 60_000;
/// The same for a small model.
const PLAIN: usize = 8_000;

/// A formatted search.
struct Part {
    text: String,
    json: Value,
    cut: bool,
}

/// Describes why none of the searches can run.
pub(crate) fn errors(searches: &[SyntaxSearch]) -> String {
    let each = searches
        .iter()
        .map(|search| format!("{}: {}", search.name, search.error.as_deref().unwrap_or_default()));
    each.collect::<Vec<_>>().join("\n")
}

/// Returns the outcome of all searches, in the requested order.
pub(crate) fn outcome(
    call: &Invocation<'_>,
    wish: &SyntaxSearchRequest,
    tally: &SearchCollector,
) -> ToolOutput {
    let mut left = if call.context.plain { PLAIN } else { BYTES };
    let mut parts = Vec::new();
    for (at, (search, sum)) in wish.searches.iter().zip(&tally.sums).enumerate() {
        // Space that an earlier search did not use is shared by the later ones.
        let part = part(call, search, sum, left / (wish.searches.len() - at));
        left = left.saturating_sub(part.text.len());
        parts.push(part);
    }
    let mut notes = wish.notes.clone();
    notes.extend(tally.notes(|path| call.display_path(path)));
    let total: usize = tally.sums.iter().map(|sum| sum.matches.len()).sum();
    let metadata = json!({
        "searches": parts.iter().map(|part| &part.json).collect::<Vec<_>>(),
        "total_matches": total,
        "total_files_searched": tally.files,
        "truncated": parts.iter().any(|part| part.cut),
        "notes": notes,
    });
    let mut text: Vec<String> = parts.into_iter().map(|part| part.text).collect();
    if wish.searches.len() > 1 {
        let searches = wish.searches.len();
        let (found, files) = (many(total, "match", "matches"), many(tally.files, "file", "files"));
        text.push(format!("{found} of {searches} searches in {files}"));
    }
    text.extend(notes.iter().map(|note| format!("[note: {note}]")));
    ToolOutput::success(text.join("\n")).titled(format!("{total} matches")).with(metadata)
}

fn part(call: &Invocation<'_>, search: &SyntaxSearch, sum: &SearchTotals, room: usize) -> Part {
    let head = format!("## {} ({})", search.name, search.language);
    if let Some(why) = &search.error {
        let json = json!({
            "name": search.name, "language": search.language, "matches": [], "match_count": 0,
            "files_searched": 0, "truncated": false, "error": why,
        });
        return Part { text: format!("{head}: error: {why}"), json, cut: false };
    }
    let count = sum.matches.len();
    let more = if sum.more { "more than " } else { "" };
    let files = many(sum.files, "file", "files");
    let found = many(count, "match", "matches");
    let mut text = format!("{head}: {more}{found}, {files} searched");
    let mut shown = Vec::new();
    for (path, found) in &sum.matches {
        let file = call.display_path(path);
        let lines = lines(&file, found);
        if text.len() + lines.len() > room && !shown.is_empty() {
            break;
        }
        text.push_str(&lines);
        shown.push(json(&file, found));
    }
    let cut = sum.more || shown.len() < count;
    if cut {
        // If the text is full, more matches would not be shown either.
        let (why, or) = match shown.len() < count {
            true => (" because the text would be too long", "or search for less at once"),
            false => ("", "or raise max_matches_per_search"),
        };
        text.push_str(&format!(
            "\n[truncated: {} of {more}{count} matches are shown{why}; use a narrower query or \
             paths, {or}]",
            shown.len()
        ));
    }
    let json = json!({
        "name": search.name, "language": search.language, "matches": shown, "match_count": count,
        "files_searched": sum.files, "truncated": cut,
    });
    Part { text, json, cut }
}

fn many(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Formats a match: its position and captures on one line, its context below.
fn lines(file: &str, found: &SyntaxMatch) -> String {
    let mut text = format!("\n{file}:{}:{}", found.line, found.column);
    for captured in &found.captures {
        let mut lines = captured.text.lines();
        text.push_str(&format!("  @{} {}", captured.name, lines.next().unwrap_or_default()));
        let more = lines.count();
        if more > 0 {
            text.push_str(&format!(" … [+{more} lines]"));
        }
    }
    let width = found.context.last().map_or(0, |line| line.number.to_string().len());
    for line in &found.context {
        let mark = if line.hit { '>' } else { ' ' };
        text.push_str(&format!("\n  {mark} {:>width$} | {}", line.number, line.text));
    }
    text
}

fn json(file: &str, found: &SyntaxMatch) -> Value {
    let captures = found.captures.iter().map(|captured| {
        json!({
            "name": captured.name, "text": captured.text,
            "line": captured.line, "column": captured.column,
        })
    });
    let mut told = json!({
        "file": file, "line": found.line, "column": found.column,
        "captures": captures.collect::<Vec<_>>(),
    });
    if !found.context.is_empty() {
        let line = |line: &ContextLine| json!({ "line": line.number, "text": line.text, "match": line.hit });
        told["context"] = found.context.iter().map(line).collect();
    }
    told
}
