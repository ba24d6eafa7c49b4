//! Runs commands at a place: on a host reached with the `ssh` program, or in a running job of a cluster.
//! They consist of plain words, since the user's shell on the host reads them; everything else goes
//! through stdin.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::failure::Failure;
use base::process::{Command, Output, OutputLimits, Stream};
use serde::de::DeserializeOwned;

use crate::place::configured_place::Place;
use crate::place::protocol;

/// The name of the host without `ssh`.
const THIS_MACHINE: &str = "this machine";
/// The exit code of `ssh` when the connection fails.
const CONNECTION_FAILED: i32 = 255;
/// Exit codes of shells for a program that does not exist or cannot be run.
const NOT_RUNNABLE: [i32; 2] = [126, 127];
/// What the loader of the GNU C library prints for a program that needs another version of it, or a
/// library that is missing.
const LOADER_ERRORS: [&str; 2] = ["version `GLIBC_", "error while loading shared libraries"];
/// The lowest exit code of a program that a signal ended.
pub(super) const KILLED: i32 = 128;
/// How long a connection that several commands share stays open without one, in seconds.
const SHARED_SECONDS: u32 = 60;
/// Timeout of a command that asks something.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of such a command in a job: after a restart of the cluster's controller, a step may wait
/// forever although the next one would run.
const STEP_TIMEOUT: Duration = Duration::from_secs(15);
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
/// The variables that `ssh` and the commands of a cluster get. Those of a job in which studio itself runs
/// would change what these commands do.
const VARIABLES: &[&str] =
    &["HOME", "PATH", "SSH_AUTH_SOCK", "USER", "LOGNAME", "SLURM_CONF", "KUBECONFIG"];

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
                let program = &host.program;
                host.not_runnable(&format!(
                    "{program} does not start: is its processor another one?"
                ))
            }
            HostError::Failed(failure) => failure,
        }
    }
}

/// A host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// Its name for display: that in `~/.ssh/config`, or that of a node of a cluster.
    pub name: String,
    /// The name of its place.
    pub place: String,
    /// The program there.
    pub program: String,
    /// The directory of studio's data there.
    pub spool: String,
    /// How `ssh` reaches it, or the host on which the commands of a cluster run; `None` for this machine.
    ssh: Option<SshTarget>,
    /// The job in which commands run.
    step: Option<JobStep>,
}

/// How commands run in a job.
#[derive(Clone, Debug)]
pub(crate) struct JobStep {
    /// The words before those of the command.
    pub words: Vec<String>,
    /// What is reported if a program does not exist.
    pub not_runnable: &'static str,
    /// What is reported if a program ran and failed.
    pub exited: &'static str,
}

/// What `ssh` connects to.
#[derive(Clone, Debug)]
struct SshTarget {
    host: String,
    config: Option<PathBuf>,
    /// The socket of the shared connection; `None` if no path is short enough.
    control: Option<PathBuf>,
}

impl Host {
    /// Returns a host of a place.
    pub(crate) fn new(place: &Place, name: &str, program: &str) -> Host {
        let mut host = Host::here(place, program);
        host.name = name.to_owned();
        host.ssh = Some(SshTarget::new(place, name));
        host
    }

    /// Returns the host on which the commands of a cluster run.
    pub(crate) fn of_cluster(place: &Place, program: &str) -> Host {
        match place.config.all_hosts().first() {
            Some(name) => Host::new(place, name, program),
            None => Host::here(place, program),
        }
    }

    fn here(place: &Place, program: &str) -> Host {
        Host {
            name: THIS_MACHINE.to_owned(),
            place: place.name.clone(),
            program: program.to_owned(),
            spool: place.config.spool_path().to_owned(),
            ssh: None,
            step: None,
        }
    }

    /// Returns the node on which a job runs.
    pub(crate) fn in_job(&self, step: JobStep, node: &str) -> Host {
        Host { name: node.to_owned(), step: Some(step), ..self.clone() }
    }

