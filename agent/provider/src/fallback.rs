//! Another model of the same provider, for the rest of a turn in which the own one is busy.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base::failure::Result;

use crate::blocking::off_loop;
use crate::error::ProviderError;
use crate::provider::{Provider, ProviderFacts};

/// Opens the other model; called when it is needed for the first time.
pub(crate) type OpenProvider = Arc<dyn Fn() -> Result<Box<dyn Provider>> + Send + Sync>;

/// The models of one provider that answer in turn.
pub struct FallbackModels {
    own: Box<dyn Provider>,
    spare: Option<SpareModel>,
    who: Mutex<ActiveModel>,
}

/// The model to fall back on.
struct SpareModel {
    open: OpenProvider,
    opened: OnceLock<Box<dyn Provider>>,
}

/// Who answers in this turn of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActiveModel {
    Own,
    Spare,
    /// The own model, after the other one could not answer either.
    OwnAgain,
}

/// What an error changed: what the user is told, and whether somebody else is asked at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelSwitch {
    /// For the user.
    pub notice: String,
    /// Whether the question goes to another model now.
    pub again: bool,
}

impl FallbackModels {
    /// One model; `spare` opens the one that answers when it is busy.
    pub fn new(own: Box<dyn Provider>, spare: Option<OpenProvider>) -> FallbackModels {
        let spare = spare.map(|open| SpareModel { open, opened: OnceLock::new() });
        FallbackModels { own, spare, who: Mutex::new(ActiveModel::Own) }
    }

    /// What the loop must know: the own model's facts.
    pub(crate) fn facts(&self) -> &ProviderFacts {
        self.own.facts()
    }

    /// Who is asked now.
    pub(crate) fn now(&self) -> &dyn Provider {
        let spare = self.spare.as_ref().and_then(|spare| spare.opened.get());
        match (self.who(), spare) {
            (ActiveModel::Spare, Some(spare)) => spare.as_ref(),
            (ActiveModel::Own | ActiveModel::Spare | ActiveModel::OwnAgain, _) => self.own.as_ref(),
        }
    }

    /// A new turn of the user begins with the own model.
    pub(crate) fn turn_begins(&self) {
        self.set(ActiveModel::Own);
        self.own.turn_begins();
    }

    /// What an error of the present model changes. Only a busy model is replaced: who asks too
    /// often would ask the next one too often as well.
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
        *self.who.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, who: ActiveModel) {
        *self.who.lock().unwrap_or_else(PoisonError::into_inner) = who;
    }
}
