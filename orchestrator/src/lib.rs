//! Runs many coding agents on one git repository at once, and makes it safe and quick to keep what
//! is good and drop what is not. This is the command line over `studio-core`.

pub mod cli;
pub mod commands;
pub mod report;
