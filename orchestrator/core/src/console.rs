//! Interaction with the user during sessions and landings.

use std::any::Any;
use std::path::Path;

use base::failure::{Failure, Result};
use base::id::Id;

use crate::interrupt::Interrupt;

/// Messages and questions for the user. The program implements it; [`Silent`] is for supervisors
/// and scripts.
pub trait Console: Send + Sync {
    /// Shows one sentence.
    fn note(&self, text: &str);
    /// Asks a yes/no question; `None` in a non-interactive run.
    fn confirm(&self, question: &str) -> Option<bool>;
    /// Shows a step of a session until the returned value is dropped.
    fn step(&self, id: &Id, activity: &str) -> Box<dyn Any>;
    /// Opens a text in the user's editor, which starts in this directory, and returns the edited
    /// text.
    fn edit(&self, directory: &Path, interrupt: &Interrupt, text: &str) -> Result<String>;
}

/// A console without a user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silent;

impl Console for Silent {
    fn note(&self, _text: &str) {}

    fn confirm(&self, _question: &str) -> Option<bool> {
        None
    }

    fn step(&self, _id: &Id, _activity: &str) -> Box<dyn Any> {
        Box::new(())
    }

    fn edit(&self, _directory: &Path, _interrupt: &Interrupt, _text: &str) -> Result<String> {
        Err(Failure::usage("a text cannot be edited without a terminal"))
    }
}
