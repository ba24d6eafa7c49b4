//! Runs commands of this program as child processes, with the same directory and configuration:
//! what the dashboard or another agent asks for is exactly what the user would type.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use base::failure::{OrFail, Result};
use base::process::{Command, OutputLimits, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::commands::context::CommonArgs;

/// Maximum number of bytes of a command's output.
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// How often a terminal on which a command runs is checked.
const HANGUP_INTERVAL: Duration = Duration::from_millis(200);

/// Starts commands of this program.
#[derive(Clone, Debug)]
pub(crate) struct SubcommandRunner {
    program: PathBuf,
    directory: PathBuf,
    flags: Vec<OsString>,
}

/// The result of a command with `--json`.
#[derive(Debug)]
pub(crate) struct SubcommandOutput {
    /// Whether it exited with code 0.
    pub ok: bool,
    /// The JSON values on stdout.
    values: Vec<Value>,
    /// Its stderr.
    pub stderr: String,
}

impl SubcommandOutput {
    fn new(ok: bool, stdout: &[u8], stderr: String) -> SubcommandOutput {
        let values = serde_json::Deserializer::from_slice(stdout).into_iter();
        SubcommandOutput { ok, values: values.map_while(std::result::Result::ok).collect(), stderr }
    }

    /// Returns the first JSON value; null without one.
    pub(crate) fn json(&self) -> &Value {
        self.values.first().unwrap_or(&Value::Null)
    }

    /// Returns all JSON values.
    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }
}

impl SubcommandRunner {
    /// Creates a runner with the common flags of this command.
    pub(crate) fn new(common: &CommonArgs) -> Result<SubcommandRunner> {
        let program = std::env::current_exe().or_fail(|| "cannot find the program of studio")?;
        let mut flags = Vec::new();
        if let Some(file) = &common.config {
            let file =
                std::path::absolute(file).or_fail(|| "cannot find the configuration file")?;
            flags.extend([OsString::from("--config"), file.into_os_string()]);
        }
        Ok(SubcommandRunner { program, directory: common.directory()?, flags })
    }

    fn command(&self, words: &[String]) -> Command {
        Command::new(&self.program, &self.directory).args(&self.flags).args(words)
    }

    fn json_command(&self, words: &[String]) -> Command {
        Command::new(&self.program, &self.directory).args(&self.flags).arg("--json").args(words)
    }

    /// Runs a command with `--json` to its end.
    pub(crate) fn run(&self, words: &[String], input: Option<&str>) -> Result<SubcommandOutput> {
        let mut command = self.json_command(words);
        if let Some(text) = input {
            command = command.input(text);
        }
        let limits = OutputLimits { time: None, bytes: MAX_OUTPUT_BYTES };
        let output = command.output(limits).or_fail(|| cannot_run(words))?;
        Ok(SubcommandOutput::new(output.ok(), &output.stdout, output.error_text()))
    }

    /// Like [`SubcommandRunner::run`], in an async context. If the future is dropped, the command
    /// gets SIGTERM, which ends it like Ctrl-C.
    pub(crate) async fn run_async(&self, words: &[String]) -> Result<SubcommandOutput> {
        let command = self.json_command(words).graceful();
        let mut running = command.spawn_async().or_fail(|| cannot_run(words))?;
        let (stdout, stderr) = (running.child.stdout.take(), running.child.stderr.take());
        let (status, stdout, stderr) =
            tokio::join!(running.child.wait(), read_all(stdout), read_all(stderr));
        running.forget();
        let ok = status.or_fail(|| cannot_run(words))?.success();
        Ok(SubcommandOutput::new(ok, &stdout, String::from_utf8_lossy(&stderr).into_owned()))
    }

    /// Runs a command in the background, detached from this process and its terminal; its output goes
    /// to a log.
    pub(crate) fn run_detached(&self, words: &[String], log: File) -> Result<()> {
        let fail = || cannot_run(words);
        let stderr = log.try_clone().or_fail(fail)?;
        let command = self
            .command(words)
            .stdin(Stream::Null)
            .stdout(Stream::File(log))
            .stderr(Stream::File(stderr))
            .detached();
        command.spawn_forget().map(|_| ()).or_fail(fail)
    }

    /// Runs a command on the terminal of this process, and waits for its end.
    pub(crate) fn run_on_terminal(&self, words: &[String]) -> Result<ExitStatus> {
        let fail = || cannot_run(words);
        // In this process group: a process of another group may not read the terminal.
        let command = self
            .command(words)
            .in_parent_group()
            .stdin(Stream::Inherit)
            .stdout(Stream::Inherit)
            .stderr(Stream::Inherit);
        let mut running = command.spawn().or_fail(fail)?;
        loop {
            let deadline = Instant::now() + HANGUP_INTERVAL;
            if let Some(status) = running.wait_until(Some(deadline)).or_fail(fail)? {
                return Ok(status);
            }
            // Only the first process of a terminal gets SIGHUP, which is this one.
            if is_hung_up()
                && let Some(child) = Pid::from_raw(running.id().cast_signed())
            {
                // It may have ended by itself.
                let _ = rustix::process::kill_process(child, Signal::HUP);
            }
        }
    }
}

/// Returns whether the terminal is gone.
fn is_hung_up() -> bool {
    let mut terminal = [PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut terminal, Some(&now)).is_ok() && terminal[0].revents().contains(PollFlags::HUP)
}

fn cannot_run(words: &[String]) -> String {
    format!("cannot run `studio {}`", words.join(" "))
}

/// Reads a stream to its end, or to the first error, up to [`MAX_OUTPUT_BYTES`].
async fn read_all(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let _ = stream.take(MAX_OUTPUT_BYTES as u64).read_to_end(&mut bytes).await;
    }
    bytes
}
