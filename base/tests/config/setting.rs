//! The environment of configuration tests: a home and a repository with configuration files.

use std::fs;
use std::path::{Path, PathBuf};

use base::clock::Clock;
use base::config::{self, ConfigSources, LoadedConfig, trust};
use base::failure::FailureKind;

/// A home with the user's file and a repository with its own file.
pub struct Env {
    /// The home directory.
    pub home: tempfile::TempDir,
    /// The sources of the configuration.
    pub sources: ConfigSources,
}

impl Env {
    /// Creates a home and a repository with these files.
    pub fn new(user: &str, repository: &str) -> Env {
        let home = tempfile::tempdir().unwrap();
        let (config, root) = (home.path().join(".config/g3"), home.path().join("repo"));
        fs::create_dir_all(&config).unwrap();
        fs::create_dir_all(&root).unwrap();
        let sources = ConfigSources {
            user: Some(config.join("config.toml")),
            repository: Some(root.join("g3.toml")),
            ..ConfigSources::default()
        };
        let env = Env { home, sources };
        fs::write(env.user(), user).unwrap();
        fs::write(env.repository(), repository).unwrap();
        env
    }

    /// Returns the path of the user's file.
    pub fn user(&self) -> &Path {
        self.sources.user.as_deref().unwrap()
    }

    /// Returns the path of the repository's file.
    pub fn repository(&self) -> &Path {
        self.sources.repository.as_deref().unwrap()
    }

    /// Returns the path of the trust store.
    pub fn store(&self) -> PathBuf {
        self.sources.trust_store().unwrap()
    }

    /// Trusts the current content of the repository's file.
    pub fn accept(&self) {
        let content = fs::read(self.repository()).unwrap();
        trust::accept(&self.store(), self.repository(), &content, &Clock::from_env()).unwrap();
    }

    /// Adds a variable.
    pub fn environment(mut self, name: &str, value: &str) -> Env {
        self.sources.environment.push((name.into(), value.into()));
        self
    }

    /// Adds a flag.
    pub fn flag(mut self, key: &str, value: &str) -> Env {
        self.sources.flags.push((key.into(), value.into()));
        self
    }

    /// Loads the configuration.
    pub fn load(&self) -> LoadedConfig {
        config::load(&self.sources).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Returns the failure's text, with the home directory as `~`.
    pub fn failure(&self) -> String {
        let failure = config::load(&self.sources).expect_err("this was accepted");
        assert_eq!(failure.kind, FailureKind::Usage, "{failure}");
        failure.to_string().replace(self.home.path().to_str().unwrap(), "~")
    }
}
