//! Reads a file or a part of it: by characters (from 0, end exclusive) or by lines (from 1, end
//! inclusive).

use std::io;

use base::text::head;
use serde::Deserialize;
use serde_json::json;

use skills::embedded;
use tools::call::Invocation;
use tools::fs::{open, read_tracker};
use tools::kind::Effect;
use tools::output::{ToolError, ToolOutput};
use tools::profile::OutputStyle;
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    start: Option<usize>,
    end: Option<usize>,
    start_line: Option<usize>,
    end_line: Option<usize>,
    offset: Option<usize>,
    limit: Option<usize>,
}

/// The requested part of a file.
#[derive(Debug, PartialEq, Eq)]
enum ReadRange {
    All,
    /// Characters, from 0, end exclusive.
    Chars(usize, usize),
    /// Lines, from 1, end inclusive.
    Lines(usize, usize),
}

/// The maximum size of a result: bytes and lines.
struct Cap {
    bytes: usize,
    lines: usize,
}

/// A text file.
struct Text {
    text: String,
    bytes: usize,
    lines: usize,
    notes: Vec<String>,
}

/// The tool that reads a file.
pub(crate) struct ReadFileTool;

impl Tool for ReadFileTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("fs.read", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::reading(vec![call.path.clone()])
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(call.blocking(run))
    }
}

/// Reads the file.
fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let part = read_range(call.decode()?)?;
    let display_path = call.display_own_path();
    let file = load(call, &display_path)?;
    let metadata = json!({ "path": call.path, "bytes": file.bytes, "lines": file.lines });
    let text = match (call.profile_tool.style, part) {
        (OutputStyle::Egirl, ReadRange::All) => {
            truncate(&file.text, limit(call), Further::Lines(&file, 1))
        }
        (OutputStyle::Egirl, ReadRange::Lines(first, last)) => {
            truncate(&numbered(&file, first, last), limit(call), Further::Lines(&file, first))
        }
        (OutputStyle::G3 | OutputStyle::ToolsApi | OutputStyle::Core, ReadRange::All) => {
            full_text(&file, &display_path, call)
        }
        (
            OutputStyle::G3 | OutputStyle::ToolsApi | OutputStyle::Core,
            ReadRange::Lines(first, last),
        ) => {
            let range = format!("lines {first} to {}", last.min(file.lines));
            let text = truncate(&numbered(&file, first, last), cap(call), Further::Fewer);
            format!("{}\n{text}", header(&file, &display_path, Some(&range)))
        }
        (_, ReadRange::Chars(start, end)) => chars(&file, &display_path, (start, end), call)?,
    };
    Ok(ToolOutput::success(text).titled(format!("read {display_path}")).with(metadata))
}

fn read_range(args: Args) -> Result<ReadRange, ToolError> {
    let chars = args.start.is_some() || args.end.is_some();
    let lines = args.start_line.is_some() || args.end_line.is_some();
    let window = args.offset.is_some() || args.limit.is_some();
    if [chars, lines, window].into_iter().filter(|is_given| *is_given).count() > 1 {
        return Err(ToolError::invalid(
            "`start`/`end` (characters), `start_line`/`end_line` (lines) and `offset`/`limit` \
             (lines) do not mix: give one pair",
        ));
    }
    if chars {
        let (start, end) = (args.start.unwrap_or(0), args.end.unwrap_or(usize::MAX));
        if start > end {
            return Err(ToolError::invalid(format!("`start` ({start}) is past `end` ({end})")));
        }
        return Ok(ReadRange::Chars(start, end));
    }
    if lines {
        let last = args.end_line.unwrap_or(usize::MAX);
        return Ok(ReadRange::Lines(args.start_line.unwrap_or(1).max(1), last));
    }
    if window {
        let first = args.offset.unwrap_or(1).max(1);
        return Ok(ReadRange::Lines(first, first.saturating_add(args.limit.unwrap_or(200)) - 1));
    }
    Ok(ReadRange::All)
}

fn load(call: &Invocation<'_>, display_path: &str) -> Result<Text, ToolError> {
    let what = match call.profile_tool.style {
        OutputStyle::Egirl => format!("Failed to read file {display_path}"),
        OutputStyle::G3 | OutputStyle::ToolsApi | OutputStyle::Core => {
            format!("cannot read {display_path}")
        }
    };
    let embedded = || embedded::text_at(call.text("path")).map(open::FileContent::of);
    let content =
        call.load(&call.path).or_else(|e| embedded().ok_or(e)).map_err(|e| match e.kind() {
            io::ErrorKind::IsADirectory => ToolError::failed(format!(
                "{what}: it is a directory; list it with the shell (`ls`)"
            )),
            _ => ToolError::io(&what, &e),
        })?;
    if let Some(kind) = open::describe_binary(&content.bytes) {
        return Err(ToolError::failed(format!("{what}: it is {kind}")));
    }
    read_tracker::record(&call.context.session_dir, &call.path, &content.bytes);
    let bytes = content.bytes.len();
    let mut notes = Vec::new();
    let text = String::from_utf8(content.bytes).unwrap_or_else(|error| {
        notes
            .push("it is not valid UTF-8; the bytes that are not are shown as \u{fffd}".to_owned());
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    });
    let lines = text.lines().count();
    Ok(Text { text, bytes, lines, notes })
}

