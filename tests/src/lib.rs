//! The test kit: TestEnv, Repo, a scripted model server, a fake agent, a desktop.

pub mod desktop;
pub mod env;
pub mod fake;
pub mod model_server;
pub mod repo;
pub mod tmux;
pub mod transcript;
pub mod workspace;
