//! Searches the contents of files with a regular expression.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use globset::GlobMatcher;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::sinks::Lossy;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use serde::Deserialize;
use serde_json::json;

use super::glob::matcher;
use gate::Access;
use tools::call::Invocation;
use tools::fs::read_tracker;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::profile::OutputStyle;
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};
use tools::walk::{self, Skip, WalkedFile};

#[derive(Deserialize)]
struct Args {
    pattern: String,
    include: Option<String>,
    #[serde(default)]
    ignore_case: bool,
}

/// Maximum number of matches returned per file and in total.
const MAX_PER_FILE: usize = 100;
const MAX_MATCHES: usize = 1000;
/// Maximum total for a small model.
const MAX_PLAIN_MATCHES: usize = 50;
/// Number of matches at which a search stops, to bound its memory.
const MAX_GATHERED: usize = 100_000;
/// Maximum number of characters of a line that are shown.
const MAX_LINE: usize = 2000;

/// The matching lines of one file.
struct Matches {
    lines: Vec<(u64, String)>,
    /// Whether there are more matches than were collected.
    has_more: bool,
}

/// A filter of the searched files.
struct Include {
    glob: GlobMatcher,
    /// A pattern with a slash matches the path below the directory, any other matches the file
    /// name.
    matches_path: bool,
}

impl Include {
    fn new(pattern: &str) -> Result<Include, ToolError> {
        let pattern = pattern.trim_start_matches("./");
        Ok(Include { glob: matcher(pattern)?, matches_path: pattern.contains('/') })
    }

    fn matches(&self, path: &Path, root: &Path) -> bool {
        if self.matches_path {
            return self.glob.is_match(path.strip_prefix(root).unwrap_or(path));
        }
        self.glob.is_match(path.file_name().unwrap_or_default())
    }
}

/// The tool that searches the contents of files.
pub(crate) struct GrepTool;

impl Tool for GrepTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("search.text", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::with_access(vec![Access::Read(call.path.clone())])
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Runs the search.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let args: Args = call.decode()?;
    let regex = RegexMatcherBuilder::new()
        .case_insensitive(args.ignore_case)
        .multi_line(true)
        .crlf(true)
        .build(&args.pattern)
        .map_err(|e| {
            ToolError::invalid(format!("`{}` is not a regular expression: {e}", args.pattern))
        })?;
    let include = args.include.as_deref().map(Include::new).transpose()?;
    if !call.path.exists() {
        return Err(ToolError::invalid(format!("the path {} does not exist", call.path.display())));
    }
    let (root, cancel) = (call.path.clone(), call.context.cancel.clone());
    let search_task = tokio::task::spawn_blocking(move || {
        let gathered = AtomicUsize::new(0);
        let is_wanted =
            |path: &Path| include.as_ref().is_none_or(|include| include.matches(path, &root));
        let search_file = || {
            let (mut searcher, regex) = (searcher(), regex.clone());
            let (is_wanted, gathered) = (&is_wanted, &gathered);
            move |path: &Path| {
                is_wanted(path).then(|| search(path, &mut searcher, &regex, gathered)).flatten()
            }
        };
        let mut files = walk::files(&root, Skip::IgnoredAndHidden, &cancel, search_file);
        walk::newest_first(&mut files);
        (files, gathered.into_inner() >= MAX_GATHERED)
    });
    let (files, is_incomplete) =
        search_task.await.map_err(|e| ToolError::failed(format!("the search broke down: {e}")))?;
    if call.context.cancel.is_cancelled() {
        return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user"));
    }
    for file in &files {
        read_tracker::refresh(&call.context.session_dir, &file.path);
    }
    Ok(report(call, &files, is_incomplete))
}

/// Creates the searcher of a thread, which reuses its buffers.
fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .build()
}

/// Returns the matches in one file, if there are any.
fn search(
    path: &Path,
    searcher: &mut Searcher,
    regex: &RegexMatcher,
    gathered: &AtomicUsize,
) -> Option<Matches> {
    if gathered.load(Ordering::Relaxed) >= MAX_GATHERED {
        return None;
    }
    let mut matches = Matches { lines: Vec::new(), has_more: false };
    let sink = Lossy(|number, text| {
        if matches.lines.len() == MAX_PER_FILE {
            matches.has_more = true;
            return Ok(false);
        }
        matches.lines.push((number, shorten_line(text.trim_end_matches(['\n', '\r']))));
        Ok(true)
    });
    // A file that cannot be read (permissions, deleted in the meantime) has no matches.
    searcher.search_path(regex, path, sink).ok()?;
    gathered.fetch_add(matches.lines.len(), Ordering::Relaxed);
    (!matches.lines.is_empty()).then_some(matches)
}

fn shorten_line(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE) {
        Some((end, _)) => format!("{}… [line cut]", &line[..end]),
        None => line.to_owned(),
    }
}

fn report(call: &Invocation<'_>, files: &[WalkedFile<Matches>], is_incomplete: bool) -> ToolOutput {
    let max = if call.context.plain { MAX_PLAIN_MATCHES } else { MAX_MATCHES };
    let total: usize = files.iter().map(|file| file.result.lines.len()).sum();
    let cwd = gate::paths::follow(&call.context.cwd).unwrap_or_else(|_| PathBuf::new());
    // Shown in a form that the model can use in later calls.
    let display_path = |path: &Path| path.strip_prefix(&cwd).unwrap_or(path).display().to_string();
    let match_lines = files.iter().flat_map(|file| {
        let path = display_path(&file.path);
        file.result.lines.iter().map(move |(number, line)| format!("{path}:{number}:{line}\n"))
    });
    let mut text: String = match_lines.take(max).collect();
    let truncated_files: Vec<String> = files
        .iter()
        .filter(|file| file.result.has_more)
        .map(|file| display_path(&file.path))
        .collect();
    if total > max || is_incomplete {
        let has_more = if is_incomplete { "more than " } else { "" };
        text.push_str(&format!(
            "[truncated: {max} of {has_more}{total} matches are shown; use a narrower pattern, path or \
             include]\n"
        ));
    }
    if !truncated_files.is_empty() {
        let file_names = truncated_files.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        text.push_str(&format!(
            "[truncated: {} file(s) have more than {MAX_PER_FILE} matches, of which {MAX_PER_FILE} are \
             shown: {file_names}]\n",
            truncated_files.len()
        ));
    }
    if total == 0 && call.profile_tool.style != OutputStyle::ToolsApi {
        text = "no matches".to_owned();
    }
    let truncated = total > max || is_incomplete || !truncated_files.is_empty();
    let count = total.min(max);
    let metadata = json!({ "count": count, "files": files.len(), "truncated": truncated });
    let text = text.trim_end_matches('\n');
    ToolOutput::success(text).titled(format!("{count} matches")).with(metadata)
}
