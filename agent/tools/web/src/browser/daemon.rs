//! The browser daemon: a process that starts a browser, keeps it for as long as it is used, and
//! then removes everything, so that calls in separate processes share one browser. Also the files
//! in the browser's directory, through which they find it.
//!
//! Nothing remains when a process is killed: the driver dies with the daemon (the kernel takes care
//! of that), and the browser with the driver, because the pipe between them closes.

use super::programs::BrowserPrograms;
use super::webdriver::{self, BrowserError};
use base::lock::Lock;
use base::process::{AsyncRunning, Command, GRACE, Stream};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStdout;
use tokio::signal::unix::{SignalKind, signal};

/// Timeout for the driver to listen.
const LISTENS: Duration = Duration::from_secs(20);
/// Timeout for the browser to close by itself.
const CLOSES: Duration = Duration::from_secs(3);

/// The arguments of a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonArgs {
    /// The directory of the session's browser.
    pub directory: std::path::PathBuf,
    /// The programs to start.
    pub programs: BrowserPrograms,
    /// A secret part of the driver's URL.
    pub secret: String,
    /// Seconds without a call after which it ends; `None` if it ends with the session that uses it.
    pub idle: Option<u64>,
}

/// The report of a daemon about its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum DaemonReport {
    /// The browser runs.
    Ready(BrowserRecord),
    /// The browser cannot be started.
    Failed(String),
}

/// Runs a browser until it is no longer used. `report` is called once.
pub async fn run(args: DaemonArgs, report: impl FnOnce(&DaemonReport)) -> io::Result<()> {
    let place = BrowserDir::new(args.directory.clone());
    let Some(_kept) = place.lock_daemon()? else {
        report(&DaemonReport::Failed("another one is being started or ended".to_owned()));
        return Ok(());
    };
    // Remove the profile that a killed daemon left.
    let _ = std::fs::remove_dir_all(place.profile());
    let started = start(&args, &place).await;
    let (mut running, record) = match started {
        Ok(started) => started,
        Err(error) => {
            let _ = std::fs::remove_dir_all(place.profile());
            report(&DaemonReport::Failed(error));
            return Ok(());
        }
    };
    if place.publish(&record).is_ok() {
        report(&DaemonReport::Ready(record.clone()));
        until_unused(&args, &place, &mut running).await?;
    }
    place.withdraw();
    let closed = webdriver::close(&record.driver, &record.session);
    let _ = tokio::time::timeout(CLOSES, closed).await;
    let _ = running.end(GRACE).await;
    remove(&place).await;
    Ok(())
}

async fn start(
    args: &DaemonArgs,
    place: &BrowserDir,
) -> Result<(AsyncRunning, BrowserRecord), String> {
    let programs = &args.programs;
    let driver_path = programs.driver.display();
    let log = File::create(place.log()).map_err(|error| error.to_string())?;
    let job = Command::new(&programs.driver, place.profile())
        .args(programs.arguments(&args.secret))
        // Caches, reports and temporary files go with the profile. TMPDIR is a short name, because
        // it contains a socket, whose path is limited to 107 bytes.
        .env("XDG_CONFIG_HOME", place.profile())
        .env("XDG_CACHE_HOME", place.profile())
        .env("TMPDIR", ".")
        .stderr(Stream::File(log))
        .kill_on_parent_death();
    std::fs::create_dir_all(place.profile()).map_err(|error| error.to_string())?;
    let mut running = job.spawn_async().map_err(|error| error.to_string())?;
    let Some(stdout) = running.child.stdout.take() else { return Err("no pipe".to_owned()) };
    let listening = tokio::time::timeout(LISTENS, address(args, stdout)).await;
    let Some(driver) = listening.ok().flatten() else {
        return Err(format!("{driver_path} does not listen; {}", last_words(place)));
    };
    let capabilities = programs.capabilities(place.path(), rustix::process::geteuid().is_root());
    let session = webdriver::open(&driver, capabilities).await.map_err(|error| match error {
        BrowserError::Timeout => "the browser takes too long to start".to_owned(),
        error => format!("the browser does not start: {error}; {}", last_words(place)),
    })?;
    let record = record(args, &driver, &session, running.id().unwrap_or_default());
    Ok((running, record.ok_or("the driver opened no session")?))
}

