//! The `g3-desktop` process: started on first use, one per g3 process, and sent one request at a
//! time. A request that is given up ends the process, so that nothing continues unnoticed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base::desktop_protocol::{
    CaptureTarget, Controls, DesktopFault, DesktopRequest, DesktopRequestLine, DesktopResponse,
    DesktopResponseLine, InputStep, Picture,
};
use base::secret::Secret;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Mutex, mpsc};

use tools::child_server::{self, Disconnect, ServerProcess, ServerStart};
use tools::context::ToolContext;
use tools::output::{ToolError, ToolErrorKind};

/// The program.
const NAME: &str = "g3-desktop";
/// Variables with which programs find the user's session services. Commands do not receive them,
/// but our own program does.
const SERVICES: [&str; 4] =
    ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "AT_SPI_BUS_ADDRESS", "XDG_SESSION_TYPE"];
/// Timeout of a response, in addition to the time for typing; a desktop may ask its user first.
const TIME: Duration = Duration::from_secs(60);
/// Timeout of text recognition.
const READING: Duration = Duration::from_secs(60);
/// Maximum time per typed character.
const CHARACTER: Duration = Duration::from_millis(100);
/// Maximum size of a response in bytes: an image of eight screens.
const LONGEST: u64 = 256 << 20;

/// The running process. The lock also serializes access to the screen.
static HOST: Mutex<Option<Host>> = Mutex::const_new(None);

/// A running process.
struct Host {
    program: ServerProcess,
    stdin: ChildStdin,
    lines: mpsc::Receiver<Vec<u8>>,
    asked: u64,
    acted: Option<Instant>,
}

/// Sends a request and waits for the response. A fault becomes an error.
pub(crate) async fn ask(
    at: &ToolContext,
    what: DesktopRequest,
) -> Result<DesktopResponse, ToolError> {
    let cancelled = || ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user");
    let mut held = at.cancel.run_until_cancelled(HOST.lock()).await.ok_or_else(cancelled)?;
    let mut host = match held.take() {
        Some(host) => host,
        None => start(at)?,
    };
    let time = time_of(&what);
    let work = async {
        host.pause(at, &what).await;
        tokio::time::timeout(time, host.exchange(what)).await
    };
    match at.cancel.run_until_cancelled(work).await {
        Some(Ok(Ok(DesktopResponse::Fault(fault)))) => {
            *held = Some(host);
            Err(trouble(fault))
        }
        Some(Ok(Ok(told))) => {
            *held = Some(host);
            Ok(told)
        }
        Some(Ok(Err(why))) => {
            let end = why.with_end(host.program.describe_end().await);
            Err(ToolError::failed(format!("{NAME} failed: {end}")))
        }
        Some(Err(_)) => {
            host.close().await;
            let text = format!("{NAME} had no answer after {} s and was ended", time.as_secs());
            Err(ToolError::new(ToolErrorKind::Timeout, text))
        }
        None => {
            host.close().await;
            Err(cancelled())
        }
    }
}

/// Stops the process, if it runs.
pub(crate) async fn close() {
    if let Some(host) = HOST.lock().await.take() {
        host.close().await;
    }
}

/// Takes a screenshot.
pub(crate) async fn capture(at: &ToolContext, wish: CaptureTarget) -> Result<Picture, ToolError> {
    let DesktopResponse::Picture(picture) = ask(at, DesktopRequest::Capture(wish)).await? else {
        return Err(strange());
    };
    Ok(picture)
}

/// Executes input steps in order.
pub(crate) async fn input(at: &ToolContext, steps: Vec<InputStep>) -> Result<(), ToolError> {
    let fail_safe = at.services.screen.control().fail_safe;
    let DesktopResponse::Done = ask(at, DesktopRequest::Input { steps, fail_safe }).await? else {
        return Err(strange());
    };
    Ok(())
}

/// Returns the controls that programs report.
pub(crate) async fn controls(
    at: &ToolContext,
    look: base::desktop_protocol::ControlQuery,
) -> Result<Controls, ToolError> {
    let DesktopResponse::Controls(found) = ask(at, DesktopRequest::Controls(look)).await? else {
        return Err(strange());
    };
    Ok(found)
}

/// Returns the error for a response of the wrong kind.
pub(crate) fn strange() -> ToolError {
    ToolError::failed(format!(
        "{NAME} answers something that was not asked: is it of this version?"
    ))
}

fn trouble(fault: DesktopFault) -> ToolError {
    let next: String = fault.next.iter().map(|next| format!(". Try: {next}")).collect();
    ToolError::failed(format!("{}{next}", fault.failure().sentence()))
}

