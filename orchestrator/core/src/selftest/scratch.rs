//! The scratch repository of the self-test, and the program that works on it: nothing there is
//! connected with the user's repositories, configuration or agents.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use base::git_version::{self, REFTABLE_VERSION};
use base::process::{Command, Output, OutputLimits, Running, Stream};
use serde_json::Value;

use crate::invariants::{self, Baseline};
use crate::selftest::agent;
use crate::selftest::operation::{Program, SelftestOperation};

const CANNOT_PREPARE: &str = "cannot prepare the scratch repository";

/// How long a command may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The locks of the repository that stop each later git.
pub(crate) const LOCKS_OF_ALL: [&str; 5] = [
    "/repo/.git/index.lock",
    "/repo/.git/HEAD.lock",
    "/repo/.git/config.lock",
    "/repo/.git/packed-refs.lock",
    "/repo/.git/reftable/tables.list.lock",
];

/// The formats of ids and refs.
const FORMATS: [[&str; 2]; 4] =
    [["sha1", "files"], ["sha1", "reftable"], ["sha256", "files"], ["sha256", "reftable"]];

/// A scratch repository in a temporary directory.
#[derive(Debug)]
pub(crate) struct ScratchRepository {
    directory: tempfile::TempDir,
    program: PathBuf,
    format: [&'static str; 2],
    has_submodule: bool,
}

/// The end of a command.
#[derive(Clone, Debug)]
pub(crate) struct CommandEnd {
    /// The exit code; `None` if it was killed on purpose.
    pub code: Option<i32>,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
    /// How long it ran.
    pub time: Duration,
}

impl ScratchRepository {
    /// Creates a repository with a commit, changes of the user, and the scripted agent. The number
    /// chooses its formats among those that the installed git knows, and whether it has a submodule.
    pub(crate) fn create(number: u64) -> Result<ScratchRepository> {
        let fail = || "cannot create the scratch repository";
        let directory =
            tempfile::Builder::new().prefix("studio-selftest-").tempdir().or_fail(fail)?;
        let program = std::env::current_exe().or_fail(fail)?;
        let has_reftables = git_version::detect()? >= REFTABLE_VERSION;
        let known = if has_reftables { FORMATS.as_slice() } else { &FORMATS[..1] };
        let index = usize::try_from(number % known.len() as u64).unwrap_or(0);
        let has_submodule = number / FORMATS.len() as u64 % 2 == 1;
        let format = known[index];
        let scratch = ScratchRepository { directory, program, format, has_submodule };
        for name in ["run", "tmp", ".config/g3", "repo"] {
            let mut builder = fs::DirBuilder::new();
            let path = scratch.home().join(name);
            builder.recursive(true).mode(0o700).create(path).or_fail(fail)?;
        }
        fs::set_permissions(scratch.home(), fs::Permissions::from_mode(0o700)).or_fail(fail)?;
        let program = toml::Value::from(scratch.program.to_string_lossy().into_owned());
        let config = format!(
            "[studio]\nagent = \"scripted\"\n[studio.agents.scripted]\nprotocol = \"command\"\n\
             command = [{program}, \"{}\", \"{{prompt}}\"]\n",
            agent::COMMAND
        );
        fs::write(scratch.home().join(".config/g3/config.toml"), config).or_fail(fail)?;
        let [ids, refs] = scratch.format;
        let ids = format!("--object-format={ids}");
        if has_reftables {
            let refs = format!("--ref-format={refs}");
            scratch.git(&["init", "-q", "-b", "main", &ids, &refs])?;
        } else {
            scratch.git(&["init", "-q", "-b", "main"])?;
        }
        let file =
            |name: &str, text: &str| fs::write(scratch.repo().join(name), text).or_fail(fail);
        file("README.md", "# A scratch repository\n")?;
        file("edited", "old\n")?;
        file(agent::SHARED, &"a line\n".repeat(agent::SHARED_LINES))?;
        fs::create_dir(scratch.repo().join("tree")).or_fail(fail)?;
        file("tree/one", "one\n")?;
        file("tree/two", "two\n")?;
        file("tool", "#!/bin/sh\n")?;
        symlink("README.md", scratch.repo().join("link")).or_fail(fail)?;
        if scratch.has_submodule {
            scratch.add_submodule()?;
        }
        scratch.git(&["add", "-A"])?;
        scratch.git(&["commit", "-q", "-m", "Start"])?;
        scratch.git(&["tag", "of-the-user"])?;
        file("edited", "edited by the user\n")?;
        file("staged", "staged by the user\n")?;
        scratch.git(&["add", "staged"])?;
        file("untracked", "written by the user\n")?;
        Ok(scratch)
    }

