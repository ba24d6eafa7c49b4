//! The one door to the `git` program: pinned directories, a cleared environment, nothing of the
//! repository's own that could run. libgit2 does what it can; this is for the rest.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::process::{Job, Limits, Output};

/// Flags that hold for every call (`spec`: measured with planted hooks, drivers and helpers).
const FIXED: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "safe.bareRepository=explicit",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "protocol.ext.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
];

/// Why a git call failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is no `git`, or it cannot be started.
    #[error("{0}")]
    Start(#[from] std::io::Error),
    /// It ran and failed.
    #[error("`git {args}` failed with exit code {code}: {stderr}")]
    Failed {
        /// The arguments, for people.
        args: String,
        /// The exit code.
        code: i32,
        /// What it said.
        stderr: String,
    },
}

/// A repository, and a working tree where one is needed, behind the door.
#[derive(Clone, Debug)]
pub struct Git {
    git_dir: PathBuf,
    work_tree: Option<PathBuf>,
    overrides: Vec<String>,
}

impl Git {
    /// The door for a git directory; calls that need a working tree take [`Git::with_work_tree`].
    pub fn at(git_dir: impl Into<PathBuf>) -> Git {
        let git_dir = git_dir.into();
        let mut git = Git { git_dir, work_tree: None, overrides: Vec::new() };
        git.overrides = git.driver_overrides();
        git
    }

    /// The same repository with a working tree.
    #[must_use]
    pub fn with_work_tree(&self, path: impl Into<PathBuf>) -> Git {
        Git { work_tree: Some(path.into()), ..self.clone() }
    }

    /// A call to be finished by the caller: environment or input may be added.
    pub fn job<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Job {
        let directory = self.work_tree.as_deref().unwrap_or(&self.git_dir);
        let mut job = Job::new("git", directory);
        for (key, _) in std::env::vars_os() {
            if key.to_string_lossy().starts_with("GIT_") {
                job = job.env_remove(key);
            }
        }
        job = job
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_EDITOR", "true")
            .env("LC_ALL", "C")
            .arg("--git-dir")
            .arg(&self.git_dir);
        if let Some(work_tree) = &self.work_tree {
            job = job.arg("--work-tree").arg(work_tree);
        }
        for setting in FIXED.iter().copied().chain(self.overrides.iter().map(String::as_str)) {
            job = job.arg("-c").arg(setting);
        }
        job.args(args)
    }

    /// Runs git and gives back stdout without its last newline.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, GitError> {
        let output = self.job(args).output(Limits::seconds(600))?;
        checked(args, output).map(|output| output.text())
    }

    /// Every configured driver, emptied by its own name. Listing the configuration runs nothing.
    fn driver_overrides(&self) -> Vec<String> {
        let Ok(list) =
            self.job(["config", "--list", "-z", "--name-only"]).output(Limits::seconds(30))
        else {
            return Vec::new();
        };
        let text = String::from_utf8_lossy(&list.stdout).into_owned();
        let mut found: Vec<String> = text.split('\0').flat_map(emptied).collect();
        found.sort();
        found.dedup();
        found
    }
}

/// The settings that take a driver its commands away.
fn emptied(key: &str) -> Vec<String> {
    let Some((section, rest)) = key.split_once('.') else { return Vec::new() };
    let Some((name, _)) = rest.rsplit_once('.') else { return Vec::new() };
    let empty = |keys: &[&str]| keys.iter().map(|k| format!("{section}.{name}.{k}=")).collect();
    match section {
        "filter" => {
            let mut all: Vec<String> = empty(&["clean", "smudge", "process"]);
            all.push(format!("filter.{name}.required=false"));
            all
        }
        "merge" => empty(&["driver"]),
        "diff" => empty(&["command", "textconv"]),
        _ => Vec::new(),
    }
}

/// Turns a failed call into an error that names it.
pub fn checked<S: AsRef<OsStr>>(args: &[S], output: Output) -> Result<Output, GitError> {
    if output.ok() {
        return Ok(output);
    }
    let args: Vec<_> = args.iter().map(|a| a.as_ref().to_string_lossy().into_owned()).collect();
    let stderr = if output.timed_out { "it took too long".into() } else { output.error_text() };
    Err(GitError::Failed { args: args.join(" "), code: output.code(), stderr })
}

/// The git directory that belongs to a path, common directory first: `(common, git_dir)`.
pub fn discover(from: &Path) -> Result<(PathBuf, PathBuf), GitError> {
    let args = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--absolute-git-dir"];
    let mut job = Job::new("git", from);
    for (key, _) in std::env::vars_os() {
        if key.to_string_lossy().starts_with("GIT_") {
            job = job.env_remove(key);
        }
    }
    let output = job.env("LC_ALL", "C").args(args).output(Limits::seconds(30))?;
    let output = checked(&args, output)?;
    let text = output.text();
    let mut lines = text.lines().map(PathBuf::from);
    let common = lines.next().unwrap_or_default();
    let git_dir = lines.next().unwrap_or_else(|| common.clone());
    Ok((common, git_dir))
}
