//! studio: runs many coding agents on one git repository at once, and lands or discards their work
//! safely. This crate is the command line on top of `studio-core`.

pub mod cli;
pub mod commands;
pub mod dashboard;
pub mod report;
pub mod review;
pub mod serve;
