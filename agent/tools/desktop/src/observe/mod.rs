//! `observe_screen`: describes the screen with the first observer that can, otherwise returns only
//! the image.

use std::time::Instant;

use base::config::agent::Observer;
use base::desktop_protocol::{CaptureTarget, Picture};
use serde::Deserialize;
use serde_json::{Value, json};

use super::host;
use super::shown_screen::{Element, ShownScreen};
use crate::screen_call;
use provider::message::{Image, SideUsage};
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

pub mod describe;
pub mod local;
pub mod marks;
pub mod omniparser;
pub mod vision;

#[derive(Deserialize)]
struct Args {
    #[serde(default)]
    mode: String,
    #[serde(default)]
    intent: String,
}

/// The report of an observer.
#[derive(Debug, PartialEq)]
pub(crate) enum ScreenReport {
    /// The elements and their positions.
    Elements(Vec<Element>),
    /// A description.
    Words(String),
}

/// The requested mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObserveMode {
    /// The interactive elements and their positions.
    Grounding,
    /// A description of what is visible.
    Understanding,
}

/// Maximum width of the image, and its JPEG quality.
const WIDEST: u32 = 1280;
const QUALITY: u8 = 70;
/// Higher than any screen, so that only the width is limited.
const HIGHEST: u32 = 65_535;

/// A report, its observer, and its cost.
type Observation = (ScreenReport, &'static str, Option<SideUsage>);

/// The tool that describes the screen.
pub(crate) struct ObserveTool;

impl Tool for ObserveTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("screen.observe", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        screen_call::reads_screen(call)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Observes the screen.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let since = Instant::now();
    let Args { mode, intent } = call.decode()?;
    let mode = match mode.trim() {
        "understanding" => ObserveMode::Understanding,
        // Unknown modes are treated as grounding, which contains more information.
        _ => ObserveMode::Grounding,
    };
    let (fit, jpeg) = (Some((WIDEST, HIGHEST)), Some(QUALITY));
    let picture =
        host::capture(call.context, CaptureTarget { fit, jpeg, ..CaptureTarget::default() })
            .await?;
    let mut notes = Vec::new();
    let said = ask_all(call, mode, &intent, &picture, &mut notes).await?;
    let mut seen = ShownScreen::of(&picture);
    let needs_eyes = said.is_none();
    let (text, backend, bill) = match said {
        Some((ScreenReport::Elements(elements), backend, bill)) => {
            seen.elements = elements;
            (describe::told(&seen), backend, bill)
        }
        Some((ScreenReport::Words(words), backend, bill)) => (words, backend, bill),
        None => (describe::bare(&picture, &notes), "llm_vision", None),
    };
    seen.keep(call.context);
    let shown = marks::marked(&picture, &seen.elements).unwrap_or_else(|| picture.data.clone());
    let metadata = json!({
        "status": "success", "stdout": text, "ui_elements": text, "elements": seen.elements,
        "image_b64": shown, "actual_backend": backend, "needs_llm_vision": needs_eyes,
        "width": picture.width, "height": picture.height, "notes": notes,
        "duration_ms": u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    let image = || Image { media_type: picture.mime.clone(), data: picture.data.clone() };
    let images = if needs_eyes { vec![image()] } else { Vec::new() };
    let outcome = ToolOutput::success(text).with(metadata).titled(format!("looked ({backend})"));
    Ok(ToolOutput { images, side_usage: bill, ..outcome })
}

/// Asks the observers in order. Returns `None` if none of them has a report.
async fn ask_all(
    call: &Invocation<'_>,
    mode: ObserveMode,
    intent: &str,
    picture: &Picture,
    notes: &mut Vec<String>,
) -> Result<Option<Observation>, ToolError> {
    for observer in &call.context.services.screen.control().observe {
        // Only a model can describe the screen; the others would only list elements.
        if mode == ObserveMode::Understanding && *observer != Observer::Vision {
            continue;
        }
        let asked = match observer {
            Observer::Vision => vision::ask(call.context, mode, intent, picture).await,
            Observer::Omniparser => omniparser::ask(call.context, picture).await,
            Observer::Accessibility => local::accessibility(call.context, picture).await,
            Observer::Ocr => local::ocr(call.context).await,
        };
        match asked {
            Ok(Some(said)) => return Ok(Some(said)),
            Ok(None) => {}
            Err(why) if why.kind == ToolErrorKind::Cancelled => return Err(why),
            Err(why) => {
                let note = format!("{}: {}", name(*observer), why.text);
                (call.context.on_output)(&format!("[{note}]\n"));
                notes.push(note);
            }
        }
    }
    Ok(None)
}

fn name(observer: Observer) -> String {
    match serde_json::to_value(observer) {
        Ok(Value::String(name)) => name,
        Ok(_) | Err(_) => String::new(),
    }
}