fn time_of(what: &DesktopRequest) -> Duration {
    match what {
        DesktopRequest::Read { .. } => READING,
        DesktopRequest::Input { steps, .. } => {
            let typed = steps.iter().map(|step| match step {
                InputStep::Type { text } => u32::try_from(text.chars().count()).unwrap_or(u32::MAX),
                InputStep::Move { .. }
                | InputStep::Click { .. }
                | InputStep::Drag { .. }
                | InputStep::Scroll { .. }
                | InputStep::Keys { .. } => 1,
            });
            TIME + CHARACTER.saturating_mul(typed.fold(0, u32::saturating_add))
        }
        DesktopRequest::Capture(_)
        | DesktopRequest::Screen
        | DesktopRequest::Windows
        | DesktopRequest::Maximize
        | DesktopRequest::Controls(_)
        | DesktopRequest::Act(_)
        | DesktopRequest::Unknown => TIME,
    }
}

/// Returns the program: as configured, next to our own, or on `PATH`.
fn find(at: &ToolContext) -> Result<PathBuf, ToolError> {
    if let Some(named) = &at.services.screen.control().program {
        return Ok(gate::paths::expand_home(&named.to_string_lossy()));
    }
    base::process::sibling_program(NAME).or_else(|| base::process::find_program(NAME)).ok_or_else(
        || {
            ToolError::failed(format!(
                "the program `{NAME}` is not there, by which g3 sees and uses the screen. Build it \
             with `cargo build --release -p desktop` and put it next to g3 or on PATH, or name it \
             in the configuration: [computer_control] program"
            ))
        },
    )
}

fn start(at: &ToolContext) -> Result<Host, ToolError> {
    let path = find(at)?.to_string_lossy().into_owned();
    let given = SERVICES.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        Some(((*name).to_owned(), Secret::new(value)))
    });
    let env: BTreeMap<String, Secret> = given.collect();
    let logs = at.session_dir.join("desktop");
    let command = [path.clone()];
    let wanted = ServerStart {
        command: &command,
        env: &env,
        cwd: &at.cwd,
        log: Some((&logs, "g3-desktop")),
        containment: None,
    };
    let started = child_server::start(&wanted);
    let (program, stdin, stdout) =
        started.map_err(|why| ToolError::failed(format!("cannot start {path}: {why}")))?;
    let (sender, lines) = mpsc::channel(4);
    tokio::spawn(listen(stdout, sender));
    tracing::info!(target: "g3::desktop", "helper started");
    Ok(Host { program, stdin, lines, asked: 0, acted: None })
}

/// Reads lines until the program closes its stdout.
async fn listen(stdout: ChildStdout, lines: mpsc::Sender<Vec<u8>>) {
    let mut reader = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let read = (&mut reader).take(LONGEST).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) || lines.send(line).await.is_err() {
            return;
        }
    }
}

impl Host {
    /// Waits until the minimum delay after the last action has passed.
    async fn pause(&mut self, at: &ToolContext, what: &DesktopRequest) {
        let acts = matches!(
            what,
            DesktopRequest::Input { .. } | DesktopRequest::Act(_) | DesktopRequest::Maximize
        );
        let most = at.services.screen.control().max_actions_per_second;
        if !acts {
            return;
        }
        if let (Some(last), 1..) = (self.acted, most) {
            let gap = Duration::from_secs(1) / most;
            tokio::time::sleep(gap.saturating_sub(last.elapsed())).await;
        }
        self.acted = Some(Instant::now());
    }

    async fn exchange(&mut self, what: DesktopRequest) -> Result<DesktopResponse, Disconnect> {
        let failed = |why: &dyn std::fmt::Display| Disconnect::Failed(why.to_string());
        self.asked += 1;
        let asked = DesktopRequestLine { id: self.asked, what };
        let mut line = serde_json::to_vec(&asked).map_err(|why| failed(&why))?;
        line.push(b'\n');
        self.stdin.write_all(&line).await.map_err(|why| failed(&why))?;
        self.stdin.flush().await.map_err(|why| failed(&why))?;
        while let Some(line) = self.lines.recv().await {
            let told: DesktopResponseLine = serde_json::from_slice(&line)
                .map_err(|why| failed(&format!("its answer cannot be read ({why})")))?;
            if told.id == self.asked {
                return Ok(told.what);
            }
        }
        Err(Disconnect::Closed)
    }

    async fn close(self) {
        let Host { mut program, stdin, .. } = self;
        drop(stdin);
        program.close().await;
    }
}
