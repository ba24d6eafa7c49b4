//! The init process of a sandbox: starts the program confined, adopts all orphans, and exits when
//! no process is left.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use base::process::{Command, Stream, close_on_exec_except, inherited};
use base::sandbox::network::{self, NetworkConfinement, NetworkNamespace};
use base::sandbox::{self, ClosedScope, Confinement, GRACE, seatbelt};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Resource, Rlimit, Signal, WaitOptions};
use serde::de::DeserializeOwned;
use tokio::signal::unix::{SignalKind, signal};

use crate::sandbox::cgroup::Cgroup;
use crate::sandbox::limits::ExceededLimit;
use crate::sandbox::{
    NetworkAccess, SandboxFailure, SandboxSpec, StartFailure, process_tree, watcher,
};

/// The command line arguments of the init process.
pub(crate) struct SandboxArgs {
    spec: SandboxSpec,
    lifeline: Option<OwnedFd>,
    report: Option<OwnedFd>,
    program: OsString,
    args: Vec<OsString>,
}

/// An event of a sandbox or its reaper.
pub(crate) enum SandboxEvent {
    /// The program ended.
    Ended {
        /// The exit code; 128 and the signal number if a signal killed it.
        code: u8,
        /// Whether a signal killed it: a program may also return such a code itself.
        by_signal: bool,
    },
    /// No process of the sandbox is left.
    Childless,
    /// The sandbox must end: it got a signal, or its supervisor is gone.
    Stop,
    /// Its processes reached a limit.
    Limit(ExceededLimit),
}

/// How often remaining processes are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The exit code of a program that ended with the sandbox: 128 + SIGTERM.
pub(crate) const STOPPED_EXIT_CODE: u8 = 143;
/// The exit code of a program whose sandbox reached a limit: 128 + SIGKILL.
const LIMIT_EXIT_CODE: u8 = 137;
/// Maximum number of open files of a program, if the system allows as many.
const MAX_OPEN_FILES: u64 = 65_536;

impl SandboxArgs {
    /// Parses the command line, reads the sandbox's specification from its descriptor, and waits for
    /// the program if that comes from a descriptor.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> io::Result<SandboxArgs> {
        let usage_error = || {
            io::Error::other(
                "usage: __box --spec-fd N [--lifeline-fd N] [--report-fd N] (--program-fd N | -- PROGRAM)",
            )
        };
        let mut args = args.into_iter();
        let (mut spec, mut lifeline, mut report, mut program) = (None, None, None, None);
        while let Some(flag) = args.next() {
            match flag.to_str() {
                Some("--") => break,
                Some("--spec-fd") => spec = Some(parse_number(args.next())?),
                Some("--lifeline-fd") => lifeline = Some(parse_number(args.next())?),
                Some("--report-fd") => report = Some(parse_number(args.next())?),
                Some("--program-fd") => program = Some(parse_number(args.next())?),
                _ => return Err(usage_error()),
            }
        }
        let spec = read_json(inherited(spec.ok_or_else(usage_error)?)?)?;
        let lifeline = lifeline.map(inherited).transpose()?;
        let report = report.map(inherited).transpose()?;
        let mut program: VecDeque<OsString> = match program {
            Some(number) => receive_program(number, lifeline.as_ref())?.into_iter().collect(),
            None => args.collect(),
        };
        let first = program.pop_front().ok_or_else(usage_error)?;
        Ok(SandboxArgs { spec, lifeline, report, program: first, args: program.into() })
    }
}

/// Waits for the program and its arguments, which come through an inherited pipe.
fn receive_program(number: i32, lifeline: Option<&OwnedFd>) -> io::Result<Vec<OsString>> {
    let pipe = inherited(number)?;
    let mut events = vec![PollFd::new(&pipe, PollFlags::IN)];
    events.extend(lifeline.map(|lifeline| PollFd::new(lifeline, PollFlags::IN)));
    while let Err(error) = rustix::event::poll(&mut events, None) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    if events.get(1).is_some_and(|lifeline| !lifeline.revents().is_empty()) {
        return Err(io::Error::other("it ended before its program was known"));
    }
    drop(events);
    let program: Vec<String> = read_json(pipe)?;
    Ok(program.into_iter().map(Into::into).collect())
}

