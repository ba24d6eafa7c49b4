//! Background processes, identified by name, with a log file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use base::clock::Clock;
use base::process::{Command, Stream, is_alive};
use serde::{Deserialize, Serialize};
use serde_json::json;

use gate::Permit;
use tools::call::Invocation;
use tools::context::ToolContext;
use tools::exec::confinement;
use tools::exec::environment::{self, Environment};
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    name: Option<String>,
    command: String,
    #[serde(default)]
    environment: Environment,
}

/// The record of a background process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BackgroundProcess {
    /// Its name.
    pub name: String,
    /// Its command line.
    pub command: String,
    /// The leader of its process group.
    pub pid: u32,
    /// Its start time as reported by the kernel, since the process id may be reused.
    #[serde(rename = "born")]
    pub start_time: Option<u64>,
    /// The log file of its output.
    pub log: PathBuf,
}

/// Returns the directory of the process records of a session.
pub(crate) fn directory(context: &ToolContext) -> PathBuf {
    context.session_dir.join("tools/background")
}

/// The tool that starts a background process.
pub(crate) struct BackgroundTool;

impl Tool for BackgroundTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("exec.background", Effect::Runs)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        super::scope(call)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Starts a process in the background.
pub(crate) async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let args: Args = call.decode()?;
    if args.command.trim().is_empty() {
        return Err(ToolError::invalid("`command` is empty"));
    }
    if !call.path.is_dir() {
        let text = format!("the directory {} does not exist", call.path.display());
        return Err(ToolError::invalid(text));
    }
    if call.permit == Permit::ScratchSandbox {
        let reason = "denied: what must run in the sandbox cannot run in the background";
        return Err(ToolError::new(ToolErrorKind::Denied, reason));
    }
    let directory = directory(call.context);
    let start_error =
        |error: std::io::Error| ToolError::io("cannot start a background process", &error);
    fs::create_dir_all(&directory).map_err(start_error)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => free_name(&directory),
    };
    let slug = file_slug(&name)?;
    let file = directory.join(format!("{slug}.json"));
    if let Some(old) = load(&file).filter(is_running) {
        let text = format!(
            "a background process `{}` runs already (pid {}); end it with background_control or \
             `kill -- -{}`, or choose another name",
            old.name, old.pid, old.pid
        );
        return Err(ToolError::failed(text));
    }
    let (mut log_file, log) = log_file(&directory, &slug).map_err(start_error)?;
    let started = Clock::from_env().stamp();
    writeln!(
        log_file,
        "name: {name}\ncommand: {}\ndirectory: {}\nstarted: {started}\n",
        args.command,
        call.path.display()
    )
    .map_err(start_error)?;
    let pid = start(call, &args, &log_file).map_err(start_error)?;
    let record =
        BackgroundProcess { name, command: args.command, pid, start_time: start_time(pid), log };
    base::files::replace_json(&file, &record).map_err(start_error)?;
    Ok(report(call, &record))
}

fn start(call: &Invocation<'_>, args: &Args, log: &File) -> std::io::Result<u32> {
    let containment = call.context.containment(call.permit)?;
    let command = |shell: &str| -> std::io::Result<Command> {
        let command = Command::new(shell, &call.path).arg("-c").arg(&args.command);
        let command = environment::apply(command, args.environment);
        let (out, err) = (Stream::File(log.try_clone()?), Stream::File(log.try_clone()?));
        Ok(command.stdout(out).stderr(err).detached())
    };
    let mut running = match confinement::spawn_detached(command("bash")?, containment.clone()) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            confinement::spawn_detached(command("sh")?, containment)?
        }
        other => other?,
    };
    let pid = running.id().ok_or_else(|| std::io::Error::other("it ended at once"))?;
    // Releases the group. The runtime still reaps the process when it exits, so that it does not
    // remain as a zombie that looks alive.
    running.forget();
    Ok(pid)
}

fn report(call: &Invocation<'_>, record: &BackgroundProcess) -> ToolOutput {
    let BackgroundProcess { name, pid, log, .. } = record;
    let log = log.display();
    let text = format!(
        "started `{name}` in the background\npid: {pid}\nlog: {log}\ndirectory: {}\nread the log: \
         tail -n 100 '{log}'\nis it running: ps -p {pid}\nend it with all it started: kill -- -{pid}",
        call.path.display()
    );
    let metadata = json!({
        "background": true,
        "status": "success",
        "name": name,
        "pid": pid,
        "log": record.log,
        "handle": name,
        "workdir": call.path,
    });
    ToolOutput::success(text).titled(format!("{name}: pid {pid}")).with(metadata)
}

/// Validates a name as a file name; it must not contain a path.
pub(crate) fn file_slug(name: &str) -> Result<String, ToolError> {
    let is_allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let slug: String = name.trim().chars().map(|c| if is_allowed(c) { c } else { '_' }).collect();
    let slug = slug.trim_start_matches('.').to_owned();
    if slug.is_empty() || slug.len() > 100 {
        return Err(ToolError::invalid(
            "`name` must have between 1 and 100 letters, digits, `-`, `_` or `.`",
        ));
    }
    Ok(slug)
}

fn free_name(directory: &Path) -> String {
    let is_used = |name: &String| directory.join(format!("{name}.json")).exists();
    let mut names = (1..u32::MAX).map(|n| format!("background-{n}"));
    names.find(|name| !is_used(name)).unwrap_or_else(|| "background".to_owned())
}

fn log_file(directory: &Path, slug: &str) -> std::io::Result<(File, PathBuf)> {
    let temp_file = tempfile::Builder::new()
        .prefix(&format!("{slug}-"))
        .suffix(".log")
        .tempfile_in(directory)?;
    drop(temp_file.reopen()?);
    let (_, path) = temp_file.keep().map_err(|error| error.error)?;
    // Opened for appending, so that stdout and stderr do not overwrite each other.
    let file = File::options().append(true).open(&path)?;
    Ok((file, path))
}

/// Reads the record of a process.
pub(crate) fn load(file: &Path) -> Option<BackgroundProcess> {
    serde_json::from_slice(&base::files::read(file).ok()?).ok()
}

/// Whether the process or another one of its group is running; zombies do not count.
pub(crate) fn is_running(record: &BackgroundProcess) -> bool {
    match start_time(record.pid) {
        Some(now) => record.start_time.is_none_or(|recorded| recorded == now),
        None if cfg!(not(target_os = "linux")) => is_alive(record.pid),
        // The kernel does not reuse the id while a process of the group exists.
        None => has_members(record.pid),
    }
}

/// Whether a group has a process that is not a zombie.
fn has_members(group: u32) -> bool {
    let Ok(entries) = fs::read_dir("/proc") else { return false };
    let ids = entries.flatten().filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| start_time(*id).is_some()).any(|id| group_of(id) == Some(group))
}

/// Returns the group of a process (proc(5), field 5).
fn group_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

/// Returns the start time of a process in clock ticks since boot (proc(5), field 22), or `None` if
/// it is gone or a zombie.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
