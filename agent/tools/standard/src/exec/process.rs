//! Runs a command: streams its output, enforces a timeout, and supports cancellation.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::process::{AsyncRunning, Command, GRACE, Stream, exit_code};
use base::sandbox::git_dirs;
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
    pub show: OutputBudget,
    /// The restrictions; none if absent.
    pub hold: Option<Containment>,
    /// Whether prompts are answered and the final directory is recorded; otherwise stdin is closed.
    pub attended: bool,
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
    pub took: Duration,
    /// Whether a child process still holds its output open.
    pub lingers: bool,
    /// The final directory of its shell.
    pub directory: Option<PathBuf>,
    /// An access that its sandbox denied.
    pub denied: Option<Denial>,
    /// Changes to git's configuration and hooks that were reverted.
    pub put_back: Vec<PathBuf>,
}

/// Maximum time that pipes are read after the command ended; its child processes may hold them
/// open.
const DRAIN: Duration = Duration::from_secs(2);
/// Time without output after which its end is checked for a prompt.
const QUIET: Duration = Duration::from_millis(150);
/// Time without output after which stdin is closed.
const STALL: Duration = Duration::from_secs(5);
/// Number of bytes at the end that are checked for a prompt.
const LOOK: usize = 200;
/// Number of bytes that are streamed in full.
const HEARD: usize = 128 << 10;
/// Maximum number of bytes per streamed sample after that.
const SAMPLE: usize = 1 << 10;
/// Interval between samples.
const PAUSE: Duration = Duration::from_secs(1);
/// The file descriptor on which the shell writes its final directory.
const DIRECTORY_FD: i32 = 9;

/// Runs a command line until it ends.
pub(crate) async fn run(order: &ProcessSpec<'_>, at: &ToolContext) -> io::Result<ProcessResult> {
    let started = Instant::now();
    let told = if order.attended { Some(tempfile::tempfile()?) } else { None };
    let guard = order.hold.as_ref().and_then(|hold| git_guard(hold, at));
    let mut running = start(order, told.as_ref())?;
    let mut pump = Pump::new(order, &mut running, at);
    let (end, status) = pump.until_end(&mut running, order.time.map(|time| started + time)).await?;
    let lingers = pump.is_open();
    let Pump { stdout, stderr, .. } = pump;
    // Background processes of the command (`server &`) may continue, but not in the scratch
    // sandbox. After a timeout the whole group has already been killed.
    match &order.hold {
        Some(Containment { sandbox: Some(_), .. }) => drop(running),
        Some(Containment { sandbox: None, .. }) | None => running.forget(),
    }
    let (stdout, stderr) = (stdout.finish(), stderr.finish());
    let denied = order.hold.as_ref().and_then(|hold| {
        let outputs = [&stderr, &stdout].map(|stream| format!("{}\n{}", stream.head, stream.tail));
        sandbox_denial::find(&hold.confinement, order.cwd, [&outputs[0], &outputs[1]])
    });
    Ok(ProcessResult {
        code: exit_code(status),
        end,
        stdout,
        stderr,
        took: started.elapsed(),
        lingers: lingers && end == ProcessEnd::Exited,
        directory: told.and_then(|file| read_directory(file).ok()),
        denied,
        put_back: guard.map_or_else(|| Ok(Vec::new()), |guard| guard.restore())?,
    })
}

/// Returns the guard for git's configuration, if the sandbox cannot protect it.
fn git_guard(hold: &Containment, at: &ToolContext) -> Option<GitGuard> {
    let confinement = &hold.confinement;
    let aside = at.session_dir.join("put-back");
    // studio's directory is too large to be copied for each command.
    let mut fixed = confinement.rules.fixed.clone();
    fixed.retain(|path| !path.ends_with(git_dirs::STUDIO));
    (!confinement.protects_fixed()).then(|| GitGuard::new(&fixed, &aside))
}

