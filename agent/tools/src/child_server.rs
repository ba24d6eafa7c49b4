//! A server that runs as a child process with stdin and stdout pipes. It receives no secrets, is
//! killed when g3 dies, and the end of its stderr is kept.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::config::mcp::expand;
use base::process::{AsyncRunning, Command, GRACE, Stream, exit_code};
use base::sandbox::environment::{ChildKind, child_env};
use base::secret::Secret;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::exec::confinement::Containment;

/// Maximum number of bytes of stderr kept in the log file, and of its end shown in messages.
const STDERR_LIMITS: (u64, usize) = (1 << 20, 2_000);

/// The server to start.
pub struct ServerStart<'a> {
    /// The program and its arguments.
    pub command: &'a [String],
    /// Environment variables in addition to the safe ones; `${NAME}` expands to one of g3's own.
    pub env: &'a BTreeMap<String, Secret>,
    /// Its working directory.
    pub cwd: &'a Path,
    /// The directory of the stderr log file, and the file's name without extension.
    pub log: Option<(&'a Path, &'a str)>,
    /// The sandbox. If absent, the server is part of g3 or trusted by the user.
    pub containment: Option<Containment>,
}

/// Why nothing more can be read from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disconnect {
    /// It closed its stdout.
    Closed,
    /// The connection failed, for this reason.
    Failed(String),
}

impl Disconnect {
    /// Returns the reason, followed by how the program ended. For a closed stdout, returns only the
    /// latter.
    pub fn with_end(&self, end: String) -> String {
        match self {
            Disconnect::Closed => end,
            Disconnect::Failed(error) => format!("{error}; {end}"),
        }
    }
}

/// A server's processes and the end of their stderr. Killed on drop.
pub struct ServerProcess {
    process: AsyncRunning,
    stderr_tail: Arc<Mutex<VecDeque<u8>>>,
}

/// Starts the program with pipes for stdin and stdout.
pub fn start(server: &ServerStart<'_>) -> Result<(ServerProcess, ChildStdin, ChildStdout), String> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some((program, args)) = server.command.split_first() else {
        return Err("it has no command".to_owned());
    };
    let mut command =
        Command::new(program, server.cwd).args(args).env_clear().kill_on_parent_death();
    command = command.stdin(Stream::Piped);
    for (key, value) in child_env(std::env::vars_os(), &[], ChildKind::Tool) {
        command = command.env(key, value);
    }
    for (key, value) in server.env {
        command = command.env(key, expand(value.reveal(), &variable)?);
    }
    let command = server.containment.clone().into_iter().fold(command, Containment::apply);
    let mut process = command.spawn_async().map_err(|error| error.to_string())?;
    let stderr_tail = Arc::default();
    if let Some(stderr) = process.child.stderr.take() {
        let file = server.log.and_then(|(directory, name)| open_log(directory, name));
        tokio::spawn(collect_stderr(stderr, file, Arc::clone(&stderr_tail)));
    }
    match (process.child.stdin.take(), process.child.stdout.take()) {
        (Some(stdin), Some(stdout)) => Ok((ServerProcess { process, stderr_tail }, stdin, stdout)),
        (_, _) => Err("its pipes are missing".to_owned()),
    }
}

fn open_log(directory: &Path, name: &str) -> Option<File> {
    std::fs::create_dir_all(directory).ok()?;
    let path = directory.join(format!("{name}.stderr"));
    File::options().append(true).create(true).open(path).ok()
}

/// Reads stderr to its end, so that the server never blocks on it. Keeps a bounded part.
async fn collect_stderr(
    mut stderr: ChildStderr,
    mut file: Option<File>,
    stderr_tail: Arc<Mutex<VecDeque<u8>>>,
) {
    let mut buffer = [0; 4096];
    let mut remaining = STDERR_LIMITS.0;
    while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
        if let Some(file) = file.as_mut().filter(|_| remaining >= n as u64) {
            // If the disk is full, the log is incomplete, but the server continues.
            let _ = file.write_all(&buffer[..n]);
            remaining -= n as u64;
        }
        let mut stderr_tail = base::sync::lock(&stderr_tail);
        stderr_tail.extend(&buffer[..n]);
        let excess = stderr_tail.len().saturating_sub(STDERR_LIMITS.1);
        stderr_tail.drain(..excess);
    }
}

impl ServerProcess {
    /// Describes how it ended, with the end of its stderr.
    pub async fn describe_end(&mut self) -> String {
        let timeout = Duration::from_millis(500);
        let outcome = match tokio::time::timeout(timeout, self.process.child.wait()).await {
            Ok(Ok(status)) => format!("it ended with code {}", exit_code(status)),
            Ok(Err(_)) | Err(_) => "it closed its stdout".to_owned(),
        };
        tokio::task::yield_now().await;
        let stderr = base::sync::lock(&self.stderr_tail);
        let bytes: Vec<u8> = stderr.iter().copied().collect();
        let stderr = base::text::printable_output(&String::from_utf8_lossy(&bytes));
        match stderr.trim() {
            "" => outcome,
            stderr => format!("{outcome}; its last words on stderr: {stderr}"),
        }
    }

    /// Kills processes that do not exit after stdin was closed.
    pub async fn close(&mut self) {
        if tokio::time::timeout(GRACE, self.process.child.wait()).await.is_err() {
            let _ = self.process.end(GRACE).await;
        }
    }
}
