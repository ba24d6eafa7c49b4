//! Runs a command: streams its output, enforces a timeout, and supports cancellation.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::process::{AsyncRunning, Command, GRACE, Stream, exit_code};
use base::sandbox::{git_dirs, guarded_paths};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::time::{Instant, sleep_until};

use super::auto_answer::{self, AutoAnswer};
use super::git_guard::GitGuard;
use super::sandbox_denial::{self, Denial};
use tools::context::ToolContext;
use tools::exec::confinement::{self, Containment};
use tools::exec::environment::{self, Environment};
use tools::exec::output::{CapturedStream, OutputBudget, StreamCapture};

/// The command to run.
#[derive(Debug)]
pub(crate) struct ProcessSpec<'a> {
    /// The line for the shell.
    pub line: &'a str,
    /// The working directory.
    pub cwd: &'a Path,
    /// The environment variables.
    pub environment: Environment,
    /// The timeout.
    pub time: Option<Duration>,
    /// How much of each stream is shown.
    pub output_budget: OutputBudget,
    /// The restrictions; none if absent.
    pub containment: Option<Containment>,
    /// Whether prompts are answered and the final directory is recorded; otherwise stdin is closed.
    pub reports_directory: bool,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// It exited.
    Exited,
    /// It timed out.
    TimedOut,
    /// The user cancelled.
    Cancelled,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct ProcessResult {
    /// The exit code, as in a shell: 128 + signal.
    pub code: i32,
    /// How it ended.
    pub end: ProcessEnd,
    /// The captured stdout.
    pub stdout: CapturedStream,
    /// The captured stderr.
    pub stderr: CapturedStream,
    /// The duration.
    pub duration: Duration,
    /// Whether a child process still holds its output open.
    pub holds_output: bool,
    /// The final directory of its shell.
    pub directory: Option<PathBuf>,
    /// An access that its sandbox denied.
    pub denial: Option<Denial>,
    /// Changes to git's configuration and hooks that were reverted.
    pub restored: Vec<PathBuf>,
}

/// Maximum time that pipes are read after the command ended; its child processes may hold them
/// open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time without output after which its end is checked for a prompt.
const QUIET_TIME: Duration = Duration::from_millis(150);
/// Time without output after which stdin is closed.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of bytes at the end that are checked for a prompt.
const PROMPT_TAIL: usize = 200;
/// Number of bytes that are streamed in full.
const MAX_STREAMED: usize = 128 << 10;
/// Maximum number of bytes per streamed sample after that.
const MAX_SAMPLE: usize = 1 << 10;
/// Interval between samples.
const STREAM_INTERVAL: Duration = Duration::from_secs(1);
/// The file descriptor on which the shell writes its final directory.
const DIRECTORY_FD: i32 = 9;

/// Runs a command line until it ends.
pub(crate) async fn run(
    spec: &ProcessSpec<'_>,
    context: &ToolContext,
) -> io::Result<ProcessResult> {
    let started = Instant::now();
    let directory_file = if spec.reports_directory { Some(tempfile::tempfile()?) } else { None };
    let guard = spec.containment.as_ref().and_then(|hold| git_guard(hold, context));
    let guarded = spec.containment.as_ref().map(|hold| &hold.confinement.rules.guarded[..]);
    let guarded = guarded_paths::unchanged(guarded.unwrap_or_default());
    let mut running = start(spec, directory_file.as_ref())?;
    let mut pump = Pump::new(spec, &mut running, context);
    let (process_end, status) =
        pump.run_to_end(&mut running, spec.time.map(|time| started + time)).await?;
    let holds_output = pump.is_open();
    let Pump { stdout, stderr, .. } = pump;
    // Background processes of the command (`server &`) may continue, but not in the scratch
    // sandbox. After a timeout the whole group has already been killed.
    match &spec.containment {
        Some(Containment { sandbox: Some(_), .. }) => drop(running),
        Some(Containment { sandbox: None, .. }) | None => running.forget(),
    }
    let (stdout, stderr) = (stdout.finish(), stderr.finish());
    let denied = spec.containment.as_ref().and_then(|hold| {
        let outputs = [&stderr, &stdout].map(|stream| format!("{}\n{}", stream.head, stream.tail));
        sandbox_denial::find(&hold.confinement, spec.cwd, [&outputs[0], &outputs[1]])
    });
    let mut restored = guard.map_or_else(|| Ok(Vec::new()), |guard| guard.restore())?;
    restored.extend(guarded_paths::put_back(&guarded)?);
    Ok(ProcessResult {
        code: exit_code(status),
        end: process_end,
        stdout,
        stderr,
        duration: started.elapsed(),
        holds_output: holds_output && process_end == ProcessEnd::Exited,
        directory: directory_file.and_then(|file| read_directory(file).ok()),
        denial: denied,
        restored,
    })
}

