//! The sandbox of a session's checks for any directory and any program: `studio sandbox`.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::config::Config;
use base::config::network::NetworkPolicy;
use base::failure::{Failure, OrFail, Result};
use base::sandbox::{git_dirs, guarded_paths};
use base::user_dirs::{name_for_path, state_dir};
use studio_git::repo::Repository;
use studio_git::session_repo;

use crate::exec::hidden_trees;
use crate::exec::network::{self, NetworkSetup};
use crate::exec::runner::{DiskLimit, home, limits_of};
use crate::sandbox::session_rules::{SessionPaths, SessionTrees};
use crate::sandbox::{self, SandboxSpec};
use crate::session::record::RunLimits;

/// A program's sandbox in a directory that belongs to no session.
pub struct DirectorySandbox {
    spec: SandboxSpec,
    network: NetworkSetup,
}

/// Paths that are opened in addition.
#[derive(Clone, Debug, Default)]
pub struct OpenedPaths {
    /// Readable ones.
    pub read: Vec<PathBuf>,
    /// Writable ones.
    pub write: Vec<PathBuf>,
}

impl DirectorySandbox {
    /// Creates the sandbox: a session's checks would have the same in a worktree at this directory.
    /// In a git repository its configuration, its hooks and studio's data stay read-only.
    pub fn new(
        directory: &Path,
        repository: Option<&Repository>,
        config: &Config,
        opened: OpenedPaths,
    ) -> Result<DirectorySandbox> {
        let fail = || "cannot plan the sandbox";
        let is_home = home().canonicalize().is_ok_and(|home| home.starts_with(directory));
        if is_home {
            return Err(Failure::refused("the sandbox would open your home directory")
                .because(format!("{} is or contains it", directory.display()))
                .hint("run it in the directory of a project"));
        }
        let data = state_dir("studio").or_fail(fail)?.join("sandbox");
        let data = data.join(name_for_path(directory));
        let temp = own_temp(&data).or_fail(fail)?;
        let (git, home) = (data.join("git"), home());
        for directory in [&git, &data.join("cache")] {
            make_private(directory).or_fail(fail)?;
        }
        let hidden = repository
            .map(|repository| hidden_trees::other_trees(repository, directory, &home))
            .unwrap_or_default();
        let common_dir = repository.map_or_else(|| git.clone(), |it| it.common_dir.clone());
        let paths = SessionPaths {
            home: &home,
            worktree: directory,
            private_git: &git,
            repository_git: &common_dir,
            temp: &temp,
            cache: &data.join("cache"),
            trees: &SessionTrees::new(&home, hidden, &common_dir),
            protected: &[],
        };
        let mut spec = SandboxSpec::for_session(&paths, None, &config.sandbox).or_fail(fail)?;
        let dirs = git_dirs::of(directory);
        spec.rules.replaced.extend(dirs.config_without_logins(&data, directory).or_fail(fail)?);
        spec.rules.read.extend(dirs.borrowed);
        spec.rules.write.extend(dirs.write);
        spec.rules.fixed = dirs.fixed;
        spec.rules.guarded = guarded_paths::unchanged(&dirs.guarded);
        if let Some(repository) = repository {
            let settings = session_repo::config(&*repository.open()?)?;
            base::files::replace(&git.join("config"), settings.as_bytes()).or_fail(fail)?;
        }
        let file = Some(common_dir.join("config")).filter(|file| file.is_file());
        spec.rules.read.extend(file.filter(|it| git_dirs::without_logins(it).is_none()));
        spec.rules.read.extend(opened.read);
        spec.rules.write.extend(opened.write);
        let own = RunLimits::default();
        spec.limits = limits_of(&own, &config.studio.limits, DiskLimit::Unlimited);
        let policy = config.studio.check_network.or(config.sandbox.network);
        let network = NetworkSetup::new(
            policy.unwrap_or(NetworkPolicy::AllowList),
            config.sandbox.best_effort,
            network::listed_hosts(&config.sandbox),
            Vec::new(),
        )?;
        Ok(DirectorySandbox { spec, network })
    }

    /// Returns what in the directory the kernel cannot protect: it is inside a writable tree.
    pub fn unprotected(&self) -> &[PathBuf] {
        match base::sandbox::namespaces_are_possible() {
            true => &[],
            false => &self.spec.rules.fixed,
        }
    }

    /// Runs a program for the user and returns its exit code. Call
    /// [`DirectorySandbox::put_back`] afterwards.
    pub fn run(&self, argv: &[String]) -> Result<i32> {
        let program = argv.first().map_or("", String::as_str);
        let mut spec = self.spec.clone();
        let descriptors = self.network.apply(&mut spec)?;
        sandbox::run_attended(&spec, None, descriptors, program, argv.iter().skip(1))
            .or_fail(|| format!("cannot start `{program}`"))
    }
}

impl DirectorySandbox {
    /// Moves aside what programs wrote to paths that git would obey; returns these paths.
    pub fn put_back(&self) -> Result<Vec<PathBuf>> {
        guarded_paths::put_back(&self.spec.rules.guarded)
            .or_fail(|| "cannot move aside what git would obey")
    }
}

/// Creates a directory for temporary files, and removes those of runs that have ended.
fn own_temp(data: &Path) -> io::Result<PathBuf> {
    let parent = data.join("tmp");
    make_private(&parent)?;
    for entry in std::fs::read_dir(&parent)?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if pid.is_some_and(|pid| !base::process::is_alive(pid)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    Ok(parent.join(std::process::id().to_string()))
}

fn make_private(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}
