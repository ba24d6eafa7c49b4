//! Finding files by name and by content, with ripgrep's engine.

pub mod glob;
pub mod grep;
pub mod walk;
