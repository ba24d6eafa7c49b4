//! The init process of a sandbox: starts the program confined, adopts all orphans, and exits when
//! no process is left.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use base::process::{Command, Stream, close_on_exec_except, inherited};
use base::sandbox::{self, ClosedScope, Confinement};
use rustix::process::{Resource, Rlimit, Signal, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};

use crate::sandbox::{SandboxSpec, StartFailure, process_tree};

/// The command line arguments of the init process.
pub(crate) struct SandboxArgs {
    spec: SandboxSpec,
    lifeline: Option<OwnedFd>,
    report: Option<OwnedFd>,
    program: OsString,
    args: Vec<OsString>,
}

/// An event of a sandbox or its reaper.
pub(crate) enum SandboxEvent {
    /// The program ended.
    Ended {
        /// The exit code; 128 and the signal number if a signal killed it.
        code: u8,
        /// Whether a signal killed it: a program may also return such a code itself.
        by_signal: bool,
    },
    /// No process of the sandbox is left.
    Childless,
    /// The sandbox must end: it got a signal, or its supervisor is gone.
    Stop,
}

/// How long remaining processes may take to exit after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_millis(300);
/// How often remaining processes are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The exit code of a program that ended with the sandbox: 128 + SIGTERM.
pub(crate) const STOPPED_EXIT_CODE: u8 = 143;
/// Maximum number of open files of a program, if the system allows as many.
const MAX_OPEN_FILES: u64 = 65_536;

impl SandboxArgs {
    /// Parses the command line and reads the sandbox's specification from its descriptor.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> io::Result<SandboxArgs> {
        let usage_error = || {
            io::Error::other(
                "usage: __box --spec-fd N [--lifeline-fd N] [--report-fd N] -- PROGRAM",
            )
        };
        let mut args = args.into_iter();
        let (mut spec, mut lifeline, mut report) = (None, None, None);
        while let Some(flag) = args.next() {
            match flag.to_str() {
                Some("--") => break,
                Some("--spec-fd") => spec = Some(parse_number(args.next())?),
                Some("--lifeline-fd") => lifeline = Some(parse_number(args.next())?),
                Some("--report-fd") => report = Some(parse_number(args.next())?),
                _ => return Err(usage_error()),
            }
        }
        let program = args.next().ok_or_else(usage_error)?;
        let file = File::from(inherited(spec.ok_or_else(usage_error)?)?);
        let spec = serde_json::from_reader(io::BufReader::new(file))?;
        let lifeline = lifeline.map(inherited).transpose()?;
        let report = report.map(inherited).transpose()?;
        Ok(SandboxArgs { spec, lifeline, report, program, args: args.collect() })
    }
}

fn parse_number(text: Option<OsString>) -> io::Result<i32> {
    let number = text.and_then(|text| text.to_str()?.parse().ok());
    number.ok_or_else(|| io::Error::other("a descriptor's number is missing"))
}

/// Starts the program, waits for it, ends all remaining processes, and returns the program's exit
/// code.
pub(crate) fn run(args: SandboxArgs) -> io::Result<u8> {
    set_limits()?;
    close_on_exec_except(&args.spec.descriptors)?;
    adopt_orphans()?;
    if let Some(temp) = &args.spec.temp {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(temp)?;
    }
    let on_terminal = args.lifeline.is_none();
    let (tx, rx) = mpsc::channel();
    watch_signals(tx.clone(), on_terminal)?;
    if let Some(lifeline) = args.lifeline {
        watch_lifeline(lifeline, tx.clone());
    }
    let mut command = Command::new(&args.program, &args.spec.directory)
        .args(args.args)
        .env_clear()
        .stdin(Stream::Inherit)
        .stdout(Stream::Inherit)
        .stderr(Stream::Inherit)
        .kill_on_parent_death();
    for (name, value) in &args.spec.environment {
        command = command.env(name, value);
    }
    if let Some(temp) = &args.spec.temp {
        command = command.env("TMPDIR", temp).env("TMP", temp).env("TEMP", temp);
    }
    if on_terminal {
        command = command.in_parent_group();
    }
    match with_confinement(&args.spec, command)?.spawn_forget() {
        Ok(program) => {
            drop(args.report);
            thread::spawn(move || reap(program, &tx));
            Ok(match rx.recv() {
                Ok(SandboxEvent::Ended { code, .. }) => {
                    terminate_remaining(&rx, program, Some(code))
                }
                Ok(SandboxEvent::Stop) => terminate_remaining(&rx, program, None),
                Ok(SandboxEvent::Childless) | Err(_) => STOPPED_EXIT_CODE,
            })
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "studio: {error}");
            let failure = StartFailure::new(&error, &args.program.to_string_lossy());
            if let Some(report) = args.report {
                // A caller that does not need the report has closed its end.
                let _ = failure.send(report);
            }
            Ok(failure.exit_code())
        }
    }
}

