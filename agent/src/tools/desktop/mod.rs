//! The tools of the screen: pictures, mouse and keyboard, controls by name, windows. What touches
//! the screen is done by `g3-desktop`, one program for each g3.

use std::time::Instant;

use serde_json::{Value, json};

use super::call::Invocation;
use super::output::ToolOutput;
use super::tool::CallScope;

pub mod accessible;
pub mod capture;
pub mod controls;
pub mod cu;
pub mod find;
pub mod gui;
pub mod host;
pub mod input;
pub mod keys;
pub mod observe;
pub mod programs;
pub mod roles;
pub mod seen;
pub mod windows;
pub mod words;

/// Whether the bus of the user's session can be found, on which programs tell of their controls.
pub fn has_session_bus() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let runtime = set("XDG_RUNTIME_DIR").map(std::path::PathBuf::from);
    let runtime = runtime
        .unwrap_or_else(|| format!("/run/user/{}", rustix::process::getuid().as_raw()).into());
    set("DBUS_SESSION_BUS_ADDRESS").is_some() || runtime.join("bus").exists()
}

/// What a call reaches that looks at the screen.
fn looking(call: &Invocation<'_>) -> CallScope {
    on_screen(call, false)
}

/// What a call reaches that acts on the screen.
fn acting(call: &Invocation<'_>) -> CallScope {
    on_screen(call, true)
}

fn on_screen(call: &Invocation<'_>, acts: bool) -> CallScope {
    let access = vec![call.at.others.screen.access(acts)];
    CallScope { access, ..CallScope::keyed("screen") }
}

/// What the core tools say of an action: its status, a sentence, how long it took.
fn told(ok: bool, description: &str, since: Instant) -> Value {
    json!({
        "status": if ok { "success" } else { "error" },
        "description": description,
        "duration_ms": u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
        "voice_message": description,
    })
}

/// The same with more keys, as an outcome.
fn done(description: String, since: Instant, more: Value) -> ToolOutput {
    let mut metadata = told(true, &description, since);
    if let (Some(all), Value::Object(more)) = (metadata.as_object_mut(), more) {
        all.extend(more);
    }
    ToolOutput::done(description.clone()).with(metadata).titled(description)
}
