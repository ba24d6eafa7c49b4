//! The files of `g3-plan/`, the state of the current requirements, and the history.

use std::fs;
use std::path::{Path, PathBuf};

use base::clock::Clock;
use base::config::trust::hash;
use base::event::Usage;
use base::failure::{Failure, OrFail, Result};
use base::files;
use jiff::tz::TimeZone;
use planner::document;
use planner::history::{HistoryEvent, HistoryLine};
use planner::planning_stage::{CurrentRequirements, NewRequirements, PlanningFiles};
use serde::{Deserialize, Serialize};

pub(crate) const NEW: &str = "new_requirements.md";
pub(crate) const CURRENT: &str = "current_requirements.md";
pub(crate) const LIST: &str = "todo.g3.md";
const HISTORY: &str = "planner_history.txt";
/// Maximum size of a requirements file in bytes.
const MOST: u64 = 1 << 20;

/// The recorded state of the current requirements, in addition to the files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RequirementsRecord {
    /// The hash of the approved text.
    pub approved: Option<String>,
    /// The state of the files before the work, as a tree of the checkpoints.
    pub tree: Option<String>,
    /// Whether the rounds of player and coach have ended.
    pub played: bool,
    /// When the user declared the work complete, as in the names of the archived files.
    pub completed: Option<String>,
    /// Whether both files have been archived.
    pub archived: bool,
    /// The commit message.
    pub message: Option<String>,
    /// The usage of planning's own model requests, without the rounds of player and coach.
    pub asked: Usage,
}

/// The directory of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlanDir {
    /// The directory of the code.
    pub code: PathBuf,
    /// The `g3-plan/` in it.
    pub dir: PathBuf,
    /// The recorded state.
    pub state: RequirementsRecord,
    clock: Clock,
}

impl PlanDir {
    /// Opens the plan of a code path, and creates it if it does not exist.
    pub(crate) fn open(code: &Path) -> Result<PlanDir> {
        let dir = code.join("g3-plan");
        if fs::symlink_metadata(&dir).is_ok_and(|meta| meta.is_symlink()) {
            return Err(Failure::usage(format!("{} is a symbolic link", dir.display()))
                .because("the plan would be written to another directory")
                .hint(format!("rm {}", dir.display())));
        }
        fs::create_dir_all(&dir).or_fail(|| format!("cannot make {}", dir.display()))?;
        let mut place = PlanDir {
            code: code.to_owned(),
            dir,
            state: RequirementsRecord::default(),
            clock: Clock::from_env(),
        };
        let file = place.state_file();
        place.state = match base::files::read(&file) {
            Ok(text) => serde_json::from_slice(&text)
                .or_fail(|| format!("cannot read {}", file.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                RequirementsRecord::default()
            }
            Err(error) => return Err(error).or_fail(|| format!("cannot read {}", file.display())),
        };
        if !place.file(HISTORY).exists() {
            place.write(HISTORY, "")?;
        }
        Ok(place)
    }

    /// Returns the directory for what is not committed, which commands cannot access.
    pub(crate) fn keep(&self) -> PathBuf {
        agent_core::session::workspace(&self.code).join("planning")
    }

    fn state_file(&self) -> PathBuf {
        self.keep().join("state.json")
    }

    /// Writes the state to its file.
    pub(crate) fn save(&self) -> Result<()> {
        let file = self.state_file();
        let failed = || format!("cannot write {}", file.display());
        fs::create_dir_all(self.keep()).or_fail(failed)?;
        files::replace_json(&file, &self.state).or_fail(failed)
    }

    /// Resets the state at the end of a plan.
    pub(crate) fn forget(&mut self) -> Result<()> {
        self.state = RequirementsRecord::default();
        self.save()
    }

    /// Returns the path of a file in `g3-plan/`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Reads a file; `None` if it does not exist.
    pub(crate) fn read(&self, name: &str) -> Result<Option<String>> {
        let file = self.file(name);
        let failed = || format!("cannot read {}", file.display());
        match fs::metadata(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Ok(facts) if facts.len() > MOST => {
                return Err(
                    Failure::usage(failed()).because(format!("it has more than {MOST} bytes"))
                );
            }
            Ok(_) | Err(_) => {}
        }
        let bytes = base::files::read(&file).or_fail(failed)?;
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|_| Failure::usage(failed()).because("it is not UTF-8"))
    }

    /// Replaces the content of a file.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = self.file(name);
        files::replace(&file, text.as_bytes())
            .or_fail(|| format!("cannot write {}", file.display()))
    }

    /// Renames a file. A missing file whose target exists was renamed before an interruption.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.file(from), self.file(to));
        match fs::rename(&from, &to) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && to.exists() => Ok(()),
            renamed => renamed.or_fail(|| format!("cannot rename {}", from.display())),
        }
    }

    /// Returns the text to implement, without the user's original text.
    pub(crate) fn wanted(&self) -> Result<Option<String>> {
        let text = self.read(CURRENT)?;
        Ok(text.map(|text| section(&text).to_owned()))
    }

    /// Returns the state of the files.
    pub(crate) fn inspect(&self) -> Result<PlanningFiles> {
        let new = match self.read(NEW)? {
            Some(text) if document::current(&text).is_some() => NewRequirements::Refined,
            Some(text) if !text.trim().is_empty() => NewRequirements::Raw,
            Some(_) | None => NewRequirements::None,
        };
        let state = &self.state;
        let current = match self.wanted()? {
            _ if state.completed.is_some() && !state.archived => CurrentRequirements::Completed,
            None => CurrentRequirements::None,
            Some(text) if state.approved.as_ref() != Some(&hash(text.as_bytes())) => {
                CurrentRequirements::Unapproved
            }
            Some(_) if state.played => CurrentRequirements::Played,
            Some(_) => CurrentRequirements::Approved,
        };
        Ok(PlanningFiles { new, current, todo: self.file(LIST).exists(), archived: state.archived })
    }

    /// Appends a line to the history.
    pub(crate) fn record(&self, what: HistoryEvent) -> Result<()> {
        let line = HistoryLine { time: self.time("%Y-%m-%d %H:%M:%S"), what };
        let file = self.file(HISTORY);
        let failed = || format!("cannot write {}", file.display());
        let mut text = base::files::read(&file).or_fail(failed)?;
        if text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
        text.extend(line.text().into_bytes());
        files::replace(&file, &text).or_fail(failed)
    }

    /// Returns the last event of the history.
    pub(crate) fn last(&self) -> Result<Option<HistoryEvent>> {
        let text = self.read(HISTORY)?.unwrap_or_default();
        Ok(planner::history::read(&text).pop().map(|line| line.what))
    }

    /// Returns the text of the history.
    pub(crate) fn history(&self) -> Result<String> {
        Ok(self.read(HISTORY)?.unwrap_or_default())
    }

    /// Formats the current local time.
    pub(crate) fn time(&self, shape: &str) -> String {
        self.clock.now().to_zoned(TimeZone::system()).strftime(shape).to_string()
    }
}

/// Returns the part of a text that is to be implemented.
pub(crate) fn section(text: &str) -> &str {
    document::current(text).unwrap_or(text)
}
