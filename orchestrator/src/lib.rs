//! Runs many coding agents on one git repository at once, and makes it safe and quick to keep what
//! is good and drop what is not.

pub mod boxed;
pub mod check;
pub mod cli;
pub mod commands;
pub mod launch;
pub mod message;
pub mod path_dependencies;
pub mod redact;
pub mod report;
pub mod room;
pub mod schedule;
pub mod session;
pub mod supervise;
