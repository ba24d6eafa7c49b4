//! Finds the running host for a model or starts it; concurrent callers start only one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::Timespec;

use super::catalogue;
use super::connection::Connection;
use super::socket_path::{self, HostPaths};
use super::wire::{Hello, HostFault, HostFaultKind, HostResponse, HostResponseLine};
use crate::config::providers::EmbeddedConfig;
use crate::config::studio::expand_tilde;
use crate::failure::{Failure, OrFail, Result};
use crate::lock::Lock;
use crate::process::{Command, Stream, find_program, sibling_program};
use crate::test_hooks::is_hook;

/// The variable with the number of a connected socket that a supervisor passes down.
pub const FD_VARIABLE: &str = "G3_MODEL_HOST_FD";
/// The host's program.
pub const PROGRAM: &str = "g3-model";
/// The environment variables that the host gets: no API keys.
const PASSED_VARIABLES: &[&str] =
    &["HOME", "PATH", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH"];

/// The host to find or start. `None` fields use the host's defaults; a running host keeps its
/// settings.
#[derive(Clone, Debug, Default)]
pub struct HostQuery {
    /// The model file.
    pub model: PathBuf,
    /// The context of one conversation, in tokens.
    pub context: Option<u32>,
    /// The number of conversations that are answered in parallel.
    pub parallel: Option<u32>,
    /// Seconds without a request after which the host exits.
    pub idle: Option<u64>,
    /// The number of compute threads.
    pub threads: Option<u32>,
    /// The path of the host's program, if it is neither beside this program nor on `PATH`.
    pub program: Option<PathBuf>,
}

impl HostQuery {
    /// Returns a query for a model file, with the host's defaults.
    pub fn model(path: impl Into<PathBuf>) -> HostQuery {
        HostQuery { model: path.into(), ..HostQuery::default() }
    }

    /// Returns the query for a configuration entry; `model` overrides the configured model.
    pub fn of(entry: &EmbeddedConfig, model: Option<&str>) -> Result<HostQuery> {
        let path = match (model, &entry.model_path) {
            (None, Some(path)) => {
                let home = std::env::var_os("HOME").unwrap_or_default();
                expand_tilde(path, Path::new(&home))
            }
            (name, _) => {
                catalogue::find(name.or(entry.model.as_deref()).unwrap_or(catalogue::DEFAULT))?
            }
        };
        let idle = std::env::var("G3_MODEL_IDLE").ok().and_then(|text| text.parse().ok());
        let (context, threads) = (entry.context_length, entry.threads);
        Ok(HostQuery { context, threads, idle, ..HostQuery::model(path) })
    }
}

/// Returns the socket that a supervisor passed down in `G3_MODEL_HOST_FD`; `None` without one, and
/// on the second call, because the descriptor then has an owner.
pub fn inherited_connection() -> Option<UnixStream> {
    static TAKEN: Mutex<bool> = Mutex::new(false);
    let number: i32 = std::env::var(FD_VARIABLE).ok()?.parse().ok().filter(|n| *n > 2)?;
    let mut taken = crate::sync::lock(&TAKEN);
    if std::mem::replace(&mut *taken, true) {
        return None;
    }
    crate::process::inherited(number).ok().map(UnixStream::from)
}

/// How long a host that is exiting may accept connections without answering.
const HOST_EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval between two attempts to reach such a host.
const RETRY_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Connects to the running host, or starts one, and asks for its identity. A host that is exiting
/// or was killed may still accept connections until the kernel has freed its memory; then a new one
/// is started.
pub fn open(query: &HostQuery) -> Result<(Connection, Hello)> {
    let deadline = Instant::now() + HOST_EXIT_TIMEOUT;
    loop {
        let connection = Connection::new(connect(query)?);
        let connection = connection.or_fail(|| "cannot talk to the model host")?;
        match connection.hello() {
            Err(fault) if fault.kind == HostFaultKind::Broken && Instant::now() < deadline => {
                // There is nothing to wait on: the host may not be a child of this process.
                let _ = rustix::event::poll(&mut [], Some(&RETRY_INTERVAL));
            }
            hello => return Ok((connection, hello.map_err(HostFault::into_failure)?)),
        }
    }
}

/// Connects to the running host, or starts one.
pub(crate) fn connect(query: &HostQuery) -> Result<UnixStream> {
    let paths = HostPaths::of(&query.model)?;
    if let Ok(socket) = socket_path::connect(&paths.socket()) {
        return Ok(socket);
    }
    let _start_lock = Lock::take(&paths.start_lock()).or_fail(|| "cannot lock the model host")?;
    // Another process may have started it while this one waited for the lock.
    if let Ok(socket) = socket_path::connect(&paths.socket()) {
        return Ok(socket);
    }
    start(query, &paths)?;
    socket_path::connect(&paths.socket())
        .or_fail(|| "the model host was started but does not answer")
        .map_err(|failure| failure.hint(format!("read {}", paths.log().display())))
}

fn start(query: &HostQuery, paths: &HostPaths) -> Result<()> {
    let program = program(query)?;
    let cannot = || format!("cannot start the model host `{}`", program.display());
    let (read, write) = io::pipe().or_fail(cannot)?;
    let log = open_log(&paths.log()).or_fail(cannot)?;
    let command = options(Command::new(&program, "/").env_clear(), query)
        .stdout(Stream::File(File::from(OwnedFd::from(write))))
        .stderr(Stream::File(log))
        .detached();
    command.spawn_forget().or_fail(cannot)?;
    let mut first = String::new();
    let read = BufReader::new(read.take(1 << 16)).read_line(&mut first);
    read.or_fail(|| "cannot hear the model host")?;
    match serde_json::from_str::<HostResponseLine>(&first).map(|line| line.what) {
        Ok(HostResponse::Hello(_)) => Ok(()),
        Ok(HostResponse::Error(fault)) => Err(fault.into_failure()),
        Ok(_) | Err(_) => Err(Failure::failed("the model host exited before it could answer")
            .because(tail(&paths.log()))
            .hint(format!("read {}", paths.log().display()))),
    }
}

fn options(mut command: Command, query: &HostQuery) -> Command {
    let is_passed = |name: &str| PASSED_VARIABLES.contains(&name) || is_hook(name);
    for (name, value) in
        std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed))
    {
        command = command.env(name, value);
    }
    command = command.arg("--model").arg(&query.model);
    let numbers = [
        ("--context", query.context.map(u64::from)),
        ("--parallel", query.parallel.map(u64::from)),
        ("--threads", query.threads.map(u64::from)),
        ("--idle", query.idle),
    ];
    for (flag, value) in numbers {
        if let Some(value) = value {
            command = command.arg(flag).arg(value.to_string());
        }
    }
    command
}

