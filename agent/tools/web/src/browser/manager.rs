//! The browser of a session: started once, found by every call, and ended when it is no longer
//! used.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::config::agent::{BrowserKind, WebdriverConfig};
use base::lock::Lock;
use base::process::{AsyncRunning, Command, signal_group};
use base::sandbox::environment::{ChildKind, child_env};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::daemon::{BrowserDir, BrowserRecord, DaemonArgs, DaemonReport};
use super::programs::{BrowserPrograms, has_display};
use super::session::BrowserSession;
use gate::Permit;
use tools::context::ToolContext;
use tools::exec::confinement;
use tools::output::{ToolError, ToolErrorKind};

/// Timeout of a start.
const STARTS: Duration = Duration::from_secs(90);
/// Timeout of an end, and of waiting for another call.
const PATIENCE: Duration = Duration::from_secs(120);
/// The interval of polling.
const LOOK: Duration = Duration::from_millis(20);
/// Seconds without a call after which a browser ends that belongs to no session.
const IDLE: u64 = 600;
/// Environment variable that overrides [`IDLE`].
const IDLE_VARIABLE: &str = "G3_BROWSER_IDLE";

/// Starts, finds and ends the browser of a session.
#[derive(Default)]
pub struct BrowserManager {
    config: WebdriverConfig,
    /// Whether the browser ends with this process.
    owns: bool,
    wanted: Mutex<Option<Lock>>,
}

impl BrowserManager {
    /// Creates a manager for a session: its browser ends when the manager is dropped, or with this
    /// process.
    pub fn of_session(config: &WebdriverConfig) -> Arc<BrowserManager> {
        Arc::new(BrowserManager { config: config.clone(), owns: true, wanted: Mutex::default() })
    }

    /// Creates a manager for calls in separate processes: their browser ends after a time without
    /// calls.
    pub fn of_calls(config: &WebdriverConfig) -> Arc<BrowserManager> {
        Arc::new(BrowserManager { config: config.clone(), owns: false, wanted: Mutex::default() })
    }

    /// Returns the running browser; `None` if there is none.
    pub(crate) async fn find(
        &self,
        context: &ToolContext,
    ) -> Result<Option<BrowserSession>, ToolError> {
        let place = BrowserDir::of(&context.session_dir);
        if !place.path().exists() {
            return Ok(None);
        }
        let turn = turn(&place).await?;
        let Some(record) = place.running() else { return Ok(None) };
        if !self.want(&place)? {
            return Ok(None);
        }
        place.touch().map_err(|error| broken(&error))?;
        connected(place, record, turn).await.map(Some)
    }

    /// Returns the running browser or a new one, and whether it is new.
    pub(crate) async fn start(
        &self,
        context: &ToolContext,
        visible: bool,
        pass: Permit,
    ) -> Result<(BrowserSession, bool), ToolError> {
        let place = BrowserDir::of(&context.session_dir);
        place.make().map_err(|error| broken(&error))?;
        let turn = turn(&place).await?;
        if let Some(record) = place.running()
            && self.want(&place)?
        {
            place.touch().map_err(|error| broken(&error))?;
            return connected(place, record, turn).await.map(|session| (session, false));
        }
        let programs = self.programs(visible)?;
        // Wait for a browser that is about to end.
        until(|| Ok((!place.has_daemon()).then_some(()))).await?;
        until(|| Ok(self.want(&place)?.then_some(()))).await?;
        place.touch().map_err(|error| broken(&error))?;
        let record = match tokio::time::timeout(
            STARTS,
            self.launch(&place, programs, pass, context),
        )
        .await
        {
            Ok(started) => started?,
            Err(_) => {
                let text = format!("the browser did not start within {} s", STARTS.as_secs());
                return Err(ToolError::new(ToolErrorKind::Timeout, text));
            }
        };
        connected(place, record, turn).await.map(|session| (session, true))
    }

    fn programs(&self, visible: bool) -> Result<BrowserPrograms, ToolError> {
        let kind = match self.config.browser {
            BrowserKind::ChromeHeadless if visible => BrowserKind::Chrome,
            kind @ (BrowserKind::ChromeHeadless | BrowserKind::Chrome | BrowserKind::Safari) => {
                kind
            }
        };
        if kind != BrowserKind::ChromeHeadless && !has_display() {
            return Err(ToolError::failed(
                "no display for a browser with a window (DISPLAY and WAYLAND_DISPLAY are \
                 not set): use --chrome-headless, or `[webdriver] browser = \"chrome-headless\"`, \
                 or start g3 within xvfb-run",
            ));
        }
        let missing =
            |reason| ToolError::new(ToolErrorKind::NotFound, format!("no browser: {reason}"));
        BrowserPrograms::find(&self.config, kind).map_err(missing)
    }

