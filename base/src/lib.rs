//! Code that orchestrator and agent share: events, failures, configuration, files, processes, git
//! calls and the sandbox. It knows nothing about models and tools.

pub mod address;
pub mod allowed_hosts;
pub mod clock;
pub mod config;
pub mod credentials;
pub mod desktop_protocol;
pub mod event;
pub mod failure;
pub mod fault;
pub mod files;
pub mod git;
pub mod git_version;
pub mod id;
pub mod known_repositories;
pub mod lock;
pub mod model_host;
pub mod parallel;
pub mod process;
pub mod random;
pub mod redact;
pub mod runtime;
pub mod sandbox;
pub mod secret;
pub mod sync;
pub mod test_hooks;
pub mod text;
pub mod user_dirs;
pub mod workspace;