/// Returns the host's program: the given one, else the one beside this program, else the one on
/// `PATH`.
fn program(query: &HostQuery) -> Result<PathBuf> {
    if let Some(program) = &query.program {
        return Ok(program.clone());
    }
    sibling_program(PROGRAM).or_else(|| find_program(PROGRAM)).ok_or_else(|| {
        Failure::usage(format!("the local model needs the program `{PROGRAM}`"))
            .because("it is neither next to this program nor in PATH")
            .hint("cargo build --release -p model")
            .hint("or choose a hosted model: set ANTHROPIC_API_KEY or OPENAI_API_KEY")
    })
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::model_host::connection::lines;
    use crate::model_host::wire::{HostRequestLine, VERSION};

    /// Accepts this many connections as a host that is exiting, then further ones as a healthy one.
    fn host(paths: &HostPaths, ending: usize) {
        let listener = socket_path::listen(&paths.socket()).unwrap();
        std::thread::spawn(move || {
            for (count, socket) in listener.incoming().enumerate() {
                let mut socket = socket.unwrap();
                if count < ending {
                    continue;
                }
                let request =
                    lines::<HostRequestLine>(socket.try_clone().unwrap()).next().unwrap().unwrap();
                let hello = Hello {
                    version: VERSION,
                    model: "m".into(),
                    parameters: 1,
                    context: 1,
                    pid: std::process::id(),
                    embedder: None,
                };
                let line = HostResponseLine { id: request.id, what: HostResponse::Hello(hello) };
                writeln!(socket, "{}", serde_json::to_string(&line).unwrap()).unwrap();
            }
        });
    }

    #[test]
    fn a_host_that_is_exiting_is_replaced_by_a_new_one() {
        for ending in [0, 1, 2, 5] {
            let dir = tempfile::tempdir().unwrap();
            let model = dir.path().join("m.gguf");
            fs::write(&model, "").unwrap();
            let paths = HostPaths::of(&model).unwrap();
            host(&paths, ending);
            let opened = open(&HostQuery::model(&model));
            let _ = fs::remove_file(paths.socket());
            assert_eq!(opened.unwrap().1.model, "m", "after {ending} that ended");
        }
    }

    #[test]
    fn a_relay_uses_only_a_host_that_answers() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("m.gguf");
        fs::write(&model, "").unwrap();
        let paths = HostPaths::of(&model).unwrap();
        host(&paths, 3);
        let relayed = crate::model_host::relay::open(HostQuery::model(&model)).unwrap();
        let hello = Connection::new(relayed.into()).unwrap().hello();
        let _ = fs::remove_file(paths.socket());
        assert_eq!(hello.unwrap().model, "m");
    }
}
