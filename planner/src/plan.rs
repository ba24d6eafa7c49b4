//! A plan of several tasks: its stage, and the next action for each task.

use crate::requirement::Requirement;
use crate::task::{Task, topological_order};

/// The maximum number of actions on one task in one run; after that the user must look at it.
const MAX_ATTEMPTS: u32 = 8;

/// The stage of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStage {
    /// A model refines the user's text.
    Refine,
    /// The user approves the requirements.
    Approve,
    /// A model splits the requirements into tasks.
    Split,
    /// The user approves the tasks.
    Agree,
    /// The agents work and the tasks land.
    Work,
    /// All tasks are done.
    Over,
}

/// The state of a plan's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanStatus {
    /// The requirements.
    pub requirements: RequirementsStatus,
    /// Whether the user approved exactly this text.
    pub approved: bool,
    /// The tasks.
    pub tasks: TaskListStatus,
    /// Whether the user approved exactly these tasks.
    pub agreed: bool,
    /// Whether all tasks are done.
    pub done: bool,
}

/// The state of the requirements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequirementsStatus {
    /// The user's text only.
    #[default]
    Raw,
    /// A section of requirements to implement.
    Refined,
}

/// The state of the tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskListStatus {
    /// There are none, or a requirement has no task.
    #[default]
    Partial,
    /// Every requirement has a task.
    Whole,
}

/// Returns the stage for this state, where an interrupted plan continues.
pub fn stage(status: PlanStatus) -> PlanStage {
    match status {
        PlanStatus { requirements: RequirementsStatus::Raw, .. } => PlanStage::Refine,
        PlanStatus { approved: false, .. } => PlanStage::Approve,
        PlanStatus { tasks: TaskListStatus::Partial, .. } => PlanStage::Split,
        PlanStatus { agreed: false, .. } => PlanStage::Agree,
        PlanStatus { done: false, .. } => PlanStage::Work,
        PlanStatus { .. } => PlanStage::Over,
    }
}

/// The state of a task's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskSessionStatus {
    /// There is no session, or the user discarded it.
    None,
    /// The agent is running, or the session is waiting.
    AtWork,
    /// The session can be landed.
    Ready,
    /// The session landed, and the user undid the landing.
    Undone,
    /// Its agent, a check or its coach failed.
    Failed,
    /// The session was stopped, or it crashed.
    Cut,
    /// The session landed, or there was nothing to change.
    Done,
}

/// The next action for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskAction {
    /// Start a session.
    Begin,
    /// Resume the interrupted session.
    GoOn,
    /// Send the failure to the agent and continue.
    Again,
    /// Land the session.
    Land,
}

/// Returns the next actions: the index of the task, and the action. `attempts` has the number of
/// actions on each task in this run. If the result is empty and no session is running, the run is
/// over.
pub fn next_actions(
    tasks: &[Task],
    statuses: &[TaskSessionStatus],
    attempts: &[u32],
) -> Vec<(usize, TaskAction)> {
    let is_done = |id: &String| {
        tasks
            .iter()
            .zip(statuses)
            .any(|(task, it)| task.id == *id && *it == TaskSessionStatus::Done)
    };
    let action = |index: usize| {
        let action = match statuses[index] {
            // A session that the user discards during the run is not restarted.
            TaskSessionStatus::None => (attempts[index] == 0
                && tasks[index].after.iter().all(is_done))
            .then_some(TaskAction::Begin),
            TaskSessionStatus::Ready => Some(TaskAction::Land),
            TaskSessionStatus::Failed => Some(TaskAction::Again),
            TaskSessionStatus::Cut => Some(TaskAction::GoOn),
            // Only the user may land it a second time.
            TaskSessionStatus::AtWork | TaskSessionStatus::Undone | TaskSessionStatus::Done => None,
        };
        action.filter(|_| attempts[index] < MAX_ATTEMPTS).map(|action| (index, action))
    };
    topological_order(tasks).into_iter().filter_map(action).collect()
}

