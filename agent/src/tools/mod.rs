//! Something the model may do. A failure is text for the model, never an `Err`.
//!
//! A tool implements [`tool::Tool`] and stands in the list of [`toolset`]; [`dispatch`] runs its
//! calls. A profile is a table of names, parameters and defaults, kept as data in
//! `profile/*.json`.

pub mod args;
pub mod browser;
pub mod call;
pub mod context;
pub mod coverage;
pub mod desktop;
pub mod dispatch;
pub mod edit;
pub mod escalate;
pub mod exec;
pub mod fs;
pub mod history;
pub mod image;
pub mod kind;
pub mod lsp;
pub mod mcp;
pub mod memory;
pub mod offer;
pub mod output;
pub mod outside;
pub mod plan;
pub mod profile;
pub mod program;
pub mod registry;
pub mod rehydrate;
pub mod research;
pub mod result_limit;
pub mod screen_access;
pub mod search;
pub mod services;
pub mod skill;
pub mod skill_rule;
pub mod task;
pub mod text_diff;
pub mod todo;
pub mod tool;
pub mod toolset;
pub mod traced;
pub mod undo;
pub mod wait;
pub mod web;

#[cfg(test)]
mod tests;
