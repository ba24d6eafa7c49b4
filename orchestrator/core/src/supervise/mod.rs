//! The process that owns one session's agent: what it decides, what it does, how others reach it.

pub mod control;
pub mod deeds;
pub mod run;
pub mod start;
pub mod step;
