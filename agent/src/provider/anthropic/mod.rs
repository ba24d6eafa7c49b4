//! Anthropic Messages, streamed (`POST /v1/messages`, version 2023-06-01).
//!
//! Format: <https://docs.anthropic.com/en/api/messages-streaming>; recorded replies lie in
//! `tests/fixtures/wire`.

pub mod reply;
pub mod request;

use base::config::providers::CacheConfig;
use serde_json::Value;

use super::hosted::{Decoder, Wire};
use super::{Facts, Request};

/// The Messages wire.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    /// How long cached prefixes live.
    pub cache: CacheConfig,
    /// Sampling temperature; not sent when absent, because newer models refuse it.
    pub temperature: Option<f64>,
    /// Tokens that the model may think.
    pub thinking: Option<u32>,
}

impl Wire for Messages {
    fn body(&self, request: &Request<'_>, facts: &Facts) -> Value {
        request::body(self, request, facts)
    }

    fn decoder(&self, _: &Request<'_>) -> Box<dyn Decoder> {
        Box::new(reply::Reading::default())
    }

    fn adapt(&self, _: &str) -> bool {
        false
    }
}