fn record(
    args: &DaemonArgs,
    driver: &str,
    session: &Value,
    driver_pid: u32,
) -> Option<BrowserRecord> {
    let id = session["sessionId"].as_str()?;
    let facts = &session["capabilities"];
    let fact = |key: &str| facts[key].as_str().unwrap_or_default();
    let pid = facts["goog:processID"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    Some(BrowserRecord {
        session: id.to_owned(),
        driver: driver.to_owned(),
        name: format!("{} {}", fact("browserName"), fact("browserVersion")),
        visible: args.programs.kind != base::config::agent::BrowserKind::ChromeHeadless,
        daemon_pid: std::process::id(),
        driver_pid,
        browser_pid: pid,
    })
}

/// Waits until the driver listens, and returns its URL. The driver prints it, except for Safari's,
/// which is polled.
async fn address(args: &DaemonArgs, stdout: ChildStdout) -> Option<String> {
    let programs = &args.programs;
    if programs.kind == base::config::agent::BrowserKind::Safari {
        let address = format!("http://127.0.0.1:{}/", programs.port);
        while !webdriver::listens(&address).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        return Some(address);
    }
    let mut lines = BufReader::new(stdout).lines();
    let mut driver_address = None;
    while let Ok(Some(line)) = lines.next_line().await {
        driver_address = programs.address(&line, &args.secret);
        if driver_address.is_some() {
            break;
        }
    }
    // Read and discard later output, so that the driver never blocks on the pipe.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    driver_address
}

fn last_words(place: &BrowserDir) -> String {
    let output = std::fs::read(place.log()).unwrap_or_default();
    let output = base::text::printable_output(&String::from_utf8_lossy(&output));
    match base::text::tail(output.trim(), 500) {
        "" => "it said nothing".to_owned(),
        words => format!("its last words: {words}"),
    }
}

/// Waits until the driver exits, the session that uses the browser ends, no call has used it for
/// long, or a signal ends the daemon.
async fn until_unused(
    args: &DaemonArgs,
    place: &BrowserDir,
    running: &mut AsyncRunning,
) -> io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let unwanted = async {
        match args.idle {
            Some(seconds) => idle(place, Duration::from_secs(seconds)).await,
            None => session_ended(place.clone()).await,
        }
    };
    tokio::select! {
        _ = running.child.wait() => {}
        () = unwanted => {}
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

async fn idle(place: &BrowserDir, most: Duration) {
    loop {
        let idle_time = place.idle_time();
        if idle_time >= most {
            return;
        }
        tokio::time::sleep(most - idle_time).await;
    }
}

/// Waits for the end of the session. The kernel releases the session's lock, however it ends.
async fn session_ended(place: BrowserDir) {
    let (tx, rx) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // The lock is held until the daemon exits: a new session waits for that and starts another
        // browser.
        let lock = place.unwanted();
        let _ = tx.send(lock.map(std::mem::forget));
    });
    let _ = rx.await;
}

/// Removes the profile. Processes that are still exiting may write to it.
async fn remove(place: &BrowserDir) {
    for _ in 0..20 {
        match std::fs::remove_dir_all(place.profile()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(()) | Err(_) => return,
        }
    }
}

/// Formats a report as the line that the parent process reads.
pub fn line(report: &DaemonReport) -> String {
    format!("{}\n", json!(report))
}

/// A running browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrowserRecord {
    /// The id of its WebDriver session.
    pub session: String,
    /// The URL of its driver, with a trailing slash.
    pub driver: String,
    /// Its name and version, for people.
    pub name: String,
    /// Whether it has a window.
    pub visible: bool,
    /// The process id of the daemon.
    pub daemon_pid: u32,
    /// The process id of the driver.
    pub driver_pid: u32,
    /// The process id of the browser, if the driver reports it.
    pub browser_pid: Option<u32>,
}

/// The directory of a session's browser.
#[derive(Clone, Debug)]
pub(crate) struct BrowserDir(PathBuf);

impl BrowserDir {
    /// Returns the browser's directory of a session.
    pub(crate) fn of(session_dir: &Path) -> BrowserDir {
        BrowserDir(session_dir.join("browser"))
    }

    /// Returns this directory as a browser's.
    pub(crate) fn new(directory: PathBuf) -> BrowserDir {
        BrowserDir(directory)
    }

    /// Returns the path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Creates the directory.
    pub(crate) fn make(&self) -> io::Result<()> {
        fs::create_dir_all(&self.0)
    }

    /// Returns the file for the driver's stderr.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("driver.log")
    }

    /// Returns the directory of the browser's profile.
    pub(crate) fn profile(&self) -> PathBuf {
        self.0.join("profile")
    }

    /// Returns the browser that runs here, if there is one.
    pub(crate) fn running(&self) -> Option<BrowserRecord> {
        let kept = Lock::is_held(&self.0.join("daemon.lock")).unwrap_or(false);
        let bytes = fs::read(self.record()).ok().filter(|_| kept)?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Returns whether a daemon runs here, even if it is about to exit.
    pub(crate) fn has_daemon(&self) -> bool {
        Lock::is_held(&self.0.join("daemon.lock")).unwrap_or(false)
    }

    /// Takes the lock of the daemon; `None` if there is a daemon already.
    pub(crate) fn lock_daemon(&self) -> io::Result<Option<Lock>> {
        Lock::try_take(&self.0.join("daemon.lock"))
    }

    /// Takes the lock of a call; `None` if another call has it.
    pub(crate) fn turn(&self) -> io::Result<Option<Lock>> {
        Lock::try_take(&self.0.join("turn.lock"))
    }

    /// Marks the browser as used for as long as the lock is held; `None` if it is being ended.
    pub(crate) fn want(&self) -> io::Result<Option<Lock>> {
        Lock::try_share(&self.0.join("wanted.lock"))
    }

    /// Waits until no session uses the browser. From then on none can.
    pub(crate) fn unwanted(&self) -> io::Result<Lock> {
        Lock::take(&self.0.join("wanted.lock"))
    }

    /// Writes the record of the running browser.
    pub(crate) fn publish(&self, record: &BrowserRecord) -> io::Result<()> {
        self.touch()?;
        base::files::replace_json(&self.record(), record)
    }

    /// Removes the record: no browser runs here from now on.
    pub(crate) fn withdraw(&self) {
        let _ = fs::remove_file(self.record());
    }

    /// Records that a call uses the browser now.
    pub(crate) fn touch(&self) -> io::Result<()> {
        File::create(self.0.join("used")).map(drop)
    }

    /// Returns how long no call has used the browser; `Duration::MAX` if the directory is gone.
    pub(crate) fn idle_time(&self) -> Duration {
        let used = fs::metadata(self.0.join("used")).and_then(|file| file.modified());
        let Ok(used) = used else { return Duration::MAX };
        SystemTime::now().duration_since(used).unwrap_or_default()
    }

    fn record(&self) -> PathBuf {
        self.0.join("record.json")
    }
}
