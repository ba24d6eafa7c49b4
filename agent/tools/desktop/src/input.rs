//! The tools `mouse_click` and `type_text`, in screen pixels.

use std::time::Instant;

use base::desktop_protocol::{Button, InputStep};
use base::text::head;
use serde::Deserialize;
use serde_json::json;

use super::{host, screen_call};
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Point {
    x: i32,
    y: i32,
    button: Option<String>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

/// Maximum number of characters of a typed text shown in the result.
const MAX_ECHO: usize = 50;
/// Maximum number of characters to type.
const MAX_TEXT: usize = 10_000;

/// The tool that clicks a point of the screen.
pub(crate) struct ClickTool;

impl Tool for ClickTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("input.click", Effect::Acts)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        screen_call::controls_screen(call)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(click(call))
    }
}

/// Clicks a point of the screen.
async fn click(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let start_time = Instant::now();
    let Point { x, y, button } = call.decode()?;
    let name = button.as_deref().unwrap_or("left").to_lowercase();
    let button = match name.as_str() {
        "left" => Button::Left,
        "right" => Button::Right,
        "middle" => Button::Middle,
        other => {
            let text = format!("mouse_click: invalid button `{other}`: use left, right or middle");
            return Err(ToolError::invalid(text));
        }
    };
    host::input(
        call.context,
        vec![InputStep::Move { x, y }, InputStep::Click { button, times: 1 }],
    )
    .await?;
    let fields = json!({ "x": x, "y": y, "button": name });
    Ok(screen_call::action_output(
        format!("clicked the {name} button at {x},{y}"),
        start_time,
        fields,
    ))
}

/// The tool that types text at the keyboard focus.
pub(crate) struct TypeTextTool;

impl Tool for TypeTextTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("input.type", Effect::Acts)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        screen_call::controls_screen(call)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(type_text(call))
    }
}

/// Types text at the keyboard focus.
async fn type_text(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let start_time = Instant::now();
    let Text { text } = call.decode()?;
    check_text(&text, &call.profile_tool.name)?;
    let description = format!("typed {}", echo(&text));
    let count = text.chars().count();
    host::input(call.context, vec![InputStep::Type { text }]).await?;
    Ok(screen_call::action_output(description, start_time, json!({ "characters": count })))
}

/// Checks whether a text can be typed.
pub(crate) fn check_text(text: &str, tool: &str) -> Result<(), ToolError> {
    match text.chars().count() {
        0 => Err(ToolError::invalid(format!("{tool}: `text` is empty"))),
        1..=MAX_TEXT => Ok(()),
        count => Err(ToolError::invalid(format!(
            "{tool}: {count} characters are too many to type: at most {MAX_TEXT} in one call"
        ))),
    }
}

/// Formats a typed text for the result: its start in quotes.
pub(crate) fn echo(text: &str) -> String {
    match text.char_indices().nth(MAX_ECHO) {
        None => format!("{text:?}"),
        Some((end, _)) => {
            let remaining = text.chars().count() - MAX_ECHO;
            format!("{:?} and {remaining} characters more", head(text, end))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_shown_by_its_first_fifty_characters() {
        assert_eq!(echo("grün"), "\"grün\"");
        assert_eq!(echo(&"ä".repeat(50)), format!("{:?}", "ä".repeat(50)));
        let told = echo(&"ä".repeat(53));
        assert_eq!(told, format!("{:?} and 3 characters more", "ä".repeat(50)));
    }
}
