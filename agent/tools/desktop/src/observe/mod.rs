//! `observe_screen`: what there is on the screen, from the first who can say it; the bare picture
//! when nobody can.

use std::time::Instant;

use base::config::agent::Observer;
use base::desktop::{CaptureTarget, Picture};
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

/// What somebody says of the screen.
#[derive(Debug, PartialEq)]
pub(crate) enum ScreenReport {
    /// What is where.
    Elements(Vec<Element>),
    /// A description.
    Words(String),
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObserveMode {
    /// What can be acted on, and where.
    Grounding,
    /// What is to be seen.
    Understanding,
}

/// The widest picture that is looked at, and how good a JPEG it is.
const WIDEST: u32 = 1280;
const QUALITY: u8 = 70;
/// No screen is higher: only the width is made to fit.
const HIGHEST: u32 = 65_535;

/// What somebody said, who it was, and what it cost.
type Observation = (ScreenReport, &'static str, Option<SideUsage>);

/// Describes the screen.
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

/// Looks at the screen.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let since = Instant::now();
    let Args { mode, intent } = call.decode()?;
    let mode = match mode.trim() {
        "understanding" => ObserveMode::Understanding,
        // What is not known is grounding as well: it says more.
        _ => ObserveMode::Grounding,
    };
    let (fit, jpeg) = (Some((WIDEST, HIGHEST)), Some(QUALITY));
    let picture =
        host::capture(call.at, CaptureTarget { fit, jpeg, ..CaptureTarget::default() }).await?;
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
    seen.keep(call.at);
    let shown = marks::marked(&picture, &seen.elements).unwrap_or_else(|| picture.data.clone());
    let metadata = json!({
        "status": "success", "stdout": text, "ui_elements": text, "elements": seen.elements,
        "image_b64": shown, "actual_backend": backend, "needs_llm_vision": needs_eyes,
        "width": picture.width, "height": picture.height, "notes": notes,
        "duration_ms": u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    let image = || Image { media_type: picture.mime.clone(), data: picture.data.clone() };
    let images = if needs_eyes { vec![image()] } else { Vec::new() };
    let outcome = ToolOutput::done(text).with(metadata).titled(format!("looked ({backend})"));
    Ok(ToolOutput { images, bill, ..outcome })
}

/// Asks one after the other; `None` when nobody could say anything.
async fn ask_all(
    call: &Invocation<'_>,
    mode: ObserveMode,
    intent: &str,
    picture: &Picture,
    notes: &mut Vec<String>,
) -> Result<Option<Observation>, ToolError> {
    for observer in &call.at.others.screen.control().observe {
        // Only a model describes; the others would only list.
        if mode == ObserveMode::Understanding && *observer != Observer::Vision {
            continue;
        }
        let asked = match observer {
            Observer::Vision => vision::ask(call.at, mode, intent, picture).await,
            Observer::Omniparser => omniparser::ask(call.at, picture).await,
            Observer::Accessibility => local::accessibility(call.at, picture).await,
            Observer::Ocr => local::ocr(call.at).await,
        };
        match asked {
            Ok(Some(said)) => return Ok(Some(said)),
            Ok(None) => {}
            Err(why) if why.kind == ToolErrorKind::Cancelled => return Err(why),
            Err(why) => {
                let note = format!("{}: {}", name(*observer), why.text);
                (call.at.hear)(&format!("[{note}]\n"));
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
