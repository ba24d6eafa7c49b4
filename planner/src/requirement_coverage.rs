//! Coverage: which tasks implement a requirement, which checks verify it, and what is missing.

use std::collections::BTreeSet;

use crate::requirement::Requirement;
use crate::task::Task;

/// The progress of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The task's id.
    pub task: String,
    /// The commit that landed it.
    pub landed: Option<String>,
    /// The command lines of the checks that passed on the landed tree.
    pub passed: Vec<String>,
}

/// A requirement with its tasks, commits and checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoverageRow {
    /// The requirement's id.
    pub id: String,
    /// Tasks that name it.
    pub tasks: Vec<String>,
    /// Commits that landed these tasks.
    pub commits: Vec<String>,
    /// Checks of these tasks that passed on the landed tree.
    pub checks: Vec<String>,
}

/// The first missing step of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gap {
    /// It has no task.
    Task,
    /// Not all of its tasks have landed.
    Landing,
    /// No check passed on the landed trees.
    Check,
}

impl CoverageRow {
    /// Returns the first missing step; `None` if the requirement is landed and verified.
    pub fn gap(&self) -> Option<Gap> {
        match self {
            CoverageRow { tasks, .. } if tasks.is_empty() => Some(Gap::Task),
            CoverageRow { tasks, commits, .. } if commits.len() < tasks.len() => Some(Gap::Landing),
            CoverageRow { checks, .. } if checks.is_empty() => Some(Gap::Check),
            CoverageRow { .. } => None,
        }
    }
}

/// Returns a row for each requirement, in order.
pub fn coverage(
    requirements: &[Requirement],
    tasks: &[Task],
    progress: &[Progress],
) -> Vec<CoverageRow> {
    let row = |requirement: &Requirement| {
        let id = &requirement.id;
        let serving: Vec<&Task> =
            tasks.iter().filter(|task| task.requirements.contains(id)).collect();
        let progress_of = |task: &&Task| progress.iter().find(|it| it.task == task.id);
        let landed: Vec<&Progress> =
            serving.iter().filter_map(progress_of).filter(|it| it.landed.is_some()).collect();
        let mut checks: Vec<String> = Vec::new();
        for check in landed.iter().flat_map(|it| &it.passed) {
            if !checks.contains(check) {
                checks.push(check.clone());
            }
        }
        CoverageRow {
            id: id.clone(),
            tasks: serving.iter().map(|task| task.id.clone()).collect(),
            commits: landed.iter().filter_map(|it| it.landed.clone()).collect(),
            checks,
        }
    };
    requirements.iter().map(row).collect()
}

/// Returns the references to unknown requirements: task and id.
pub fn unknown_references<'a>(
    requirements: &[Requirement],
    tasks: &'a [Task],
) -> Vec<(&'a Task, &'a str)> {
    let known: BTreeSet<&str> = requirements.iter().map(|it| it.id.as_str()).collect();
    let references =
        tasks.iter().flat_map(|task| task.requirements.iter().map(move |id| (task, id)));
    references.map(|(task, id)| (task, id.as_str())).filter(|(_, id)| !known.contains(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirement::read;
    use crate::task::from_toml;

    const TASKS: &str = "[[task]]\nid='a'\ntext='x'\nrequirements=['R1']\n\
        [[task]]\nid='b'\ntext='x'\nafter=['a']\nrequirements=['R2','R1']\n\
        [[task]]\nid='c'\ntext='x'\nrequirements=['R3']\n\
        [[task]]\nid='d'\ntext='x'\nafter=['b']\n";

    fn done(task: &str, passed: &[&str]) -> Progress {
        let passed = passed.iter().map(|it| (*it).to_owned()).collect();
        Progress { task: task.into(), landed: Some(format!("commit-{task}")), passed }
    }

    #[test]
    fn the_gap_of_each_requirement_is_its_first_missing_step() {
        let requirements = read("- R1: a\n- R2: b\n- R3: c\n- R4: d").unwrap();
        let tasks = from_toml(TASKS).unwrap();
        let gaps = |progress: &[Progress]| {
            coverage(&requirements, &tasks, progress)
                .iter()
                .map(CoverageRow::gap)
                .collect::<Vec<_>>()
        };
        use Gap::{Check, Landing, Task};
        assert_eq!(gaps(&[]), [Some(Landing), Some(Landing), Some(Landing), Some(Task)]);
        let some = [done("a", &["cargo test"]), done("c", &[])];
        assert_eq!(gaps(&some), [Some(Landing), Some(Landing), Some(Check), Some(Task)]);
        let more = [done("a", &["t"]), done("b", &["t", "u"])];
        let rows = coverage(&requirements, &tasks, &more);
        assert_eq!((rows[0].gap(), rows[1].gap()), (None, None));
        assert_eq!(rows[0].commits, ["commit-a", "commit-b"]);
        assert_eq!(rows[0].checks, ["t", "u"]);
    }

    #[test]
    fn references_to_unknown_requirements_are_found() {
        let requirements = read("- R1: a\n- R2: b").unwrap();
        let tasks = from_toml(TASKS).unwrap();
        let found: Vec<(&str, &str)> = unknown_references(&requirements, &tasks)
            .iter()
            .map(|(task, id)| (task.id.as_str(), *id))
            .collect();
        assert_eq!(found, [("c", "R3")]);
    }
}