/// Reads a value from a descriptor, to its end.
fn read_json<T: DeserializeOwned>(descriptor: OwnedFd) -> io::Result<T> {
    let file = File::from(descriptor).take(base::files::MAX_READ_BYTES);
    Ok(serde_json::from_reader(io::BufReader::new(file))?)
}

fn parse_number(text: Option<OsString>) -> io::Result<i32> {
    let number = text.and_then(|text| text.to_str()?.parse().ok());
    number.ok_or_else(|| io::Error::other("a descriptor's number is missing"))
}

/// Starts the program, waits for it, ends all remaining processes, and returns the program's exit
/// code.
pub(crate) fn run(args: SandboxArgs) -> io::Result<u8> {
    set_limits()?;
    close_on_exec_except(&args.spec.descriptors)?;
    adopt_orphans()?;
    if let Some(temp) = &args.spec.temp {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(temp)?;
    }
    let on_terminal = args.lifeline.is_none();
    let (tx, rx) = mpsc::channel();
    watch_signals(tx.clone(), on_terminal)?;
    if let Some(lifeline) = args.lifeline {
        watch_lifeline(lifeline, tx.clone());
    }
    let (program, program_args) = confined_program(&args.spec, args.program.clone(), args.args)?;
    let mut command = Command::new(program, &args.spec.directory)
        .args(program_args)
        .env_clear()
        .stdin(Stream::Inherit)
        .stdout(Stream::Inherit)
        .stderr(Stream::Inherit)
        .oom_victim()
        .kill_on_parent_death();
    for (name, value) in &args.spec.environment {
        command = command.env(name, value);
    }
    if let Some(temp) = &args.spec.temp {
        command = command.env("TMPDIR", temp).env("TMP", temp).env("TEMP", temp);
    }
    if on_terminal {
        command = command.in_parent_group();
    }
    let limits = &args.spec.limits;
    let cgroup = limits.any().then(|| Cgroup::create(limits)).flatten();
    if let Some(cgroup) = &cgroup {
        command = command.in_cgroup(cgroup.open()?);
    }
    let network = network_confinement(&args.spec.network)?;
    let command = with_confinement(&args.spec, command, network, !on_terminal)?;
    let (code, failure) = match command.spawn_forget() {
        Ok(program) => {
            let watcher = limits.any().then(|| watcher::start(limits, cgroup.as_ref(), tx.clone()));
            thread::spawn(move || reap(program, &tx));
            let (code, limit) = supervise(&rx, program, cgroup.as_ref());
            drop(watcher);
            // The kernel may have ended the program before the watcher looked.
            let limit = limit.or_else(|| cgroup.as_ref()?.exceeded(limits));
            match limit {
                Some(limit) => (LIMIT_EXIT_CODE, Some(SandboxFailure::Limit(limit))),
                None => (code, None),
            }
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "studio: {error}");
            let failure = StartFailure::new(&error, &args.program.to_string_lossy());
            (failure.exit_code(), Some(SandboxFailure::Start(failure)))
        }
    };
    if let Some(cgroup) = cgroup {
        cgroup.remove();
    }
    if let Some(SandboxFailure::Limit(limit)) = &failure {
        let _ = writeln!(
            io::stderr(),
            "studio: the processes in the sandbox reached their limit of {limit} and were ended"
        );
    }
    if let (Some(failure), Some(report)) = (failure, args.report) {
        // A caller that does not need the report has closed its end.
        let _ = failure.send(report);
    }
    Ok(code)
}

