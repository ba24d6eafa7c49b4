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
pub mod output;
pub mod profile;
pub mod registry;
pub mod research_agent;
pub mod result_limit;
pub mod screen_access;
pub mod services;
pub mod skill_permissions;
pub mod text_diff;
pub mod tool;
pub mod tool_switches;
pub mod trace_events;
pub mod undo;
pub mod walk;
pub mod web;