    /// Adds a submodule with a commit.
    fn add_submodule(&self) -> Result<()> {
        let origin = self.home().join("origin");
        let origin = origin.to_string_lossy();
        let [ids, _] = self.format;
        let ids = format!("--object-format={ids}");
        self.git(&["init", "-q", "-b", "main", &ids, &origin])?;
        self.git(&["-C", &origin, "commit", "-q", "--allow-empty", "-m", "Start"])?;
        let allow = "protocol.file.allow=always";
        self.git(&["-c", allow, "submodule", "--quiet", "add", &origin, agent::MODULE])
    }

    /// Keeps the directory, so that the user can examine it; returns it.
    pub(crate) fn keep(self) -> PathBuf {
        self.directory.keep()
    }

    fn home(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the main checkout.
    pub(crate) fn repo(&self) -> PathBuf {
        self.home().join("repo")
    }

    /// Describes the repository: the formats of ids and refs, and whether it has a submodule.
    pub(crate) fn kind(&self) -> String {
        let formats = self.format.join(" and ");
        if self.has_submodule { formats + " with a submodule" } else { formats }
    }

    /// Commits what the user saved, and adds the files that the user will commit.
    pub(crate) fn prepare(&self, operations: &[SelftestOperation]) -> Result<()> {
        if !self.git_output(&["diff", "--quiet", "--", agent::SHARED])?.ok() {
            self.git(&["commit", "-q", "-m", "Save", "--only", agent::SHARED])?;
        }
        for name in operations.iter().filter_map(|operation| operation.added.as_ref()) {
            let path = self.repo().join(name);
            fs::write(path, "committed by the user\n").or_fail(|| "cannot write a file")?;
            self.git(&["add", name])?;
        }
        Ok(())
    }

    /// Reads the state that later states are compared with.
    pub(crate) fn baseline(&self) -> Result<Baseline> {
        Baseline::read(&self.repo(), &[self.home().join("repo.worktrees")])
    }

    /// Returns the lines of the file `shared` in the main checkout.
    pub(crate) fn shared_lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.repo().join(agent::SHARED)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn git(&self, args: &[&str]) -> Result<()> {
        let output = self.git_output(args)?;
        if output.ok() {
            return Ok(());
        }
        Err(Failure::failed(CANNOT_PREPARE).because(output.error_text()))
    }

    fn git_output(&self, args: &[&str]) -> Result<Output> {
        let output = self.command("git").args(args).output(OutputLimits::seconds(60));
        output.or_fail(|| CANNOT_PREPARE)
    }

    /// Prepares a program with an environment of its own.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let own = |name: &str| self.home().join(name);
        let mut command = Command::new(program, self.repo()).env_clear();
        // Also what tests set.
        for (key, value) in std::env::vars_os() {
            if key == "PATH" || base::test_hooks::is_hook(&key.to_string_lossy()) {
                command = command.env(key, value);
            }
        }
        command
            .env("HOME", self.home())
            .env("TMPDIR", own("tmp"))
            .env("XDG_RUNTIME_DIR", own("run"))
            .env("XDG_CONFIG_HOME", own(".config"))
            .env("LANG", "C.UTF-8")
            .env("GIT_CONFIG_GLOBAL", self.home().join(".gitconfig"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "Studio")
            .env("GIT_AUTHOR_EMAIL", "studio@localhost")
            .env("GIT_COMMITTER_NAME", "Studio")
            .env("GIT_COMMITTER_EMAIL", "studio@localhost")
    }

    /// Runs operations at once, each to its end or until it is killed with SIGKILL after a time.
    pub(crate) fn run_at_once(
        &self,
        operations: &[(&SelftestOperation, Option<Duration>)],
    ) -> Result<Vec<CommandEnd>> {
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (number, (operation, kill_after)) in operations.iter().enumerate() {
                let program = match operation.program {
                    Program::Studio => self.program.as_path(),
                    Program::Git | Program::Shell => Path::new(operation.program.name()),
                };
                let (args, kill_after) = (&operation.args, *kill_after);
                let run = move || self.run(program, args, kill_after, &number.to_string());
                threads.push(scope.spawn(run));
            }
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<CommandEnd>>| {
                thread.join().unwrap_or_else(|_| Err(Failure::failed("a thread panicked")))
            };
            threads.into_iter().map(join).collect()
        })
    }

