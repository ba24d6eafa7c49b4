//! OpenAI chat completions, streamed, for OpenAI and every server that speaks its format:
//! llama.cpp, ollama, vLLM, OpenRouter, Groq and their kin.
//!
//! Format: <https://platform.openai.com/docs/api-reference/chat-streaming>; recorded replies lie
//! in `tests/fixtures/wire`.

pub mod reply;
pub mod request;

use serde_json::Value;

use super::arguments::Ids;
use super::hosted::{Decoder, Wire};
use super::{Facts, Request};

/// The host of OpenAI's own service, which knows keys that others refuse.
pub const OPENAI_HOST: &str = "api.openai.com";

/// The chat completions wire.
#[derive(Clone, Debug, Default)]
pub struct Chat {
    /// Whether OpenAI itself is asked.
    pub is_openai: bool,
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
}

impl Wire for Chat {
    fn body(&self, request: &Request<'_>, facts: &Facts) -> Value {
        request::body(self, request, facts)
    }

    fn decoder(&self, request: &Request<'_>) -> Box<dyn Decoder> {
        Box::new(reply::Reading::new(Ids::after(request.messages)))
    }
}
