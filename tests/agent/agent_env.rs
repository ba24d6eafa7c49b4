//! A test environment with a repository, a scripted model and the real `g3`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use base::process::{Command, Running, Stream};
use serde_json::Value;
use testkit::env::{CommandRun, TestEnv};
use testkit::model_server::ModelServer;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;
use testkit::repo::Repo;

/// The binary under test.
pub const G3: &str = env!("CARGO_BIN_EXE_g3");

/// The environment of a test.
pub struct Stage {
    /// The isolated environment.
    pub env: TestEnv,
    /// The repository that g3 works in.
    pub repo: Repo,
    /// The scripted model.
    pub model: ModelServer,
}

impl Stage {
    /// Makes the repository again in another format: arguments of `git init`.
    pub fn change_format(&self, format: &[&str]) {
        let path = self.repo.path();
        std::fs::remove_dir_all(path.join(".git")).expect("it can be removed");
        self.env.run("git", path, ["init", "-q", "-b", "main"].iter().chain(format)).exits(0);
        self.repo.git(["config", "user.name", "Ada"]);
        self.repo.git(["config", "user.email", "ada@example.org"]);
        self.repo.git(["add", "."]);
        self.repo.git(["commit", "-q", "-m", "again"]);
    }

    /// Creates a stage whose model uses the Messages API and this script.
    pub fn new(script: impl Into<Script>) -> Stage {
        let env = TestEnv::new();
        let model = ModelServer::start(script);
        env.config(&model.config_toml("anthropic"));
        let repo = env.repo();
        Stage { env, repo, model }
    }

    /// Runs g3 in the repository until it exits.
    pub fn g3<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> CommandRun {
        self.env.run(G3, self.repo.path(), args)
    }

    /// Runs g3 with this text on stdin.
    pub fn g3_with_input<const N: usize>(&self, args: [&str; N], input: &str) -> CommandRun {
        self.env.run_command(self.job(args).input(input))
    }

    /// Returns a command that runs g3 in the repository.
    pub fn job<const N: usize>(&self, args: [&str; N]) -> Command {
        self.env.command(G3, self.repo.path()).args(args)
    }

    /// Starts g3 in the repository with piped streams.
    pub fn start<const N: usize>(&self, args: [&str; N]) -> Running {
        self.job(args).stdin(Stream::Null).spawn().expect("g3 is built")
    }

    /// Returns the directory of the only session.
    pub fn session_dir(&self) -> PathBuf {
        let mut dirs = self.session_dirs();
        assert_eq!(dirs.len(), 1, "one session was expected: {dirs:?}");
        dirs.remove(0)
    }

    /// Returns the directories of all sessions.
    pub fn session_dirs(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.env.g3_state(self.repo.path()).join("sessions"))
        else {
            return Vec::new();
        };
        let mut dirs: Vec<PathBuf> = entries.map(|e| e.expect("readable").path()).collect();
        dirs.sort();
        dirs
    }

    /// Returns the requests that the model received.
    pub fn asked(&self) -> Vec<ReceivedRequest> {
        self.model.requests()
    }
}

/// Returns the events of one type.
pub fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// Returns the entries of a session's journal.
pub fn journal(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("session.jsonl")).expect("the journal is there");
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
