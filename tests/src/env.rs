//! The environment of a test: its own home, no inherited variables, fixed clock and seed, real
//! binaries.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::process::{Command, Output, OutputLimits, Running, Stream};

use crate::repo::Repo;

/// The current time in tests, by default.
pub const NOW: &str = "2026-01-02T10:00:00Z";

/// The environment of a test. Its files are removed on drop.
#[derive(Debug)]
pub struct TestEnv {
    home: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

impl TestEnv {
    /// Creates an empty home directory and an environment without the caller's variables.
    pub fn new() -> TestEnv {
        let home = tempfile::Builder::new()
            .prefix("studio-test-")
            .tempdir()
            .expect("a temporary directory can be made");
        for dir in ["tmp", "run", ".config"] {
            fs::create_dir(home.path().join(dir)).expect("the home is writable");
        }
        fs::set_permissions(
            home.path().join("run"),
            std::os::unix::fs::PermissionsExt::from_mode(0o700),
        )
        .expect("our own directory");
        TestEnv { home, variables: Vec::new() }
    }

    /// Returns the home directory.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Sets a variable for all programs of this environment.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> TestEnv {
        self.set(key, value);
        self
    }

    /// Sets a variable for programs that are started later.
    pub fn set(&mut self, key: &str, value: impl fmt::Display) {
        self.variables.retain(|(known, _)| known != key);
        self.variables.push((key.to_owned(), value.to_string()));
    }

    /// Writes the user's configuration, `~/.config/g3/config.toml`.
    pub fn config(&self, text: &str) {
        let dir = self.home().join(".config/g3");
        fs::create_dir_all(&dir).expect("the home is writable");
        fs::write(dir.join("config.toml"), text).expect("the home is writable");
    }

    /// Creates a repository with one commit in `<home>/repo`.
    pub fn repo(&self) -> Repo {
        self.repo_at("repo")
    }

    /// Creates a repository with one commit in a directory of the home.
    pub fn repo_at(&self, name: &str) -> Repo {
        Repo::make(&self.home().join(name))
    }

    /// Returns the directory of g3's state for a working directory: its sessions and error reports.
    pub fn g3_state(&self, directory: &Path) -> PathBuf {
        let directory = directory.canonicalize().expect("the directory is there");
        let name = base::user_dirs::name_for_path(&directory);
        self.home().join(".local/state/g3/workspaces").join(name)
    }

    /// Prepares a program of this workspace or of the system.
    pub fn command(&self, program: impl AsRef<OsStr>, directory: &Path) -> Command {
        let job = Command::new(program, directory).env_clear();
        let mut job = crate::repo::with_repository_format(job)
            .env("HOME", self.home())
            .env("TMPDIR", self.home().join("tmp"))
            .env("XDG_RUNTIME_DIR", self.home().join("run"))
            .env("XDG_CONFIG_HOME", self.home().join(".config"))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "C.UTF-8")
            .env("COLUMNS", "100")
            .env("GIT_CONFIG_GLOBAL", self.home().join(".gitconfig"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("G3_TEST_NOW", NOW)
            .env("G3_TEST_SEED", "1")
            .env("G3_TEST_LOAD", "0");
        for (key, value) in &self.variables {
            job = job.env(key, value);
        }
        job
    }

    /// Runs a program to its end, with a timeout of two minutes.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        directory: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> CommandRun {
        self.run_command(self.command(program, directory).args(args))
    }

    /// Runs a prepared command to its end, with a timeout of two minutes.
    pub fn run_command(&self, job: Command) -> CommandRun {
        let output = job.output(OutputLimits::seconds(120)).expect("the program can be started");
        CommandRun::from(output)
    }

    /// Starts a program with piped streams; its process group ends with the handle.
    pub fn start<S: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        directory: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Running {
        let job = self.command(program, directory).args(args).stdin(Stream::Piped);
        job.spawn().expect("the program can be started")
    }
}

impl Default for TestEnv {
    fn default() -> Self {
        Self::new()
    }
}

/// The result of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandRun {
    /// The exit code; 128 + signal if a signal killed it.
    pub code: i32,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
}

