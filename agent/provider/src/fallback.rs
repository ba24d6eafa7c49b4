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
    own: Box<dyn Provider>,
    spare: Option<SpareModel>,
    who: Mutex<ActiveModel>,
}

/// The fallback model.
struct SpareModel {
    open: OpenProvider,
    opened: OnceLock<Box<dyn Provider>>,
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
    pub again: bool,
}

impl FallbackModels {
    /// Creates the models from the primary one; `spare` opens the fallback.
    pub fn new(own: Box<dyn Provider>, spare: Option<OpenProvider>) -> FallbackModels {
        let spare = spare.map(|open| SpareModel { open, opened: OnceLock::new() });
        FallbackModels { own, spare, who: Mutex::new(ActiveModel::Own) }
    }

    /// Returns the facts of the primary model.
    pub(crate) fn facts(&self) -> &ProviderFacts {
        self.own.facts()
    }

    /// Returns the active model.
    pub(crate) fn now(&self) -> &dyn Provider {
        let spare = self.spare.as_ref().and_then(|spare| spare.opened.get());
        match (self.who(), spare) {
            (ActiveModel::Spare, Some(spare)) => spare.as_ref(),
            (ActiveModel::Own | ActiveModel::Spare | ActiveModel::OwnAgain, _) => self.own.as_ref(),
        }
    }

    /// Resets to the primary model at the start of a user turn.
    pub(crate) fn turn_begins(&self) {
        self.set(ActiveModel::Own);
        self.own.turn_begins();
    }

    /// Returns the switch that an error of the active model causes. Only an overloaded model is
    /// replaced: after a rate limit, the next model would be rate limited as well.
    pub(crate) async fn after(&self, error: &ProviderError) -> Option<ModelSwitch> {
        let spare = self.spare.as_ref()?;
        let own = &self.own.facts().model;
        match (self.who(), error) {
            (ActiveModel::Own, ProviderError::Busy { .. }) => Some(self.replace(spare, own).await),
            (ActiveModel::Spare, ProviderError::Rejected(_) | ProviderError::TooLong(_)) => {
                let model = &self.now().facts().model;
                let notice =
                    format!("{model} cannot answer either ({error}); {own} is asked again");
                self.set(ActiveModel::OwnAgain);
                Some(ModelSwitch { notice, again: true })
            }
            (ActiveModel::Own | ActiveModel::Spare | ActiveModel::OwnAgain, _) => None,
        }
    }

    async fn replace(&self, spare: &SpareModel, own: &str) -> ModelSwitch {
        let opened = match spare.opened.get() {
            Some(opened) => Ok(opened),
            None => {
                let open = spare.open.clone();
                let fresh = off_loop(move || open()).await;
                fresh.map(|fresh| spare.opened.get_or_init(|| fresh))
            }
        };
        match opened {
            Ok(other) => {
                self.set(ActiveModel::Spare);
                let model = &other.facts().model;
                let notice = format!("{own} is busy; {model} answers for the rest of this turn");
                ModelSwitch { notice, again: true }
            }
            Err(failure) => {
                self.set(ActiveModel::OwnAgain);
                let why = failure.sentence();
                let notice = format!("{own} is busy, and its fallback cannot be used: {why}");
                ModelSwitch { notice, again: false }
            }
        }
    }

    fn who(&self) -> ActiveModel {
        *base::sync::lock(&self.who)
    }

    fn set(&self, who: ActiveModel) {
        *base::sync::lock(&self.who) = who;
    }
}
