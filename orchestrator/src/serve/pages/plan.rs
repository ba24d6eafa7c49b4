//! The page of the plan: its requirements with their tasks, states and proofs, and what the user can
//! do about it.

use axum::extract::State;
use base::failure::Result;
use base::text::{head, printable};
use maud::{Markup, html};
use planner::plan::TaskSessionStatus;

use crate::commands::context::CommandContext;
use crate::commands::plan::edit::PlanText;
use crate::commands::plan::status::{self, PlanDetails, RequirementReport, TaskReport};
use crate::serve::error_answer::PageResult;
use crate::serve::file_events::FilePage;
use crate::serve::pages::layout::{self, NavigationItem};
use crate::serve::pages::plan_graph;
use crate::serve::server::PageServer;

/// Length of an abbreviated commit id.
const SHORT_COMMIT: usize = 12;

/// Shows the plan.
pub(crate) async fn show(State(server): State<PageServer>) -> PageResult {
    let (stream, content) = server
        .read(|server, context| {
            server.feed().refresh();
            // The stream begins before the plan is read, so that no change is missed.
            Ok((FilePage::Plan.stream_path(server, context)?, content(context)?))
        })
        .await?;
    Ok(layout::page(&server, NavigationItem::Plan, "Plan", Some(&stream), &content))
}

fn content(context: &CommandContext) -> Result<Markup> {
    Ok(match status::read(context)?.plan {
        Some(plan) => plan_content(&plan),
        None => html! {
            h1 { "Plan" }
            p.empty { "No plan in this repository." }
            p { "Describe what you want in a file, then: " code { "studio plan FILE" } }
            p {
                "A plan of spec-kit, OpenSpec, Kiro or Task Master: "
                code { "studio plan --from PATH" }
            }
        },
    })
}

fn plan_content(plan: &PlanDetails) -> Markup {
    let total = plan.tasks.len();
    html! {
        div.plan-head #plan-head {
            h1 { "Plan" @if !plan.branch.is_empty() { " for " (printable(&plan.branch)) } }
            p #plan-state {
                @match &plan.waits_for {
                    Some(what) => { "Waits for " (printable(what)) "." }
                    None => { "All tasks are done." }
                }
                @if plan.running { " " code { "studio plan" } " is running." }
            }
            @if total > 0 {
                p.plan-progress {
                    label for="progress" { (plan.done) " of " (total) " tasks are done" }
                    progress #progress max=(total) value=(plan.done) {}
                }
            }
            (buttons(plan))
        }
        @for problem in &plan.problems {
            section.conflict aria-label="An error" {
                h2 { (printable(&problem.what)) }
                @if let Some(why) = &problem.why { pre { (printable(why)) } }
            }
        }
        @if let Some(output) = &plan.output {
            details #plan-output { summary { "Output of the run in the background" } pre { (printable(output)) } }
        }
        @if let Some(request) = plan.request.as_ref().filter(|text| !text.is_empty()) {
            details #plan-request { summary { "Your text" } pre { (printable(request)) } }
        }
        @if total > 0 {
            section #plan-graph aria-labelledby="plan-graph-title" {
                h2 #plan-graph-title { "Dependencies" }
                (plan_graph::graph(&plan.tasks))
            }
        }
        (requirements(plan))
    }
}

/// Returns the buttons that apply in the stage.
fn buttons(plan: &PlanDetails) -> Markup {
    let stage = plan.stage.as_deref();
    let (tasks, is_free) = (&plan.tasks_file, !plan.running);
    let has_split = stage == Some("split") && !plan.tasks.is_empty();
    html! {
        div.buttons {
            @if is_free && stage == Some("approve") {
                (approval("Approve the requirements", &plan.requirements_file.digest))
            }
            @if is_free && stage == Some("agree") {
                (approval("Approve the tasks and start", &tasks.digest))
            }
            @if is_free && matches!(stage, Some("refine" | "split" | "work")) {
                (plan_action("continue", "Continue", "the plan continues", None))
            }
            @if is_free && has_split {
                (approval("Approve the tasks as they are", &tasks.digest))
            }
            @if is_free && stage == Some("over") {
                (plan_action("converge", "Compare with the requirements", "the comparison has begun", None))
            }
            @if plan.running {
                (plan_action("stop", "Stop", "the plan is stopped",
                    Some("Stop the plan and its sessions? Everything is kept.")))
            }
            a.button #edit-requirements href=(edit_path(PlanText::Requirements)) { "Edit the requirements" }
            a.button #edit-tasks href=(edit_path(PlanText::Tasks)) { "Edit the tasks" }
        }
        @if plan.running && matches!(stage, Some("approve" | "agree")) {
            p.warning {
                "The running " code { "studio plan" } " uses the texts that were approved before, or asks on its terminal. Approve the changed text when it has ended."
            }
        }
    }
}

/// Returns the path of the page that edits a text.
pub(crate) fn edit_path(which: PlanText) -> String {
    format!("/plan/edit/{}", which.name())
}

