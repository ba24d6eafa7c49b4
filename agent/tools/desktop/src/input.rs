//! A click and a text, as `mouse_click` and `type_text` have them: in pixels of the screen.

use std::time::Instant;

use base::desktop::{Button, InputStep};
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

/// How much of a typed text is repeated, in characters.
const ECHO: usize = 50;
/// The longest text that is typed, in characters.
const LONGEST: usize = 10_000;

/// Clicks a point of the screen.
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

/// Clicks on a point of the screen.
async fn click(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let since = Instant::now();
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
    host::input(call.at, vec![InputStep::Move { x, y }, InputStep::Click { button, times: 1 }])
        .await?;
    let more = json!({ "x": x, "y": y, "button": name });
    Ok(screen_call::action_output(format!("clicked the {name} button at {x},{y}"), since, more))
}

/// Types text where the focus is.
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

/// Types where the focus is.
async fn type_text(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let since = Instant::now();
    let Text { text } = call.decode()?;
    checked(&text, &call.face.name)?;
    let description = format!("typed {}", echo(&text));
    let count = text.chars().count();
    host::input(call.at, vec![InputStep::Type { text }]).await?;
    Ok(screen_call::action_output(description, since, json!({ "characters": count })))
}

/// Whether a text can be typed.
pub(crate) fn checked(text: &str, tool: &str) -> Result<(), ToolError> {
    match text.chars().count() {
        0 => Err(ToolError::invalid(format!("{tool}: `text` is empty"))),
        1..=LONGEST => Ok(()),
        count => Err(ToolError::invalid(format!(
            "{tool}: {count} characters are too many to type: at most {LONGEST} in one call"
        ))),
    }
}

/// A typed text as it is told: its beginning in quotes.
pub(crate) fn echo(text: &str) -> String {
    match text.char_indices().nth(ECHO) {
        None => format!("{text:?}"),
        Some((end, _)) => {
            let more = text.chars().count() - ECHO;
            format!("{:?} and {more} characters more", head(text, end))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_told_by_its_first_fifty_characters() {
        assert_eq!(echo("grün"), "\"grün\"");
        assert_eq!(echo(&"ä".repeat(50)), format!("{:?}", "ä".repeat(50)));
        let told = echo(&"ä".repeat(53));
        assert_eq!(told, format!("{:?} and 3 characters more", "ä".repeat(50)));
    }
}
