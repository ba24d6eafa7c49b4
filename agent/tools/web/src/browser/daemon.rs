//! The keeper: a process beside g3 that starts a browser, lives as long as the browser is wanted,
//! and takes everything along when it goes, so that calls in processes of their own share one.
//!
//! Whatever is killed, nothing stays: the driver dies with the keeper (the kernel sees to that),
//! and the browser with the driver, because the pipe between them closes.

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

/// How long the driver may take to listen.
const LISTENS: Duration = Duration::from_secs(20);
/// How long the browser may take to close by itself.
const CLOSES: Duration = Duration::from_secs(3);

/// What a keeper is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonArgs {
    /// The directory of the session's browser.
    pub directory: std::path::PathBuf,
    /// What to start.
    pub programs: BrowserPrograms,
    /// A part of the driver's address that others do not know.
    pub secret: String,
    /// Seconds without a call after which it ends; `None` when it ends with the session that
    /// wants it.
    pub idle: Option<u64>,
}

/// What a keeper says, once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum DaemonReport {
    /// The browser runs.
    Ready(BrowserRecord),
    /// It cannot be started.
    Failed(String),
}

/// Keeps a browser until nobody wants it any more. `say` is called once.
pub async fn run(order: DaemonArgs, say: impl FnOnce(&DaemonReport)) -> io::Result<()> {
    let place = BrowserDir::at(order.directory.clone());
    let Some(_kept) = place.keep()? else {
        say(&DaemonReport::Failed("another one is being started or ended".to_owned()));
        return Ok(());
    };
    // What a keeper left that was killed.
    let _ = std::fs::remove_dir_all(place.profile());
    let started = start(&order, &place).await;
    let (mut running, record) = match started {
        Ok(started) => started,
        Err(why) => {
            let _ = std::fs::remove_dir_all(place.profile());
            say(&DaemonReport::Failed(why));
            return Ok(());
        }
    };
    if place.publish(&record).is_ok() {
        say(&DaemonReport::Ready(record.clone()));
        until_unwanted(&order, &place, &mut running).await?;
    }
    place.withdraw();
    let closed = webdriver::close(&record.driver, &record.session);
    let _ = tokio::time::timeout(CLOSES, closed).await;
    let _ = running.end(GRACE).await;
    remove(&place).await;
    Ok(())
}

async fn start(
    order: &DaemonArgs,
    place: &BrowserDir,
) -> Result<(AsyncRunning, BrowserRecord), String> {
    let programs = &order.programs;
    let shown = programs.driver.display();
    let log = File::create(place.log()).map_err(|why| why.to_string())?;
    let job = Command::new(&programs.driver, place.profile())
        .args(programs.arguments(&order.secret))
        // Its caches, reports and temporary files lie with its profile; the last by a short name,
        // because a socket is among them, whose path may have 107 bytes.
        .env("XDG_CONFIG_HOME", place.profile())
        .env("XDG_CACHE_HOME", place.profile())
        .env("TMPDIR", ".")
        .stderr(Stream::File(log))
        .kill_on_parent_death();
    std::fs::create_dir_all(place.profile()).map_err(|why| why.to_string())?;
    let mut running = job.spawn_async().map_err(|why| why.to_string())?;
    let Some(stdout) = running.child.stdout.take() else { return Err("no pipe".to_owned()) };
    let listening = tokio::time::timeout(LISTENS, address(order, stdout)).await;
    let Some(driver) = listening.ok().flatten() else {
        return Err(format!("{shown} does not listen; {}", last_words(place)));
    };
    let wishes = programs.wishes(place.path(), rustix::process::geteuid().is_root());
    let session = webdriver::open(&driver, wishes).await.map_err(|error| match error {
        BrowserError::Timeout => "the browser takes too long to start".to_owned(),
        error => format!("the browser does not start: {error}; {}", last_words(place)),
    })?;
    let record = record(order, &driver, &session, running.id().unwrap_or_default());
    Ok((running, record.ok_or("the driver opened no session")?))
}

fn record(
    order: &DaemonArgs,
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
        visible: order.programs.kind != base::config::agent::BrowserKind::ChromeHeadless,
        keeper: std::process::id(),
        driver_pid,
        browser_pid: pid,
    })
}

/// Where the driver listens: it says so, or, as Safari's does, it just does.
async fn address(order: &DaemonArgs, stdout: ChildStdout) -> Option<String> {
    let programs = &order.programs;
    if programs.kind == base::config::agent::BrowserKind::Safari {
        let address = format!("http://127.0.0.1:{}/", programs.port);
        while !webdriver::listens(&address).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        return Some(address);
    }
    let mut lines = BufReader::new(stdout).lines();
    let mut found = None;
    while let Ok(Some(line)) = lines.next_line().await {
        found = programs.address(&line, &order.secret);
        if found.is_some() {
            break;
        }
    }
    // What it says later is read and thrown away, so that it never waits for us.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    found
}

