//! Finding files by name and by content, with ripgrep's engine, and code by its syntax.

pub mod glob;
pub mod grep;
