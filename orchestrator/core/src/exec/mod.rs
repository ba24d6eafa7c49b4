//! Runs the programs of a session: in its worktree, in its sandbox, with its own build caches.

pub mod build_caches;
pub mod carried_caches;
pub mod directory_sandbox;
pub mod runner;

mod agent_services;
pub(crate) mod cargo_downloads;
mod cargo_target;
mod hidden_path_hint;
pub(crate) mod hidden_trees;
mod model_services;
pub(crate) mod network;
mod network_hint;
mod tool_paths;

pub(crate) use model_services::host_of_url;