/// Returns the button that approves exactly the text that this page was made from.
fn approval(label: &str, digest: &str) -> Markup {
    html! {
        form.action action="/api/v1/plan/approve" method="post" data-done="approved" {
            input type="hidden" name="digest" value=(digest);
            button.primary #plan-approve { (label) }
        }
    }
}

fn plan_action(verb: &str, label: &str, done: &str, confirm: Option<&str>) -> Markup {
    html! {
        form.action action=(format!("/api/v1/plan/{verb}")) method="post" data-done=(done)
            data-confirm=[confirm] {
            button #(format!("plan-{verb}")) { (label) }
        }
    }
}

/// Returns the requirements, each with its tasks. A task with several requirements is in full at the
/// first one.
fn requirements(plan: &PlanDetails) -> Markup {
    let names = |task: &TaskReport, it: &RequirementReport| task.requirements.contains(&it.id);
    let first = |task: &TaskReport| plan.requirements.iter().position(|it| names(task, it));
    let numbered = || plan.tasks.iter().enumerate();
    let rest: Vec<_> = numbered().filter(|(_, task)| first(task).is_none()).collect();
    html! {
        section #requirements aria-labelledby="requirements-title" {
            h2 #requirements-title { "Requirements" }
            @if plan.requirements.is_empty() { p.empty { "There are no requirements yet." } }
            ol.requirements {
                @for (index, it) in plan.requirements.iter().enumerate() {
                    li.requirement #(format!("requirement-{}", it.id)) {
                        (requirement(it))
                        ul.plan-tasks {
                            @for (number, task) in numbered().filter(|(_, task)| names(task, it)) {
                                @if first(task) == Some(index) { (task_item(number, task)) }
                                @else {
                                    li.plan-task { a href=(format!("#{}", task_anchor(task))) { (number + 1) " " (task.id) } " (above)" }
                                }
                            }
                        }
                    }
                }
            }
            @for text in &plan.removed { p.reason { "Removed: " (printable(text)) } }
        }
        @if !rest.is_empty() {
            section #other-tasks aria-labelledby="other-tasks-title" {
                h2 #other-tasks-title { "Tasks without a requirement" }
                ul.plan-tasks { @for (number, task) in rest { (task_item(number, task)) } }
            }
        }
    }
}

fn requirement(it: &RequirementReport) -> Markup {
    let kind = match it.state.as_str() {
        "shown" => "good",
        "no check" => "ask",
        _ => "rest",
    };
    html! {
        p.requirement-text {
            b { (printable(&it.id)) } ": " (printable(&it.text))
            @if let Some(change) = &it.change { " " span.warning { "(" (change) ")" } }
        }
        p.proof {
            span.state.(kind) { (it.state) }
            @for commit in &it.commits { code { (head(commit, SHORT_COMMIT)) } }
            @for check in &it.checks { span.good { "passed " code { (printable(check)) } } }
            @if let Some(coach) = &it.coach { span { "coach: " (printable(coach)) } }
        }
    }
}

fn task_item(index: usize, task: &TaskReport) -> Markup {
    let (title, text) = (task_title(task), printable(task.text.trim()));
    html! {
        li.plan-task #(task_anchor(task)) {
            p.plan-task-head {
                span.state.(state_kind(task)) { (task.state) }
                b { (index + 1) " " (task.id) }
                span.plan-task-title { (title) }
            }
            @if let Some(why) = &task.why { p.reason { (printable(why)) } }
            p.proof {
                @if let Some(session) = &task.session {
                    a href=(format!("/sessions/{session}")) { (session) }
                }
                @if let Some(commit) = &task.commit { span { "landed as " code { (head(commit, SHORT_COMMIT)) } } }
                @for check in &task.checks {
                    @match check.ok {
                        Some(true) => span.good { "passed " code { (printable(&check.command)) } },
                        Some(false) => span.bad { "failed " code { (printable(&check.command)) } },
                        None => span { "check " code { (printable(&check.command)) } },
                    }
                }
                @if !task.after.is_empty() { span { "after " (task.after.join(", ")) } }
            }
            @if text != title {
                details #(format!("text-{}", task.id)) { summary { "The whole task" } pre { (text) } }
            }
        }
    }
}

/// Returns the first line of a task.
pub(crate) fn task_title(task: &TaskReport) -> String {
    printable(task.text.trim().lines().next().unwrap_or_default())
}

/// Returns the id of a task's element.
pub(crate) fn task_anchor(task: &TaskReport) -> String {
    format!("task-{}", task.id)
}

/// Returns the class of a task's state.
pub(crate) fn state_kind(task: &TaskReport) -> &'static str {
    match (task.status, &task.session_state) {
        (TaskSessionStatus::Undone, _) => "ask",
        (TaskSessionStatus::Done, _) => "good",
        (_, Some(state)) => layout::state_kind(state),
        (_, None) => "rest",
    }
}
