//! The local model host: one process that owns a model and answers everybody who asks.
//!
//! [`server`] listens and speaks the wire of [`base::host::wire`]; [`engine`] owns the context and
//! decodes, as [`command`] tells it, all conversations in one batch, as [`batch`] shares it out and with as many [`threads`]
//! as the machine has to spare. [`cache`] keeps the KV of each conversation, [`template`] and
//! [`prompt`] write the prompt, [`grammar`] and [`sample`] hold the model to what a call may look
//! like, [`envelope`] and [`marked`] read what it wrote. [`embed`] makes vectors of texts, less what
//! is [`usual`].

pub mod batch;
pub mod bench;
pub mod command;
pub mod embeddings;
pub mod engine;
pub mod gguf;
pub mod grammar;
pub mod json_envelope;
pub mod json_scanner;
pub mod kv_cache;
pub mod load;
pub mod mean_centering;
pub mod options;
pub mod preflight;
pub mod prompt;
pub mod prompt_prefix;
pub mod reply_job;
pub mod sample;
pub mod server;
pub mod template;
pub mod threads;
pub mod tool_call_parser;
