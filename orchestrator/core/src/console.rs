//! The person at the terminal, as far as sessions and landings speak with one.

use std::any::Any;
use std::path::Path;

use base::failure::{Failure, Result};
use base::id::Id;

use crate::interrupt::Interrupt;

/// Tells and asks a person. The program implements it; [`Silent`] is for supervisors and scripts.
pub trait Console: Send + Sync {
    /// One sentence.
    fn note(&self, text: &str);
    /// Returns a yes or a no; none where nobody can be asked.
    fn confirm(&self, question: &str) -> Option<bool>;
    /// Shows a step of a session until the result is dropped.
    fn step(&self, id: &Id, what: &str) -> Box<dyn Any>;
    /// Lets the person edit a text; the editor starts in this directory.
    fn edit(&self, directory: &Path, interrupt: &Interrupt, text: &str) -> Result<String>;
}

/// Where no person reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silent;

impl Console for Silent {
    fn note(&self, _text: &str) {}

    fn confirm(&self, _question: &str) -> Option<bool> {
        None
    }

    fn step(&self, _id: &Id, _what: &str) -> Box<dyn Any> {
        Box::new(())
    }

    fn edit(&self, _directory: &Path, _interrupt: &Interrupt, _text: &str) -> Result<String> {
        Err(Failure::usage("a text cannot be edited without a terminal"))
    }
}
