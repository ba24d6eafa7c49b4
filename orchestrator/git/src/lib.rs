//! All that studio does with git: sessions' worktrees, bringing work home, snapshots, merging,
//! landing, dropping and undoing. Plain data in, plain data out; nothing here knows a session's
//! journal or prints.
//!
//! The life of a session through these modules: [`repo::Repository::discover`] →
//! [`worktree::make`] → (the agent works) → `import::bring_home` → `snapshot::take` →
//! `merge::prepare` → `merge::commit` → `land::accept`, or `trash::discard`, and
//! `trash::undo` back. `engine::recover` comes before all that changes something.

pub mod along;
pub mod check_worktree;
pub mod checkout;
pub mod compat;
pub mod confined;
pub mod conflict;
pub mod diff;
pub mod engine;
pub mod gather;
pub mod gc;
pub mod head;
pub mod import;
pub mod in_the_way;
pub mod include;
pub mod index;
pub mod inside;
pub mod land;
pub mod landings;
pub mod leftovers;
pub mod mend;
pub mod merge;
pub mod names;
pub mod omissions;
pub mod operations;
pub mod patch;
pub mod patterns;
pub mod pins;
pub mod private;
pub mod rebase;
pub mod receipt;
pub mod refs;
pub mod relocate;
pub mod remake;
pub mod repo;
pub mod scratch;
pub mod secrets;
pub mod signature;
pub mod snapshot;
pub mod trash;
pub mod tree;
pub mod tree_limits;
pub mod worktree;
