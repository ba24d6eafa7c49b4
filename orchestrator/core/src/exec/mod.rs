//! Runs the programs of a session: in its worktree, in its sandbox, with its own build caches.

pub mod build_caches;
pub mod runner;

mod hidden_trees;