/// Creates a task for each requirement that no task implements, in a sequence: the fallback without
/// a model that splits the plan.
pub fn tasks_for_uncovered(requirements: &[Requirement], existing: &[Task]) -> Vec<Task> {
    let mut new: Vec<Task> = Vec::new();
    let is_covered =
        |it: &Requirement| existing.iter().any(|task| task.requirements.contains(&it.id));
    for requirement in requirements.iter().filter(|it| !is_covered(it)) {
        let id = requirement.id.to_lowercase();
        let is_taken = |id: &str| existing.iter().chain(&new).any(|task| task.id == id);
        let names = (1..).map(|n| if n == 1 { id.clone() } else { format!("{id}-{n}") });
        let task = Task {
            id: names.into_iter().find(|id| !is_taken(id)).unwrap_or_default(),
            text: requirement.text.clone(),
            requirements: vec![requirement.id.clone()],
            after: new.last().map(|previous| previous.id.clone()).into_iter().collect(),
            ..Task::default()
        };
        new.push(task);
    }
    new
}

/// Returns the requirements of a task as text for its agent; `None` if it has none.
pub fn contract(task: &Task, requirements: &[Requirement]) -> Option<String> {
    let lines = requirements.iter().filter(|it| task.requirements.contains(&it.id));
    let lines: String = lines.map(|it| format!("- {}: {}\n", it.id, it.text)).collect();
    (!lines.is_empty()).then_some(lines)
}

/// A digest of everything that defines a task: its text, checks and requirements, and those of the
/// tasks that it depends on. If it changes, the task must be done again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskDigest {
    /// The digest to record.
    pub current: String,
    /// The digest in the encoding of earlier versions, which existing sessions may have recorded.
    pub earlier: String,
}

impl TaskDigest {
    /// Returns whether a recorded digest matches.
    pub fn matches(&self, written: &str) -> bool {
        written == self.current || written == self.earlier
    }
}

/// Returns the digests of all tasks.
pub fn digests(
    tasks: &[Task],
    requirements: &[Requirement],
    digest: impl Fn(&str) -> String,
) -> Vec<TaskDigest> {
    let mut digests = vec![TaskDigest::default(); tasks.len()];
    for index in topological_order(tasks) {
        let task = &tasks[index];
        let dependencies = tasks.iter().zip(&digests).filter(|(it, _)| task.after.contains(&it.id));
        let dependencies: Vec<&TaskDigest> = dependencies.map(|(_, digest)| digest).collect();
        let contract = contract(task, requirements);
        let encoded = encode(task, contract.as_deref(), &dependencies);
        // Debug output of standard library types only, as earlier versions wrote it.
        let earlier: Vec<&str> = dependencies.iter().map(|it| it.earlier.as_str()).collect();
        let earlier = format!("{:?}", (&task.text, &task.checks, &task.agent, &contract, earlier));
        digests[index] = TaskDigest { current: digest(&encoded), earlier: digest(&earlier) };
    }
    digests
}

