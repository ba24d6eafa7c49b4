//! The dependencies of tasks: their errors, a topological order, and overlapping paths.

use std::collections::{BTreeMap, BTreeSet};

use super::{Task, TaskFileError};

/// Returns all errors of a list of tasks, by line: an empty text, an invalid or duplicate name, an
/// unknown dependency, a cycle.
pub fn validate(tasks: &[Task]) -> Vec<TaskFileError> {
    let mut faults = Vec::new();
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for task in tasks {
        if task.text.is_empty() {
            faults.push(TaskFileError::new(task.line, format!("task `{}` has no text", task.id)));
        }
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !task.id.chars().all(is_name) {
            let what =
                format!("invalid task id `{}`: use letters, digits, `-`, `_` and `.`", task.id);
            faults.push(TaskFileError::new(task.line, what));
        }
        if let Some(first) = lines.insert(&task.id, task.line) {
            let what = format!("duplicate task id `{}` (first used at line {first})", task.id);
            faults.push(TaskFileError::new(task.line, what));
        }
    }
    for task in tasks {
        for id in task.after.iter().filter(|id| !lines.contains_key(id.as_str())) {
            let known: Vec<&str> = lines.keys().copied().collect();
            let what = format!(
                "task `{}` depends on `{id}`, which is not in this file (known: {})",
                task.id,
                known.join(", ")
            );
            faults.push(TaskFileError::new(task.line, what));
        }
    }
    faults.extend(find_cycle(tasks));
    faults.sort_by_key(|fault| fault.line);
    faults
}

/// Returns the error for a dependency cycle, at its first task.
fn find_cycle(tasks: &[Task]) -> Option<TaskFileError> {
    let unsorted: BTreeSet<usize> = {
        let sorted: BTreeSet<usize> = topological_order(tasks).into_iter().collect();
        (0..tasks.len()).filter(|index| !sorted.contains(index)).collect()
    };
    // Every stuck task depends on another stuck task; following these dependencies leads to a
    // cycle.
    let mut index = *unsorted.first()?;
    let mut path = Vec::new();
    while !path.contains(&index) {
        path.push(index);
        index = *dependencies(tasks, index).iter().find(|need| unsorted.contains(need))?;
    }
    let start = path.iter().position(|it| *it == index)?;
    let mut cycle = path.split_off(start);
    let first = cycle.iter().enumerate().min_by_key(|(_, it)| **it).map_or(0, |(n, _)| n);
    cycle.rotate_left(first);
    let line = tasks[cycle[0]].line;
    cycle.push(cycle[0]);
    let names: Vec<&str> = cycle.iter().map(|it| tasks[*it].id.as_str()).collect();
    Some(TaskFileError::new(line, format!("circular dependency: {}", names.join(" → "))))
}

/// Returns the indices of the tasks that this one names in `after`.
fn dependencies(tasks: &[Task], index: usize) -> Vec<usize> {
    let index_of = |id: &String| tasks.iter().position(|task| task.id == *id);
    tasks[index].after.iter().filter_map(index_of).collect()
}

/// Returns the tasks in topological order, stable otherwise; tasks in a cycle or behind one are
/// omitted.
pub fn topological_order(tasks: &[Task]) -> Vec<usize> {
    let dependencies: Vec<Vec<usize>> =
        (0..tasks.len()).map(|index| dependencies(tasks, index)).collect();
    let mut sorted: Vec<usize> = Vec::with_capacity(tasks.len());
    let mut placed = vec![false; tasks.len()];
    while let Some(next) = (0..tasks.len())
        .find(|index| !placed[*index] && dependencies[*index].iter().all(|need| placed[*need]))
    {
        placed[next] = true;
        sorted.push(next);
    }
    sorted
}

/// Returns whether a file can match patterns of both lists.
pub fn paths_overlap(one: &[String], other: &[String]) -> bool {
    one.iter().any(|a| other.iter().any(|b| overlap(a, b)))
}

/// Returns whether one path could match both patterns. A name without an extension may be a
/// directory and includes everything below it.
fn overlap(a: &str, b: &str) -> bool {
    let (a, b) = (parts(a), parts(b));
    patterns_overlap(&a, &b, (may_be_directory(&a), may_be_directory(&b)))
}

fn parts(pattern: &str) -> Vec<&str> {
    pattern.split('/').filter(|part| !matches!(*part, "" | ".")).collect()
}

fn may_be_directory(parts: &[&str]) -> bool {
    parts.last().is_none_or(|last| !last.trim_start_matches('.').contains('.'))
}

fn patterns_overlap(a: &[&str], b: &[&str], directories: (bool, bool)) -> bool {
    let matches_nothing = |rest: &[&str]| rest.iter().all(|part| *part == "**");
    match (a, b) {
        ([], rest) => directories.0 || matches_nothing(rest),
        (rest, []) => directories.1 || matches_nothing(rest),
        (["**", more @ ..], [_, less @ ..]) => {
            patterns_overlap(more, b, directories) || patterns_overlap(a, less, directories)
        }
        ([_, less @ ..], ["**", more @ ..]) => {
            patterns_overlap(a, more, directories) || patterns_overlap(less, b, directories)
        }
        ([one, more_a @ ..], [other, more_b @ ..]) => {
            names_overlap(one, other) && patterns_overlap(more_a, more_b, directories)
        }
    }
}

