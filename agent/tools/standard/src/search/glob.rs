//! Finds files whose path matches a pattern.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use serde_json::json;

use gate::Access;
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::profile::OutputStyle;
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};
use tools::walk::{self, Skip, WalkedFile};

#[derive(Deserialize)]
struct Args {
    pattern: String,
    /// Whether files ignored by `.gitignore` are included, and a pattern without a slash matches
    /// only in the directory itself.
    #[serde(default)]
    literal: bool,
}

/// Maximum number of files returned.
const MAX_PATHS: usize = 1000;
/// Maximum number for a small model.
const MAX_PLAIN_PATHS: usize = 100;

/// Compiles a pattern: `*` matches within a directory, `**` across directories, `{a,b}` either.
pub(crate) fn matcher(pattern: &str) -> Result<GlobMatcher, ToolError> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    let glob =
        glob.map_err(|e| ToolError::invalid(format!("`{pattern}` is not a glob pattern: {e}")))?;
    Ok(glob.compile_matcher())
}

/// The tool that finds files by name.
pub(crate) struct GlobTool;

impl Tool for GlobTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("search.files", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::with_access(vec![Access::Read(call.path.clone())])
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Finds files.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let args: Args = call.decode()?;
    let directory = call.path.clone();
    if !directory.is_dir() {
        let text = format!("the directory {} does not exist", directory.display());
        return Err(ToolError::invalid(text));
    }
    let pattern = relative_pattern(&args.pattern, &directory);
    let matches_anywhere = !args.literal && !pattern.contains('/');
    let glob =
        matcher(&if matches_anywhere { format!("**/{pattern}") } else { pattern.to_owned() })?;
    let wants_hidden = pattern.split('/').any(|part| part.starts_with('.'));
    let skip = match (args.literal, wants_hidden) {
        (_, true) => Skip::Ignored,
        (true, false) => Skip::Hidden,
        (false, false) => Skip::IgnoredAndHidden,
    };
    let cancel = call.context.cancel.clone();
    let root = directory.clone();
    let walk_task = tokio::task::spawn_blocking(move || {
        let matching = |path: &Path| {
            let relative = path.strip_prefix(&root).ok()?;
            glob.is_match(relative).then_some(())
        };
        walk::files(&root, skip, &cancel, || matching)
    });
    let mut files =
        walk_task.await.map_err(|e| ToolError::failed(format!("the search broke down: {e}")))?;
    if call.context.cancel.is_cancelled() {
        return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user"));
    }
    match call.profile_tool.style {
        OutputStyle::Egirl => files.sort_by(|a, b| a.path.cmp(&b.path)),
        OutputStyle::G3 | OutputStyle::ToolsApi | OutputStyle::Core => {
            walk::newest_first(&mut files)
        }
    }
    Ok(report(call, &files))
}

/// Returns a pattern relative to the directory, also if it was written as an absolute path.
fn relative_pattern<'a>(pattern: &'a str, directory: &Path) -> &'a str {
    let relative = directory.to_str().and_then(|directory| pattern.strip_prefix(directory));
    relative.unwrap_or(pattern).trim_start_matches("./").trim_start_matches('/')
}

fn report(call: &Invocation<'_>, files: &[WalkedFile<()>]) -> ToolOutput {
    let max = if call.context.plain { MAX_PLAIN_PATHS } else { MAX_PATHS };
    let cwd = gate::paths::follow(&call.context.cwd).unwrap_or_default();
    let display_path = |file: &WalkedFile<()>| {
        let relative = match call.profile_tool.style {
            OutputStyle::Egirl => file.path.strip_prefix(&call.path),
            OutputStyle::G3 => file.path.strip_prefix(&cwd),
            OutputStyle::ToolsApi | OutputStyle::Core => Ok(file.path.as_path()),
        };
        relative.unwrap_or(&file.path).display().to_string()
    };
    let mut lines: Vec<String> = files.iter().take(max).map(display_path).collect();
    let count = lines.len();
    if files.len() > max {
        lines.push(format!(
            "[truncated: {max} of {} files are shown; use a narrower pattern or path]",
            files.len()
        ));
    }
    if files.is_empty() {
        lines.push("No files found".to_owned());
    }
    let metadata = json!({ "count": count, "truncated": files.len() > max });
    ToolOutput::success(lines.join("\n")).titled(format!("{count} files")).with(metadata)
}
