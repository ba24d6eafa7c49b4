//! The local model host: a process that owns a model and answers all clients.
//!
//! [`server`] listens and implements the protocol of [`base::model_host::wire`]. [`engine`] owns the
//! context, executes each [`command`] and decodes all conversations in one batch, which [`batch`]
//! divides, with as many [`threads`] as the machine has free. [`kv_cache`] keeps the KV of each
//! conversation. [`template`] and [`prompt`] build the prompt. [`grammar`], from schemas that
//! [`json_schema_grammar`] converts to [`gbnf`], and [`sample`] constrain calls. [`json_envelope`] and
//! [`tool_call_parser`] parse the output. [`embeddings`] computes vectors of texts, after
//! [`mean_centering`].

pub mod batch;
pub mod bench;
pub mod command;
pub mod embeddings;
pub mod engine;
pub mod gbnf;
pub mod gguf;
pub mod grammar;
pub mod json_envelope;
pub mod json_scanner;
pub mod json_schema_grammar;
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
