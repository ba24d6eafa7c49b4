//! A host of a place, reached with the `ssh` program. The remote command consists of plain words, since
//! the user's shell there reads it; everything else goes through its stdin.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::config::places::PlaceConfig;
use base::failure::Failure;
use base::process::{Command, Output, OutputLimits, Stream};
use serde::de::DeserializeOwned;

use crate::place::configured_place::Place;
use crate::place::protocol;

/// The exit code of `ssh` when the connection fails.
const CONNECTION_FAILED: i32 = 255;
/// Exit codes of shells for a program that does not exist or cannot be run.
const NOT_RUNNABLE: [i32; 2] = [126, 127];
/// The lowest exit code of a program that a signal ended.
const KILLED: i32 = 128;
/// How long a connection that several commands share stays open without one, in seconds.
const SHARED_SECONDS: u32 = 60;
/// Timeout of a command that asks something.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum length of a socket's path, with what `ssh` adds to it while it creates it.
const MAX_SOCKET_BYTES: usize = 107 - 20;
/// Options of every call: no questions, checked host keys, no forwarding, and the end of a connection
/// that does not answer for 15 seconds.
const OPTIONS: &[&str] = &[
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
];
/// The variables that `ssh` gets.
const VARIABLES: &[&str] = &["HOME", "PATH", "SSH_AUTH_SOCK", "USER", "LOGNAME"];

/// Why a command at a host failed.
#[derive(Debug)]
pub(crate) enum HostError {
    /// The connection failed, for this reason.
    Connection(String),
    /// studio is not installed there.
    NotInstalled,
    /// The command failed.
    Failed(Failure),
}

impl HostError {
    /// Returns the failure of a command at this host.
    pub(crate) fn into_failure(self, host: &Host) -> Failure {
        match self {
            HostError::Connection(why) => host.unreachable(&why),
            HostError::NotInstalled => {
                Failure::failed(format!("studio cannot be run on {}", host.name))
                    .because(format!("{} does not start there", host.program))
                    .hint(format!("studio places check {}", host.place))
            }
            HostError::Failed(failure) => failure,
        }
    }
}

/// A host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// Its name, as in `~/.ssh/config`.
    pub name: String,
    /// The name of its place.
    pub place: String,
    /// The program there.
    pub program: String,
    /// The directory of studio's data there.
    pub spool: String,
    ssh_config: Option<PathBuf>,
    /// The socket of the shared connection; `None` if no path is short enough.
    control: Option<PathBuf>,
}

impl Host {
    /// Returns a host of a place.
    pub(crate) fn new(place: &Place, name: &str, program: &str) -> Host {
        let PlaceConfig { ssh_config, .. } = &place.config;
        Host {
            name: name.to_owned(),
            place: place.name.clone(),
            program: program.to_owned(),
            spool: place.config.spool_path().to_owned(),
            ssh_config: ssh_config.clone(),
            control: control_socket(ssh_config.as_deref(), name),
        }
    }

