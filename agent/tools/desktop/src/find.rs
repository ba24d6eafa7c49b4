//! `find_element`: finds controls by text, role or attributes, or words in a screenshot if no
//! program exposes its controls.

use base::desktop_protocol::{Area, Control, ControlQuery, OcrWord};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::controls::{as_json, center_text, line};
use super::{host, roles, screen_call, screen_text};
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::ToolErrorKind;
use tools::output::{ToolError, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    #[serde(default)]
    text: String,
    #[serde(default)]
    role: String,
    #[serde(default)]
    attributes: Map<String, Value>,
    #[serde(default)]
    app: String,
}

/// Maximum depth and number of controls searched, and number reported.
const MAX_DEPTH: u32 = 40;
const MAX_CONTROLS: u32 = 2_000;
const MAX_REPORTED: usize = 40;

/// The tool that finds controls.
pub(crate) struct FindControlTool;

impl Tool for FindControlTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("a11y.find", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        screen_call::reads_screen(call)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Finds the controls that match all given conditions.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let args: Args = call.decode()?;
    let Args { text, role, attributes, app } = &args;
    if text.trim().is_empty() && role.trim().is_empty() && attributes.is_empty() {
        let message = format!("{}: give `text`, `role` or `attributes`", call.profile_tool.name);
        return Err(ToolError::invalid(message));
    }
    let window = Some(app.trim().to_owned()).filter(|app| !app.is_empty());
    let everywhere = window.is_none();
    let query = ControlQuery {
        window,
        everywhere,
        depth: MAX_DEPTH,
        limit: MAX_CONTROLS,
        interactive: false,
    };
    let controls_found = host::controls(call.context, query).await;
    let (controls, note) = match controls_found {
        Ok(controls_found) => (controls_found.controls, controls_found.note),
        // If one kind of service is missing, the other is still tried.
        Err(message) if !text.trim().is_empty() && role.is_empty() => {
            (Vec::new(), Some(message.text))
        }
        Err(error) => return Err(error),
    };
    let matching: Vec<&Control> = controls.iter().filter(|control| args.matches(control)).collect();
    if !matching.is_empty() {
        return Ok(report(&matching));
    }
    let is_text_only = !text.trim().is_empty() && role.is_empty() && attributes.is_empty();
    let words =
        if is_text_only && app.is_empty() { find_text(call, text).await } else { Ok(Vec::new()) };
    let text_areas = words.as_ref().map(Vec::as_slice).unwrap_or_default();
    if !text_areas.is_empty() {
        return Ok(report_words(text, text_areas));
    }
    let mut message = format!("nothing on the screen fits {}", args.description());
    let read_error = words.err().map(|error| error.text);
    for note in note.into_iter().chain(read_error) {
        message.push_str(&format!("; {note}"));
    }
    Err(ToolError::new(ToolErrorKind::NotFound, message))
}

fn report(matching: &[&Control]) -> ToolOutput {
    let reported = &matching[..matching.len().min(MAX_REPORTED)];
    let mut text: String =
        reported.iter().map(|control| format!("{} in {}\n", line(control), control.app)).collect();
    if matching.len() > MAX_REPORTED {
        text.push_str(&format!("[{} more fit]\n", matching.len() - MAX_REPORTED));
    }
    let elements: Vec<Value> = reported.iter().map(|control| as_json_with_app(control)).collect();
    let metadata = json!({ "status": "success", "backend": "accessibility", "elements": elements });
    ToolOutput::success(text).with(metadata).titled(format!("found {}", matching.len()))
}

fn as_json_with_app(control: &Control) -> Value {
    let mut object = as_json(control);
    object["app"] = json!(control.app);
    object
}

fn report_words(text: &str, areas: &[Area]) -> ToolOutput {
    let lines: String =
        areas.iter().map(|area| format!("text {text:?} {} (read)\n", center_text(*area))).collect();
    let elements: Vec<Value> =
        areas.iter().map(|area| json!({ "name": text, "type": "text", "bounds": area })).collect();
    let metadata = json!({ "status": "success", "backend": "ocr", "elements": elements });
    ToolOutput::success(lines).with(metadata).titled(format!("found {}", areas.len()))
}

/// Returns the positions of a text on the screen, as far as it can be recognized.
async fn find_text(call: &Invocation<'_>, text: &str) -> Result<Vec<Area>, ToolError> {
    let (words, _) = screen_text::read_screen(call.context).await?;
    Ok(find_phrase(&words, text))
}