fn last_words(place: &BrowserDir) -> String {
    let said = std::fs::read(place.log()).unwrap_or_default();
    let said = base::text::printable_output(&String::from_utf8_lossy(&said));
    match base::text::tail(said.trim(), 500) {
        "" => "it said nothing".to_owned(),
        words => format!("its last words: {words}"),
    }
}

/// Until the driver ends, the session that wants the browser ends, nobody used it for long, or
/// somebody ends us.
async fn until_unwanted(
    order: &DaemonArgs,
    place: &BrowserDir,
    running: &mut AsyncRunning,
) -> io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let unwanted = async {
        match order.idle {
            Some(seconds) => idle(place, Duration::from_secs(seconds)).await,
            None => deserted(place.clone()).await,
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
        let rested = place.rested();
        if rested >= most {
            return;
        }
        tokio::time::sleep(most - rested).await;
    }
}

/// Waits for the end of the session, which the kernel tells by its lock, however it ends.
async fn deserted(place: BrowserDir) {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Held to our own end: whoever comes now waits for it, and starts another.
        let lock = place.unwanted();
        let _ = tell.send(lock.map(std::mem::forget));
    });
    let _ = told.await;
}

/// Removes the profile; what still ends may write into it.
async fn remove(place: &BrowserDir) {
    for _ in 0..20 {
        match std::fs::remove_dir_all(place.profile()) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(()) | Err(_) => return,
        }
    }
}

/// As the one who starts it reads it.
pub fn line(said: &DaemonReport) -> String {
    format!("{}\n", json!(said))
}

/// A browser that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrowserRecord {
    /// The id of its WebDriver session.
    pub session: String,
    /// The address of its driver, with a slash at its end.
    pub driver: String,
    /// What it is, for people: name and version.
    pub name: String,
    /// Whether it has a window.
    pub visible: bool,
    /// The process that looks after it.
    pub keeper: u32,
    /// The driver's.
    pub driver_pid: u32,
    /// The browser's own, where the driver tells it.
    pub browser_pid: Option<u32>,
}

/// The directory of a session's browser.
#[derive(Clone, Debug)]
pub(crate) struct BrowserDir(PathBuf);

impl BrowserDir {
    /// In this session's directory.
    pub(crate) fn of(session_dir: &Path) -> BrowserDir {
        BrowserDir(session_dir.join("browser"))
    }

    /// This directory itself.
    pub(crate) fn at(directory: PathBuf) -> BrowserDir {
        BrowserDir(directory)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it.
    pub(crate) fn make(&self) -> io::Result<()> {
        fs::create_dir_all(&self.0)
    }

    /// What the driver writes to stderr.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("driver.log")
    }

    /// The browser's own files.
    pub(crate) fn profile(&self) -> PathBuf {
        self.0.join("profile")
    }

    /// The browser that runs here, when one does.
    pub(crate) fn running(&self) -> Option<BrowserRecord> {
        let kept = Lock::is_held(&self.0.join("keeper.lock")).unwrap_or(false);
        let bytes = fs::read(self.record()).ok().filter(|_| kept)?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Whether a keeper is at work here, if only at its end.
    pub(crate) fn is_kept(&self) -> bool {
        Lock::is_held(&self.0.join("keeper.lock")).unwrap_or(false)
    }

    /// Becomes the keeper; `None` when there is one.
    pub(crate) fn keep(&self) -> io::Result<Option<Lock>> {
        Lock::try_take(&self.0.join("keeper.lock"))
    }

    /// One call at a time; `None` when another is at work.
    pub(crate) fn turn(&self) -> io::Result<Option<Lock>> {
        Lock::try_take(&self.0.join("turn.lock"))
    }

    /// The browser is wanted as long as this is held; `None` when it is being ended just now.
    pub(crate) fn want(&self) -> io::Result<Option<Lock>> {
        Lock::try_share(&self.0.join("wanted.lock"))
    }

    /// Waits until nobody wants it any more; from then on nobody can.
    pub(crate) fn unwanted(&self) -> io::Result<Lock> {
        Lock::take(&self.0.join("wanted.lock"))
    }

    /// Writes down what runs.
    pub(crate) fn publish(&self, record: &BrowserRecord) -> io::Result<()> {
        self.touch()?;
        base::files::replace_json(&self.record(), record)
    }

    /// Nothing runs here from now on.
    pub(crate) fn withdraw(&self) {
        let _ = fs::remove_file(self.record());
    }

    /// A call uses it now.
    pub(crate) fn touch(&self) -> io::Result<()> {
        File::create(self.0.join("used")).map(drop)
    }

    /// How long no call used it; for ever, where the directory is gone.
    pub(crate) fn rested(&self) -> Duration {
        let used = fs::metadata(self.0.join("used")).and_then(|file| file.modified());
        let Ok(used) = used else { return Duration::MAX };
        SystemTime::now().duration_since(used).unwrap_or_default()
    }

    fn record(&self) -> PathBuf {
        self.0.join("record.json")
    }
}
