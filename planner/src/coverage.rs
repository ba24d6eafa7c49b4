//! Which requirement is served by which task and shown by which check; what has none.

use std::collections::BTreeSet;

use crate::requirement::Requirement;
use crate::task::Task;

/// What has become of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The task's id.
    pub task: String,
    /// The commit that landed it.
    pub landed: Option<String>,
    /// Checks that passed on the landed tree, as their command lines.
    pub passed: Vec<String>,
}

/// One requirement and all that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoverageRow {
    /// The requirement's id.
    pub id: String,
    /// Tasks that name it.
    pub tasks: Vec<String>,
    /// Commits that landed them.
    pub commits: Vec<String>,
    /// Checks of these tasks that passed where they landed.
    pub checks: Vec<String>,
}

/// What a requirement lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gap {
    /// No task serves it.
    Task,
    /// Not each of its tasks has landed.
    Landing,
    /// No check passed where its tasks landed.
    Check,
}

impl CoverageRow {
    /// Returns the first thing that it lacks; nothing when it is landed and shown.
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
pub fn coverage(all: &[Requirement], tasks: &[Task], progress: &[Progress]) -> Vec<CoverageRow> {
    let row = |requirement: &Requirement| {
        let id = &requirement.id;
        let serving: Vec<&Task> =
            tasks.iter().filter(|task| task.requirements.contains(id)).collect();
        let of = |task: &&Task| progress.iter().find(|it| it.task == task.id);
        let landed: Vec<&Progress> =
            serving.iter().filter_map(of).filter(|it| it.landed.is_some()).collect();
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
    all.iter().map(row).collect()
}

/// Requirements that tasks name and that are not there: task and id.
pub fn strangers<'a>(all: &[Requirement], tasks: &'a [Task]) -> Vec<(&'a Task, &'a str)> {
    let known: BTreeSet<&str> = all.iter().map(|it| it.id.as_str()).collect();
    let named = tasks.iter().flat_map(|task| task.requirements.iter().map(move |id| (task, id)));
    named.map(|(task, id)| (task, id.as_str())).filter(|(_, id)| !known.contains(id)).collect()
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
    fn each_requirement_tells_what_it_lacks() {
        let all = read("- R1: a\n- R2: b\n- R3: c\n- R4: d").unwrap();
        let tasks = from_toml(TASKS).unwrap();
        let gaps = |progress: &[Progress]| {
            coverage(&all, &tasks, progress).iter().map(CoverageRow::gap).collect::<Vec<_>>()
        };
        use Gap::{Check, Landing, Task};
        assert_eq!(gaps(&[]), [Some(Landing), Some(Landing), Some(Landing), Some(Task)]);
        let some = [done("a", &["cargo test"]), done("c", &[])];
        assert_eq!(gaps(&some), [Some(Landing), Some(Landing), Some(Check), Some(Task)]);
        let more = [done("a", &["t"]), done("b", &["t", "u"])];
        let rows = coverage(&all, &tasks, &more);
        assert_eq!((rows[0].gap(), rows[1].gap()), (None, None));
        assert_eq!(rows[0].commits, ["commit-a", "commit-b"]);
        assert_eq!(rows[0].checks, ["t", "u"]);
    }

    #[test]
    fn names_that_no_requirement_has_are_found() {
        let all = read("- R1: a\n- R2: b").unwrap();
        let tasks = from_toml(TASKS).unwrap();
        let found: Vec<(&str, &str)> =
            strangers(&all, &tasks).iter().map(|(task, id)| (task.id.as_str(), *id)).collect();
        assert_eq!(found, [("c", "R3")]);
    }
}
