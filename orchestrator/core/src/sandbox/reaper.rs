//! The reaper around a sandbox: `studio __guard` starts the init process and outlives it, so that a
//! killed sandbox leaves no process either.

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use base::process::{Command, Stream, inherited};

use crate::sandbox::init::{self, STOPPED, SandboxEvent};
use crate::sandbox::{LIFELINE_FD, REPORT_FD, SPEC_FD, ourselves};

/// How long a sandbox may take to end its processes, before the reaper does it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Starts the init process with the same command line, waits for it, and ends all processes that
/// remain. Returns the exit code of the sandbox.
pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> io::Result<u8> {
    let (spec, lifeline) = (inherited(SPEC_FD)?, inherited(LIFELINE_FD)?);
    let report = inherited(REPORT_FD)?;
    let (read, write) = io::pipe()?;
    init::adopt_orphans()?;
    let (tell, events) = mpsc::channel();
    init::watch_signals(tell.clone(), false)?;
    init::watch_lifeline(lifeline, tell.clone());
    let started = Command::new(ourselves()?, "/")
        .arg("__box")
        .args(args)
        .descriptor(spec, SPEC_FD)
        .descriptor(read.into(), LIFELINE_FD)
        .descriptor(report, REPORT_FD)
        .stdin(Stream::Inherit)
        .stdout(Stream::Inherit)
        .stderr(Stream::Inherit)
        .spawn_forget()?;
    thread::spawn(move || init::reap(started, &tell));
    let mut ended = match events.recv() {
        Ok(SandboxEvent::Ended { code, by_signal }) => Some((code, by_signal)),
        Ok(SandboxEvent::Stop) => None,
        Ok(SandboxEvent::Childless) | Err(_) => return Ok(STOPPED),
    };
    // The sandbox ends by itself when its own lifeline closes.
    drop(write);
    let until = Instant::now() + PATIENCE;
    while ended.is_none() {
        match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(SandboxEvent::Ended { code, by_signal }) => ended = Some((code, by_signal)),
            Ok(SandboxEvent::Stop) => {}
            Ok(SandboxEvent::Childless) => return Ok(STOPPED),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    if ended.is_some_and(|(_, by_signal)| by_signal) {
        let said = b"studio: the sandbox was killed; all its processes were terminated\n";
        let _ = io::stderr().write_all(said);
    }
    Ok(init::end_rest(&events, started, ended.map(|(code, _)| code)))
}
