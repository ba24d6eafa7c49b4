//! The supervisor: the process that runs one session's agent.

pub mod control;
mod network;
pub mod run;
mod same_lines;
pub mod spawn;
pub mod step;
pub mod tasks;
