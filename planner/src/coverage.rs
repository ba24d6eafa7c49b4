//! Which requirement is served by which task and shown by which check; what has none.

use std::collections::BTreeSet;

use crate::requirement::Requirement;
use crate::task::{Task, after_those};

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
    /// The first thing that it lacks; nothing when it is landed and shown.
    pub fn gap(&self) -> Option<Gap> {
        match self {
            CoverageRow { tasks, .. } if tasks.is_empty() => Some(Gap::Task),
            CoverageRow { tasks, commits, .. } if commits.len() < tasks.len() => Some(Gap::Landing),
            CoverageRow { checks, .. } if checks.is_empty() => Some(Gap::Check),
            CoverageRow { .. } => None,
        }
    }
}

/// A row for each requirement, in order.
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

/// Where the tasks stand that have to be done anew when requirements change: those that serve one
/// that was changed or dropped, and all that come after them. New requirements touch no task.
pub fn touched(before: &[Requirement], now: &[Requirement], tasks: &[Task]) -> BTreeSet<usize> {
    let stays = |old: &&Requirement| now.iter().any(|new| new.id == old.id && new.text == old.text);
    let changed: BTreeSet<&str> =
        before.iter().filter(|old| !stays(old)).map(|old| old.id.as_str()).collect();
    let serves = |task: &Task| task.requirements.iter().any(|id| changed.contains(id.as_str()));
    let first = (0..tasks.len()).filter(|at| serves(&tasks[*at])).collect();
    after_those(tasks, first)
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

    #[test]
    fn only_what_a_change_touches_is_done_anew() {
        let before = read("- R1: a\n- R2: b\n- R3: c").unwrap();
        let tasks = from_toml(TASKS).unwrap();
        let after = |text: &str| -> Vec<usize> {
            touched(&before, &read(text).unwrap(), &tasks).into_iter().collect()
        };
        assert!(after("- R1: a\n- R2: b\n- R3: c\n- R4: new").is_empty());
        assert_eq!(after("- R1: a\n- R2: b\n- R3: changed"), [2]);
        assert_eq!(after("- R1: a\n- R2: changed\n- R3: c"), [1, 3]);
        assert_eq!(after("- R2: b\n- R3: c"), [0, 1, 3]);
    }

    proptest::proptest! {
        /// What is touched is closed: no task that stays waits for one that is done anew.
        #[test]
        fn nobody_stays_who_waits_for_what_is_done_anew(
            links in proptest::collection::vec((0usize..6, 0usize..6), 0..9),
            changed in proptest::collection::btree_set(1usize..7, 0..3),
        ) {
            let mut tasks: Vec<Task> = (0..6)
                .map(|at| Task { id: format!("t{at}"), text: "x".into(), requirements: vec![format!("R{}", at + 1)], ..Task::default() })
                .collect();
            for (from, to) in links {
                if from > to {
                    tasks[from].after.push(format!("t{to}"));
                }
            }
            let text = |new: bool| (1..7).map(|n| format!("- R{n}: {}\n", if new && changed.contains(&n) { "new" } else { "old" })).collect::<String>();
            let (before, now) = (read(&text(false)).unwrap(), read(&text(true)).unwrap());
            let touched = touched(&before, &now, &tasks);
            for at in 0..6 {
                if !touched.contains(&at) {
                    proptest::prop_assert!(!changed.contains(&(at + 1)));
                    proptest::prop_assert!(touched.iter().all(|other| !crate::task::waits_for(&tasks, at, *other)));
                }
            }
        }
    }
}
