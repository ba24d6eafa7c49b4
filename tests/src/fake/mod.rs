//! The fake agent: its script, and how it speaks ACP.

pub mod acp;
pub mod script;
