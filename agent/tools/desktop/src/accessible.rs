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
const DEPTH: u32 = 40;
const MOST: u32 = 2_000;

/// The fields of a result that are the same on success and on failure.
struct Report<'a> {
    since: Instant,
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
    let since = Instant::now();
    let args: Args = call.decode()?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let (name, id) = (given(&args.element_name), given(&args.automation_id));
    let role = given(&args.control_type);
    let wanted = args.action.trim().to_lowercase();
    let wanted = if wanted == "type" { "set_value".to_owned() } else { wanted };
    let report = Report { since, action: &wanted, name: json!(name), kind: json!(role) };
    let Some((_, action)) = ACTIONS.iter().find(|(known, _)| *known == wanted) else {
        let known = ACTIONS.map(|(name, _)| name).join(", ");
        let why = format!("unknown action `{wanted}`; use {known} (or type)");
        return Ok(report.failed(ToolErrorKind::Validation, &why, json!({})));
    };
    if name.is_none() && id.is_none() && role.is_none() {
        let why = "say which control: `element_name`, `automation_id` or `control_type`";
        return Ok(report.failed(ToolErrorKind::Validation, why, json!({})));
    }
    if *action == ControlVerb::SetValue && args.value.is_none() {
        let why = "`set_value` needs `value`";
        return Ok(report.failed(ToolErrorKind::Validation, why, json!({})));
    }
    let window = given(&args.window_title);
    let look =
        ControlQuery { window, everywhere: false, depth: DEPTH, limit: MOST, interactive: false };
    let act = ControlAction {
        look,
        name,
        automation_id: id,
        role,
        action: *action,
        value: args.value.clone(),
    };
    let acted = match host::ask(call.context, DesktopRequest::Act(act)).await {
        Ok(DesktopResponse::Acted(acted)) => acted,
        Ok(_) => return Err(host::strange()),
        Err(ToolError { kind, text }) => return Ok(report.failed(kind, &text, json!({}))),
    };
    let Some(control) = acted.control else {
        let available = acted.available.join("; ");
        let why = match available.is_empty() {
            true => "no such control, and there are no others".to_owned(),
            false => format!("no such control; available: {available}"),
        };
        let more = json!({ "found": false, "available_elements": available });
        return Ok(report.failed(ToolErrorKind::NotFound, &why, more));
    };
    let description = format!("{wanted}: {} {:?}", control.role, control.name);
    let report = Report { name: json!(control.name), kind: json!(control.role), ..report };
    let metadata = report.keys(true, &description, json!({ "found": true }));
    Ok(ToolOutput::success(description.clone()).with(metadata).titled(description))
}

impl Report<'_> {
    fn failed(&self, kind: ToolErrorKind, why: &str, more: Value) -> ToolOutput {
        ToolOutput::failed(kind, why).with(self.keys(false, why, more))
    }

    fn keys(&self, ok: bool, description: &str, more: Value) -> Value {
        let mut all = screen_call::action_metadata(ok, description, self.since);
        all["found"] = json!(ok);
        all["element_name"] = self.name.clone();
        all["element_type"] = self.kind.clone();
        all["action_performed"] = json!(self.action);
        if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
            all.extend(more);
        }
        all
    }
}