/// Waits for the program and ends all other processes. Returns the program's exit code, and the
/// limit that was reached.
fn supervise(
    rx: &Receiver<SandboxEvent>,
    program: u32,
    cgroup: Option<&Cgroup>,
) -> (u8, Option<ExceededLimit>) {
    match rx.recv() {
        Ok(SandboxEvent::Ended { code, .. }) => {
            terminate_remaining(rx, program, Some(code), cgroup)
        }
        Ok(SandboxEvent::Stop) => terminate_remaining(rx, program, None, cgroup),
        Ok(SandboxEvent::Limit(limit)) => {
            kill_all(program, cgroup);
            let (code, _) = terminate_remaining(rx, program, None, cgroup);
            (code, Some(limit))
        }
        Ok(SandboxEvent::Childless) | Err(_) => (STOPPED_EXIT_CODE, None),
    }
}

/// Kills all processes of the sandbox.
fn kill_all(program: u32, cgroup: Option<&Cgroup>) {
    if let Some(cgroup) = cgroup {
        cgroup.kill();
    }
    process_tree::kill_all(program);
}

/// Becomes the subreaper: orphans of the program become children of this process (Linux).
pub(crate) fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Returns the program and its arguments; on macOS, those of the program that confines it.
fn confined_program(
    spec: &SandboxSpec,
    program: OsString,
    args: Vec<OsString>,
) -> io::Result<(OsString, Vec<OsString>)> {
    if !(cfg!(target_os = "macos") && spec.confined) {
        return Ok((program, args));
    }
    let mut rules = spec.rules.clone();
    rules.write.extend(spec.temp.clone());
    seatbelt::wrap(&rules, program, args)
}

/// Adds the network and the confinement to a command, whose process enters them before it executes
/// the program; the init process itself is not confined, so that it can end the program's
/// processes. With `own_processes` it sees none but its own; a program on the user's terminal shares
/// the process group of that terminal, and sees all.
fn with_confinement(
    spec: &SandboxSpec,
    command: Command,
    network: Option<Arc<NetworkConfinement>>,
    own_processes: bool,
) -> io::Result<Command> {
    let command = match &network {
        Some(network) => command.in_network(network.clone()),
        None => command,
    };
    // On macOS another program confines it.
    if !spec.confined || cfg!(target_os = "macos") {
        return Ok(command);
    }
    if spec.namespaces {
        // A program that uses up this user's namespaces must not weaken the next sandbox.
        sandbox::assume_namespaces();
    }
    let missing = sandbox::missing_features();
    if !missing.is_empty() && !spec.best_effort {
        return Err(io::Error::other(format!(
            "{}; `[sandbox] best_effort = true` continues without it",
            missing.join(", ")
        )));
    }
    let mut rules = spec.rules.clone();
    rules.write.extend(spec.temp.clone());
    rules.temp = spec.temp.clone();
    rules.terminal = inherited_terminal();
    if sandbox::check_landlock().is_err() && spec.best_effort {
        return Ok(command);
    }
    let confinement = Confinement::in_network(rules, ClosedScope::Closed, network.as_deref());
    let confinement = confinement.map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull if spec.namespaces => io::Error::other(
            "the kernel creates no more namespaces for this user; end programs that hold some",
        ),
        _ => error,
    })?;
    let confinement = match own_processes {
        true => confinement.with_own_processes(),
        false => confinement,
    };
    Ok(command.confined(Arc::new(confinement)))
}

/// Returns the confinement of the network.
fn network_confinement(access: &NetworkAccess) -> io::Result<Option<Arc<NetworkConfinement>>> {
    let confinement = match access {
        NetworkAccess::Open => return Ok(None),
        NetworkAccess::Namespace { user, network } => {
            NetworkConfinement::Namespace(NetworkNamespace {
                user: user.map(inherited).transpose()?,
                network: inherited(*network)?,
            })
        }
        NetworkAccess::Ports(ports) => NetworkConfinement::Rules(network::socket_rules(ports)?),
    };
    Ok(Some(Arc::new(confinement)))
}

