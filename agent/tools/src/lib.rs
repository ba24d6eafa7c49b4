//! The tool interface and the layers that a call passes through.
//!
//! A tool implements [`tool::Tool`]; [`dispatch`] runs its calls. A profile is a table of names,
//! parameters and defaults, kept as data in `profile/*.json`. A failure is text for the model,
//! never an `Err`.

pub mod args;
pub mod call;
pub mod child_server;
pub mod client_io;
pub mod context;
pub mod dispatch;
pub mod exec;
pub mod fs;
pub mod history;
pub mod image;
pub mod kind;
pub mod offer;
pub mod output;
pub mod profile;
pub mod registry;
pub mod result_limit;
pub mod scout;
pub mod screen_access;
pub mod services;
pub mod skill_rule;
pub mod text_diff;
pub mod tool;
pub mod traced;
pub mod undo;
pub mod walk;
pub mod web;
