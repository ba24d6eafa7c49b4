//! An open line to a server: a program on two pipes, or an address; the handshake, and its end.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::config::mcp::{McpServer, expand};
use base::process::{AsyncRunning, GRACE, Job, Stream, exit_code};
use base::sandbox::environment::{Child, child_env};
use futures_util::future::BoxFuture;
use rmcp::model::{ClientConfig, Implementation};
use rmcp::service::{ClientInitializeError, NotificationContext, Peer, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;

use super::http;

/// The longest message of a server, in bytes.
const LONGEST: usize = 64 << 20;
/// How much of what a server writes to stderr is kept in its file, and how much of its end is told.
const STDERR: (u64, usize) = (1 << 20, 2_000);

/// Where a server works and leaves what it says.
#[derive(Clone, Debug)]
pub struct Place {
    /// The working directory.
    pub cwd: PathBuf,
    /// Its stderr goes into a file here; nowhere when absent.
    pub logs: Option<PathBuf>,
}

/// Learns the tools of a server that says that they are others now.
pub type Learn = Arc<dyn Fn(Peer<RoleClient>) -> BoxFuture<'static, ()> + Send + Sync>;

/// What g3 is for a server: somebody who calls tools and answers no questions.
#[derive(Clone)]
pub struct Us {
    /// Called when the server has other tools.
    pub learn: Learn,
}

impl ClientHandler for Us {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("g3", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(Default::default(), us)
    }

    async fn on_tool_list_changed(&self, context: NotificationContext<RoleClient>) {
        (self.learn)(context.peer).await;
    }
}

/// An open line. Dropped, the server's processes are gone.
pub struct Line {
    service: RunningService<RoleClient, Us>,
    program: Option<Program>,
}

/// The server's processes and the end of what they wrote to stderr.
struct Program {
    running: AsyncRunning,
    said: Arc<Mutex<VecDeque<u8>>>,
}

/// Opens a line and shakes hands. `part` names the file of its stderr.
pub async fn open(server: &McpServer, part: &str, place: &Place, us: Us) -> Result<Line, String> {
    if server.url.is_some() {
        return Ok(Line { service: http::open(server, us).await?, program: None });
    }
    let mut program = start(server, part, place)?;
    let child = &mut program.running.child;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("its pipes are missing".to_owned());
    };
    let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(LONGEST);
    match us.serve(transport).await {
        Ok(service) => Ok(Line { service, program: Some(program) }),
        Err(
            ClientInitializeError::ConnectionClosed(_)
            | ClientInitializeError::TransportError { .. },
        ) => Err(program.end_of_it().await),
        Err(why) => Err(format!("no handshake: {why}")),
    }
}

fn start(server: &McpServer, part: &str, place: &Place) -> Result<Program, String> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some((program, args)) = server.command.split_first() else {
        return Err("it has no command".to_owned());
    };
    let home = std::env::home_dir().unwrap_or_default();
    let cwd = server.cwd.as_deref().map(|cwd| base::config::studio::expanded(cwd, &home));
    let cwd = cwd.map_or_else(|| place.cwd.clone(), |cwd| place.cwd.join(cwd));
    let mut job = Job::new(program, cwd).args(args).env_clear().dies_with_us();
    job = job.stdin(Stream::Piped);
    for (key, value) in child_env(std::env::vars_os(), &[], Child::Tool) {
        job = job.env(key, value);
    }
    for (key, value) in &server.env {
        job = job.env(key, expand(value.reveal(), &variable)?);
    }
    let mut running = job.spawn_async().map_err(|why| why.to_string())?;
    let said = Arc::default();
    if let Some(stderr) = running.child.stderr.take() {
        let file = place.logs.as_ref().and_then(|logs| log(logs, part));
        tokio::spawn(listen(stderr, file, Arc::clone(&said)));
    }
    Ok(Program { running, said })
}

fn log(directory: &Path, part: &str) -> Option<File> {
    std::fs::create_dir_all(directory).ok()?;
    let path = directory.join(format!("{part}.stderr"));
    File::options().append(true).create(true).open(path).ok()
}

/// Reads stderr to its end, so that the server never waits for us; keeps a bounded part.
async fn listen(mut stderr: ChildStderr, mut file: Option<File>, said: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = [0; 4096];
    let mut room = STDERR.0;
    while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
        if let Some(file) = file.as_mut().filter(|_| room >= n as u64) {
            // A full disk costs the log, not the server.
            let _ = file.write_all(&buffer[..n]);
            room -= n as u64;
        }
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend(&buffer[..n]);
        let excess = said.len().saturating_sub(STDERR.1);
        said.drain(..excess);
    }
}

impl Program {
    /// How it ended and what it said last.
    async fn end_of_it(&mut self) -> String {
        let moment = Duration::from_millis(500);
        let how = match tokio::time::timeout(moment, self.running.child.wait()).await {
            Ok(Ok(status)) => format!("it ended with code {}", exit_code(status)),
            Ok(Err(_)) | Err(_) => "it closed its stdout".to_owned(),
        };
        tokio::task::yield_now().await;
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = said.iter().copied().collect();
        let words = base::text::printable(&String::from_utf8_lossy(&bytes));
        match words.trim() {
            "" => how,
            words => format!("{how}; its last words on stderr: {words}"),
        }
    }
}

impl Line {
    /// The other side.
    pub fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Whether it can still be asked.
    pub fn is_open(&self) -> bool {
        !self.service.is_closed() && !self.service.peer().is_transport_closed()
    }

    /// How the program ended and what it said last, after the line broke.
    pub async fn end_of_it(&mut self) -> Option<String> {
        Some(self.program.as_mut()?.end_of_it().await)
    }

    /// Says goodbye: stdin ends, and what does not end by itself is ended.
    pub async fn close(mut self) {
        let _ = self.service.close_with_timeout(GRACE).await;
        if let Some(program) = &mut self.program
            && tokio::time::timeout(GRACE, program.running.child.wait()).await.is_err()
        {
            let _ = program.running.end(GRACE).await;
        }
    }
}
