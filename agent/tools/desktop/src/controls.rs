//! `get_ui_context`: the controls of a window as reported by its program.

use base::desktop_protocol::{Area, Control, ControlQuery, Controls};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{host, screen_call};
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    max_depth: Option<u32>,
    window_title: Option<String>,
    /// Return the bare array.
    #[serde(default)]
    bare: bool,
}

/// Default depth, and maximum number of controls.
const DEPTH: u32 = 8;
const MOST: u32 = 200;

/// The tool that lists the controls of a window.
pub(crate) struct ControlsTool;

impl Tool for ControlsTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("a11y.query", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        screen_call::reads_screen(call)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Lists the controls of the active window, or of the named one.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { max_depth, window_title, bare } = call.decode()?;
    let window = window_title.filter(|title| !title.trim().is_empty());
    let depth = max_depth.unwrap_or(DEPTH).clamp(1, 64);
    let look = ControlQuery { window, everywhere: false, depth, limit: MOST, interactive: true };
    let found = host::controls(call.context, look).await?;
    let elements: Vec<Value> = found.controls.iter().map(as_json).collect();
    let text = told(&found);
    let metadata = if bare {
        Value::Array(elements)
    } else {
        json!({
            "status": "success",
            "foreground_window": found.active,
            "focused_element": found.focused.as_ref().map(as_json),
            "interactive_elements": elements,
            "element_count": found.controls.len(),
            "cut": found.cut,
            "voice_message": found.note.clone().unwrap_or_else(|| {
                format!("{} controls in {:?}", found.controls.len(), found.active)
            }),
        })
    };
    Ok(ToolOutput::success(text).with(metadata).titled(format!("looked at {:?}", found.active)))
}

/// Formats a control as JSON.
pub(crate) fn as_json(control: &Control) -> Value {
    let mut told = json!({
        "name": control.name, "type": control.role, "automation_id": control.automation_id,
        "enabled": control.enabled, "visible": control.visible,
    });
    if let Some(area) = control.area {
        told["bounds"] = json!(area);
    }
    if let Some(value) = &control.value {
        told["value"] = json!(value);
    }
    told
}

/// Formats the controls for a model, one per line.
fn told(found: &Controls) -> String {
    let mut text = format!("Active window: {:?}\n", found.active);
    if let Some(focused) = &found.focused {
        text.push_str(&format!("Focus: {}\n", line(focused)));
    }
    found.controls.iter().for_each(|control| text.push_str(&format!("{}\n", line(control))));
    if found.cut {
        text.push_str(&format!("[only the first {} are shown]\n", found.controls.len()));
    }
    if let Some(note) = &found.note {
        text.push_str(&format!("[{note}]\n"));
    }
    text
}

/// Formats a control on one line.
pub(crate) fn line(control: &Control) -> String {
    let mut line = format!("{} {:?}", control.role, control.name);
    if !control.automation_id.is_empty() {
        line.push_str(&format!(" id {:?}", control.automation_id));
    }
    if let Some(value) = control.value.as_ref().filter(|value| !value.is_empty()) {
        line.push_str(&format!(" value {:?}", base::text::head(value, 100)));
    }
    if let Some(area) = control.area {
        line.push_str(&format!(" {}", place(area)));
    }
    if !control.enabled {
        line.push_str(" (disabled)");
    }
    if !control.visible {
        line.push_str(" (hidden)");
    }
    line
}

/// Formats an area for a model: its center, then the area.
pub(crate) fn place(area: Area) -> String {
    let middle = |from: i32, length: u32| i64::from(from) + i64::from(length / 2);
    format!(
        "middle {},{} ({}x{} at {},{})",
        middle(area.x, area.width),
        middle(area.y, area.height),
        area.width,
        area.height,
        area.x,
        area.y
    )
}
