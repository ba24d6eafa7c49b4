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
const STDERR: (u64, usize) = (1 << 20, 2_000);

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
    pub hold: Option<Containment>,
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
            Disconnect::Failed(why) => format!("{why}; {end}"),
        }
    }
}

/// A server's processes and the end of their stderr. Killed on drop.
pub struct ServerProcess {
    running: AsyncRunning,
    said: Arc<Mutex<VecDeque<u8>>>,
}

/// Starts the program with pipes for stdin and stdout.
pub fn start(wanted: &ServerStart<'_>) -> Result<(ServerProcess, ChildStdin, ChildStdout), String> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some((program, args)) = wanted.command.split_first() else {
        return Err("it has no command".to_owned());
    };
    let mut job = Command::new(program, wanted.cwd).args(args).env_clear().kill_on_parent_death();
    job = job.stdin(Stream::Piped);
    for (key, value) in child_env(std::env::vars_os(), &[], ChildKind::Tool) {
        job = job.env(key, value);
    }
    for (key, value) in wanted.env {
        job = job.env(key, expand(value.reveal(), &variable)?);
    }
    let job = wanted.hold.clone().into_iter().fold(job, Containment::around);
    let mut running = job.spawn_async().map_err(|why| why.to_string())?;
    let said = Arc::default();
    if let Some(stderr) = running.child.stderr.take() {
        let file = wanted.log.and_then(|(directory, name)| log(directory, name));
        tokio::spawn(listen(stderr, file, Arc::clone(&said)));
    }
    match (running.child.stdin.take(), running.child.stdout.take()) {
        (Some(stdin), Some(stdout)) => Ok((ServerProcess { running, said }, stdin, stdout)),
        (_, _) => Err("its pipes are missing".to_owned()),
    }
}

fn log(directory: &Path, name: &str) -> Option<File> {
    std::fs::create_dir_all(directory).ok()?;
    let path = directory.join(format!("{name}.stderr"));
    File::options().append(true).create(true).open(path).ok()
}

/// Reads stderr to its end, so that the server never blocks on it. Keeps a bounded part.
async fn listen(mut stderr: ChildStderr, mut file: Option<File>, said: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = [0; 4096];
    let mut room = STDERR.0;
    while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
        if let Some(file) = file.as_mut().filter(|_| room >= n as u64) {
            // If the disk is full, the log is incomplete, but the server continues.
            let _ = file.write_all(&buffer[..n]);
            room -= n as u64;
        }
        let mut said = base::sync::lock(&said);
        said.extend(&buffer[..n]);
        let excess = said.len().saturating_sub(STDERR.1);
        said.drain(..excess);
    }
}

impl ServerProcess {
    /// Describes how it ended, with the end of its stderr.
    pub async fn end_of_it(&mut self) -> String {
        let moment = Duration::from_millis(500);
        let how = match tokio::time::timeout(moment, self.running.child.wait()).await {
            Ok(Ok(status)) => format!("it ended with code {}", exit_code(status)),
            Ok(Err(_)) | Err(_) => "it closed its stdout".to_owned(),
        };
        tokio::task::yield_now().await;
        let said = base::sync::lock(&self.said);
        let bytes: Vec<u8> = said.iter().copied().collect();
        let words = base::text::printable_output(&String::from_utf8_lossy(&bytes));
        match words.trim() {
            "" => how,
            words => format!("{how}; its last words on stderr: {words}"),
        }
    }

    /// Kills processes that do not exit after stdin was closed.
    pub async fn close(&mut self) {
        if tokio::time::timeout(GRACE, self.running.child.wait()).await.is_err() {
            let _ = self.running.end(GRACE).await;
        }
    }
}