/// Encodes a task field by field, each text with its length before it. The encoding is recorded in
/// digests, so it must not change.
fn encode(task: &Task, contract: Option<&str>, dependencies: &[&TaskDigest]) -> String {
    let encode_text = |text: &str| format!("{}:{text}\n", text.len());
    let encode_list = |name: &str, texts: Vec<&str>| {
        let all: String = texts.iter().map(|text| encode_text(text)).collect();
        format!("{name} {}\n{all}", texts.len())
    };
    [
        "task 1\n".to_owned(),
        encode_list("text", vec![&task.text]),
        encode_list("checks", task.checks.iter().map(String::as_str).collect()),
        encode_list("agent", task.agent.as_deref().into_iter().collect()),
        encode_list("contract", contract.into_iter().collect()),
        encode_list("after", dependencies.iter().map(|it| it.current.as_str()).collect()),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::requirement::read;

    #[test]
    fn a_plan_passes_every_stage_and_returns_to_one_whose_input_changed() {
        let refined =
            PlanStatus { requirements: RequirementsStatus::Refined, ..PlanStatus::default() };
        let approved = PlanStatus { approved: true, ..refined };
        let split = PlanStatus { tasks: TaskListStatus::Whole, ..approved };
        let agreed = PlanStatus { agreed: true, ..split };
        let finished = PlanStatus { done: true, ..agreed };
        for (found, expected) in [
            (PlanStatus::default(), PlanStage::Refine),
            (refined, PlanStage::Approve),
            (approved, PlanStage::Split),
            (split, PlanStage::Agree),
            (agreed, PlanStage::Work),
            (finished, PlanStage::Over),
            // The user changed the requirements, or the tasks, of a completed plan.
            (PlanStatus { approved: false, ..finished }, PlanStage::Approve),
            (
                PlanStatus { tasks: TaskListStatus::Partial, agreed: false, ..finished },
                PlanStage::Split,
            ),
            (PlanStatus { agreed: false, ..finished }, PlanStage::Agree),
            (PlanStatus { done: false, ..finished }, PlanStage::Work),
        ] {
            assert_eq!(stage(found), expected, "{found:?}");
        }
    }

    #[test]
    fn the_encoding_of_a_digest_is_stable_and_an_earlier_one_is_recognized() {
        let all = read("- R1: one\n").unwrap();
        let first = Task {
            id: "a".into(),
            text: "x: \"y\"".into(),
            checks: vec!["make".into(), String::new()],
            requirements: vec!["R1".into()],
            ..Task::default()
        };
        let agent = Some("g3".into());
        let second = Task {
            id: "b".into(),
            text: "z".into(),
            after: vec!["a".into()],
            agent,
            ..Task::default()
        };
        let found = digests(&[first, second], &all, str::to_owned);
        let one = "task 1\ntext 1\n6:x: \"y\"\nchecks 2\n4:make\n0:\nagent 0\ncontract 1\n10:- R1: one\n\nafter 0\n";
        assert_eq!(found[0].current, one);
        let two = format!(
            "task 1\ntext 1\n1:z\nchecks 0\nagent 1\n2:g3\ncontract 0\nafter 1\n{}:{one}\n",
            one.len()
        );
        assert_eq!(found[1].current, two);
        // The encoding of earlier versions.
        let earlier = r#"("x: \"y\"", ["make", ""], None, Some("- R1: one\n"), [])"#;
        assert_eq!(found[0].earlier, earlier);
        assert!(found[0].matches(earlier) && found[0].matches(one) && !found[0].matches(&two));
    }

    fn tasks(links: &[(usize, usize)]) -> Vec<Task> {
        let task = |index: usize| Task {
            id: format!("t{index}"),
            text: "x".into(),
            requirements: vec![format!("R{}", index + 1)],
            after: links
                .iter()
                .filter(|(from, to)| *from == index && from > to)
                .map(|(_, to)| format!("t{to}"))
                .collect(),
            ..Task::default()
        };
        (0..6).map(task).collect()
    }

    #[test]
    fn each_session_status_has_its_action() {
        let one = &tasks(&[])[..1];
        for (statuses, action) in [
            (TaskSessionStatus::None, Some(TaskAction::Begin)),
            (TaskSessionStatus::AtWork, None),
            (TaskSessionStatus::Ready, Some(TaskAction::Land)),
            (TaskSessionStatus::Failed, Some(TaskAction::Again)),
            (TaskSessionStatus::Cut, Some(TaskAction::GoOn)),
            (TaskSessionStatus::Undone, None),
            (TaskSessionStatus::Done, None),
        ] {
            let actions = next_actions(one, &[statuses], &[0]);
            assert_eq!(actions.first().map(|(_, action)| *action), action, "{statuses:?}");
            assert!(next_actions(one, &[statuses], &[MAX_ATTEMPTS]).is_empty(), "{statuses:?}");
        }
        assert!(
            next_actions(one, &[TaskSessionStatus::None], &[1]).is_empty(),
            "dropped while we look"
        );
    }

    #[test]
    fn a_contract_contains_only_the_requirements_of_its_task() {
        let all = read("- R1: a\n- R2: b\n- R3: c").unwrap();
        let task = Task { requirements: vec!["R3".into(), "R1".into()], ..Task::default() };
        assert_eq!(contract(&task, &all).as_deref(), Some("- R1: a\n- R3: c\n"));
        assert_eq!(contract(&Task::default(), &all), None);
    }

    #[test]
    fn each_uncovered_requirement_gets_a_task() {
        let all = read("- R1: a\n- R2: b\n- R3: c").unwrap();
        let existing =
            [Task { id: "r3".into(), requirements: vec!["R2".into()], ..Task::default() }];
        let new = tasks_for_uncovered(&all, &existing);
        let titles: Vec<_> = new.iter().map(|it| (it.id.as_str(), it.text.as_str())).collect();
        assert_eq!(titles, [("r1", "a"), ("r3-2", "c")]);
        assert_eq!(new[1].after, ["r1"]);
        let all_tasks: Vec<Task> = existing.iter().chain(&new).cloned().collect();
        assert!(tasks_for_uncovered(&all, &all_tasks).is_empty());
    }

    proptest! {
        /// Whatever the outcome of the sessions: no task starts before its dependencies are done,
        /// each plan ends, and in the end only tasks are open that failed or depend on a failed
        /// one.
        #[test]
        fn every_plan_ends_and_respects_dependencies(
            links in proptest::collection::vec((0usize..6, 0usize..6), 0..9),
            outcomes in proptest::collection::vec(0u8..5, 0..80),
        ) {
            let tasks = tasks(&links);
            let (mut statuses, mut attempts) = (vec![TaskSessionStatus::None; 6], vec![0u32; 6]);
            let mut outcomes = outcomes.into_iter().chain(std::iter::repeat(0));
            for _ in 0..100 {
                let actions = next_actions(&tasks, &statuses, &attempts);
                if actions.is_empty() {
                    break;
                }
                for (index, action) in actions {
                    attempts[index] += 1;
                    let waits = tasks[index].after.iter().any(|id| {
                        tasks.iter().zip(&statuses).any(|(it, s)| it.id == *id && *s != TaskSessionStatus::Done)
                    });
                    prop_assert!(action != TaskAction::Begin || !waits);
                    statuses[index] = match (action, outcomes.next().unwrap_or(0)) {
                        (TaskAction::Land, 0..=2) => TaskSessionStatus::Done,
                        (_, 0..=2) => TaskSessionStatus::Ready,
                        (_, 3) => TaskSessionStatus::Failed,
                        (_, _) => TaskSessionStatus::Cut,
                    };
                }
            }
            prop_assert!(next_actions(&tasks, &statuses, &attempts).is_empty());
            for (index, task) in tasks.iter().enumerate() {
                let waits = task.after.iter().any(|id| {
                    tasks.iter().zip(&statuses).any(|(it, s)| it.id == *id && *s != TaskSessionStatus::Done)
                });
                prop_assert!(statuses[index] == TaskSessionStatus::Done || attempts[index] == MAX_ATTEMPTS || waits);
            }
        }

        /// A digest changes if and only if a change of the requirements affects the task.
        #[test]
        fn digests_change_for_affected_tasks_only(
            links in proptest::collection::vec((0usize..6, 0usize..6), 0..9),
            changed in proptest::collection::btree_set(1usize..7, 0..3),
        ) {
            let tasks = tasks(&links);
            let text = |new: bool| (1..7).map(|n| {
                format!("- R{n}: {}\n", if new && changed.contains(&n) { "new" } else { "old" })
            }).collect::<String>();
            let (before, current) = (read(&text(false)).unwrap(), read(&text(true)).unwrap());
            let of = |all: &[Requirement]| digests(&tasks, all, str::to_owned);
            let (old, new) = (of(&before), of(&current));
            let changes = |differs: fn(&TaskDigest, &TaskDigest) -> bool| -> BTreeSet<usize> {
                (0..6).filter(|index| differs(&old[*index], &new[*index])).collect()
            };
            // Task `t0` has requirement R1, and so on; `after` names earlier tasks only.
            let mut expected = BTreeSet::new();
            for (index, task) in tasks.iter().enumerate() {
                let follows = task.after.iter().any(|id| expected.contains(&id[1..].parse().unwrap()));
                if changed.contains(&(index + 1)) || follows {
                    expected.insert(index);
                }
            }
            prop_assert_eq!(&changes(|old, new| old.current != new.current), &expected);
            prop_assert_eq!(&changes(|old, new| old.earlier != new.earlier), &expected);
        }
    }
}
