//! The command line of g3, its modes and its output. The agent itself is in [`agent_core`].

pub mod cli;
pub mod modes;
pub mod trace;
pub mod ui;
