//! The execution environment of commands: sandbox, variables, working directory and output capture.

pub mod confinement;
pub mod directory;
pub mod environment;
pub mod output;
pub mod sandbox;
