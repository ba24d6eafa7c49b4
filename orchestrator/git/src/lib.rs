//! The git operations of studio: worktrees of sessions, import, snapshots, merging, landing,
//! discarding and undoing. Its interface is plain data; it knows nothing about journals and prints
//! nothing.
//!
//! A session passes through these modules: [`repo::Repository::discover`] → [`worktree::create`] →
//! (the agent works) → `import::import` → `snapshot::take` → `merge::prepare` → `merge::commit` →
//! `land::accept`, or `discard::discard`, and `undo::undo` back. Everything that changes something
//! calls `transaction::recover` first.

pub mod accepted_hunks;
pub mod check_leftovers;
pub mod check_worktree;
pub mod checkout;
pub mod checkout_conflicts;
pub mod checkout_update;
pub(crate) mod commit_attributes;
pub mod commit_list;
pub mod compat;
pub mod confined_thread;
pub mod conflict;
pub mod diff;
pub mod discard;
pub mod endless_patterns;
pub mod entry_mode;
pub(crate) mod file_swap;
pub(crate) mod filter_process;
pub(crate) mod filter_program;
pub(crate) mod filter_registration;
pub mod filters;
pub mod gc;
pub(crate) mod git_installation;
pub mod handle;
pub mod head;
pub mod hunks;
pub mod import;
pub mod index;
pub mod index_file;
pub mod keepalive_refs;
pub mod land;
pub mod landed_work;
pub mod landing_history;
pub mod lfs_objects;
pub mod merge;
pub mod move_worktree;
pub mod moved_repository;
pub mod names;
pub mod object_format;
pub mod object_quarantine;
mod open_directories;
pub mod oplog;
pub mod orphan;
pub mod overlay;
pub mod pack_maintenance;
pub mod pair_conflicts;
pub mod parallel_checkout;
pub mod partial_clone;
pub mod patch;
pub mod pool;
pub mod publish;
pub mod rebase;
pub mod receipt;
pub mod recreate_worktree;
pub mod refs;
pub(crate) mod reftable;
pub mod replica;
pub mod repo;
pub mod safe_open;
pub mod secrets;
pub mod session_repo;
pub mod signing;
pub mod snapshot;
pub mod sparse;
pub mod stage;
pub mod start_notices;
pub mod start_point;
mod stored_index;
mod submodule_refs;
pub mod submodules;
mod syntax_conflicts;
pub mod transaction;
pub mod tree_diff;
pub mod tree_limits;
pub mod trial;
pub mod trial_files;
pub mod undo;
mod untracked;
pub mod worktree;
pub mod worktreeinclude;
