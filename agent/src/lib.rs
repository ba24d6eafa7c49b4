//! The surface of g3: the command line, its modes, and what people and programs see. The agent
//! itself is in [`agent_core`].

pub mod cli;
pub mod modes;
pub mod trace;
pub mod ui;
