//! The window tools: listing windows and maximizing the active one.

use std::time::Instant;

use base::desktop_protocol::{DesktopRequest, DesktopResponse, WindowInfo};
use serde_json::json;

use super::{host, screen_call};
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

/// The tool that lists the open windows.
pub(crate) struct WindowListTool;

impl Tool for WindowListTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("window.list", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        screen_call::reads_screen(call)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(list(call))
    }
}

/// Lists the windows, topmost first.
async fn list(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let DesktopResponse::Windows { windows } =
        host::ask(call.context, DesktopRequest::Windows).await?
    else {
        return Err(host::unexpected_response());
    };
    let lines: String = windows.iter().map(line).collect();
    let text = if windows.is_empty() { "No windows are open.\n".to_owned() } else { lines };
    let count = windows.len();
    let metadata = json!({ "status": "success", "windows": windows, "count": count });
    Ok(ToolOutput::success(text).with(metadata).titled(format!("{count} windows")))
}

fn line(window: &WindowInfo) -> String {
    let area = window.area;
    let mut line = format!(
        "{}  {}  {:?}  {}x{} at {},{}",
        window.id, window.app, window.title, area.width, area.height, area.x, area.y
    );
    let states = [
        (window.active, "active"),
        (window.maximized, "maximized"),
        (window.minimized, "minimized"),
    ];
    for (_, word) in states.iter().filter(|(is_set, _)| *is_set) {
        line.push_str(&format!("  [{word}]"));
    }
    line.push('\n');
    line
}

/// The tool that maximizes the active window.
pub(crate) struct MaximizeTool;

impl Tool for MaximizeTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("window.maximize", Effect::Acts).with_undo_hint("no_op")
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        screen_call::controls_screen(call)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(maximize(call))
    }
}

/// Maximizes the active window, unless it already is maximized.
async fn maximize(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let start_time = Instant::now();
    let DesktopResponse::Maximized { title, already: is_maximized } =
        host::ask(call.context, DesktopRequest::Maximize).await?
    else {
        return Err(host::unexpected_response());
    };
    let description = match is_maximized {
        true => format!("{title:?} is maximized already"),
        false => format!("maximized {title:?}"),
    };
    Ok(screen_call::action_output(
        description,
        start_time,
        json!({ "was_maximized": is_maximized }),
    ))
}
