//! Tests of studio.

mod accept;
mod boxed;
mod boxed_session;
mod control;
mod crash;
mod discard;
mod ends;
mod git_crash;
mod git_door;
mod git_hardship;
mod git_import;
mod git_land;
mod git_merge;
mod git_repo;
mod git_setting;
mod git_snapshot;
mod git_undo;
mod git_worktree;
mod gone;
mod leftovers;
mod model_host;
mod run;
mod scene;
mod shapes;
mod shown;
mod words;