    /// Returns a command of plain words at this host.
    pub(crate) fn command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        self.ssh(&["ControlMaster=no"]).arg("--").arg(&self.name).args(words)
    }

    /// Returns a command of studio's part at this host.
    pub(crate) fn node(&self, verb: &str) -> Command {
        self.command([self.program.as_str(), protocol::COMMAND, verb, self.spool.as_str()])
    }

    fn ssh(&self, options: &[&str]) -> Command {
        let mut command = Command::new("ssh", "/").env_clear().arg("-T");
        for name in VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                command = command.env(name, value);
            }
        }
        if let Some(file) = &self.ssh_config {
            command = command.arg("-F").arg(file);
        }
        for option in OPTIONS.iter().chain(options) {
            command = command.arg("-o").arg(option);
        }
        match &self.control {
            Some(socket) => command.arg("-S").arg(socket),
            None => command,
        }
    }

    /// Opens the connection that later commands share, unless it is open. Without it, each command
    /// opens one of its own.
    pub(crate) fn share_connection(&self) {
        let Some(socket) = &self.control else { return };
        let check = self.ssh(&[]).args(["-O", "check", "--"]).arg(&self.name);
        if check.output(OutputLimits::seconds(10)).is_ok_and(|output| output.ok()) {
            return;
        }
        let _ = std::fs::remove_file(socket);
        let persist = format!("ControlPersist={SHARED_SECONDS}");
        // It goes into the background once it is connected, and ends by itself.
        let master = self.ssh(&["ControlMaster=yes", &persist]).args(["-f", "-N", "--"]);
        let master = master.arg(&self.name).stdout(Stream::Null).stderr(Stream::Null);
        let _ = master.output(OutputLimits::seconds(30));
    }

    /// Runs a command there that writes little.
    pub(crate) fn run(&self, command: Command) -> std::result::Result<Output, HostError> {
        let limits = OutputLimits { time: Some(TIMEOUT), bytes: 1 << 20 };
        self.checked(command.output(limits))
    }

    /// Runs a verb of studio's part there with this input, and reads its answer.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        verb: &str,
        input: Vec<u8>,
    ) -> std::result::Result<T, HostError> {
        let output = self.run(self.node(verb).input(input))?;
        self.answer(&output)
    }

    /// Reads an answer of studio's part.
    pub(crate) fn answer<T: DeserializeOwned>(
        &self,
        output: &Output,
    ) -> std::result::Result<T, HostError> {
        // A login script may print something first.
        let line = output.stdout.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty());
        serde_json::from_slice(line.unwrap_or_default()).map_err(|error| {
            let text = base::text::printable_bytes(start_of(&output.stdout));
            HostError::Failed(
                Failure::failed(format!("{} does not answer as expected", self.name))
                    .because(format!("{error}: {text}"))
                    .hint(format!("studio places check {}", self.place)),
            )
        })
    }

    /// Returns the output of a command that succeeded.
    pub(crate) fn checked(
        &self,
        output: io::Result<Output>,
    ) -> std::result::Result<Output, HostError> {
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                return Err(HostError::Failed(
                    Failure::failed("cannot start ssh")
                        .because(error)
                        .hint("install OpenSSH, e.g. `apt install openssh-client`"),
                ));
            }
        };
        if output.ok() {
            return Ok(output);
        }
        let error = base::text::printable(base::text::tail(&output.error_text(), 2000));
        match output.code() {
            _ if output.timed_out => {
                Err(HostError::Connection(format!("no answer within {} s", TIMEOUT.as_secs())))
            }
            CONNECTION_FAILED => Err(HostError::Connection(error)),
            code if NOT_RUNNABLE.contains(&code) => Err(HostError::NotInstalled),
            code if code >= KILLED => {
                Err(HostError::Connection(format!("a command there was killed (exit code {code})")))
            }
            code => Err(HostError::Failed(
                Failure::failed(format!("a command on {} failed", self.name))
                    .because(if error.is_empty() { format!("exit code {code}") } else { error })
                    .hint(format!("studio places check {}", self.place)),
            )),
        }
    }

    fn unreachable(&self, why: &str) -> Failure {
        let failure = Failure::failed(format!("no connection to {}", self.name)).because(why);
        let failure = match why.contains("ost key verification failed") {
            true => failure.hint(format!("ssh {}    shows the key of the host, once", self.name)),
            false => {
                failure.hint(format!("ssh {} true    must work without a question", self.name))
            }
        };
        failure.hint(format!("studio places check {}", self.place))
    }
}

/// Returns the start of an output for an error.
fn start_of(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(200)]
}

/// Returns the socket of the shared connection to a host, in a directory that only the user can access.
fn control_socket(ssh_config: Option<&Path>, host: &str) -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|directory| directory.is_absolute());
    let directory =
        runtime.or_else(|| base::user_dirs::state_dir("studio").ok())?.join("studio-ssh");
    let identity = Path::new("/").join(ssh_config.unwrap_or(Path::new(""))).join(host);
    let digest = base::user_dirs::name_for_path(&identity);
    let digest = digest.rsplit('-').next().unwrap_or_default();
    let socket = directory.join(digest);
    if socket.as_os_str().len() > MAX_SOCKET_BYTES {
        return None;
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
    Some(socket)
}
