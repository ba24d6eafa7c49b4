//! The browser of a session: started once, found again by every call, ended when it was enough.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::config::agent::{Browser, Webdriver};
use base::lock::Lock;
use base::process::{AsyncRunning, Job, signal_group};
use base::sandbox::environment::{Child, child_env};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::find::{Programs, has_display};
use super::keeper::{Order, Said};
use super::record::{Place, Record};
use super::session::Session;
use super::wire::Wire;
use crate::tools::context::ToolContext;
use crate::tools::exec::boxed;
use crate::tools::output::{ErrorKind, ToolError};
use gate::Permit;

/// How long a start may take.
const STARTS: Duration = Duration::from_secs(90);
/// How long an end may take, and how long is waited for another call.
const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// Seconds without a call after which a browser ends that no session holds.
const IDLE: u64 = 600;
/// Another number of seconds.
const IDLE_VARIABLE: &str = "G3_BROWSER_IDLE";

/// What the calls of a session know of its browser.
#[derive(Default)]
pub struct Hub {
    config: Webdriver,
    /// Whether the browser ends with us.
    owns: bool,
    wanted: Mutex<Option<Lock>>,
}

impl Hub {
    /// For a session: its browser ends when this is dropped, or with our process.
    pub fn of_session(config: &Webdriver) -> Arc<Hub> {
        Arc::new(Hub { config: config.clone(), owns: true, wanted: Mutex::default() })
    }

    /// For calls in processes of their own: their browser ends when none came for a while.
    pub fn of_calls(config: &Webdriver) -> Arc<Hub> {
        Arc::new(Hub { config: config.clone(), owns: false, wanted: Mutex::default() })
    }

    /// The browser that runs; `None` when there is none.
    pub async fn find(&self, at: &ToolContext) -> Result<Option<Session>, ToolError> {
        let place = Place::of(&at.session_dir);
        if !place.path().exists() {
            return Ok(None);
        }
        let turn = turn(&place).await?;
        let Some(record) = place.running() else { return Ok(None) };
        if !self.want(&place)? {
            return Ok(None);
        }
        place.touch().map_err(|why| broken(&why))?;
        opened(place, record, turn).map(Some)
    }

    /// The browser that runs, or a new one; whether it is new.
    pub async fn start(
        &self,
        at: &ToolContext,
        visible: bool,
        pass: Permit,
    ) -> Result<(Session, bool), ToolError> {
        let place = Place::of(&at.session_dir);
        place.make().map_err(|why| broken(&why))?;
        let turn = turn(&place).await?;
        if let Some(record) = place.running()
            && self.want(&place)?
        {
            place.touch().map_err(|why| broken(&why))?;
            return opened(place, record, turn).map(|session| (session, false));
        }
        let programs = self.programs(visible)?;
        // One that is just being ended is waited for.
        until(|| Ok((!place.is_kept()).then_some(()))).await?;
        until(|| Ok(self.want(&place)?.then_some(()))).await?;
        place.touch().map_err(|why| broken(&why))?;
        let record =
            match tokio::time::timeout(STARTS, self.launch(&place, programs, pass, at)).await {
                Ok(started) => started?,
                Err(_) => {
                    let text = format!("the browser did not start within {} s", STARTS.as_secs());
                    return Err(ToolError::new(ErrorKind::Timeout, text));
                }
            };
        opened(place, record, turn).map(|session| (session, true))
    }

    fn programs(&self, visible: bool) -> Result<Programs, ToolError> {
        let kind = match self.config.browser {
            Browser::ChromeHeadless if visible => Browser::Chrome,
            kind @ (Browser::ChromeHeadless | Browser::Chrome | Browser::Safari) => kind,
        };
        if kind != Browser::ChromeHeadless && !has_display() {
            return Err(ToolError::failed(
                "there is no display for a browser with a window (DISPLAY and WAYLAND_DISPLAY are \
                 not set): use --chrome-headless, or `[webdriver] browser = \"chrome-headless\"`, \
                 or start g3 within xvfb-run",
            ));
        }
        let missing = |why| ToolError::new(ErrorKind::NotFound, format!("no browser: {why}"));
        Programs::find(&self.config, kind).map_err(missing)
    }

