//! The process that owns one session's agent: what it decides, what it does, how others reach it.

pub mod control;
pub mod run;
pub mod spawn;
pub mod step;
pub mod tasks;
