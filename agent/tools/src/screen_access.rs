//! The screen as a session may use it.

use std::sync::Arc;

use base::config::Config;
use base::config::agent::ComputerControlConfig;

use gate::Access;

/// The screen as a session may use it.
#[derive(Default)]
pub struct ScreenAccess {
    config: Arc<Config>,
    /// A person types the calls: they need no switch.
    typed: bool,
}

impl ScreenAccess {
    /// As the configuration has it.
    pub fn new(config: &Config) -> ScreenAccess {
        ScreenAccess { config: Arc::new(config.clone()), typed: false }
    }

    /// For calls that a person types.
    pub fn of_a_person(config: &Config) -> ScreenAccess {
        ScreenAccess { typed: true, ..ScreenAccess::new(config) }
    }

    /// What a call reaches that looks or acts.
    pub fn access(&self, acts: bool) -> Access {
        let control = self.control();
        let free = (control.enabled || self.typed) && !(acts && control.require_confirmation);
        Access::Screen { acts, free }
    }

    /// What is configured for it.
    pub fn control(&self) -> &ComputerControlConfig {
        &self.config.computer_control
    }

    /// The whole configuration: models may be asked.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

/// Whether the bus of the user's session can be found, on which programs tell of their controls.
pub fn has_session_bus() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let runtime = set("XDG_RUNTIME_DIR").map(std::path::PathBuf::from);
    let runtime = runtime
        .unwrap_or_else(|| format!("/run/user/{}", rustix::process::getuid().as_raw()).into());
    set("DBUS_SESSION_BUS_ADDRESS").is_some() || runtime.join("bus").exists()
}
