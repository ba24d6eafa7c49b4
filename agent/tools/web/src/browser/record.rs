//! The files by which the calls of a session find their browser, and by which its keeper knows
//! that somebody still wants it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base::lock::Lock;
use serde::{Deserialize, Serialize};

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
