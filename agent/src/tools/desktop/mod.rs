//! The tools of the screen: pictures, mouse and keyboard, controls by name, windows. What touches
//! the screen is done by `g3-desktop`, one program for each g3.

use std::sync::Arc;
use std::time::Instant;

use base::config::Config;
use base::config::agent::ComputerControl;
use serde_json::{Value, json};

use super::ToolOutput;
use crate::gate::Access;

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

/// The screen as a session may use it.
#[derive(Default)]
pub struct Desk {
    config: Arc<Config>,
    /// A person types the calls: they need no switch.
    typed: bool,
}

impl Desk {
    /// As the configuration has it.
    pub fn new(config: &Config) -> Desk {
        Desk { config: Arc::new(config.clone()), typed: false }
    }

    /// For calls that a person types.
    pub fn of_a_person(config: &Config) -> Desk {
        Desk { typed: true, ..Desk::new(config) }
    }

    /// What a call reaches that looks or acts.
    pub fn access(&self, acts: bool) -> Access {
        let control = self.control();
        let free = (control.enabled || self.typed) && !(acts && control.require_confirmation);
        Access::Screen { acts, free }
    }

    /// What is configured for it.
    pub fn control(&self) -> &ComputerControl {
        &self.config.computer_control
    }

    /// The whole configuration: models may be asked.
    pub fn config(&self) -> &Config {
        &self.config
    }
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
