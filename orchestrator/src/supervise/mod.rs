//! The process that owns one session's agent: what it decides, what it does, how others reach it.

pub mod step;
