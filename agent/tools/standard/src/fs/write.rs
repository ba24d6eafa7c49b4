//! Writes a file.

use std::io;

use serde::Deserialize;
use serde_json::json;

use tools::call::Invocation;
use tools::fs::{overwrite_guard, read_tracker};
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::profile::OutputStyle;
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    content: String,
    create_directories: bool,
}

/// Number of lines of the written text in the metadata.
const PREVIEW_LINES: usize = 10;

/// The tool that writes a file.
pub(crate) struct WriteFileTool;

impl Tool for WriteFileTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("fs.write", Effect::Writes).with_preview()
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope::writing(vec![call.path.clone()], &call.path)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(call.blocking(run))
    }
}

/// Writes the file, creating parent directories unless disabled.
fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { content, create_directories } = call.decode()?;
    let path = &call.path;
    let display_path = call.display_own_path();
    let write_error =
        |error: &io::Error| ToolError::io(&format!("Failed to write file {display_path}"), error);
    let before = match call.load(path) {
        Ok(before) => Some(before),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(write_error(&e)),
    };
    if let Some(before) = &before {
        read_tracker::check(&call.context.session_dir, path, &before.bytes)?;
    }
    if let Some(before) = before.as_ref().filter(|_| call.context.plain) {
        let text = String::from_utf8_lossy(&before.bytes);
        if let Some(warning) =
            overwrite_guard::check_write(&call.context.session_dir, path, &text, &content)
        {
            return Ok(ToolOutput::not_run(ToolErrorKind::Failed, warning));
        }
    }
    if create_directories {
        call.create_parents(path).map_err(|e| write_error(&e))?;
    }
    call.store(path, &content).map_err(|e| write_error(&e))?;
    read_tracker::record(&call.context.session_dir, path, content.as_bytes());

    let (bytes, lines) = (content.len(), content.lines().count());
    let text = match call.profile_tool.style {
        // Small models copy numbers in a result into the next call.
        _ if call.context.plain => "ok".to_owned(),
        OutputStyle::Egirl => {
            format!("Successfully wrote {} characters to {display_path}", content.chars().count())
        }
        OutputStyle::ToolsApi => format!("Successfully wrote {bytes} bytes to {display_path}"),
        OutputStyle::G3 | OutputStyle::Core => {
            format!("wrote {bytes} bytes, {lines} lines to {display_path}")
        }
    };
    let preview: Vec<&str> = content.lines().take(PREVIEW_LINES).collect();
    let metadata = json!({
        "path": path,
        "bytes": bytes,
        "lines": lines,
        "existed": before.is_some(),
        "preview": preview.join("\n"),
    });
    Ok(ToolOutput::success(text).titled(format!("wrote {display_path}")).with(metadata))
}
