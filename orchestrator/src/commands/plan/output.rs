//! The output of a plan during its execution and at its end.

use base::failure::Failure;
use base::text::{head, printable};
use planner::plan::{PlanStage, TaskSessionStatus};
use planner::requirement::Requirement;
use planner::task::Task;
use serde_json::{Value, json};

use super::executor::PlacedTask;
use super::files::{REQUIREMENTS, TASKS};
use crate::commands::context::CommandContext;
use crate::report;
use crate::report::table;
use studio_core::landing::Landed;
use studio_core::session::summary::Disposition;

/// Reports the next stage.
pub(crate) fn stage(context: &CommandContext, stage: PlanStage) {
    let sentence = match stage {
        PlanStage::Refine => "refining the requirements with a model",
        PlanStage::Split => "splitting the requirements into tasks with a model",
        PlanStage::Approve | PlanStage::Agree | PlanStage::Work | PlanStage::Over => "",
    };
    if context.json {
        report::json_line(&json!({"type": "plan", "stage": stage_word(stage)}));
    } else if !sentence.is_empty() {
        report::say(&format!("{sentence} …"));
    }
}

/// Returns the name of a stage.
pub(crate) fn stage_word(stage: PlanStage) -> &'static str {
    match stage {
        PlanStage::Refine => "refine",
        PlanStage::Approve => "approve",
        PlanStage::Split => "split",
        PlanStage::Agree => "agree",
        PlanStage::Work => "work",
        PlanStage::Over => "over",
    }
}

/// Prints the requirements, and what changed since the user approved some.
pub(crate) fn requirements(
    context: &CommandContext,
    requirements: &[Requirement],
    previous: &[Requirement],
) {
    if context.json {
        return;
    }
    report::out(&format!("{REQUIREMENTS}:"));
    for it in requirements {
        let mark = match previous.iter().find(|old| old.id == it.id) {
            Some(old) if old.text == it.text => " ",
            Some(_) => "~",
            None if previous.is_empty() => " ",
            None => "+",
        };
        report::out(&printable(&format!("{mark} {}: {}", it.id, it.text)));
    }
    for old in previous.iter().filter(|old| requirements.iter().all(|it| it.id != old.id)) {
        report::out(&printable(&format!("- {}: {}", old.id, old.text)));
    }
}

/// Prints the tasks with the next action for each.
pub(crate) fn tasks(context: &CommandContext, tasks: &[Task], placed: &[PlacedTask]) {
    if context.json {
        return;
    }
    let row = |(task, placed): (&Task, &PlacedTask)| {
        let now = status_word(placed);
        [
            task.id.clone(),
            now.to_owned(),
            task.requirements.join(" "),
            task.after.join(" "),
            printable(&task.checks.join("; ")),
            printable(&table::first_lines(&task.text, 2)),
        ]
    };
    let rows = tasks.iter().zip(placed).map(row).collect();
    report::out(&format!("{TASKS}:"));
    report::out(&table::plain(["ID", "NOW", "REQUIREMENTS", "AFTER", "CHECKS", "TASK"], rows));
}

/// Reports that a model call failed and the plan continues without it.
pub(crate) fn without_a_model(failure: &Failure, fallback: &str) {
    let sentence = failure.sentence();
    report::say(&format!("note: {}; {fallback}", sentence.lines().next().unwrap_or_default()));
}

/// Reports that a session of the plan landed.
pub(crate) fn landed(context: &CommandContext, landed: &Landed) {
    if !context.json {
        let commit = head(landed.commit.as_deref().unwrap_or_default(), 12);
        report::say(&format!("{} landed on {} as {commit}", landed.id, landed.target));
    }
}

/// Reports the end of the plan.
pub(crate) fn end(context: &CommandContext, tasks: &[Task], placed: &[PlacedTask]) {
    let rows = tasks.iter().zip(placed);
    if context.json {
        let tasks: Vec<Value> = rows.map(|(task, placed)| task_json(task, placed)).collect();
        report::json_line(&json!({"type": "summary", "schema": 1, "tasks": tasks}));
        return;
    }
    let row = |(task, placed): (&Task, &PlacedTask)| {
        let view = placed.view.as_ref();
        let id = view.map(|view| view.record.id.to_string()).unwrap_or_default();
        let commit = commit(placed).map(|commit| head(&commit, 12).to_owned());
        [task.id.clone(), state(placed).to_owned(), id, commit.unwrap_or_default()]
    };
    report::out(&table::plain(
        ["TASK", "STATE", "SESSION", "COMMIT"],
        rows.clone().map(row).collect(),
    ));
    for (task, placed) in rows.filter(|(_, placed)| placed.status != TaskSessionStatus::Done) {
        let undone = placed.view.as_ref().filter(|_| placed.status == TaskSessionStatus::Undone);
        if let Some(view) = undone {
            let id = &view.record.id;
            report::say(&format!(
                "{}: its landing was undone; to land it again: studio accept {id}",
                task.id
            ));
            continue;
        }
        let reason = placed.view.as_ref().and_then(|view| view.reason());
        let reason = reason.unwrap_or_else(|| match task.after.is_empty() {
            true => "not started".to_owned(),
            false => format!("waiting for {}", task.after.join(", ")),
        });
        report::say(&format!("{}: {reason}", task.id));
    }
}

fn task_json(task: &Task, placed: &PlacedTask) -> Value {
    let view = placed.view.as_ref();
    json!({
        "id": task.id, "requirements": task.requirements, "after": task.after,
        "state": state(placed), "session": view.map(|view| &view.record.id),
        "commit": commit(placed), "why": view.and_then(|view| view.reason()),
    })
}

/// Returns the commit as which the work on a task landed.
pub(crate) fn commit(placed: &PlacedTask) -> Option<String> {
    match &placed.view.as_ref()?.facts.disposition {
        Disposition::Accepted { commit, .. } => commit.clone(),
        Disposition::Open | Disposition::Landing | Disposition::Discarded { .. } => None,
    }
}

/// Returns the state of the session, else the next action.
pub(crate) fn state(placed: &PlacedTask) -> &'static str {
    placed.view.as_ref().map_or(status_word(placed), |view| view.state.name())
}

/// Returns what happens about a task, in a word or two.
pub(crate) fn status_word(placed: &PlacedTask) -> &'static str {
    match placed.status {
        TaskSessionStatus::None if placed.earlier_commit.is_some() => "to be redone",
        TaskSessionStatus::None => "to do",
        TaskSessionStatus::AtWork => "at work",
        TaskSessionStatus::Ready => "ready",
        TaskSessionStatus::Undone => "landing undone",
        TaskSessionStatus::Failed => "failed",
        TaskSessionStatus::Cut => "cut off",
        TaskSessionStatus::Done => "done",
    }
}