impl From<Output> for CommandRun {
    fn from(output: Output) -> CommandRun {
        assert!(!output.timed_out, "the program hung; it wrote:\n{}", output.text());
        CommandRun {
            code: output.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl fmt::Display for CommandRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.out)?;
        if !self.err.is_empty() {
            write!(f, "---- stderr\n{}", self.err)?;
        }
        writeln!(f, "[exit {}]", self.code)
    }
}

impl CommandRun {
    /// Asserts exit code 0; returns stdout without the last newline.
    #[track_caller]
    pub fn ok(&self) -> &str {
        assert_eq!(self.code, 0, "the program failed:\n{self}");
        self.out.trim_end_matches('\n')
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn exits(&self, code: i32) -> &CommandRun {
        assert_eq!(self.code, code, "unexpected exit code:\n{self}");
        self
    }

    /// Asserts that stdout or stderr contains this text.
    #[track_caller]
    pub fn output_contains(&self, words: &str) -> &CommandRun {
        assert!(self.out.contains(words) || self.err.contains(words), "no `{words}` in:\n{self}");
        self
    }

    /// Asserts that neither stdout nor stderr contains this text.
    #[track_caller]
    pub fn output_lacks(&self, words: &str) -> &CommandRun {
        assert!(!self.out.contains(words) && !self.err.contains(words), "`{words}` in:\n{self}");
        self
    }

    /// Parses stdout as one JSON value.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("not JSON ({e}):\n{self}"))
    }

    /// Parses stdout as JSON lines.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<serde_json::Value> {
        let parse = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|e| panic!("not JSON ({e}): {line}"))
        };
        self.out.lines().map(parse).collect()
    }
}

/// A process whose working directory is in some directory.
#[derive(Clone, Copy, Debug)]
pub struct WorkingProcess {
    /// Its id.
    pub id: u32,
    /// Its id in its own process id namespace: the id that it prints itself.
    pub own_id: u32,
}

/// Returns the words before a command that runs in its own namespace of process ids. Root needs no
/// namespace of users for that, in which not every container permits another `/proc`.
pub fn in_process_namespace() -> Vec<&'static str> {
    let mut words = vec!["unshare", "--pid", "--fork", "--mount-proc"];
    if !rustix::process::geteuid().is_root() {
        words.push("--map-root-user");
    }
    words
}

/// Returns the processes that work in a directory or below it.
pub fn processes_in(directory: &Path) -> Vec<WorkingProcess> {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let ids = std::fs::read_dir("/proc").expect("the processes").flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let works_there = |id: &u32| {
        std::fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|it| it.starts_with(&directory))
    };
    let with_own_id = |id: u32| {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        Some(WorkingProcess { id, own_id: ids.split_whitespace().last()?.parse().ok()? })
    };
    ids.filter(works_there).filter_map(with_own_id).collect()
}

/// Returns the id of the process that works in a directory and prints this id as its own.
pub fn process_in(directory: &Path, own_id: u32) -> Option<u32> {
    processes_in(directory).iter().find(|it| it.own_id == own_id).map(|it| it.id)
}

/// Returns the init process of the sandbox of a process: the last of its ancestors that is one.
pub fn sandbox_of(process: u32) -> Option<u32> {
    let parent = |id: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let is_init = |id: &u32| {
        std::fs::read_to_string(format!("/proc/{id}/cmdline")).is_ok_and(|it| it.contains("__box"))
    };
    std::iter::successors(Some(process), |id| parent(*id)).filter(is_init).last()
}

/// Polls until the condition returns a value; panics after 30 seconds with the description.
#[track_caller]
pub fn until<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    poll(condition).unwrap_or_else(|| panic!("waited 30 s for: {what}"))
}

/// Polls until the condition returns a value; `None` after 30 seconds.
pub fn poll<T>(mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        pause();
    }
}

/// The only sleep in tests, between two polls of a condition.
#[expect(clippy::disallowed_methods, reason = "the poll helper")]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Returns the path of a program that cargo built beside the running test, e.g. `fake-agent`.
pub fn built(name: &str) -> PathBuf {
    let mut dir = std::env::current_exe().expect("the test has a path");
    dir.pop();
    if dir.ends_with("deps") {
        dir.pop();
    }
    let path = dir.join(name);
    assert!(path.exists(), "{} is not built: `cargo build --workspace --bins`", path.display());
    path
}