/// Returns whether one name could match both patterns of a name. Braces, brackets and `?` count as
/// `*`: a false positive only makes a task wait.
fn names_overlap(a: &str, b: &str) -> bool {
    const WILDCARDS: [char; 6] = ['*', '?', '[', ']', '{', '}'];
    if !a.contains(WILDCARDS) && !b.contains(WILDCARDS) {
        return a == b;
    }
    // Without a wildcard, head and tail are the whole name.
    let head = |name: &str| name.split(WILDCARDS).next().unwrap_or_default().to_owned();
    let tail = |name: &str| name.rsplit(WILDCARDS).next().unwrap_or_default().to_owned();
    let (heads, tails) = ((head(a), head(b)), (tail(a), tail(b)));
    (heads.0.starts_with(&heads.1) || heads.1.starts_with(&heads.0))
        && (tails.0.ends_with(&tails.1) || tails.1.ends_with(&tails.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tasks(all: &[(&str, &[&str], &[&str])]) -> Vec<Task> {
        let owned = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
        let task = |(index, (id, after, paths)): (usize, &(&str, &[&str], &[&str]))| Task {
            id: (*id).to_owned(),
            text: "x".to_owned(),
            after: owned(after),
            paths: owned(paths),
            line: index + 1,
            ..Task::default()
        };
        all.iter().enumerate().map(task).collect()
    }

    #[test]
    fn a_task_comes_after_its_dependencies() {
        let all = tasks(&[("c", &["b"], &[]), ("a", &[], &[]), ("b", &["a"], &[])]);
        assert_eq!(topological_order(&all), [1, 2, 0]);
        assert!(validate(&all).is_empty());
    }

    #[test]
    fn a_cycle_is_reported_in_full_from_its_first_task() {
        let all = tasks(&[
            ("x", &["c"], &[]),
            ("b", &["c"], &[]),
            ("c", &["d"], &[]),
            ("d", &["b"], &[]),
        ]);
        let errors = validate(&all);
        assert_eq!(errors.len(), 1);
        assert_eq!(
            (errors[0].line, errors[0].what.as_str()),
            (2, "circular dependency: b → c → d → b")
        );
        assert!(validate(&tasks(&[("a", &["a"], &[])]))[0].what.ends_with("a → a"));
    }

    #[test]
    fn tasks_with_overlapping_paths_do_not_run_together() {
        for (a, b, meet) in [
            ("src/a.rs", "src/a.rs", true),
            ("src/a.rs", "src/b.rs", false),
            ("src", "src/b.rs", true),
            ("src/**", "src/deep/b.rs", true),
            ("src/**/x.rs", "src/deep/y.rs", false),
            ("**/x.rs", "src/deep/x.rs", true),
            ("src/*.rs", "src/a.toml", false),
            ("src/*.rs", "src/a*", true),
            ("docs/**", "src/**", false),
            ("./docs/a.md", "docs/*.md", true),
            ("a/**/b/c", "a/x/**/c", true),
            ("a-[0-9].txt", "b-1.txt", false),
        ] {
            assert_eq!((overlap(a, b), overlap(b, a)), (meet, meet), "{a} {b}");
            assert_eq!(paths_overlap(&[a.to_owned()], &[b.to_owned()]), meet, "{a} {b}");
        }
    }

    proptest! {
            /// An order contains every task once unless there is a cycle, which is then reported.
            #[test]
            fn the_result_is_an_order_or_a_cycle(links in proptest::collection::vec((0usize..6, 0usize..6), 0..10)) {
                let mut all = tasks(&[("a", &[], &[]), ("b", &[], &[]), ("c", &[], &[]), ("d", &[], &[]), ("e", &[], &[]), ("f", &[], &[])]);
                for (from, to) in &links {
                    let id = all[*to].id.clone();
                    all[*from].after.push(id);
                }
                let sorted = topological_order(&all);
                prop_assert_eq!(sorted.len() < all.len(), !validate(&all).is_empty());
                for (from, to) in &links {
                    let position = |index: usize| sorted.iter().position(|it| *it == index);
                    if let (Some(from), Some(to)) = (position(*from), position(*to)) {
                        prop_assert!(to < from);
                    }
                }
            }

            /// Two patterns that match the same path overlap.
            #[test]
            fn patterns_that_match_one_path_overlap(path in "[ab]{1,2}(/[ab]{1,2}){0,3}", cut_a in 0usize..4, cut_b in 0usize..4) {
                let general = |cut: usize| {
                    let parts: Vec<&str> = path.split('/').collect();
                    let shortened: Vec<&str> = parts.iter().enumerate().map(|(index, part)| if index == cut { "*" } else { part }).collect();
                    shortened.join("/")
                };
                prop_assert!(overlap(&general(cut_a), &general(cut_b)));
    prop_assert!(overlap("**", &path));
            }
        }
}