/// Returns the areas of consecutive words that match this phrase, case-insensitively.
fn find_phrase(words: &[OcrWord], text: &str) -> Vec<Area> {
    let expected: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let normalize = |text: &str| {
        let text = text.to_lowercase();
        text.trim_matches(|c: char| !c.is_alphanumeric()).to_owned()
    };
    let is_match = |word_run: &&[OcrWord]| {
        let mut pairs = word_run.iter().zip(&expected);
        pairs.all(|(word, expected)| {
            let read = word.text.to_lowercase();
            read == *expected || normalize(&read) == normalize(expected)
        })
    };
    let matching_runs = words.windows(expected.len().max(1)).filter(is_match);
    matching_runs
        .take(MAX_REPORTED)
        .filter_map(|word_run| word_run.iter().map(|word| word.area).reduce(bounding_area))
        .collect()
}

/// Returns the bounding area of two areas.
pub(crate) fn bounding_area(a: Area, b: Area) -> Area {
    let end = |from: i32, length: u32| i64::from(from) + i64::from(length);
    let (x, y) = (a.x.min(b.x), a.y.min(b.y));
    let right = end(a.x, a.width).max(end(b.x, b.width));
    let bottom = end(a.y, a.height).max(end(b.y, b.height));
    let length = |end: i64, from: i32| u32::try_from(end - i64::from(from)).unwrap_or(0);
    Area { x, y, width: length(right, x), height: length(bottom, y) }
}

impl Args {
    fn matches(&self, control: &Control) -> bool {
        let has = |text: &str, part: &str| text.to_lowercase().contains(&part.to_lowercase());
        let text = self.text.trim();
        let value = control.value.as_deref().unwrap_or_default();
        let by_text = text.is_empty() || has(&control.name, text) || has(value, text);
        let by_role = self.role.trim().is_empty() || roles::matches(&control.role, &self.role);
        by_text
            && by_role
            && self.attributes.iter().all(|(key, value)| has_attribute(control, key, value))
    }

    fn description(&self) -> String {
        let criteria = [("text", &self.text), ("role", &self.role), ("app", &self.app)];
        let mut parts: Vec<String> = criteria
            .iter()
            .filter(|(_, value)| !value.trim().is_empty())
            .map(|(key, value)| format!("{key} {value:?}"))
            .collect();
        parts.extend(self.attributes.iter().map(|(key, value)| format!("{key} = {value}")));
        parts.join(", ")
    }
}

/// Whether an attribute of a control has this value; false for unknown attributes.
fn has_attribute(control: &Control, key: &str, expected: &Value) -> bool {
    let text = |actual: &str| {
        expected.as_str().is_some_and(|expected| actual.eq_ignore_ascii_case(expected))
    };
    let matches_bool = |actual: bool| match expected {
        Value::Bool(expected) => actual == *expected,
        Value::String(expected) => {
            expected.eq_ignore_ascii_case(if actual { "true" } else { "false" })
        }
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
    };
    match key {
        "name" => text(&control.name),
        "role" | "type" => {
            text(&control.role)
                || expected.as_str().is_some_and(|role| roles::is_named(&control.role, role))
        }
        "automation_id" | "id" => text(&control.automation_id),
        "app" => text(&control.app),
        "value" => text(control.value.as_deref().unwrap_or_default()),
        "enabled" => matches_bool(control.enabled),
        "visible" => matches_bool(control.visible),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(args: Value) -> Args {
        serde_json::from_value(args).unwrap()
    }

    #[test]
    fn all_given_conditions_must_match() {
        let button = Control {
            name: "Save as…".into(),
            role: "push button".into(),
            automation_id: "save".into(),
            enabled: true,
            ..Control::default()
        };
        for yes in [
            json!({ "text": "SAVE" }),
            json!({ "role": "push_button" }),
            json!({ "text": "as", "role": "button", "attributes": { "enabled": true } }),
            json!({ "attributes": { "automation_id": "save", "visible": "false" } }),
            json!({ "attributes": { "role": "button" } }),
        ] {
            assert!(args(yes.clone()).matches(&button), "{yes}");
        }
        for no in [
            json!({ "text": "open" }),
            json!({ "text": "save", "role": "link" }),
            json!({ "text": "save", "attributes": { "enabled": false } }),
            json!({ "text": "save", "attributes": { "colour": "red" } }),
        ] {
            assert!(!args(no.clone()).matches(&button), "{no}");
        }
    }

    #[test]
    fn a_phrase_is_found_word_by_word() {
        let word = |text: &str, x: i32| OcrWord {
            text: text.into(),
            area: Area { x, y: 10, width: 20, height: 8 },
            sure: 90,
        };
        let words = [word("Save", 0), word("file:", 30), word("Save", 100), word("all", 130)];
        let found = find_phrase(&words, "save FILE");
        assert_eq!(found, [Area { x: 0, y: 10, width: 50, height: 8 }]);
        assert_eq!(find_phrase(&words, "save").len(), 2);
        assert_eq!(find_phrase(&words, "file all"), []);
        assert_eq!(find_phrase(&[], "save"), []);
    }
}
