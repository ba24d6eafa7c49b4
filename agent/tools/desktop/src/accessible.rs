//! `execute_accessible`: acts on a control by its name, id or role.

use std::time::Instant;

use base::desktop_protocol::{
    ControlAction, ControlQuery, ControlVerb, DesktopRequest, DesktopResponse,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{host, screen_call};
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    action: String,
    element_name: Option<String>,
    automation_id: Option<String>,
    control_type: Option<String>,
    window_title: Option<String>,
    value: Option<String>,
}

/// The actions by name; `type` is an alias of `set_value`.
const ACTIONS: [(&str, ControlVerb); 7] = [
    ("click", ControlVerb::Click),
    ("set_value", ControlVerb::SetValue),
    ("toggle", ControlVerb::Toggle),
    ("select", ControlVerb::Select),
    ("expand", ControlVerb::Expand),
    ("collapse", ControlVerb::Collapse),
    ("focus", ControlVerb::Focus),
];
/// Maximum depth and number of controls searched.
const MAX_DEPTH: u32 = 40;
const MAX_CONTROLS: u32 = 2_000;

/// The fields of a result that are the same on success and on failure.
struct Report<'a> {
    start_time: Instant,
    action: &'a str,
    name: Value,
    kind: Value,
}

/// The tool that acts on a control by its name.
pub(crate) struct ControlActionTool;

impl Tool for ControlActionTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("a11y.act", Effect::Acts).with_undo_hint("no_undo")
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        screen_call::controls_screen(call)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Acts on the control. If it is not found, lists the available ones.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let start_time = Instant::now();
    let args: Args = call.decode()?;
    let non_empty = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let (name, id) = (non_empty(&args.element_name), non_empty(&args.automation_id));
    let role = non_empty(&args.control_type);
    let action_name = args.action.trim().to_lowercase();
    let action_name = if action_name == "type" { "set_value".to_owned() } else { action_name };
    let report = Report { start_time, action: &action_name, name: json!(name), kind: json!(role) };
    let Some((_, action)) = ACTIONS.iter().find(|(known_names, _)| *known_names == action_name)
    else {
        let known_names = ACTIONS.map(|(name, _)| name).join(", ");
        let message = format!("unknown action `{action_name}`; use {known_names} (or type)");
        return Ok(report.failure(ToolErrorKind::Validation, &message, json!({})));
    };
    if name.is_none() && id.is_none() && role.is_none() {
        let message = "say which control: `element_name`, `automation_id` or `control_type`";
        return Ok(report.failure(ToolErrorKind::Validation, message, json!({})));
    }
    if *action == ControlVerb::SetValue && args.value.is_none() {
        let message = "`set_value` needs `value`";
        return Ok(report.failure(ToolErrorKind::Validation, message, json!({})));
    }
    let window = non_empty(&args.window_title);
    let query = ControlQuery {
        window,
        everywhere: false,
        depth: MAX_DEPTH,
        limit: MAX_CONTROLS,
        interactive: false,
    };
    let control_action = ControlAction {
        look: query,
        name,
        automation_id: id,
        role,
        action: *action,
        value: args.value.clone(),
    };
    let response = match host::ask(call.context, DesktopRequest::Act(control_action)).await {
        Ok(DesktopResponse::Acted(response)) => response,
        Ok(_) => return Err(host::unexpected_response()),
        Err(ToolError { kind, text }) => return Ok(report.failure(kind, &text, json!({}))),
    };
    let Some(control) = response.control else {
        let available = response.available.join("; ");
        let message = match available.is_empty() {
            true => "no such control, and there are no others".to_owned(),
            false => format!("no such control; available: {available}"),
        };
        let extra_fields = json!({ "found": false, "available_elements": available });
        return Ok(report.failure(ToolErrorKind::NotFound, &message, extra_fields));
    };
    let description = format!("{action_name}: {} {:?}", control.role, control.name);
    let report = Report { name: json!(control.name), kind: json!(control.role), ..report };
    let metadata = report.metadata(true, &description, json!({ "found": true }));
    Ok(ToolOutput::success(description.clone()).with(metadata).titled(description))
}

impl Report<'_> {
    fn failure(&self, kind: ToolErrorKind, message: &str, extra_fields: Value) -> ToolOutput {
        ToolOutput::failed(kind, message).with(self.metadata(false, message, extra_fields))
    }

    fn metadata(&self, ok: bool, description: &str, extra_fields: Value) -> Value {
        let mut metadata = screen_call::action_metadata(ok, description, self.start_time);
        metadata["found"] = json!(ok);
        metadata["element_name"] = self.name.clone();
        metadata["element_type"] = self.kind.clone();
        metadata["action_performed"] = json!(self.action);
        if let (Some(metadata), Value::Object(extra_fields)) =
            (metadata.as_object_mut(), extra_fields)
        {
            metadata.extend(extra_fields);
        }
        metadata
    }
}