/// Returns the guard for git's configuration, if the sandbox cannot protect it.
fn git_guard(containment: &Containment, context: &ToolContext) -> Option<GitGuard> {
    let confinement = &containment.confinement;
    let backup_dir = context.session_dir.join("put-back");
    // studio's directory is too large to be copied for each command.
    let mut protected = confinement.rules.fixed.clone();
    protected.retain(|path| !path.ends_with(git_dirs::STUDIO));
    (!confinement.protects_fixed()).then(|| GitGuard::new(&protected, &backup_dir))
}

fn start(spec: &ProcessSpec<'_>, directory_file: Option<&File>) -> io::Result<AsyncRunning> {
    let line = match directory_file {
        Some(_) => format!("trap 'pwd -P >&{DIRECTORY_FD}' EXIT\n{}", spec.line),
        None => spec.line.to_owned(),
    };
    let command = |shell: &str| -> io::Result<Command> {
        let command = Command::new(shell, spec.cwd).arg("-c").arg(&line);
        let command = environment::apply(command, spec.environment);
        let Some(directory_file) = directory_file else { return Ok(command) };
        let directory_fd = directory_file.try_clone()?.into();
        Ok(command.stdin(Stream::Piped).descriptor(directory_fd, DIRECTORY_FD))
    };
    match confinement::spawn(command("bash")?, spec.containment.clone()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            confinement::spawn(command("sh")?, spec.containment.clone())
        }
        other => other,
    }
}

fn read_directory(mut file: File) -> io::Result<PathBuf> {
    file.rewind()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let last = text.lines().last().filter(|line| line.starts_with('/'));
    last.map(PathBuf::from).ok_or_else(|| io::Error::other("the shell reported no directory"))
}

type Source = Box<dyn AsyncRead + Send + Unpin>;

/// Reads both streams and detects pauses in the output.
struct Pump<'a> {
    context: &'a ToolContext,
    sources: [Option<Source>; 2],
    stdout: StreamCapture,
    stderr: StreamCapture,
    stdin: Option<ChildStdin>,
    last_output_at: Instant,
    /// Number of bytes streamed so far.
    streamed_bytes: usize,
    /// The time of the last streamed output.
    streamed_at: Instant,
    /// Whether the current pause was checked already.
    prompt_checked: bool,
    /// The stream with the most recent output, since programs prompt on either.
    last: usize,
}

