//! The files of a plan: those in `g3-plan/` that the user reads and edits, and, where no agent can
//! write, the texts that the user approved.

use std::path::{Path, PathBuf};

use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use base::files::{self, step};
use base::lock::Lock;
use planner::document;
use planner::history::{self, HistoryEvent};
use planner::requirement::{self, AmbiguousRequirements, Requirement};
use planner::requirement_coverage::unknown_references;
use planner::task::{self, Task};
use serde::{Deserialize, Serialize};

use crate::commands::tasks;

/// The file with the requirements.
pub(crate) const REQUIREMENTS: &str = "g3-plan/current_requirements.md";
/// The file with the tasks.
pub(crate) const TASKS: &str = "g3-plan/tasks.toml";

/// The file with the history, one line per event.
const HISTORY: &str = "g3-plan/planner_history.txt";

/// studio's record of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PlanRecord {
    /// Its id, which its sessions refer to.
    pub id: String,
    /// The user's original text.
    #[serde(rename = "wish")]
    pub request: String,
    /// The branch to land on.
    pub branch: String,
    /// The commit at which it started.
    pub since: String,
    /// The approved requirements, verbatim.
    pub approved: Option<String>,
    /// The approved tasks, verbatim.
    pub agreed: Option<String>,
    /// Whether all tasks are done.
    pub over: bool,
}

/// The files of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlanFiles {
    /// The main checkout.
    pub checkout: PathBuf,
    /// The path of studio's record.
    record_path: PathBuf,
}

impl PlanFiles {
    /// Returns the files for a repository.
    pub(crate) fn new(checkout: PathBuf, studio: &Path) -> PlanFiles {
        PlanFiles { checkout, record_path: studio.join("plan.json") }
    }

    /// Returns the paths of the texts and of the record.
    pub(crate) fn paths(&self) -> [PathBuf; 3] {
        [self.checkout.join(REQUIREMENTS), self.checkout.join(TASKS), self.record_path.clone()]
    }

    /// Reads the record; `None` before the first plan.
    pub(crate) fn load_record(&self) -> Result<Option<PlanRecord>> {
        let fail = || format!("cannot read {}", self.record_path.display());
        match base::files::read(&self.record_path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).or_fail(fail),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).or_fail(fail),
        }
    }

    /// Writes the record.
    pub(crate) fn save(&self, record: &PlanRecord) -> Result<()> {
        step("plan.saved");
        let fail = || format!("cannot write {}", self.record_path.display());
        files::replace_json(&self.record_path, record).or_fail(fail)
    }

    /// Returns the text of a file; `None` if it does not exist.
    pub(crate) fn read(&self, name: &str) -> Result<Option<String>> {
        let path = self.checkout.join(name);
        match base::files::read_text(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::usage(format!("cannot read {name}")).because(error)),
        }
    }

    /// Returns whether there is a list of tasks.
    pub(crate) fn has_tasks(&self) -> bool {
        self.checkout.join(TASKS).exists()
    }

    /// Replaces a file.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.checkout.join(name);
        let fail = || format!("cannot write {}", path.display());
        step("plan.written");
        std::fs::create_dir_all(path.parent().unwrap_or(&self.checkout)).or_fail(fail)?;
        files::replace(&path, text.as_bytes()).or_fail(fail)
    }

    /// Replaces a text of the plan if it is still the old one; a file that does not exist is empty.
    pub(crate) fn replace(&self, name: &str, old: &str, new: &str) -> Result<()> {
        let lock_path = self.record_path.with_file_name("plan-texts.lock");
        let fail = || format!("cannot lock {}", lock_path.display());
        let _lock = Lock::take(&lock_path).or_fail(fail)?;
        if self.read(name)?.unwrap_or_default() != old {
            return Err(Failure::conflict(format!("{name} changed in between"))
                .because("another program or window has written it")
                .hint("studio plan --status"));
        }
        self.write(name, new)
    }

    /// Appends events to the history.
    pub(crate) fn append_history(&self, clock: Clock, events: Vec<HistoryEvent>) -> Result<()> {
        let now = clock.now().to_zoned(jiff::tz::TimeZone::system());
        let time = now.strftime("%Y-%m-%d %H:%M:%S").to_string();
        let mut text = self.read(HISTORY)?.unwrap_or_default();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let lines =
            events.into_iter().map(|what| history::HistoryLine { time: time.clone(), what }.text());
        text.extend(lines);
        self.write(HISTORY, &text)
    }

    /// Archives the files of an earlier plan under new names, and returns those names.
    pub(crate) fn archive(&self, prefix: &str, stamp: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for (name, kind, ending) in [(TASKS, "tasks", "toml"), (REQUIREMENTS, "requirements", "md")]
        {
            let path = self.checkout.join(name);
            if !path.exists() {
                continue;
            }
            let candidates = (1..).map(|n| match n {
                1 => format!("g3-plan/{prefix}_{kind}_{stamp}.{ending}"),
                n => format!("g3-plan/{prefix}_{kind}_{stamp}_{n}.{ending}"),
            });
            let Some(target) =
                candidates.into_iter().find(|target| !self.checkout.join(target).exists())
            else {
                continue;
            };
            step("plan.set_aside");
            std::fs::rename(&path, self.checkout.join(&target))
                .or_fail(|| format!("cannot rename {name}"))?;
            names.push(target);
        }
        Ok(names)
    }

    /// Parses the requirements of a refined text.
    pub(crate) fn requirements(&self, text: &str) -> Result<Vec<Requirement>> {
        let Some(section) = document::current(text) else { return Ok(Vec::new()) };
        requirement::read(section).map_err(|error| {
            let what = match error {
                AmbiguousRequirements::Empty => format!("no requirement in {REQUIREMENTS}"),
                AmbiguousRequirements::Twice(id) => {
                    format!("{REQUIREMENTS}: two requirements have the id {id}")
                }
            };
            Failure::usage(what).hint(format!("change {REQUIREMENTS}")).hint("studio plan")
        })
    }

    /// Parses the tasks of a text; every requirement that they name must exist.
    pub(crate) fn tasks(&self, text: &str, requirements: &[Requirement]) -> Result<Vec<Task>> {
        let path = Path::new(TASKS);
        let listed =
            task::from_toml(text).map_err(|mistakes| tasks::invalid_list(path, &mistakes))?;
        let unknown: Vec<task::TaskFileError> = unknown_references(requirements, &listed)
            .into_iter()
            .map(|(task, id)| task::TaskFileError {
                line: task.line,
                what: format!("task `{}` names {id}, which is not in {REQUIREMENTS}", task.id),
            })
            .collect();
        match unknown.is_empty() {
            true => Ok(listed),
            false => Err(tasks::invalid_list(path, &unknown)),
        }
    }
}
