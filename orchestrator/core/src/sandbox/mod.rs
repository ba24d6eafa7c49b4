//! The sandbox of a session's processes: `studio __box` starts a program confined and outlives all
//! processes that it starts, so that none is left when it ends; a reaper around it does the same
//! for the sandbox process.

pub(crate) mod cargo_home;
pub mod cgroup;
pub mod init;
pub mod limits;
pub mod session_rules;
mod terminal;

mod process_tree;
mod reaper;
mod sandbox_report;
mod usage;
mod watcher;

pub(crate) use process_tree::FrozenProcesses;
pub use process_tree::freeze;
pub(crate) use sandbox_report::SandboxReport;
pub use sandbox_report::{SandboxFailure, StartFailure};

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use base::process::{Command, Stream};
use base::sandbox::SandboxRules;
use serde::{Deserialize, Serialize};

use crate::sandbox::limits::SandboxLimits;

/// The specification of a sandbox: its rules and the program's environment. It contains secrets
/// (the agent's API key), so it is passed in memory only and has no `Debug`.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Whether files are confined. Otherwise the sandbox still ends all processes that were
    /// started.
    pub confined: bool,
    /// Whether to continue if the kernel cannot enforce every rule.
    pub best_effort: bool,
    /// Whether it must have namespaces of its own, because this user can create them.
    #[serde(default)]
    pub namespaces: bool,
    /// The readable and writable paths.
    pub rules: SandboxRules,
    /// The working directory of the program.
    pub directory: PathBuf,
    /// The whole environment of the program.
    pub environment: Vec<(String, String)>,
    /// Its own temporary directory (`TMPDIR`): created if missing, and writable.
    pub temp: Option<PathBuf>,
    /// The network.
    #[serde(default)]
    pub network: NetworkAccess,
    /// Descriptors that the program inherits, by number (6 or more), e.g. a connection to the model
    /// host; the caller adds them with [`Command::descriptor`].
    pub descriptors: Vec<i32>,
    /// What all its processes may use together.
    #[serde(default)]
    pub limits: SandboxLimits,
}

/// How the network of a sandbox is confined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkAccess {
    /// Not at all.
    #[default]
    Open,
    /// The program enters this namespace, whose descriptors the sandbox inherits.
    Namespace {
        /// The number of the descriptor of its user namespace, if it has one of its own.
        user: Option<i32>,
        /// The number of the descriptor of the network namespace.
        network: i32,
    },
    /// The program can create TCP sockets only, and connect to these ports only.
    Ports(Vec<u16>),
}

impl SandboxSpec {
    /// Returns whether the rules allow a program to read this canonical path.
    pub(crate) fn may_read(&self, path: &Path) -> bool {
        let open = self.rules.read.iter().chain(&self.rules.write).chain(&self.temp);
        let mut open = open.filter_map(|root| root.canonicalize().ok());
        !self.confined || open.any(|root| path.starts_with(root))
    }

    /// Returns whether the rules allow a program to write this absolute path, with symbolic links
    /// resolved.
    pub(crate) fn may_write(&self, path: &Path) -> bool {
        if !self.confined {
            return true;
        }
        let canonical = path.ancestors().find_map(|ancestor| {
            let relative = path.strip_prefix(ancestor).ok()?;
            Some(ancestor.canonicalize().ok()?.join(relative))
        });
        let Some(canonical) = canonical else { return false };
        let writable = self.rules.write.iter().chain(&self.temp);
        writable.filter_map(|root| root.canonicalize().ok()).any(|root| canonical.starts_with(root))
    }
}

/// The end of a pipe that the supervisor holds: when it closes, for whatever reason, all processes
/// in the sandbox are ended.
pub type Lifeline = OwnedFd;

/// The exit code of a sandbox that could not be set up.
const SETUP_FAILED_EXIT_CODE: u8 = 125;

const SPEC_FD: i32 = 3;
const LIFELINE_FD: i32 = 4;
const LOCK_FD: i32 = 4;
const REPORT_FD: i32 = 5;
const PROGRAM_FD: i32 = 10;

/// A program that is prepared to start in a sandbox.
#[derive(Debug)]
pub struct SandboxJob {
    /// The command of the reaper around the sandbox.
    pub command: Command,
    /// Keeps the sandbox alive.
    pub lifeline: Lifeline,
    /// Reports afterwards whether the program could be started, and whether it reached a limit.
    pub report: SandboxReport,
}

/// Tells a waiting sandbox its program. If it is dropped instead, the sandbox ends.
#[derive(Debug)]
pub(crate) struct ProgramSender {
    pipe: io::PipeWriter,
}

impl ProgramSender {
    /// Sends the program and its arguments. If the sandbox was ended, its exit code tells.
    pub(crate) fn send(mut self, program: &[String]) -> io::Result<()> {
        let program = serde_json::to_vec(program)?;
        // A pipe takes 64 KiB, or a page, at a time.
        thread::spawn(move || self.pipe.write_all(&program));
        Ok(())
    }
}