impl<'a> Pump<'a> {
    fn new(
        spec: &ProcessSpec<'_>,
        running: &mut AsyncRunning,
        context: &'a ToolContext,
    ) -> Pump<'a> {
        let directory = context.session_dir.join("tools");
        let stdout = running.child.stdout.take().map(|s| Box::new(s) as Source);
        let stderr = running.child.stderr.take().map(|s| Box::new(s) as Source);
        Pump {
            context,
            sources: [stdout, stderr],
            stdout: StreamCapture::new(spec.output_budget, &directory, "stdout"),
            stderr: StreamCapture::new(spec.output_budget, &directory, "stderr"),
            stdin: running.child.stdin.take(),
            last_output_at: Instant::now(),
            streamed_bytes: 0,
            streamed_at: Instant::now(),
            prompt_checked: false,
            last: 0,
        }
    }

    fn is_open(&self) -> bool {
        self.sources.iter().any(Option::is_some)
    }

    /// Reads until the command ended and its streams are closed, or the drain time is over.
    async fn run_to_end(
        &mut self,
        running: &mut AsyncRunning,
        mut deadline: Option<Instant>,
    ) -> io::Result<(ProcessEnd, std::process::ExitStatus)> {
        let mut process_end = ProcessEnd::Exited;
        let mut status = None;
        let cancel = self.context.cancel.clone();
        let (mut out, mut err) = (vec![0; 16 << 10], vec![0; 16 << 10]);
        loop {
            if let Some(status) = status
                && !self.is_open()
            {
                return Ok((process_end, status));
            }
            let next_prompt_check = self.next_prompt_check();
            let [first, second] = &mut self.sources;
            tokio::select! {
                n = read(first, &mut out) => self.record_output(0, &out[..n?]),
                n = read(second, &mut err) => self.record_output(1, &err[..n?]),
                ended = running.child.wait(), if status.is_none() => {
                    status = Some(ended?);
                    deadline = Some(Instant::now() + DRAIN_TIMEOUT);
                }
                () = cancel.cancelled(), if status.is_none() => {
                    (process_end, status) = (ProcessEnd::Cancelled, Some(running.end(GRACE).await?));
                    deadline = Some(Instant::now() + DRAIN_TIMEOUT);
                }
                () = wait_until(deadline) => match status {
                    Some(status) => return Ok((process_end, status)),
                    None => {
                        (process_end, status) = (ProcessEnd::TimedOut, Some(running.end(GRACE).await?));
                        deadline = Some(Instant::now() + DRAIN_TIMEOUT);
                    }
                },
                () = wait_until(next_prompt_check) => self.check_prompt().await,
            }
        }
    }

    fn record_output(&mut self, stream: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            self.sources[stream] = None;
            return;
        }
        let capture = if stream == 0 { &mut self.stdout } else { &mut self.stderr };
        let text = capture.push(bytes);
        self.stream_output(&text);
        (self.last_output_at, self.prompt_checked, self.last) = (Instant::now(), false, stream);
    }

    /// Streams output: all of it at first, then the last lines at most once per second, because a
    /// listener may store everything.
    fn stream_output(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.streamed_bytes < MAX_STREAMED {
            self.streamed_bytes += text.len();
            (self.context.on_output)(text);
            if self.streamed_bytes >= MAX_STREAMED {
                (self.context.on_output)(
                    "\n[more output follows, of which only some lines are shown]\n",
                );
                self.streamed_at = Instant::now();
            }
        } else if self.streamed_at.elapsed() >= STREAM_INTERVAL {
            self.streamed_at = Instant::now();
            let end = base::text::tail(text, MAX_SAMPLE);
            let lines = end.split_once('\n').filter(|_| end.len() < text.len());
            (self.context.on_output)(lines.map_or(end, |(_, lines)| lines));
        }
    }

    /// Returns when to check for a prompt; `None` once stdin is closed.
    fn next_prompt_check(&self) -> Option<Instant> {
        self.stdin.as_ref()?;
        Some(self.last_output_at + if self.prompt_checked { STALL_TIMEOUT } else { QUIET_TIME })
    }

    /// Answers a prompt, or closes the stdin of a command that waits for input.
    async fn check_prompt(&mut self) {
        if self.prompt_checked {
            self.stdin = None;
            return;
        }
        self.prompt_checked = true;
        let stream = if self.last == 0 { &self.stdout } else { &self.stderr };
        match auto_answer::find_prompt(&stream.last(PROMPT_TAIL)) {
            Some(AutoAnswer::Answer(answer)) => {
                let Some(stdin) = &mut self.stdin else { return };
                if stdin.write_all(answer.as_bytes()).await.is_err() {
                    self.stdin = None;
                }
            }
            Some(AutoAnswer::Close) => self.stdin = None,
            None => {}
        }
    }
}

async fn read(source: &mut Option<Source>, buffer: &mut [u8]) -> io::Result<usize> {
    match source {
        Some(source) => source.read(buffer).await,
        None => std::future::pending().await,
    }
}

async fn wait_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
