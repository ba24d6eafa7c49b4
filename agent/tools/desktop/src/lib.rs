//! The screen tools: screenshots, mouse and keyboard, controls, windows. Screen access goes through
//! `g3-desktop`, one process per g3 process.

use std::time::Instant;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tools::services::DesktopService;

use tools::call::Invocation;
use tools::output::ToolOutput;
use tools::tool::CallScope;
use tools::tool::Tool;

pub mod accessible;
pub mod capture;
pub mod computer_use;
pub mod controls;
pub mod find;
pub mod gui;
pub mod host;
pub mod input;
pub mod keys;
pub mod observe;
pub mod programs;
pub mod roles;
pub mod screen_text;
pub mod shown_screen;
pub mod windows;

/// Returns the scope of a call that reads the screen.
fn looking(call: &Invocation<'_>) -> CallScope {
    on_screen(call, false)
}

/// Returns the scope of a call that acts on the screen.
fn acting(call: &Invocation<'_>) -> CallScope {
    on_screen(call, true)
}

fn on_screen(call: &Invocation<'_>, acts: bool) -> CallScope {
    let access = vec![call.at.others.screen.access(acts)];
    CallScope { access, ..CallScope::keyed("screen") }
}

/// Returns the result fields of the core tools: status, description and duration.
fn told(ok: bool, description: &str, since: Instant) -> Value {
    json!({
        "status": if ok { "success" } else { "error" },
        "description": description,
        "duration_ms": u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
        "voice_message": description,
    })
}

/// Creates an outcome with additional fields.
fn done(description: String, since: Instant, more: Value) -> ToolOutput {
    let mut metadata = told(true, &description, since);
    if let (Some(all), Value::Object(more)) = (metadata.as_object_mut(), more) {
        all.extend(more);
    }
    ToolOutput::done(description.clone()).with(metadata).titled(description)
}

/// The tools of this crate.
pub const TOOLS: &[&dyn Tool] = &[
    &capture::ScreenCaptureTool,
    &observe::ObserveTool,
    &find::FindControlTool,
    &controls::ControlsTool,
    &accessible::ControlActionTool,
    &windows::WindowListTool,
    &windows::MaximizeTool,
    &input::ClickTool,
    &input::TypeTextTool,
    &gui::GuiTool,
    &computer_use::ComputerUseTool,
];

/// The desktop helper of this process.
pub struct DesktopHelper;

impl DesktopService for DesktopHelper {
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(host::close())
    }
}
