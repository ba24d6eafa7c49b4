//! The screen as a session may use it.

use std::sync::Arc;

use base::config::Config;
use base::config::agent::ComputerControl;

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
    pub fn control(&self) -> &ComputerControl {
        &self.config.computer_control
    }

    /// The whole configuration: models may be asked.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
