//! The fake agent: its script, and its ACP server.

pub mod acp;
pub mod script;
