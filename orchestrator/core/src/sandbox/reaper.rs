//! The reaper around a sandbox: `studio __guard` starts the init process and outlives it, so that a
//! killed sandbox leaves no process either.

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use base::process::{Command, Stream, inherited};

use crate::sandbox::init::{self, STOPPED_EXIT_CODE, SandboxEvent};
use crate::sandbox::{LIFELINE_FD, REPORT_FD, SPEC_FD, current_program};

/// How long a sandbox may take to end its processes, before the reaper does it.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the init process with the same command line, waits for it, and ends all processes that
/// remain. Returns the exit code of the sandbox.
pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> io::Result<u8> {
    let (spec, lifeline) = (inherited(SPEC_FD)?, inherited(LIFELINE_FD)?);
    let report = inherited(REPORT_FD)?;
    let (lifeline_reader, lifeline_writer) = io::pipe()?;
    init::adopt_orphans()?;
    let (tx, rx) = mpsc::channel();
    init::watch_signals(tx.clone(), false)?;
    init::watch_lifeline(lifeline, tx.clone());
    let init_pid = Command::new(current_program()?, "/")
        .arg("__box")
        .args(args)
        .descriptor(spec, SPEC_FD)
        .descriptor(lifeline_reader.into(), LIFELINE_FD)
        .descriptor(report, REPORT_FD)
        .stdin(Stream::Inherit)
        .stdout(Stream::Inherit)
        .stderr(Stream::Inherit)
        .spawn_forget()?;
    thread::spawn(move || init::reap(init_pid, &tx));
    let mut exit = match rx.recv() {
        Ok(SandboxEvent::Ended { code, by_signal }) => Some((code, by_signal)),
        Ok(SandboxEvent::Stop) => None,
        Ok(SandboxEvent::Limit(_) | SandboxEvent::Childless) | Err(_) => {
            return Ok(STOPPED_EXIT_CODE);
        }
    };
    // The sandbox ends by itself when its own lifeline closes.
    drop(lifeline_writer);
    let deadline = Instant::now() + END_TIMEOUT;
    while exit.is_none() {
        match rx.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(SandboxEvent::Ended { code, by_signal }) => exit = Some((code, by_signal)),
            Ok(SandboxEvent::Stop | SandboxEvent::Limit(_)) => {}
            Ok(SandboxEvent::Childless) => return Ok(STOPPED_EXIT_CODE),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    if exit.is_some_and(|(_, by_signal)| by_signal) {
        let message = b"studio: the sandbox was killed; all its processes were terminated\n";
        let _ = io::stderr().write_all(message);
    }
    let (code, _) = init::terminate_remaining(&rx, init_pid, exit.map(|(code, _)| code), None);
    Ok(code)
}
