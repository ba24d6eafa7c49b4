//! Tests of studio.

mod git_repo;
mod git_setting;
mod git_worktree;
