//! `find_element`: finds controls by text, role or attributes, or words in a screenshot if no
//! program exposes its controls.

use base::desktop_protocol::{Area, Control, ControlQuery, OcrWord};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::controls::{as_json, line, place};
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
const DEPTH: u32 = 40;
const MOST: u32 = 2_000;
const TOLD: usize = 40;

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
        let why = format!("{}: give `text`, `role` or `attributes`", call.profile_tool.name);
        return Err(ToolError::invalid(why));
    }
    let window = Some(app.trim().to_owned()).filter(|app| !app.is_empty());
    let everywhere = window.is_none();
    let look = ControlQuery { window, everywhere, depth: DEPTH, limit: MOST, interactive: false };
    let found = host::controls(call.context, look).await;
    let (controls, note) = match found {
        Ok(found) => (found.controls, found.note),
        // If one kind of service is missing, the other is still tried.
        Err(why) if !text.trim().is_empty() && role.is_empty() => (Vec::new(), Some(why.text)),
        Err(why) => return Err(why),
    };
    let fitting: Vec<&Control> = controls.iter().filter(|control| args.fits(control)).collect();
    if !fitting.is_empty() {
        return Ok(told(&fitting));
    }
    let only_text = !text.trim().is_empty() && role.is_empty() && attributes.is_empty();
    let words = if only_text && app.is_empty() { read(call, text).await } else { Ok(Vec::new()) };
    let places = words.as_ref().map(Vec::as_slice).unwrap_or_default();
    if !places.is_empty() {
        return Ok(told_words(text, places));
    }
    let mut why = format!("nothing on the screen fits {}", args.shown());
    let unread = words.err().map(|why| why.text);
    for note in note.into_iter().chain(unread) {
        why.push_str(&format!("; {note}"));
    }
    Err(ToolError::new(ToolErrorKind::NotFound, why))
}

fn told(fitting: &[&Control]) -> ToolOutput {
    let shown = &fitting[..fitting.len().min(TOLD)];
    let mut text: String = shown.iter().map(|it| format!("{} in {}\n", line(it), it.app)).collect();
    if fitting.len() > TOLD {
        text.push_str(&format!("[{} more fit]\n", fitting.len() - TOLD));
    }
    let elements: Vec<Value> = shown.iter().map(|it| with_app(it)).collect();
    let metadata = json!({ "status": "success", "backend": "accessibility", "elements": elements });
    ToolOutput::success(text).with(metadata).titled(format!("found {}", fitting.len()))
}

fn with_app(control: &Control) -> Value {
    let mut told = as_json(control);
    told["app"] = json!(control.app);
    told
}

fn told_words(text: &str, places: &[Area]) -> ToolOutput {
    let lines: String =
        places.iter().map(|area| format!("text {text:?} {} (read)\n", place(*area))).collect();
    let elements: Vec<Value> =
        places.iter().map(|area| json!({ "name": text, "type": "text", "bounds": area })).collect();
    let metadata = json!({ "status": "success", "backend": "ocr", "elements": elements });
    ToolOutput::success(lines).with(metadata).titled(format!("found {}", places.len()))
}

/// Returns the positions of a text on the screen, as far as it can be recognized.
async fn read(call: &Invocation<'_>, text: &str) -> Result<Vec<Area>, ToolError> {
    let (words, _) = screen_text::on_screen(call.context).await?;
    Ok(phrase(&words, text))
}

/// Returns the areas of consecutive words that match this phrase, case-insensitively.
fn phrase(words: &[OcrWord], text: &str) -> Vec<Area> {
    let wanted: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let plain = |text: &str| {
        let text = text.to_lowercase();
        text.trim_matches(|c: char| !c.is_alphanumeric()).to_owned()
    };
    let fits = |run: &&[OcrWord]| {
        let mut pairs = run.iter().zip(&wanted);
        pairs.all(|(word, wanted)| {
            let read = word.text.to_lowercase();
            read == *wanted || plain(&read) == plain(wanted)
        })
    };
    let runs = words.windows(wanted.len().max(1)).filter(fits);
    runs.take(TOLD).filter_map(|run| run.iter().map(|word| word.area).reduce(around)).collect()
}

/// Returns the bounding area of two areas.
pub(crate) fn around(one: Area, other: Area) -> Area {
    let end = |from: i32, length: u32| i64::from(from) + i64::from(length);
    let (x, y) = (one.x.min(other.x), one.y.min(other.y));
    let right = end(one.x, one.width).max(end(other.x, other.width));
    let bottom = end(one.y, one.height).max(end(other.y, other.height));
    let length = |end: i64, from: i32| u32::try_from(end - i64::from(from)).unwrap_or(0);
    Area { x, y, width: length(right, x), height: length(bottom, y) }
}

impl Args {
    fn fits(&self, control: &Control) -> bool {
        let has = |text: &str, part: &str| text.to_lowercase().contains(&part.to_lowercase());
        let text = self.text.trim();
        let value = control.value.as_deref().unwrap_or_default();
        let by_text = text.is_empty() || has(&control.name, text) || has(value, text);
        let by_role = self.role.trim().is_empty() || roles::fits(&control.role, &self.role);
        by_text && by_role && self.attributes.iter().all(|(key, value)| holds(control, key, value))
    }

    fn shown(&self) -> String {
        let given = [("text", &self.text), ("role", &self.role), ("app", &self.app)];
        let mut shown: Vec<String> = given
            .iter()
            .filter(|(_, value)| !value.trim().is_empty())
            .map(|(key, value)| format!("{key} {value:?}"))
            .collect();
        shown.extend(self.attributes.iter().map(|(key, value)| format!("{key} = {value}")));
        shown.join(", ")
    }
}

/// Whether an attribute of a control has this value; false for unknown attributes.
fn holds(control: &Control, key: &str, wanted: &Value) -> bool {
    let text = |own: &str| wanted.as_str().is_some_and(|wanted| own.eq_ignore_ascii_case(wanted));
    let switch = |own: bool| match wanted {
        Value::Bool(wanted) => own == *wanted,
        Value::String(wanted) => wanted.eq_ignore_ascii_case(if own { "true" } else { "false" }),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
    };
    match key {
        "name" => text(&control.name),
        "role" | "type" => {
            text(&control.role)
                || wanted.as_str().is_some_and(|role| roles::is_named(&control.role, role))
        }
        "automation_id" | "id" => text(&control.automation_id),
        "app" => text(&control.app),
        "value" => text(control.value.as_deref().unwrap_or_default()),
        "enabled" => switch(control.enabled),
        "visible" => switch(control.visible),
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
            assert!(args(yes.clone()).fits(&button), "{yes}");
        }
        for no in [
            json!({ "text": "open" }),
            json!({ "text": "save", "role": "link" }),
            json!({ "text": "save", "attributes": { "enabled": false } }),
            json!({ "text": "save", "attributes": { "colour": "red" } }),
        ] {
            assert!(!args(no.clone()).fits(&button), "{no}");
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
        let found = phrase(&words, "save FILE");
        assert_eq!(found, [Area { x: 0, y: 10, width: 50, height: 8 }]);
        assert_eq!(phrase(&words, "save").len(), 2);
        assert_eq!(phrase(&words, "file all"), []);
        assert_eq!(phrase(&[], "save"), []);
    }
}
