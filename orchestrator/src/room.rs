//! Where a session's processes run: its worktree, its box, an environment without secrets.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base::config::Config;
use base::config::studio::AgentRow;
use base::failure::{OrFail, Result};
use base::process::{AsyncRunning, Job, Stream};
use tokio::io::AsyncReadExt;

use crate::git::repo::Repository;
use crate::session::record::Record;

/// Variables that every process gets.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "COLUMNS",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "CARGO_HOME",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_NOSYSTEM",
];
/// Variables that every process gets, by the start of their name.
const PASSED_PREFIXES: &[&str] = &["LC_", "G3_TEST_"];

/// Where a session's processes run.
#[derive(Clone, Debug)]
pub struct Room {
    /// The directory they start in.
    pub worktree: PathBuf,
    /// A directory of their own for temporary files.
    pub temporary: PathBuf,
    /// More variables that they get, by name.
    pub env: Vec<String>,
}

/// A started program and what keeps it alive. Dropped, everything in its box ends.
#[derive(Debug)]
pub struct Process {
    /// The program.
    pub running: AsyncRunning,
    /// The lifeline of its box.
    pub lifeline: Option<OwnedFd>,
}

/// How a program ended, and the end of what it wrote.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code; 124 when the time was up.
    pub exit: i32,
    /// The end of both its streams together.
    pub tail: String,
    /// How long it took.
    pub took: Duration,
}

impl Room {
    /// The room of a session; `row` is its agent's, with what it alone may read and know.
    pub fn of(
        repository: &Repository,
        record: &Record,
        _config: &Config,
        row: Option<&AgentRow>,
    ) -> Result<Room> {
        Ok(Room {
            worktree: record.place.worktree.clone(),
            temporary: repository.session_dir(&record.id).join("tmp"),
            env: row.map(|row| row.env.clone()).unwrap_or_default(),
        })
    }

    /// Starts a program with piped streams.
    pub fn start(&self, argv: &[String]) -> Result<Process> {
        let (job, lifeline) = self.job(argv)?;
        let job = job.stdin(Stream::Piped);
        let running = job.spawn_async().or_fail(|| "cannot start it")?;
        Ok(Process { running, lifeline })
    }

    /// A program prepared to run here; its box lives as long as the descriptor.
    pub fn job(&self, argv: &[String]) -> Result<(Job, Option<OwnedFd>)> {
        std::fs::create_dir_all(&self.temporary)
            .or_fail(|| "cannot make its temporary directory")?;
        let program = argv.first().cloned().unwrap_or_default();
        let mut job =
            Job::new(program, &self.worktree).args(&argv[1.min(argv.len())..]).env_clear();
        for (key, value) in std::env::vars_os() {
            let name = key.to_string_lossy();
            let passes = PASSED.contains(&&*name)
                || PASSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || self.env.iter().any(|wanted| *wanted == name);
            if passes {
                job = job.env(&key, value);
            }
        }
        Ok((job.env("TMPDIR", &self.temporary), None))
    }

    /// Runs one `sh -c` line to its end, at most so long.
    pub async fn line(&self, line: &str, most: Duration) -> Result<Ended> {
        let begin = Instant::now();
        let argv = ["sh".to_owned(), "-c".to_owned(), line.to_owned()];
        let mut process = self.start(&argv)?;
        drop(process.running.child.stdin.take());
        let out = tokio::spawn(tail_of(process.running.child.stdout.take()));
        let err = tokio::spawn(tail_of(process.running.child.stderr.take()));
        let exit = match tokio::time::timeout(most, process.running.child.wait()).await {
            Ok(status) => base::process::exit_code(status.or_fail(|| "cannot wait for it")?),
            Err(_) => {
                let _ = process.running.end(base::process::GRACE).await;
                124
            }
        };
        let took = begin.elapsed();
        drop(process);
        let tail = format!("{}{}", out.await.unwrap_or_default(), err.await.unwrap_or_default());
        Ok(Ended { exit, tail, took })
    }
}

/// Bytes of each stream of a check that are kept.
const TAIL: usize = 4096;

async fn tail_of(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut kept: Vec<u8> = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..n]);
        if kept.len() > 8 * TAIL {
            kept.drain(..kept.len() - TAIL);
        }
    }
    base::text::tail(&String::from_utf8_lossy(&kept), TAIL).to_owned()
}
