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
const MAX_WIDTH: u32 = 1280;
const JPEG_QUALITY: u8 = 70;
/// Higher than any screen, so that only the width is limited.
const MAX_HEIGHT: u32 = 65_535;

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
    let start_time = Instant::now();
    let Args { mode, intent } = call.decode()?;
    let mode = match mode.trim() {
        "understanding" => ObserveMode::Understanding,
        // Unknown modes are treated as grounding, which contains more information.
        _ => ObserveMode::Grounding,
    };
    let (size_limit, jpeg) = (Some((MAX_WIDTH, MAX_HEIGHT)), Some(JPEG_QUALITY));
    let picture = host::capture(
        call.context,
        CaptureTarget { fit: size_limit, jpeg, ..CaptureTarget::default() },
    )
    .await?;
    let mut notes = Vec::new();
    let observation = observe(call, mode, &intent, &picture, &mut notes).await?;
    let mut shown_screen = ShownScreen::new(&picture);
    let needs_vision = observation.is_none();
    let (text, backend, usage) = match observation {
        Some((ScreenReport::Elements(elements), backend, usage)) => {
            shown_screen.elements = elements;
            (describe::describe(&shown_screen), backend, usage)
        }
        Some((ScreenReport::Words(words), backend, usage)) => (words, backend, usage),
        None => (describe::describe_picture(&picture, &notes), "llm_vision", None),
    };
    shown_screen.save(call.context);
    let marked_picture =
        marks::draw_marks(&picture, &shown_screen.elements).unwrap_or_else(|| picture.data.clone());
    let metadata = json!({
        "status": "success", "stdout": text, "ui_elements": text, "elements": shown_screen.elements,
        "image_b64": marked_picture, "actual_backend": backend, "needs_llm_vision": needs_vision,
        "width": picture.width, "height": picture.height, "notes": notes,
        "duration_ms": u64::try_from(start_time.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    let image = || Image { media_type: picture.mime.clone(), data: picture.data.clone() };
    let images = if needs_vision { vec![image()] } else { Vec::new() };
    let output = ToolOutput::success(text).with(metadata).titled(format!("looked ({backend})"));
    Ok(ToolOutput { images, side_usage: usage, ..output })
}

/// Asks the observers in order. Returns `None` if none of them has a report.
async fn observe(
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
        let result = match observer {
            Observer::Vision => vision::ask(call.context, mode, intent, picture).await,
            Observer::Omniparser => omniparser::ask(call.context, picture).await,
            Observer::Accessibility => local::accessibility(call.context, picture).await,
            Observer::Ocr => local::ocr(call.context).await,
        };
        match result {
            Ok(Some(report)) => return Ok(Some(report)),
            Ok(None) => {}
            Err(error) if error.kind == ToolErrorKind::Cancelled => return Err(error),
            Err(error) => {
                let note = format!("{}: {}", name(*observer), error.text);
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
