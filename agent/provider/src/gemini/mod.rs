//! Google Gemini, `streamGenerateContent`. Signatures of thought are echoed on the part that they
//! came with.
//!
//! Format: <https://ai.google.dev/api/generate-content>; recorded replies lie in
//! `tests/fixtures/wire`.

pub mod computer_use;
pub mod reply;
pub mod request;

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::hosted::{Decoder, Wire};
use crate::provider::{Facts, Request};
use crate::tool_args::Ids;

/// The Gemini wire.
#[derive(Debug, Default)]
pub struct Gemini {
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// Found out: the model does not show its thought.
    no_thought: AtomicBool,
}

impl Gemini {
    /// A wire with this temperature.
    pub fn new(temperature: Option<f64>) -> Gemini {
        Gemini { temperature, no_thought: AtomicBool::new(false) }
    }
}

impl Wire for Gemini {
    fn body(&self, request: &Request<'_>, facts: &Facts) -> Value {
        request::body(self, request, computer_use::is_meant(facts, request.tools))
    }

    fn decoder(&self, request: &Request<'_>) -> Box<dyn Decoder> {
        Box::new(reply::GeminiDecoder::new(Ids::after(request.messages)))
    }

    fn adapt(&self, refusal: &str) -> bool {
        let about_thought = refusal.to_lowercase().contains("think");
        about_thought && !self.no_thought.swap(true, Ordering::Relaxed)
    }
}
