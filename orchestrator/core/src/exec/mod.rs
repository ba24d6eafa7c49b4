//! Running programs of a session: in its worktree, in its box, with build caches of its own.

pub mod build_caches;
pub mod runner;

mod hidden_trees;
