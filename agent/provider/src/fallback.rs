//! Falls back to another model of the same provider for the rest of a turn while the primary model
//! is overloaded.

use std::sync::{Arc, Mutex, OnceLock};

use base::failure::Result;

use crate::blocking::off_loop;
use crate::error::ProviderError;
use crate::provider::{Provider, ProviderFacts};

/// Opens the fallback model. Called when it is first needed.
pub(crate) type OpenProvider = Arc<dyn Fn() -> Result<Box<dyn Provider>> + Send + Sync>;

/// The primary model of a provider and its fallback.
pub struct FallbackModels {
    primary: Box<dyn Provider>,
    fallback: Option<SpareModel>,
    active: Mutex<ActiveModel>,
}

/// The fallback model.
struct SpareModel {
    open: OpenProvider,
    provider: OnceLock<Box<dyn Provider>>,
}

/// The model that answers in the current user turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActiveModel {
    Own,
    Spare,
    /// The primary model, after the fallback failed too.
    OwnAgain,
}

/// The effect of an error: a notice for the user and whether to retry immediately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelSwitch {
    /// The notice for the user.
    pub notice: String,
    /// Whether to send the request to another model now.
    pub retry_now: bool,
}

impl FallbackModels {
    /// Creates the models from the primary one; `fallback` opens the fallback.
    pub fn new(primary: Box<dyn Provider>, fallback: Option<OpenProvider>) -> FallbackModels {
        let fallback = fallback.map(|open| SpareModel { open, provider: OnceLock::new() });
        FallbackModels { primary, fallback, active: Mutex::new(ActiveModel::Own) }
    }

    /// Returns the facts of the primary model.
    pub(crate) fn facts(&self) -> &ProviderFacts {
        self.primary.facts()
    }

    /// Returns the active model.
    pub(crate) fn current(&self) -> &dyn Provider {
        let fallback = self.fallback.as_ref().and_then(|fallback| fallback.provider.get());
        match (self.active(), fallback) {
            (ActiveModel::Spare, Some(fallback)) => fallback.as_ref(),
            (ActiveModel::Own | ActiveModel::Spare | ActiveModel::OwnAgain, _) => {
                self.primary.as_ref()
            }
        }
    }

    /// Resets to the primary model at the start of a user turn.
    pub(crate) fn turn_begins(&self) {
        self.set(ActiveModel::Own);
        self.primary.turn_begins();
    }

    /// Returns the switch that an error of the active model causes. Only an overloaded model is
    /// replaced: after a rate limit, the next model would be rate limited as well.
    pub(crate) async fn on_error(&self, error: &ProviderError) -> Option<ModelSwitch> {
        let fallback = self.fallback.as_ref()?;
        let primary = &self.primary.facts().model;
        match (self.active(), error) {
            (ActiveModel::Own, ProviderError::Busy { .. }) => {
                Some(self.replace(fallback, primary).await)
            }
            (ActiveModel::Spare, ProviderError::Rejected(_) | ProviderError::TooLong(_)) => {
                let model = &self.current().facts().model;
                let notice =
                    format!("{model} cannot answer either ({error}); {primary} is asked again");
                self.set(ActiveModel::OwnAgain);
                Some(ModelSwitch { notice, retry_now: true })
            }
            (ActiveModel::Own | ActiveModel::Spare | ActiveModel::OwnAgain, _) => None,
        }
    }

    async fn replace(&self, fallback: &SpareModel, primary: &str) -> ModelSwitch {
        let provider = match fallback.provider.get() {
            Some(provider) => Ok(provider),
            None => {
                let open_fallback = fallback.open.clone();
                let new_provider = off_loop(move || open_fallback()).await;
                new_provider.map(|new_provider| fallback.provider.get_or_init(|| new_provider))
            }
        };
        match provider {
            Ok(fallback_provider) => {
                self.set(ActiveModel::Spare);
                let model = &fallback_provider.facts().model;
                let notice =
                    format!("{primary} is busy; {model} answers for the rest of this turn");
                ModelSwitch { notice, retry_now: true }
            }
            Err(failure) => {
                self.set(ActiveModel::OwnAgain);
                let reason = failure.sentence();
                let notice =
                    format!("{primary} is busy, and its fallback cannot be used: {reason}");
                ModelSwitch { notice, retry_now: false }
            }
        }
    }

    fn active(&self) -> ActiveModel {
        *base::sync::lock(&self.active)
    }

    fn set(&self, active: ActiveModel) {
        *base::sync::lock(&self.active) = active;
    }
}