    /// Returns a command of plain words at this host.
    pub(crate) fn command<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let step = self.step.iter().flat_map(|step| step.words.iter().cloned());
        let words: Vec<String> = step.chain(words.into_iter().map(str::to_owned)).collect();
        let mut words = words.into_iter();
        match &self.ssh {
            Some(target) => {
                target.ssh(&["ControlMaster=no"]).arg("--").arg(&target.host).args(words)
            }
            None => {
                let program = words.next().unwrap_or_default();
                // A relative path of a program begins there, as over SSH.
                let home = base::user_dirs::home_dir().unwrap_or_else(|| PathBuf::from("/"));
                with_variables(Command::new(program, home)).args(words)
            }
        }
    }

    /// Returns a command of studio's part at this host.
    pub(crate) fn node(&self, verb: &str) -> Command {
        let words = [self.program.as_str(), protocol::COMMAND, verb, self.spool.as_str()];
        match (&self.ssh, &self.step) {
            // As over SSH, a shell says whether the program is there.
            (None, None) => {
                self.command(["/bin/sh", "-c", "exec \"$0\" \"$@\""].into_iter().chain(words))
            }
            _ => self.command(words),
        }
    }

    /// Opens the connection that later commands share, unless it is open. Without it, each command
    /// opens one of its own.
    pub(crate) fn share_connection(&self) {
        let Some(target) = &self.ssh else { return };
        let Some(socket) = &target.control else { return };
        let check = target.ssh(&[]).args(["-O", "check", "--"]).arg(&target.host);
        if check.output(OutputLimits::seconds(10)).is_ok_and(|output| output.ok()) {
            return;
        }
        let _ = std::fs::remove_file(socket);
        let persist = format!("ControlPersist={SHARED_SECONDS}");
        // It goes into the background once it is connected, and ends by itself.
        let master = target.ssh(&["ControlMaster=yes", &persist]).args(["-f", "-N", "--"]);
        let master = master.arg(&target.host).stdout(Stream::Null).stderr(Stream::Null);
        let _ = master.output(OutputLimits::seconds(30));
    }

    /// Runs a command of a cluster. An error that contains one of these texts may pass: the cluster
    /// does not answer now.
    pub(crate) fn ask_cluster(
        &self,
        command: Command,
        transient: &[&str],
    ) -> std::result::Result<Output, HostError> {
        self.run(command).map_err(|error| match error {
            HostError::Failed(failure)
                if failure
                    .reason()
                    .is_some_and(|why| transient.iter().any(|text| why.contains(text))) =>
            {
                HostError::Connection(failure.reason().unwrap_or_default().to_owned())
            }
            error => error,
        })
    }

    /// Runs a command there that writes little.
    pub(crate) fn run(&self, command: Command) -> std::result::Result<Output, HostError> {
        let time = if self.step.is_some() { STEP_TIMEOUT } else { TIMEOUT };
        let limits = OutputLimits { time: Some(time), bytes: 1 << 20 };
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
                return Err(HostError::Failed(self.cannot_start(error)));
            }
        };
        if output.ok() {
            return Ok(output);
        }
        let error = base::text::printable(base::text::tail(&output.error_text(), 2000));
        match output.code() {
            _ if output.timed_out => {
                Err(HostError::Connection("it does not answer in time".to_owned()))
            }
            _ if self.step.as_ref().is_some_and(|step| error.contains(step.not_runnable)) => {
                Err(HostError::NotInstalled)
            }
            // The job does not run now, or the cluster does not answer.
            _ if self.step.as_ref().is_some_and(|step| !error.contains(step.exited)) => {
                Err(HostError::Connection(error))
            }
            CONNECTION_FAILED => Err(HostError::Connection(error)),
            _ if let Some(line) = loader_error(&error) => {
                Err(HostError::Failed(self.not_runnable(line)))
            }
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

    /// Returns the failure of a host on which a program for this machine does not run.
    fn not_runnable(&self, why: &str) -> Failure {
        Failure::failed(format!("studio cannot be run on {}", self.name)).because(why).hint(
            format!(
                "build studio for that system, and name its path there: [studio.places.{}] binary",
                self.place
            ),
        )
    }

    fn cannot_start(&self, error: io::Error) -> Failure {
        match &self.ssh {
            Some(_) => Failure::failed("cannot start ssh")
                .because(error)
                .hint("install OpenSSH, e.g. `apt install openssh-client`"),
            None => Failure::failed("cannot start a command of the cluster").because(error).hint(
                format!(
                    "[studio.places.{}] host = \"HOST\"    names the host that has its commands",
                    self.place
                ),
            ),
        }
    }

    fn unreachable(&self, why: &str) -> Failure {
        let failure = Failure::failed(format!("no connection to {}", self.name)).because(why);
        let failure = match &self.ssh {
            Some(SshTarget { host, .. }) if why.contains("ost key verification failed") => {
                failure.hint(format!("ssh {host}    shows the key of the host, once"))
            }
            Some(SshTarget { host, .. }) => {
                failure.hint(format!("ssh {host} true    must work without a question"))
            }
            None => failure,
        };
        failure.hint(format!("studio places check {}", self.place))
    }
}

/// Returns the line of an output in which the loader says why it did not start a program.
fn loader_error(output: &str) -> Option<&str> {
    output.lines().find(|line| LOADER_ERRORS.iter().any(|text| line.contains(text)))
}

impl SshTarget {
    fn new(place: &Place, host: &str) -> SshTarget {
        let config = place.config.ssh_config.clone();
        let control = control_socket(config.as_deref(), host);
        SshTarget { host: host.to_owned(), config, control }
    }

    fn ssh(&self, options: &[&str]) -> Command {
        let mut command = with_variables(Command::new("ssh", "/")).arg("-T");
        if let Some(file) = &self.config {
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
}

/// Gives a command only the variables that it needs.
fn with_variables(command: Command) -> Command {
    let set = |name: &&str| std::env::var_os(name).map(|value| ((*name).to_owned(), value));
    let variables = VARIABLES.iter().filter_map(set);
    variables.fold(command.env_clear(), |command, (name, value)| command.env(name, value))
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