fn cap(call: &Invocation<'_>) -> Cap {
    let max = limit(call).bytes;
    if call.context.plain {
        Cap { bytes: max.min(8 << 10), lines: 300 }
    } else {
        Cap { bytes: max.min(50 << 10), lines: 2000 }
    }
}

/// Returns the limit that fits the model's context window, with space for a header.
fn limit(call: &Invocation<'_>) -> Cap {
    Cap { bytes: call.context.result_limit - call.context.result_limit / 16, lines: usize::MAX }
}

fn header(file: &Text, display_path: &str, range: Option<&str>) -> String {
    let mut header = format!("{display_path}: {} bytes, {} lines", file.bytes, file.lines);
    if let Some(range) = range {
        header.push_str(&format!("; {range}"));
    }
    for note in &file.notes {
        header.push_str(&format!("; {note}"));
    }
    format!("[{header}]")
}

fn full_text(file: &Text, display_path: &str, call: &Invocation<'_>) -> String {
    let text = truncate(&file.text, cap(call), Further::Chars(0, file.text.chars().count()));
    format!("{}\n{text}", header(file, display_path, None))
}

fn chars(
    file: &Text,
    display_path: &str,
    (start, end): (usize, usize),
    call: &Invocation<'_>,
) -> Result<String, ToolError> {
    let total = file.text.chars().count();
    if start > total {
        let message =
            format!("`start` ({start}) is past the end: {display_path} has {total} characters");
        return Err(ToolError::invalid(message));
    }
    let end = end.min(total);
    let selected: String = file.text.chars().skip(start).take(end - start).collect();
    let range = format!("characters {start} to {end} of {total}");
    // A requested range may be four times as long, since the model knows its size.
    let cap = cap(call);
    let bytes = (cap.bytes * 4).min(limit(call).bytes);
    let cap = Cap { bytes, lines: usize::MAX };
    let text = truncate(&selected, cap, Further::Chars(start, total));
    Ok(format!("{}\n{text}", header(file, display_path, Some(&range))))
}

/// How to read the omitted part.
enum Further<'f> {
    /// By characters: the first character of the text, and the file's length.
    Chars(usize, usize),
    /// By lines: the first line of the text.
    Lines(&'f Text, usize),
    /// By a shorter range.
    Fewer,
}

/// Truncates a text and says where to continue reading.
fn truncate(text: &str, cap: Cap, continuation: Further<'_>) -> String {
    let lines: usize = text.split_inclusive('\n').take(cap.lines).map(str::len).sum();
    let kept_text = head(&text[..lines], cap.bytes);
    if kept_text.len() == text.len() {
        return text.to_owned();
    }
    let next_hint = match continuation {
        Further::Chars(start, total) => {
            let next = start + kept_text.chars().count();
            format!(
                "characters {start} to {next} of {total} are shown; read on with `start`: {next}"
            )
        }
        Further::Lines(file, first) if kept_text.contains('\n') => {
            let complete = kept_text.rfind('\n').map_or(0, |end| end + 1);
            let last = first + kept_text[..complete].lines().count() - 1;
            let (total, next) = (file.lines, last + 1);
            let next_hint = format!(
                "lines {first} to {last} of {total} are shown; read on with `start_line`: {next}"
            );
            return format!("{}[truncated: {next_hint}]", &kept_text[..complete]);
        }
        Further::Lines(..) => "this line is longer; take a part of it with the shell".to_owned(),
        Further::Fewer => "ask for fewer lines to see the rest".to_owned(),
    };
    format!("{kept_text}\n[truncated: {next_hint}]")
}

/// Formats lines with their numbers. A trailing newline starts no new line.
fn numbered(file: &Text, first: usize, last: usize) -> String {
    if first > file.lines && first <= last {
        return format!("[no lines: the file has {} lines]", file.lines);
    }
    let count = last.saturating_sub(first - 1);
    let lines = file.text.lines().enumerate().skip(first - 1).take(count);
    let lines: Vec<String> = lines.map(|(i, line)| format!("{}: {line}", i + 1)).collect();
    lines.join("\n")
}
