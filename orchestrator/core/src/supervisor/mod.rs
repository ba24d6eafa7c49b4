//! The supervisor: the process that runs one session's agent.

mod account_watch;
pub mod control;
mod keep;
mod network;
pub mod run;
mod same_lines;
pub mod spawn;
mod stall;
pub mod step;
pub mod tasks;