/// Prepares a sandbox that waits for its program, with closed stdin and piped output by default: its
/// processes take several milliseconds to start. Otherwise it is like that of [`prepare_job_with`].
pub(crate) fn prepare_waiting_job(spec: &SandboxSpec) -> io::Result<(SandboxJob, ProgramSender)> {
    let (reader, pipe) = io::pipe()?;
    let mut job = guard_job(&current_program()?, spec)?;
    job.command = job
        .command
        .args(["--program-fd", &PROGRAM_FD.to_string()])
        .descriptor(reader.into(), PROGRAM_FD);
    Ok((job, ProgramSender { pipe }))
}

/// Prepares a program to start in a sandbox, with closed stdin and piped output by default. All
/// processes in the sandbox are ended when the program ends, when the command's process gets
/// SIGTERM, and when the lifeline is dropped. The exit code is the program's.
pub fn prepare_job_with<S: AsRef<OsStr>>(
    studio: &OsStr,
    spec: &SandboxSpec,
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = S>,
) -> io::Result<SandboxJob> {
    let mut job = guard_job(studio, spec)?;
    job.command = job.command.arg("--").arg(program).args(args);
    Ok(job)
}

/// Prepares the reaper of a sandbox, without its program.
fn guard_job(studio: &OsStr, spec: &SandboxSpec) -> io::Result<SandboxJob> {
    let (lifeline_reader, lifeline) = io::pipe()?;
    let (report, report_writer) = io::pipe()?;
    let command = studio_command(studio, "__guard", spec)?
        .args(["--lifeline-fd", &LIFELINE_FD.to_string()])
        .args(["--report-fd", &REPORT_FD.to_string()])
        .descriptor(lifeline_reader.into(), LIFELINE_FD)
        .descriptor(report_writer.into(), REPORT_FD)
        .graceful();
    Ok(SandboxJob { command, lifeline: lifeline.into(), report: SandboxReport::new(report.into()) })
}

/// Runs a program for the user: on its own terminal if this process has one, so that no process in
/// the sandbox can inject input into the user's terminal; otherwise with this process's standard
/// streams. The lock, if any, is held until it ends. Returns the exit code.
pub(crate) fn run_attended<S: AsRef<OsStr>>(
    spec: &SandboxSpec,
    lock: Option<OwnedFd>,
    descriptors: Vec<(OwnedFd, i32)>,
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = S>,
) -> io::Result<i32> {
    let with_descriptors = |command: Command| {
        descriptors
            .into_iter()
            .fold(command, |command, (fd, number)| command.descriptor(fd, number))
    };
    let with_streams = |command: Command| {
        command.stdin(Stream::Inherit).stdout(Stream::Inherit).stderr(Stream::Inherit)
    };
    let command = |args| {
        let command = studio_command(&current_program()?, "__box", spec)?;
        io::Result::Ok(command.arg("--").arg(program.as_ref()).args(args))
    };
    if let Some(terminal) = terminal::open_controlling() {
        let code = terminal::run(with_descriptors(command(args)?), terminal);
        drop(lock);
        return code;
    }
    if spec.network != NetworkAccess::Open || !spec.rules.guarded.is_empty() {
        // The network proxy is a part of this process, which also looks at these paths afterwards.
        let SandboxJob { command, lifeline, report: _report } =
            prepare_job_with(&current_program()?, spec, &program, args)?;
        let mut running = with_streams(with_descriptors(command)).spawn()?;
        let status = running.wait_until(None)?;
        drop((lifeline, lock));
        return Ok(status.map_or(1, base::process::exit_code));
    }
    let mut command = with_streams(with_descriptors(command(args)?));
    if let Some(lock) = lock {
        command = command.descriptor(lock, LOCK_FD);
    }
    Err(command.exec())
}

fn studio_command(studio: &OsStr, subcommand: &str, spec: &SandboxSpec) -> io::Result<Command> {
    let mut file = unnamed_file("studio-box")?;
    file.write_all(&serde_json::to_vec(spec)?)?;
    file.rewind()?;
    // The program changes to the directory, not the sandbox process: the directory may be gone at
    // its end.
    let command = Command::new(studio, "/").env_clear();
    let command = command.args([subcommand, "--spec-fd", &SPEC_FD.to_string()]);
    Ok(command.descriptor(file.into(), SPEC_FD))
}

/// Returns an unnamed file, in memory if the system supports it, for content with keys. The label
/// is only for debuggers.
pub(crate) fn unnamed_file(label: &str) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::fs::memfd_create(label, rustix::fs::MemfdFlags::CLOEXEC)?.into());
    #[cfg(not(target_os = "linux"))]
    return tempfile::tempfile()
        .map_err(|error| io::Error::new(error.kind(), format!("{label}: {error}")));
}

/// Returns the path of the running program, even if its file has been replaced.
fn current_program() -> io::Result<OsString> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe().map(Into::into)
}

/// Runs `studio __box --spec-fd N [--lifeline-fd N] [--report-fd N] -- PROGRAM [ARG…]`, or
/// `__guard` with the same arguments. With `--program-fd N`, the program is read from there instead.
/// Returns `None` for other commands, which are the user's.
pub fn main(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let result = match args.next()?.to_str()? {
        "__box" => init::SandboxArgs::parse(args).and_then(init::run),
        "__guard" => reaper::run(args),
        _ => return None,
    };
    Some(match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(io::stderr(), "studio: cannot set up the sandbox: {error}");
            ExitCode::from(SETUP_FAILED_EXIT_CODE)
        }
    })
}
