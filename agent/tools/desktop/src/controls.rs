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
const DEFAULT_DEPTH: u32 = 8;
const MAX_CONTROLS: u32 = 200;

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
    let depth = max_depth.unwrap_or(DEFAULT_DEPTH).clamp(1, 64);
    let query =
        ControlQuery { window, everywhere: false, depth, limit: MAX_CONTROLS, interactive: true };
    let controls = host::controls(call.context, query).await?;
    let elements: Vec<Value> = controls.controls.iter().map(as_json).collect();
    let text = report(&controls);
    let metadata = if bare {
        Value::Array(elements)
    } else {
        json!({
            "status": "success",
            "foreground_window": controls.active,
            "focused_element": controls.focused.as_ref().map(as_json),
            "interactive_elements": elements,
            "element_count": controls.controls.len(),
            "cut": controls.cut,
            "voice_message": controls.note.clone().unwrap_or_else(|| {
                format!("{} controls in {:?}", controls.controls.len(), controls.active)
            }),
        })
    };
    Ok(ToolOutput::success(text).with(metadata).titled(format!("looked at {:?}", controls.active)))
}

/// Formats a control as JSON.
pub(crate) fn as_json(control: &Control) -> Value {
    let mut object = json!({
        "name": control.name, "type": control.role, "automation_id": control.automation_id,
        "enabled": control.enabled, "visible": control.visible,
    });
    if let Some(area) = control.area {
        object["bounds"] = json!(area);
    }
    if let Some(value) = &control.value {
        object["value"] = json!(value);
    }
    object
}

/// Formats the controls for a model, one per line.
fn report(controls: &Controls) -> String {
    let mut text = format!("Active window: {:?}\n", controls.active);
    if let Some(focused) = &controls.focused {
        text.push_str(&format!("Focus: {}\n", line(focused)));
    }
    controls.controls.iter().for_each(|control| text.push_str(&format!("{}\n", line(control))));
    if controls.cut {
        text.push_str(&format!("[only the first {} are shown]\n", controls.controls.len()));
    }
    if let Some(note) = &controls.note {
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
        line.push_str(&format!(" {}", center_text(area)));
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
pub(crate) fn center_text(area: Area) -> String {
    let center = |start: i32, length: u32| i64::from(start) + i64::from(length / 2);
    format!(
        "middle {},{} ({}x{} at {},{})",
        center(area.x, area.width),
        center(area.y, area.height),
        area.width,
        area.height,
        area.x,
        area.y
    )
}
