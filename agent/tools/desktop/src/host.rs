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
const PROGRAM_NAME: &str = "g3-desktop";
/// Variables with which programs find the user's session services. Commands do not receive them,
/// but our own program does.
const SESSION_VARIABLES: [&str; 4] =
    ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "AT_SPI_BUS_ADDRESS", "XDG_SESSION_TYPE"];
/// Timeout of a response, in addition to the time for typing; a desktop may ask its user first.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of text recognition.
const OCR_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time per typed character.
const TIME_PER_CHARACTER: Duration = Duration::from_millis(100);
/// Maximum size of a response in bytes: an image of eight screens.
const MAX_LINE: u64 = 256 << 20;

/// The running process. The lock also serializes access to the screen.
static HOST: Mutex<Option<Host>> = Mutex::const_new(None);

/// A running process.
struct Host {
    program: ServerProcess,
    stdin: ChildStdin,
    lines: mpsc::Receiver<Vec<u8>>,
    request_count: u64,
    last_action: Option<Instant>,
}

/// Sends a request and waits for the response. A fault becomes an error.
pub(crate) async fn ask(
    context: &ToolContext,
    request: DesktopRequest,
) -> Result<DesktopResponse, ToolError> {
    let cancelled = || ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user");
    let mut slot = context.cancel.run_until_cancelled(HOST.lock()).await.ok_or_else(cancelled)?;
    let mut host = match slot.take() {
        Some(host) => host,
        None => start(context)?,
    };
    let time = timeout_for(&request);
    let exchange = async {
        host.pause(context, &request).await;
        tokio::time::timeout(time, host.exchange(request)).await
    };
    match context.cancel.run_until_cancelled(exchange).await {
        Some(Ok(Ok(DesktopResponse::Fault(fault)))) => {
            *slot = Some(host);
            Err(fault_error(fault))
        }
        Some(Ok(Ok(response))) => {
            *slot = Some(host);
            Ok(response)
        }
        Some(Ok(Err(reason))) => {
            let end = reason.with_end(host.program.describe_end().await);
            Err(ToolError::failed(format!("{PROGRAM_NAME} failed: {end}")))
        }
        Some(Err(_)) => {
            host.close().await;
            let text =
                format!("{PROGRAM_NAME} had no answer after {} s and was ended", time.as_secs());
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
pub(crate) async fn capture(
    context: &ToolContext,
    target: CaptureTarget,
) -> Result<Picture, ToolError> {
    let DesktopResponse::Picture(picture) = ask(context, DesktopRequest::Capture(target)).await?
    else {
        return Err(unexpected_response());
    };
    Ok(picture)
}

/// Executes input steps in order.
pub(crate) async fn input(context: &ToolContext, steps: Vec<InputStep>) -> Result<(), ToolError> {
    let fail_safe = context.services.screen.control().fail_safe;
    let DesktopResponse::Done = ask(context, DesktopRequest::Input { steps, fail_safe }).await?
    else {
        return Err(unexpected_response());
    };
    Ok(())
}

/// Returns the controls that programs report.
pub(crate) async fn controls(
    context: &ToolContext,
    query: base::desktop_protocol::ControlQuery,
) -> Result<Controls, ToolError> {
    let DesktopResponse::Controls(controls) = ask(context, DesktopRequest::Controls(query)).await?
    else {
        return Err(unexpected_response());
    };
    Ok(controls)
}

/// Returns the error for a response of the wrong kind.
pub(crate) fn unexpected_response() -> ToolError {
    ToolError::failed(format!(
        "{PROGRAM_NAME} answers something that was not asked: is it of this version?"
    ))
}

fn fault_error(fault: DesktopFault) -> ToolError {
    let next: String = fault.next.iter().map(|next| format!(". Try: {next}")).collect();
    ToolError::failed(format!("{}{next}", fault.failure().sentence()))
}

fn timeout_for(request: &DesktopRequest) -> Duration {
    match request {
        DesktopRequest::Read { .. } => OCR_TIMEOUT,
        DesktopRequest::Input { steps, .. } => {
            let characters_typed = steps.iter().map(|step| match step {
                InputStep::Type { text } => u32::try_from(text.chars().count()).unwrap_or(u32::MAX),
                InputStep::Move { .. }
                | InputStep::Click { .. }
                | InputStep::Drag { .. }
                | InputStep::Scroll { .. }
                | InputStep::Keys { .. } => 1,
            });
            REQUEST_TIMEOUT
                + TIME_PER_CHARACTER.saturating_mul(characters_typed.fold(0, u32::saturating_add))
        }
        DesktopRequest::Capture(_)
        | DesktopRequest::Screen
        | DesktopRequest::Windows
        | DesktopRequest::Maximize
        | DesktopRequest::Controls(_)
        | DesktopRequest::Act(_)
        | DesktopRequest::Unknown => REQUEST_TIMEOUT,
    }
}

/// Returns the program: as configured, next to our own, or on `PATH`.
fn find_program(context: &ToolContext) -> Result<PathBuf, ToolError> {
    if let Some(configured) = &context.services.screen.control().program {
        return Ok(gate::paths::expand_home(&configured.to_string_lossy()));
    }
    base::process::sibling_program(PROGRAM_NAME).or_else(|| base::process::find_program(PROGRAM_NAME)).ok_or_else(
        || {
            ToolError::failed(format!(
                "the program `{PROGRAM_NAME}` is not there, by which g3 sees and uses the screen. Build it \
             with `cargo build --release -p desktop` and put it next to g3 or on PATH, or name it \
             in the configuration: [computer_control] program"
            ))
        },
    )
}

fn start(context: &ToolContext) -> Result<Host, ToolError> {
    let path = find_program(context)?.to_string_lossy().into_owned();
    let environment = SESSION_VARIABLES.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        Some(((*name).to_owned(), Secret::new(value)))
    });
    let env: BTreeMap<String, Secret> = environment.collect();
    let log_dir = context.session_dir.join("desktop");
    let command = [path.clone()];
    let server_start = ServerStart {
        command: &command,
        env: &env,
        cwd: &context.cwd,
        log: Some((&log_dir, "g3-desktop")),
        containment: None,
    };
    let child = child_server::start(&server_start);
    let (program, stdin, stdout) =
        child.map_err(|error| ToolError::failed(format!("cannot start {path}: {error}")))?;
    let (sender, lines) = mpsc::channel(4);
    tokio::spawn(read_lines(stdout, sender));
    tracing::info!(target: "g3::desktop", "helper started");
    Ok(Host { program, stdin, lines, request_count: 0, last_action: None })
}

/// Reads lines until the program closes its stdout.
async fn read_lines(stdout: ChildStdout, lines: mpsc::Sender<Vec<u8>>) {
    let mut reader = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) || lines.send(line).await.is_err() {
            return;
        }
    }
}

