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
    typed_by_person: bool,
}

impl ScreenAccess {
    /// Creates the access according to the configuration.
    pub fn new(config: &Config) -> ScreenAccess {
        ScreenAccess { config: Arc::new(config.clone()), typed_by_person: false }
    }

    /// Creates the access for calls that a person types.
    pub fn for_person(config: &Config) -> ScreenAccess {
        ScreenAccess { typed_by_person: true, ..ScreenAccess::new(config) }
    }

    /// Returns what a call accesses that reads or controls the screen.
    pub fn access(&self, acts: bool) -> Access {
        let control = self.control();
        let allowed =
            (control.enabled || self.typed_by_person) && !(acts && control.require_confirmation);
        Access::Screen { is_control: acts, allowed }
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
    let non_empty_var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let runtime = non_empty_var("XDG_RUNTIME_DIR").map(std::path::PathBuf::from);
    let runtime = runtime
        .unwrap_or_else(|| format!("/run/user/{}", rustix::process::getuid().as_raw()).into());
    non_empty_var("DBUS_SESSION_BUS_ADDRESS").is_some() || runtime.join("bus").exists()
}
