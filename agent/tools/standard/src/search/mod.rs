//! The search tools: file names and contents, with ripgrep's engine.

pub mod glob;
pub mod grep;