    /// Runs studio to its end.
    pub(crate) fn studio(&self, args: &[&str]) -> Result<CommandEnd> {
        let args: Vec<String> = args.iter().map(|&argument| argument.to_owned()).collect();
        self.run(&self.program, &args, None, "")
    }

    /// Runs a program with files for its output whose names have this suffix.
    fn run(
        &self,
        program: &Path,
        args: &[String],
        kill_after: Option<Duration>,
        suffix: &str,
    ) -> Result<CommandEnd> {
        let fail = || format!("cannot start {}", program.display());
        let file = |name: &str| self.home().join(format!("{name}{suffix}"));
        let (out, err) = (file("out"), file("err"));
        let create = |path: &Path| fs::File::create(path).or_fail(fail);
        let command = self.command(program).args(args);
        let command =
            command.stdout(Stream::File(create(&out)?)).stderr(Stream::File(create(&err)?));
        let begin = Instant::now();
        let mut running: Running = command.spawn().or_fail(fail)?;
        let limit = kill_after.unwrap_or(TIMEOUT);
        let status = running.wait_until(Some(begin + limit)).or_fail(fail)?;
        let time = begin.elapsed();
        if status.is_none() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
        let code = match (status, kill_after) {
            (Some(status), _) => Some(base::process::exit_code(status)),
            (None, Some(_)) => None,
            (None, None) => Some(124),
        };
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        Ok(CommandEnd { code, out: read(&out), err: read(&err), time })
    }

    /// Returns the sessions: id and state.
    pub(crate) fn sessions(&self) -> Result<Value> {
        let list = self.studio(&["list", "--all", "--json"])?;
        serde_json::from_str(&list.out).map_err(|error| {
            Failure::failed("`studio list --all --json` prints no JSON")
                .because(format!("{error}: {}{}", list.out, list.err))
        })
    }

    /// Waits until no process of the scratch repository runs; returns those that do not end.
    pub(crate) fn settle(&self) -> Vec<(u32, String)> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let running = invariants::processes_in(self.home());
            if running.is_empty() || Instant::now() >= end {
                return running;
            }
            let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let _ = rustix::event::poll(&mut [], Some(&moment));
        }
    }

    /// Removes the locks that a killed git left, as its error messages tell the user to.
    pub(crate) fn remove_git_locks(&self) {
        for name in LOCKS_OF_ALL {
            let _ = fs::remove_file(self.home().join(name.trim_start_matches('/')));
        }
    }

    /// Kills one process of the scratch repository, chosen by a number.
    pub(crate) fn kill_one(&self, number: u64) {
        use rustix::process::{Pid, Signal, kill_process};
        let running = invariants::processes_in(self.home());
        let index = usize::try_from(number % running.len().max(1) as u64).unwrap_or(0);
        let pid = running.get(index).and_then(|(pid, _)| Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