/// Becomes the subreaper: orphans of the program become children of this process (Linux).
pub(crate) fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Adds the confinement to a command, which its process enters before it executes the program; the
/// init process itself is not confined, so that it can end the program's processes.
fn with_confinement(spec: &SandboxSpec, command: Command) -> io::Result<Command> {
    if !spec.confined {
        return Ok(command);
    }
    let missing = sandbox::missing_features();
    if !missing.is_empty() && !spec.best_effort {
        return Err(io::Error::other(format!(
            "{}; `[sandbox] best_effort = true` continues without it",
            missing.join(", ")
        )));
    }
    let mut rules = spec.rules.clone();
    rules.write.extend(spec.temp.clone());
    match Confinement::new(rules, ClosedScope::Closed) {
        Ok(confinement) => Ok(command.confined(Arc::new(confinement))),
        Err(_) if spec.best_effort => Ok(command),
        Err(error) => Err(error),
    }
}

/// Disables core dumps, which contain keys, and raises the limit of open files.
fn set_limits() -> io::Result<()> {
    let no_core_dumps = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, no_core_dumps)?;
    let files = rustix::process::getrlimit(Resource::Nofile);
    let target = files.maximum.map_or(MAX_OPEN_FILES, |maximum| maximum.min(MAX_OPEN_FILES));
    if files.current.is_some_and(|current| current < target) {
        let raised = Rlimit { current: Some(target), maximum: files.maximum };
        rustix::process::setrlimit(Resource::Nofile, raised)?;
    }
    Ok(())
}

/// Watches for signals that end the sandbox. On a terminal Ctrl-C is left to the program.
pub(crate) fn watch_signals(tx: Sender<SandboxEvent>, on_terminal: bool) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut term, mut hangup, mut interrupt, mut quit) = {
        let _guard = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::quit())?,
        )
    };
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                let is_key = tokio::select! {
                    _ = term.recv() => false,
                    _ = hangup.recv() => false,
                    _ = interrupt.recv() => true,
                    _ = quit.recv() => true,
                };
                if !(is_key && on_terminal) && tx.send(SandboxEvent::Stop).is_err() {
                    return;
                }
            }
        });
    });
    Ok(())
}

/// Watches the lifeline: the supervisor's end of the pipe closes when it exits, even by SIGKILL.
pub(crate) fn watch_lifeline(lifeline: OwnedFd, tx: Sender<SandboxEvent>) {
    thread::spawn(move || {
        let mut lifeline = File::from(lifeline);
        let mut byte = [0];
        while let Ok(1..) = lifeline.read(&mut byte) {}
        let _ = tx.send(SandboxEvent::Stop);
    });
}

/// Waits for all children: the program, and its orphans, which the kernel reparents to this
/// process.
pub(crate) fn reap(program: u32, tx: &Sender<SandboxEvent>) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().cast_unsigned() == program => {
                let code = status.exit_status().or(status.terminating_signal().map(|n| 128 + n));
                let code =
                    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(STOPPED_EXIT_CODE);
                let by_signal = status.terminating_signal().is_some();
                let _ = tx.send(SandboxEvent::Ended { code, by_signal });
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => {
                let _ = tx.send(SandboxEvent::Childless);
                return;
            }
        }
    }
}

/// Ends all remaining processes, after the program ended or when the sandbox must end; returns the
/// program's exit code.
pub(crate) fn terminate_remaining(
    rx: &Receiver<SandboxEvent>,
    program: u32,
    mut code: Option<u8>,
) -> u8 {
    let start = Instant::now();
    let mut signalled = false;
    loop {
        // Usually no process is left, which is known immediately.
        match rx.recv_timeout(POLL_INTERVAL) {
            Ok(SandboxEvent::Ended { code: exit_code, .. }) => code = Some(exit_code),
            Ok(SandboxEvent::Childless) | Err(RecvTimeoutError::Disconnected) => {
                return code.unwrap_or(STOPPED_EXIT_CODE);
            }
            Ok(SandboxEvent::Stop) => {}
            Err(RecvTimeoutError::Timeout) if !signalled => {
                signalled = true;
                process_tree::signal_all(program, Signal::TERM);
            }
            Err(RecvTimeoutError::Timeout) if start.elapsed() > GRACE => {
                process_tree::signal_all(program, Signal::KILL);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
