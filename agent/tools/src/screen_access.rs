//! The access of a session to the screen.

use std::sync::Arc;

use base::config::Config;
use base::config::agent::ComputerControlConfig;

use gate::Access;

/// The access of a session to the screen.
#[derive(Default)]
pub struct ScreenAccess {
    config: Arc<Config>,
    /// The calls are typed by a person, so they need no enabled feature.
    typed: bool,
}

impl ScreenAccess {
    /// Creates the access according to the configuration.
    pub fn new(config: &Config) -> ScreenAccess {
        ScreenAccess { config: Arc::new(config.clone()), typed: false }
    }

    /// Creates the access for calls that a person types.
    pub fn of_a_person(config: &Config) -> ScreenAccess {
        ScreenAccess { typed: true, ..ScreenAccess::new(config) }
    }

    /// Returns what a call accesses that reads or controls the screen.
    pub fn access(&self, acts: bool) -> Access {
        let control = self.control();
        let free = (control.enabled || self.typed) && !(acts && control.require_confirmation);
        Access::Screen { acts, free }
    }

    /// Returns the computer control configuration.
    pub fn control(&self) -> &ComputerControlConfig {
        &self.config.computer_control
    }

    /// Returns the whole configuration, since models may be used.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

/// Whether the session bus can be found, on which programs expose their controls.
pub fn has_session_bus() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let runtime = set("XDG_RUNTIME_DIR").map(std::path::PathBuf::from);
    let runtime = runtime
        .unwrap_or_else(|| format!("/run/user/{}", rustix::process::getuid().as_raw()).into());
    set("DBUS_SESSION_BUS_ADDRESS").is_some() || runtime.join("bus").exists()
}