fn start(order: &ProcessSpec<'_>, told: Option<&File>) -> io::Result<AsyncRunning> {
    let line = match told {
        Some(_) => format!("trap 'pwd -P >&{DIRECTORY_FD}' EXIT\n{}", order.line),
        None => order.line.to_owned(),
    };
    let job = |shell: &str| -> io::Result<Command> {
        let job = Command::new(shell, order.cwd).arg("-c").arg(&line);
        let job = environment::apply(job, order.environment);
        let Some(told) = told else { return Ok(job) };
        let fd = told.try_clone()?.into();
        Ok(job.stdin(Stream::Piped).descriptor(fd, DIRECTORY_FD))
    };
    match confinement::spawn(job("bash")?, order.hold.clone()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            confinement::spawn(job("sh")?, order.hold.clone())
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
    at: &'a ToolContext,
    sources: [Option<Source>; 2],
    stdout: StreamCapture,
    stderr: StreamCapture,
    stdin: Option<ChildStdin>,
    heard: Instant,
    /// Number of bytes streamed so far.
    told: usize,
    /// The time of the last streamed output.
    told_at: Instant,
    /// Whether the current pause was checked already.
    looked: bool,
    /// The stream with the most recent output, since programs prompt on either.
    last: usize,
}

impl<'a> Pump<'a> {
    fn new(order: &ProcessSpec<'_>, running: &mut AsyncRunning, at: &'a ToolContext) -> Pump<'a> {
        let directory = at.session_dir.join("tools");
        let stdout = running.child.stdout.take().map(|s| Box::new(s) as Source);
        let stderr = running.child.stderr.take().map(|s| Box::new(s) as Source);
        Pump {
            at,
            sources: [stdout, stderr],
            stdout: StreamCapture::new(order.show, &directory, "stdout"),
            stderr: StreamCapture::new(order.show, &directory, "stderr"),
            stdin: running.child.stdin.take(),
            heard: Instant::now(),
            told: 0,
            told_at: Instant::now(),
            looked: false,
            last: 0,
        }
    }

    fn is_open(&self) -> bool {
        self.sources.iter().any(Option::is_some)
    }

    /// Reads until the command ended and its streams are closed, or the drain time is over.
    async fn until_end(
        &mut self,
        running: &mut AsyncRunning,
        mut until: Option<Instant>,
    ) -> io::Result<(ProcessEnd, std::process::ExitStatus)> {
        let mut end = ProcessEnd::Exited;
        let mut status = None;
        let cancel = self.at.cancel.clone();
        let (mut out, mut err) = (vec![0; 16 << 10], vec![0; 16 << 10]);
        loop {
            if let Some(status) = status
                && !self.is_open()
            {
                return Ok((end, status));
            }
            let silence = self.next_look();
            let [first, second] = &mut self.sources;
            tokio::select! {
                n = read(first, &mut out) => self.take(0, &out[..n?]),
                n = read(second, &mut err) => self.take(1, &err[..n?]),
                ended = running.child.wait(), if status.is_none() => {
                    status = Some(ended?);
                    until = Some(Instant::now() + DRAIN);
                }
                () = cancel.cancelled(), if status.is_none() => {
                    (end, status) = (ProcessEnd::Cancelled, Some(running.end(GRACE).await?));
                    until = Some(Instant::now() + DRAIN);
                }
                () = at(until) => match status {
                    Some(status) => return Ok((end, status)),
                    None => {
                        (end, status) = (ProcessEnd::TimedOut, Some(running.end(GRACE).await?));
                        until = Some(Instant::now() + DRAIN);
                    }
                },
                () = at(silence) => self.look().await,
            }
        }
    }

    fn take(&mut self, stream: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            self.sources[stream] = None;
            return;
        }
        let capture = if stream == 0 { &mut self.stdout } else { &mut self.stderr };
        let text = capture.push(bytes);
        self.tell(&text);
        (self.heard, self.looked, self.last) = (Instant::now(), false, stream);
    }

    /// Streams output: all of it at first, then the last lines at most once per second, because a
    /// listener may store everything.
    fn tell(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.told < HEARD {
            self.told += text.len();
            (self.at.on_output)(text);
            if self.told >= HEARD {
                (self.at.on_output)(
                    "\n[more output follows, of which only some lines are shown]\n",
                );
                self.told_at = Instant::now();
            }
        } else if self.told_at.elapsed() >= PAUSE {
            self.told_at = Instant::now();
            let end = base::text::tail(text, SAMPLE);
            let lines = end.split_once('\n').filter(|_| end.len() < text.len());
            (self.at.on_output)(lines.map_or(end, |(_, lines)| lines));
        }
    }

    /// Returns when to check for a prompt; `None` once stdin is closed.
    fn next_look(&self) -> Option<Instant> {
        self.stdin.as_ref()?;
        Some(self.heard + if self.looked { STALL } else { QUIET })
    }

    /// Answers a prompt, or closes the stdin of a command that waits for input.
    async fn look(&mut self) {
        if self.looked {
            self.stdin = None;
            return;
        }
        self.looked = true;
        let asking = if self.last == 0 { &self.stdout } else { &self.stderr };
        match auto_answer::sign(&asking.last(LOOK)) {
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

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
