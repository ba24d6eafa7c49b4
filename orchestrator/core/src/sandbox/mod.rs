//! The box around a session's processes: `studio __box` starts a program confined, and outlives
//! everything that the program starts, so that nothing is left behind when it ends; a guard around
//! it does the same for the box.

pub mod init;
pub mod session_rules;
mod terminal;

mod process_tree;
mod reaper;
mod start_report;

pub(crate) use process_tree::FrozenProcesses;
pub use process_tree::freeze;
pub use start_report::StartFailure;
pub(crate) use start_report::StartReport;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base::process::{Command, Stream};
use base::sandbox::SandboxRules;
use serde::{Deserialize, Serialize};

/// What a box allows, and what the program in it finds. Holds secrets (the agent's key), so it
/// travels in memory only and has no `Debug`.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Whether files are confined. Without it the box still ends everything that was started.
    pub confined: bool,
    /// Goes on where the kernel cannot hold every rule.
    pub best_effort: bool,
    /// What may be read and written.
    pub rules: SandboxRules,
    /// Where the program starts.
    pub directory: PathBuf,
    /// The whole environment of the program.
    pub environment: Vec<(String, String)>,
    /// Its own temporary directory (`TMPDIR`): made when it is missing, and writable.
    pub temp: Option<PathBuf>,
    /// Descriptors that the program gets, by number (6 or more), e.g. a connection to the model
    /// host; the caller adds them with [`Job::descriptor`].
    pub descriptors: Vec<i32>,
}

impl SandboxSpec {
    /// Returns whether the rules let a program write this absolute path, seen through symbolic
    /// links.
    pub(crate) fn may_write(&self, path: &Path) -> bool {
        if !self.confined {
            return true;
        }
        let real = path.ancestors().find_map(|above| {
            let below = path.strip_prefix(above).ok()?;
            Some(above.canonicalize().ok()?.join(below))
        });
        let Some(real) = real else { return false };
        let open = self.rules.write.iter().chain(&self.temp);
        open.filter_map(|root| root.canonicalize().ok()).any(|root| real.starts_with(root))
    }
}

/// The end of a pipe that the supervisor holds: when it closes, by whatever cause, everything in
/// the box ends.
pub type Lifeline = OwnedFd;

/// The exit code of a box that could not be set up.
const BROKEN: u8 = 125;

const SPEC_FD: i32 = 3;
const LIFELINE_FD: i32 = 4;
const HELD_FD: i32 = 4;
const REPORT_FD: i32 = 5;

/// A prepared start of a program in a box.
#[derive(Debug)]
pub struct SandboxJob {
    /// The guard around the box, to be started.
    pub job: Command,
    /// Keeps the box alive.
    pub lifeline: Lifeline,
    /// Says afterwards whether the box could start the program.
    pub report: StartReport,
}

/// Returns a program prepared to start in a box, with our stdin closed and its output piped unless
/// the caller says otherwise. Everything in the box ends when the program ends, when the job's
/// process gets TERM, and when the lifeline is dropped. The exit code is the program's.
pub(crate) fn job<S: AsRef<OsStr>>(
    spec: &SandboxSpec,
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = S>,
) -> io::Result<SandboxJob> {
    job_of(&ourselves()?, spec, program, args)
}

/// As [`job`], with the `studio` program named: for callers that are not studio.
pub fn job_of<S: AsRef<OsStr>>(
    studio: &OsStr,
    spec: &SandboxSpec,
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = S>,
) -> io::Result<SandboxJob> {
    let (read, lifeline) = io::pipe()?;
    let (report, write) = io::pipe()?;
    let job = prepared(studio, "__guard", spec)?
        .args(["--lifeline-fd", &LIFELINE_FD.to_string()])
        .args(["--report-fd", &REPORT_FD.to_string()])
        .descriptor(read.into(), LIFELINE_FD)
        .descriptor(write.into(), REPORT_FD)
        .graceful();
    let job = job.arg("--").arg(program).args(args);
    Ok(SandboxJob { job, lifeline: lifeline.into(), report: StartReport::new(report.into()) })
}

/// Runs a person's shell in a session: on a terminal of its own where we have one, so that nothing
/// in the box can put input into ours; else by becoming the box. The lock is held until it ends.
/// Gives the exit code.
pub(crate) fn attended<S: AsRef<OsStr>>(
    spec: &SandboxSpec,
    held: OwnedFd,
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = S>,
) -> io::Result<i32> {
    let job = prepared(&ourselves()?, "__box", spec)?.arg("--").arg(program).args(args);
    if let Some(ours) = terminal::ours() {
        let code = terminal::run(job, ours);
        drop(held);
        return code;
    }
    let job = job.descriptor(held, HELD_FD);
    let streams = job.stdin(Stream::Inherit).stdout(Stream::Inherit).stderr(Stream::Inherit);
    Err(streams.exec())
}

fn prepared(studio: &OsStr, verb: &str, spec: &SandboxSpec) -> io::Result<Command> {
    let mut file = nameless_file()?;
    file.write_all(&serde_json::to_vec(spec)?)?;
    file.rewind()?;
    // The directory is entered by the program, not by the box: it may be gone by the end.
    let job = Command::new(studio, "/").env_clear();
    let job = job.args([verb, "--spec-fd", &SPEC_FD.to_string()]);
    Ok(job.descriptor(file.into(), SPEC_FD))
}

/// Returns a file without a name, in memory where the system can do that: it holds an agent's key.
fn nameless_file() -> io::Result<File> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::fs::memfd_create("studio-box", rustix::fs::MemfdFlags::CLOEXEC)?.into());
    #[cfg(not(target_os = "linux"))]
    tempfile::tempfile()
}

/// This very program, also when its file was replaced meanwhile.
fn ourselves() -> io::Result<OsString> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe().map(Into::into)
}

/// `studio __box --spec-fd N [--lifeline-fd N] [--report-fd N] -- PROGRAM [ARG…]`, or `__guard` with the same
/// arguments, around it. Nothing when the verb is neither: it is a command of a user's then.
pub fn main(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let done = match args.next()?.to_str()? {
        "__box" => init::SandboxArgs::parse(args).and_then(init::run),
        "__guard" => reaper::run(args),
        _ => return None,
    };
    Some(match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(io::stderr(), "studio: cannot set up the sandbox: {error}");
            ExitCode::from(BROKEN)
        }
    })
}