/// Returns the path of the terminal that the program inherits as a standard stream.
fn inherited_terminal() -> Option<PathBuf> {
    let streams = (0..3).filter_map(|fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok());
    streams.into_iter().find(|path| path.starts_with("/dev/pts") && path.exists())
}

/// Disables core dumps, which contain keys, and raises the limit of open files.
fn set_limits() -> io::Result<()> {
    let no_core_dumps = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, no_core_dumps)?;
    let files = rustix::process::getrlimit(Resource::Nofile);
    let target = files.maximum.map_or(MAX_OPEN_FILES, |maximum| maximum.min(MAX_OPEN_FILES));
    if files.current.is_some_and(|current| current < target) {
        let raised = Rlimit { current: Some(target), maximum: files.maximum };
        rustix::process::setrlimit(Resource::Nofile, raised)?;
    }
    Ok(())
}

/// Watches for signals that end the sandbox. On a terminal Ctrl-C is left to the program.
pub(crate) fn watch_signals(tx: Sender<SandboxEvent>, on_terminal: bool) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut term, mut hangup, mut interrupt, mut quit) = {
        let _guard = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::quit())?,
        )
    };
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                let is_key = tokio::select! {
                    _ = term.recv() => false,
                    _ = hangup.recv() => false,
                    _ = interrupt.recv() => true,
                    _ = quit.recv() => true,
                };
                if !(is_key && on_terminal) && tx.send(SandboxEvent::Stop).is_err() {
                    return;
                }
            }
        });
    });
    Ok(())
}

/// Watches the lifeline: the supervisor's end of the pipe closes when it exits, even by SIGKILL.
pub(crate) fn watch_lifeline(lifeline: OwnedFd, tx: Sender<SandboxEvent>) {
    thread::spawn(move || {
        let mut lifeline = File::from(lifeline);
        let mut byte = [0];
        while let Ok(1..) = lifeline.read(&mut byte) {}
        let _ = tx.send(SandboxEvent::Stop);
    });
}

/// Waits for all children: the program, and its orphans, which the kernel reparents to this
/// process.
pub(crate) fn reap(program: u32, tx: &Sender<SandboxEvent>) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().cast_unsigned() == program => {
                let code = status.exit_status().or(status.terminating_signal().map(|n| 128 + n));
                let code =
                    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(STOPPED_EXIT_CODE);
                let by_signal = status.terminating_signal().is_some();
                let _ = tx.send(SandboxEvent::Ended { code, by_signal });
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => {
                let _ = tx.send(SandboxEvent::Childless);
                return;
            }
        }
    }
}

/// Ends all remaining processes, after the program ended or when the sandbox must end; returns the
/// program's exit code, and the limit that its processes reached in the end.
pub(crate) fn terminate_remaining(
    rx: &Receiver<SandboxEvent>,
    program: u32,
    mut code: Option<u8>,
    cgroup: Option<&Cgroup>,
) -> (u8, Option<ExceededLimit>) {
    let start = Instant::now();
    let (mut signalled, mut limit) = (false, None);
    loop {
        // Usually no process is left, which is known immediately.
        match rx.recv_timeout(POLL_INTERVAL) {
            Ok(SandboxEvent::Ended { code: exit_code, .. }) => code = Some(exit_code),
            Ok(SandboxEvent::Childless) | Err(RecvTimeoutError::Disconnected) => {
                return (code.unwrap_or(STOPPED_EXIT_CODE), limit);
            }
            Ok(SandboxEvent::Limit(reached)) => {
                limit = Some(reached);
                kill_all(program, cgroup);
            }
            Ok(SandboxEvent::Stop) => {}
            Err(RecvTimeoutError::Timeout) if !signalled => {
                signalled = true;
                process_tree::signal_all(program, Signal::TERM);
            }
            Err(RecvTimeoutError::Timeout) if start.elapsed() > GRACE => {
                kill_all(program, cgroup);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
