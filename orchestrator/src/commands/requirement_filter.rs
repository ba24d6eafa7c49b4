//! Selects the requirements of a command, and their landed work.

use std::path::{Path, PathBuf};

use base::failure::{Failure, FailureKind, Result};
use planner::document;
use planner::requirement::{self, AmbiguousRequirements, Requirement};
use planner::requirement_coverage::{CoverageRow, Progress, coverage};
use planner::task::Task;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report::requirements::ServedRequirement;
use studio_git::landing_history::{self, Landing};

/// The default requirements file.
const FILE: &str = "g3-plan/current_requirements.md";

/// What the command line says about requirements.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RequirementFilter {
    /// Requirement id [default: all]
    #[arg(value_name = "REQ")]
    pub id: Option<String>,
    /// Requirements file
    #[arg(long, value_name = "FILE", default_value = FILE)]
    pub file: PathBuf,
    /// Only commits that are not in the history of this commit (ids are reused by each plan)
    #[arg(long, value_name = "REV")]
    pub since: Option<String>,
    /// Revision whose history is searched
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    pub onto: String,
}

/// The selected requirements.
#[derive(Debug)]
pub(crate) struct FilteredRequirements {
    /// The requirements.
    pub requirements: Vec<Requirement>,
    rows: Vec<CoverageRow>,
    /// Commits that name requirements or have a receipt, oldest first.
    pub landings: Vec<Landing>,
}

impl RequirementFilter {
    /// Reads the requirements, and their history.
    pub(crate) fn read(
        &self,
        common: &CommonArgs,
        context: &CommandContext,
    ) -> Result<FilteredRequirements> {
        let landings =
            landing_history::read(&context.repository, &self.onto, self.since.as_deref())?;
        let mut requirements = requirements(&common.directory()?, &self.file)?;
        if let Some(id) = &self.id {
            requirements.retain(|it| it.id.eq_ignore_ascii_case(id));
            if requirements.is_empty() {
                let error =
                    Failure::new(FailureKind::NotFound, format!("no such requirement: `{id}`"));
                return Err(error
                    .because(format!("it is not in {}", self.file.display()))
                    .hint("studio trace"));
            }
        }
        let rows = rows(&requirements, &landings);
        Ok(FilteredRequirements { requirements, rows, landings })
    }
}

impl FilteredRequirements {
    /// Returns each requirement with its commits and sessions.
    pub(crate) fn served(&self) -> Vec<ServedRequirement<'_>> {
        let served = |(requirement, row): (&'_ Requirement, &'_ CoverageRow)| {
            let landings =
                self.landings.iter().filter(|it| row.commits.contains(&it.commit)).collect();
            ServedRequirement { requirement: requirement.clone(), row: row.clone(), landings }
        };
        self.requirements.iter().zip(&self.rows).map(served).collect()
    }
}

fn requirements(directory: &Path, file: &Path) -> Result<Vec<Requirement>> {
    let path = directory.join(file);
    let text = base::files::read_text(&path).map_err(|error| {
        Failure::usage(format!("cannot read the requirements in {}", file.display()))
            .because(error)
            .hint("name the file: --file FILE")
    })?;
    let section = document::current(&text).unwrap_or(&text);
    requirement::read(section).map_err(|error| {
        Failure::usage(match error {
            AmbiguousRequirements::Empty => format!("no requirement in {}", file.display()),
            AmbiguousRequirements::Twice(id) => format!("two requirements have the id {id}"),
        })
    })
}

/// Returns the coverage, with each landing as a task.
fn rows(requirements: &[Requirement], landings: &[Landing]) -> Vec<CoverageRow> {
    let task = |it: &Landing| Task {
        id: it.commit.clone(),
        requirements: it.requirements.clone(),
        ..Task::default()
    };
    let progress = |it: &Landing| {
        let checks = it.receipt.iter().flat_map(|receipt| &receipt.checks);
        Progress {
            task: it.commit.clone(),
            landed: Some(it.commit.clone()),
            passed: checks.filter(|check| check.ok).map(|check| check.command.clone()).collect(),
        }
    };
    let tasks: Vec<Task> = landings.iter().map(task).collect();
    let progress: Vec<Progress> = landings.iter().map(progress).collect();
    coverage(requirements, &tasks, &progress)
}
