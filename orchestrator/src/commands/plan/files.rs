//! What of a plan lies on disk: the files in `g3-plan/` that the user reads and edits, and, where no
//! agent can write, what the user said yes to.

use std::path::{Path, PathBuf};

use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use base::files::{self, step};
use planner::coverage::strangers;
use planner::document;
use planner::history::{self, HistoryEvent};
use planner::requirement::{self, AmbiguousRequirements, Requirement};
use planner::task::{self, Task};
use serde::{Deserialize, Serialize};

use crate::commands::tasks;

/// The requirements.
pub(crate) const REQUIREMENTS: &str = "g3-plan/current_requirements.md";
/// The tasks.
pub(crate) const TASKS: &str = "g3-plan/tasks.toml";

/// What happened, a line each.
const HISTORY: &str = "g3-plan/planner_history.txt";

/// What studio remembers of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PlanRecord {
    /// Its name, which its sessions carry.
    pub id: String,
    /// What the user wrote, word for word.
    pub wish: String,
    /// The branch on which it lands.
    pub branch: String,
    /// The commit at which it began.
    pub since: String,
    /// The requirements that the user approved, word for word.
    pub approved: Option<String>,
    /// The tasks that the user agreed to, word for word.
    pub agreed: Option<String>,
    /// Every task was done.
    pub over: bool,
}

/// The files of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlanFiles {
    /// The main checkout.
    pub top: PathBuf,
    /// Where studio remembers it.
    saved: PathBuf,
}

impl PlanFiles {
    /// Returns the files of a repository.
    pub(crate) fn at(top: PathBuf, studio: &Path) -> PlanFiles {
        PlanFiles { top, saved: studio.join("plan.json") }
    }

    /// Returns what is remembered; nothing before the first plan.
    pub(crate) fn saved(&self) -> Result<Option<PlanRecord>> {
        let fail = || format!("cannot read {}", self.saved.display());
        match std::fs::read(&self.saved) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).or_fail(fail),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(why).or_fail(fail),
        }
    }

    /// Remembers it.
    pub(crate) fn save(&self, saved: &PlanRecord) -> Result<()> {
        step("plan.saved");
        let fail = || format!("cannot write {}", self.saved.display());
        files::replace_json(&self.saved, saved).or_fail(fail)
    }

    /// Returns the text of a file; none where there is no such file.
    pub(crate) fn read(&self, name: &str) -> Result<Option<String>> {
        let path = self.top.join(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(Failure::usage(format!("cannot read {name}")).because(why)),
        }
    }

    /// Writes a file whole.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.top.join(name);
        let fail = || format!("cannot write {}", path.display());
        step("plan.written");
        std::fs::create_dir_all(path.parent().unwrap_or(&self.top)).or_fail(fail)?;
        files::replace(&path, text.as_bytes()).or_fail(fail)
    }

    /// Writes lines of the history.
    pub(crate) fn tell(&self, clock: Clock, all: Vec<HistoryEvent>) -> Result<()> {
        let now = clock.now().to_zoned(jiff::tz::TimeZone::system());
        let time = now.strftime("%Y-%m-%d %H:%M:%S").to_string();
        let mut text = self.read(HISTORY)?.unwrap_or_default();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let lines =
            all.into_iter().map(|what| history::HistoryLine { time: time.clone(), what }.text());
        text.extend(lines);
        self.write(HISTORY, &text)
    }

    /// Gives the files of an earlier plan names that they keep; gives those names.
    pub(crate) fn set_aside(&self, how: &str, stamp: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for (name, kind, ending) in [(TASKS, "tasks", "toml"), (REQUIREMENTS, "requirements", "md")]
        {
            let there = self.top.join(name);
            if !there.exists() {
                continue;
            }
            let free = (1..).map(|n| match n {
                1 => format!("g3-plan/{how}_{kind}_{stamp}.{ending}"),
                n => format!("g3-plan/{how}_{kind}_{stamp}_{n}.{ending}"),
            });
            let Some(kept) = free.into_iter().find(|kept| !self.top.join(kept).exists()) else {
                continue;
            };
            step("plan.set_aside");
            std::fs::rename(&there, self.top.join(&kept))
                .or_fail(|| format!("cannot rename {name}"))?;
            names.push(kept);
        }
        Ok(names)
    }

    /// Returns the requirements of a text that was refined.
    pub(crate) fn requirements(&self, text: &str) -> Result<Vec<Requirement>> {
        let Some(section) = document::current(text) else { return Ok(Vec::new()) };
        requirement::read(section).map_err(|unclear| {
            let what = match unclear {
                AmbiguousRequirements::Empty => format!("no requirement in {REQUIREMENTS}"),
                AmbiguousRequirements::Twice(id) => {
                    format!("{REQUIREMENTS}: two requirements have the id {id}")
                }
            };
            Failure::usage(what).hint(format!("change {REQUIREMENTS}")).hint("studio plan")
        })
    }

    /// Returns the tasks of a text, which name requirements that are there.
    pub(crate) fn tasks(&self, text: &str, all: &[Requirement]) -> Result<Vec<Task>> {
        let path = Path::new(TASKS);
        let found = task::from_toml(text).map_err(|mistakes| tasks::refused(path, &mistakes))?;
        let unknown: Vec<task::TaskFileError> = strangers(all, &found)
            .into_iter()
            .map(|(task, id)| task::TaskFileError {
                line: task.line,
                what: format!("task `{}` names {id}, which is not in {REQUIREMENTS}", task.id),
            })
            .collect();
        match unknown.is_empty() {
            true => Ok(found),
            false => Err(tasks::refused(path, &unknown)),
        }
    }
}