    /// Says that we want it, where it ends with us; no, where it is being ended.
    fn want(&self, place: &Place) -> Result<bool, ToolError> {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if self.owns && wanted.is_none() {
            *wanted = place.want().map_err(|why| broken(&why))?;
            return Ok(wanted.is_some());
        }
        Ok(true)
    }

    /// Starts a keeper, and waits for its word.
    async fn launch(
        &self,
        place: &Place,
        programs: Programs,
        pass: Permit,
        at: &ToolContext,
    ) -> Result<Record, ToolError> {
        let idle = std::env::var(IDLE_VARIABLE).ok().and_then(|text| text.parse().ok());
        let order = Order {
            directory: place.path().to_owned(),
            programs,
            secret: secret()?,
            idle: (!self.owns).then(|| idle.unwrap_or(IDLE)),
        };
        let order = serde_json::to_string(&order).map_err(|why| broken(&why.into()))?;
        let program = std::env::current_exe().map_err(|why| broken(&why))?;
        let mut job = Job::new(program, place.path()).args(["tool", "keep-browser", &order]);
        job = job.env_clear().stderr(base::process::Stream::Null).detached();
        for (key, value) in
            child_env(std::env::vars_os(), &["XDG_RUNTIME_DIR".to_owned()], Child::Tool)
        {
            job = job.env(key, value);
        }
        let held = match pass {
            // Its profile is in the session's directory, which studio's box keeps from commands.
            Permit::Free if boxed::in_studio() => at.command_box().writing(place.path()).hold(),
            pass => at.hold(pass),
        };
        let held = held.map_err(|why| broken(&why))?;
        let mut keeper = boxed::spawn_lasting(job, held).map_err(|why| broken(&why))?;
        let record = heard(&mut keeper).await?;
        // It goes its own way now.
        keeper.forget();
        Ok(record)
    }
}

/// A part of the driver's address that cannot be guessed.
fn secret() -> Result<String, ToolError> {
    base::random::hex::<16>().map_err(|why| broken(&why))
}

/// What the keeper says.
async fn heard(keeper: &mut AsyncRunning) -> Result<Record, ToolError> {
    let mut line = String::new();
    if let Some(stdout) = keeper.child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        stdout.read_line(&mut line).await.map_err(|why| broken(&why))?;
    }
    match serde_json::from_str(&line) {
        Ok(Said::Ready(record)) => Ok(record),
        Ok(Said::Failed(why)) => Err(ToolError::failed(why)),
        Err(_) => Err(ToolError::failed("the browser's keeper ended without a word")),
    }
}

fn opened(place: Place, record: Record, turn: Lock) -> Result<Session, ToolError> {
    let wire = Wire::to(&record.session).map_err(ToolError::failed)?;
    Ok(Session::new(wire, place, record, turn))
}

/// Waits until no other call is at work with this browser.
async fn turn(place: &Place) -> Result<Lock, ToolError> {
    until(|| place.turn().map_err(|why| broken(&why))).await
}

/// Ends a browser, and waits until nothing of it is left.
pub async fn end(place: &Place, record: &Record) -> Result<(), ToolError> {
    if place.is_kept() {
        // As long as it is kept, the number is the keeper's. It ends all the rest.
        signal_group(record.keeper, Signal::TERM);
    }
    until(|| Ok((!place.is_kept()).then_some(()))).await
}

/// Looks until there is something.
async fn until<T>(mut look: impl FnMut() -> Result<Option<T>, ToolError>) -> Result<T, ToolError> {
    let looking = async {
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let late =
        |_| ToolError::new(ErrorKind::Timeout, "another call holds the browser for too long");
    tokio::time::timeout(PATIENCE, looking).await.map_err(late)?
}

fn broken(why: &std::io::Error) -> ToolError {
    ToolError::io("the browser cannot be started", why)
}
