//! Model providers and the messages exchanged with them. Start at [`Provider`]; [`open()`] creates
//! one from the configuration. Differences between services are handled in this crate.

pub mod anthropic;
mod blocking;
pub mod embedded;
mod error;
pub mod fallback;
pub mod from_config;
#[cfg(any(test, fuzzing))]
pub mod fuzz_tests;
pub mod gemini;
pub mod history;
pub mod hosted;
pub mod http;
pub mod http_error;
pub mod message;
pub mod model_list;
pub mod models;
pub mod oauth;
pub mod openai_chat;
pub mod openai_responses;
mod provider;
pub mod retry;
pub mod sse;
pub mod text_calls;
pub mod tool_args;
pub mod trace_events;

pub use blocking::off_loop;
pub use error::ProviderError;
pub use from_config::{ProviderChoice, check, open};
pub use provider::{ChatRequest, Delta, OnDelta, Provider, ProviderFacts, ToolDefinition};
