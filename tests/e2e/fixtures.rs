//! A repository, a scripted model, and the real `studio` with the real `g3`.

use base::process::Command;
use serde_json::Value;
use testkit::env::{CommandRun, TestEnv, built};
use testkit::model_server::ModelServer;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;
use testkit::repo::Repo;

/// The environment of a test: a home directory, a repository, a model.
pub struct Scene {
    /// The home directory and its environment.
    pub env: TestEnv,
    /// The repository.
    pub repo: Repo,
    /// The model.
    pub model: ModelServer,
}

impl Scene {
    /// Creates a repository on `main` and a model that follows the script on the given wire format.
    pub fn new(wire: &str, script: Script) -> Scene {
        built("g3");
        let model = ModelServer::start(script);
        let env = TestEnv::new().with("G3_TEST_RETRY_MS", 1);
        env.config(&model.config_toml(wire));
        let repo = env.repo();
        repo.git(["config", "user.name", "Ada"]);
        repo.git(["config", "user.email", "ada@example.org"]);
        Scene { env, repo, model }
    }

    /// Prepares a studio command in the repository.
    pub fn job<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        self.env.command(env!("CARGO_BIN_EXE_studio"), self.repo.path()).args(args)
    }

    /// Runs studio in the repository.
    pub fn studio<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> CommandRun {
        self.env.run_command(self.job(args))
    }

    /// Returns the requests to the model so far, without those for commit messages: such a one is
    /// made when a session becomes ready.
    pub fn questions(&self) -> Vec<ReceivedRequest> {
        let mut requests = self.model.requests();
        requests.retain(|request| !request.asks_for_commit_message());
        requests
    }

    /// Returns all sessions of `list --json`.
    pub fn sessions(&self) -> Vec<Value> {
        let list = self.studio(["list", "--all", "--json"]);
        list.ok();
        list.json()["sessions"].as_array().expect("a list").clone()
    }

    /// Returns the session whose task contains this text.
    #[track_caller]
    pub fn session(&self, words: &str) -> Value {
        let mut sessions = self.sessions().into_iter();
        let found = sessions.find(|s| s["task"].as_str().is_some_and(|task| task.contains(words)));
        found.unwrap_or_else(|| panic!("no session about `{words}`"))
    }

    /// Returns the id of the session whose task contains this text.
    #[track_caller]
    pub fn id(&self, words: &str) -> String {
        self.session(words)["id"].as_str().expect("an id").to_owned()
    }
}