    /// Marks the browser as used, if it ends with this process. Returns `false` if the browser is
    /// being ended.
    fn want(&self, place: &BrowserDir) -> Result<bool, ToolError> {
        let mut wanted = base::sync::lock(&self.wanted);
        if self.owns && wanted.is_none() {
            *wanted = place.want().map_err(|error| broken(&error))?;
            return Ok(wanted.is_some());
        }
        Ok(true)
    }

    /// Starts a daemon and waits for its report.
    async fn launch(
        &self,
        place: &BrowserDir,
        programs: BrowserPrograms,
        pass: Permit,
        context: &ToolContext,
    ) -> Result<BrowserRecord, ToolError> {
        let idle = std::env::var(IDLE_VARIABLE).ok().and_then(|text| text.parse().ok());
        let args = DaemonArgs {
            directory: place.path().to_owned(),
            programs,
            secret: secret()?,
            idle: (!self.owns).then(|| idle.unwrap_or(IDLE)),
        };
        let args = serde_json::to_string(&args).map_err(|error| broken(&error.into()))?;
        let program = std::env::current_exe().map_err(|error| broken(&error))?;
        let mut job = Command::new(program, place.path()).args(["tool", "keep-browser", &args]);
        job = job.env_clear().stderr(base::process::Stream::Null).detached();
        for (key, value) in
            child_env(std::env::vars_os(), &["XDG_RUNTIME_DIR".to_owned()], ChildKind::Tool)
        {
            job = job.env(key, value);
        }
        let containment = match pass {
            // The profile is in the session's directory, which studio's sandbox protects from
            // commands.
            Permit::Unconfined if confinement::in_studio() => {
                context.command_sandbox().with_write_access(place.path()).containment()
            }
            pass => context.containment(pass),
        };
        let containment = containment.map_err(|error| broken(&error))?;
        let mut daemon =
            confinement::spawn_detached(job, containment).map_err(|error| broken(&error))?;
        let record = read_report(&mut daemon).await?;
        // The daemon outlives this call.
        daemon.forget();
        Ok(record)
    }
}

/// Returns a part of the driver's URL that cannot be guessed.
fn secret() -> Result<String, ToolError> {
    base::random::hex::<16>().map_err(|error| broken(&error))
}

/// Reads the report of a daemon.
async fn read_report(daemon: &mut AsyncRunning) -> Result<BrowserRecord, ToolError> {
    let mut line = String::new();
    if let Some(stdout) = daemon.child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        stdout.read_line(&mut line).await.map_err(|error| broken(&error))?;
    }
    match serde_json::from_str(&line) {
        Ok(DaemonReport::Ready(record)) => Ok(record),
        Ok(DaemonReport::Failed(error)) => Err(ToolError::failed(error)),
        Err(_) => Err(ToolError::failed("the browser daemon exited unexpectedly")),
    }
}

/// Connects to the session of a running browser.
async fn connected(
    place: BrowserDir,
    record: BrowserRecord,
    turn: Lock,
) -> Result<BrowserSession, ToolError> {
    let session = BrowserSession::connect(place, record, turn).await;
    session.map_err(|error| ToolError::failed(format!("cannot reach the browser: {error}")))
}

/// Waits until no other call uses this browser.
async fn turn(place: &BrowserDir) -> Result<Lock, ToolError> {
    until(|| place.turn().map_err(|error| broken(&error))).await
}

/// Ends a browser, and waits until its daemon has removed everything and exited.
pub(crate) async fn end(place: &BrowserDir, record: &BrowserRecord) -> Result<(), ToolError> {
    if place.has_daemon() {
        // The lock is held, so the process id is the daemon's. The daemon ends everything else.
        signal_group(record.daemon_pid, Signal::TERM);
    }
    until(|| Ok((!place.has_daemon()).then_some(()))).await
}

/// Polls until there is a value; fails after [`PATIENCE`].
async fn until<T>(mut look: impl FnMut() -> Result<Option<T>, ToolError>) -> Result<T, ToolError> {
    let looking = async {
        loop {
            if let Some(value) = look()? {
                return Ok(value);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let late =
        |_| ToolError::new(ToolErrorKind::Timeout, "timed out waiting for another browser call");
    tokio::time::timeout(PATIENCE, looking).await.map_err(late)?
}

fn broken(error: &std::io::Error) -> ToolError {
    ToolError::io("the browser cannot be started", error)
}
