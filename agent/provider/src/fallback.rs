//! Another model of the same provider, for the rest of a turn in which the own one is busy.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base::failure::Result;

use crate::blocking::off_loop;
use crate::error::ProviderError;
use crate::provider::{Facts, Provider};

/// Opens the other model; called when it is needed for the first time.
pub type Open = Arc<dyn Fn() -> Result<Box<dyn Provider>> + Send + Sync>;

/// The models of one provider that answer in turn.
pub struct FallbackModels {
    own: Box<dyn Provider>,
    spare: Option<Spare>,
    who: Mutex<Who>,
}

/// The model to fall back on.
struct Spare {
    open: Open,
    opened: OnceLock<Box<dyn Provider>>,
}

/// Who answers in this turn of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Own,
    Spare,
    /// The own model, after the other one could not answer either.
    OwnAgain,
}

/// What an error changed: what the user is told, and whether somebody else is asked at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSwitch {
    /// For the user.
    pub notice: String,
    /// Whether the question goes to another model now.
    pub again: bool,
}

impl FallbackModels {
    /// One model; `spare` opens the one that answers when it is busy.
    pub fn new(own: Box<dyn Provider>, spare: Option<Open>) -> FallbackModels {
        let spare = spare.map(|open| Spare { open, opened: OnceLock::new() });
        FallbackModels { own, spare, who: Mutex::new(Who::Own) }
    }

    /// What the loop must know: the own model's facts.
    pub fn facts(&self) -> &Facts {
        self.own.facts()
    }

    /// Who is asked now.
    pub fn now(&self) -> &dyn Provider {
        let spare = self.spare.as_ref().and_then(|spare| spare.opened.get());
        match (self.who(), spare) {
            (Who::Spare, Some(spare)) => spare.as_ref(),
            (Who::Own | Who::Spare | Who::OwnAgain, _) => self.own.as_ref(),
        }
    }

    /// A new turn of the user begins with the own model.
    pub fn turn_begins(&self) {
        self.set(Who::Own);
        self.own.turn_begins();
    }

    /// What an error of the present model changes. Only a busy model is replaced: who asks too
    /// often would ask the next one too often as well.
    pub async fn after(&self, error: &ProviderError) -> Option<ModelSwitch> {
        let spare = self.spare.as_ref()?;
        let own = &self.own.facts().model;
        match (self.who(), error) {
            (Who::Own, ProviderError::Busy { .. }) => Some(self.replace(spare, own).await),
            (Who::Spare, ProviderError::Rejected(_) | ProviderError::TooLong(_)) => {
                let model = &self.now().facts().model;
                let notice =
                    format!("{model} cannot answer either ({error}); {own} is asked again");
                self.set(Who::OwnAgain);
                Some(ModelSwitch { notice, again: true })
            }
            (Who::Own | Who::Spare | Who::OwnAgain, _) => None,
        }
    }

    async fn replace(&self, spare: &Spare, own: &str) -> ModelSwitch {
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
                self.set(Who::Spare);
                let model = &other.facts().model;
                let notice = format!("{own} is busy; {model} answers for the rest of this turn");
                ModelSwitch { notice, again: true }
            }
            Err(failure) => {
                self.set(Who::OwnAgain);
                let why = failure.sentence();
                let notice = format!("{own} is busy, and its fallback cannot be used: {why}");
                ModelSwitch { notice, again: false }
            }
        }
    }

    fn who(&self) -> Who {
        *self.who.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, who: Who) {
        *self.who.lock().unwrap_or_else(PoisonError::into_inner) = who;
    }
}