impl Host {
    /// Waits until the minimum delay after the last action has passed.
    async fn pause(&mut self, context: &ToolContext, request: &DesktopRequest) {
        let is_action = matches!(
            request,
            DesktopRequest::Input { .. } | DesktopRequest::Act(_) | DesktopRequest::Maximize
        );
        let max_per_second = context.services.screen.control().max_actions_per_second;
        if !is_action {
            return;
        }
        if let (Some(last), 1..) = (self.last_action, max_per_second) {
            let interval = Duration::from_secs(1) / max_per_second;
            tokio::time::sleep(interval.saturating_sub(last.elapsed())).await;
        }
        self.last_action = Some(Instant::now());
    }

    async fn exchange(&mut self, what: DesktopRequest) -> Result<DesktopResponse, Disconnect> {
        let failed = |error: &dyn std::fmt::Display| Disconnect::Failed(error.to_string());
        self.request_count += 1;
        let request_line = DesktopRequestLine { id: self.request_count, what };
        let mut line = serde_json::to_vec(&request_line).map_err(|error| failed(&error))?;
        line.push(b'\n');
        self.stdin.write_all(&line).await.map_err(|error| failed(&error))?;
        self.stdin.flush().await.map_err(|error| failed(&error))?;
        while let Some(line) = self.lines.recv().await {
            let response_line: DesktopResponseLine = serde_json::from_slice(&line)
                .map_err(|error| failed(&format!("its answer cannot be read ({error})")))?;
            if response_line.id == self.request_count {
                return Ok(response_line.what);
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
