//! `studio plan --status`: the plan with its tasks and proofs, read without changing anything.

use base::config::trust::hash;
use base::failure::{Failure, Result};
use base::lock::Lock;
use base::text::{count, head, printable};
use planner::document;
use planner::plan::{PlanStage, TaskSessionStatus};
use planner::requirement::Requirement;
use planner::task::Task;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use studio_core::session::state::SessionState;

use super::executor::PlacedTask;
use super::files::{REQUIREMENTS, TASKS};
use super::{Args, Plan, background, output};
use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use crate::report::requirements::ServedRequirement;
use crate::report::table;

/// The plan of a repository.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanReport {
    /// The version of the form.
    pub schema: u32,
    /// The plan; `null` without a plan.
    pub plan: Option<PlanDetails>,
}

/// A plan.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanDetails {
    /// `refine`, `approve`, `split`, `agree`, `work` or `over`; `null` if its files have errors.
    pub stage: Option<String>,
    /// What it waits for; `null` if all tasks are done.
    pub waits_for: Option<String>,
    /// Whether `studio plan` runs.
    pub running: bool,
    /// What `studio plan --detach` wrote last.
    pub output: Option<String>,
    /// The branch on which it lands.
    pub branch: String,
    /// The user's own text, or where the plan was imported from.
    pub request: Option<String>,
    /// The text of the requirements.
    pub requirements_file: PlanTextReport,
    /// The text of the tasks.
    pub tasks_file: PlanTextReport,
    /// The errors of these texts.
    pub problems: Vec<PlanProblem>,
    /// The requirements.
    pub requirements: Vec<RequirementReport>,
    /// The approved requirements that the text no longer has.
    pub removed: Vec<String>,
    /// The tasks.
    pub tasks: Vec<TaskReport>,
    /// The number of tasks that are done.
    pub done: usize,
}

/// A text of a plan.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanTextReport {
    /// The file.
    pub path: String,
    /// The digest, for `--approve`.
    pub digest: String,
    /// Whether the user approved exactly this text.
    pub approved: bool,
}

/// An error in a text of a plan.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanProblem {
    /// What is wrong.
    pub what: String,
    /// The lines.
    pub why: Option<String>,
}

/// A requirement with the proof that it is met.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequirementReport {
    /// The id.
    pub id: String,
    /// The text.
    pub text: String,
    /// `new` or `changed` since the user approved the requirements.
    pub change: Option<String>,
    /// `shown`, `no check` or `not landed`, as in `studio trace`.
    pub state: String,
    /// The commits that landed it.
    pub commits: Vec<String>,
    /// The checks that passed there.
    pub checks: Vec<String>,
    /// The coach's verdict.
    pub coach: Option<String>,
}

/// A task with its session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskReport {
    /// The id.
    pub id: String,
    /// The text for the agent.
    pub text: String,
    /// The requirements that it implements.
    pub requirements: Vec<String>,
    /// The tasks that must land before it starts.
    pub after: Vec<String>,
    /// Its checks with their results.
    pub checks: Vec<TaskCheck>,
    /// The state of its session, else what happens next.
    pub state: String,
    /// The reason of the state.
    pub why: Option<String>,
    /// The session.
    pub session: Option<String>,
    /// The commit as which it landed.
    pub commit: Option<String>,
    /// The state of the session.
    #[serde(skip)]
    pub session_state: Option<SessionState>,
    /// The status of the session in the plan.
    #[serde(skip)]
    pub status: TaskSessionStatus,
}

/// A check of a task.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskCheck {
    /// The command line.
    pub command: String,
    /// Whether it passed; `null` before it ran.
    pub ok: Option<bool>,
}

/// Runs the command.
pub(crate) fn show(context: &CommandContext) -> Result<u8> {
    let report = read(context)?;
    match report.plan {
        _ if context.json => report::json_line(&json!(report)),
        Some(plan) => print(&plan),
        None => report::say("no plan; start one with: studio plan FILE"),
    }
    Ok(0)
}

/// Reads the plan of the repository.
pub(crate) fn read(context: &CommandContext) -> Result<PlanReport> {
    let args = Args::default();
    let plan = Plan::open_to_read(context, &args)?;
    Ok(PlanReport { schema: 1, plan: plan.map(|plan| plan.details()).transpose()? })
}

impl Plan<'_> {
    fn details(&self) -> Result<PlanDetails> {
        let text = self.files.read(REQUIREMENTS)?.unwrap_or_default();
        let list = self.files.read(TASKS)?.unwrap_or_default();
        let mut problems = Vec::new();
        let mut keep = |failure: &Failure| {
            problems.push(PlanProblem { what: failure.what.clone(), why: failure.reason() });
        };
        let requirements = self.files.requirements(&text).inspect_err(&mut keep).ok();
        let tasks = requirements.as_ref().and_then(|requirements| {
            self.files.tasks(&list, requirements).inspect_err(&mut keep).ok()
        });
        let stage = requirements.as_ref().and_then(|it| self.stage_of(&text, it).ok());
        let (requirements, tasks) = (requirements.unwrap_or_default(), tasks.unwrap_or_default());
        let placed = self.task_statuses(&tasks, &requirements)?;
        let running = Lock::is_held(&background::lock_path(self.context)?).unwrap_or(false);
        let path = |path: &str, text: &str, approved: &Option<String>| PlanTextReport {
            path: path.to_owned(),
            digest: hash(text.as_bytes()),
            approved: approved.as_deref() == Some(text),
        };
        let previous = self.record.approved.as_deref().unwrap_or_default();
        let previous = self.files.requirements(previous).unwrap_or_default();
        let is_removed = |old: &&Requirement| requirements.iter().all(|it| it.id != old.id);
        let removed = previous.iter().filter(is_removed);
        let is_done = |placed: &&PlacedTask| placed.status == TaskSessionStatus::Done;
        Ok(PlanDetails {
            stage: stage.map(|stage| output::stage_word(stage).to_owned()),
            waits_for: waits_for(stage, running, &placed),
            running,
            output: background::last_output(self.context)?,
            branch: self.record.branch.clone(),
            request: document::original(&text).map(|text| text.trim().to_owned()),
            requirements_file: path(REQUIREMENTS, &text, &self.record.approved),
            tasks_file: path(TASKS, &list, &self.record.agreed),
            removed: removed.map(|old| format!("{}: {}", old.id, old.text)).collect(),
            done: placed.iter().filter(is_done).count(),
            tasks: tasks.iter().zip(&placed).map(|it| task_report(it, &tasks, &placed)).collect(),
            requirements: self.requirement_reports(&requirements, &previous, &mut problems),
            problems,
        })
    }

    /// Returns the requirements with what landed for them.
    fn requirement_reports(
        &self,
        requirements: &[Requirement],
        previous: &[Requirement],
        problems: &mut Vec<PlanProblem>,
    ) -> Vec<RequirementReport> {
        let common =
            CommonArgs { directory: self.context.directory.clone(), ..CommonArgs::default() };
        // Before the plan begins, nothing has landed for it.
        let has_history = !self.record.since.is_empty() && !requirements.is_empty();
        let selection = has_history.then(|| self.requirement_filter().read(&common, self.context));
        let selection = selection.transpose().unwrap_or_else(|failure| {
            problems.push(PlanProblem { what: failure.what.clone(), why: failure.reason() });
            None
        });
        let served = selection.as_ref().map(|it| it.served()).unwrap_or_default();
        let report = |it: &Requirement| {
            let proof = served.iter().find(|served| served.row.id == it.id);
            let change = match previous.iter().find(|old| old.id == it.id) {
                Some(old) if old.text == it.text => None,
                Some(_) => Some("changed"),
                None => (!previous.is_empty()).then_some("new"),
            };
            RequirementReport {
                id: it.id.clone(),
                text: it.text.clone(),
                change: change.map(str::to_owned),
                state: proof.map_or("not landed", ServedRequirement::state).to_owned(),
                commits: proof.map(|proof| proof.row.commits.clone()).unwrap_or_default(),
                checks: proof.map(|proof| proof.row.checks.clone()).unwrap_or_default(),
                coach: proof.map(ServedRequirement::coach_status).filter(|word| word != "-"),
            }
        };
        requirements.iter().map(report).collect()
    }
}

fn task_report(
    (task, placed): (&Task, &PlacedTask),
    tasks: &[Task],
    all: &[PlacedTask],
) -> TaskReport {
    let view = placed.view.as_ref();
    let results = view.and_then(|view| view.facts.summary.checks.as_deref()).unwrap_or_default();
    let mut checks: Vec<TaskCheck> = results
        .iter()
        .map(|result| TaskCheck { command: result.command.clone(), ok: Some(result.ok) })
        .collect();
    let has_no_result = |line: &&String| results.iter().all(|result| result.command != **line);
    let open = task.checks.iter().filter(has_no_result);
    checks.extend(open.map(|line| TaskCheck { command: line.clone(), ok: None }));
    let state = match placed.status {
        TaskSessionStatus::Undone => output::status_word(placed),
        _ => output::state(placed),
    };
    let is_open = |id: &&String| {
        let mut with_status = tasks.iter().zip(all);
        with_status.any(|(it, placed)| it.id == **id && placed.status != TaskSessionStatus::Done)
    };
    let open: Vec<&str> = task.after.iter().filter(is_open).map(String::as_str).collect();
    let why = view.and_then(|view| view.reason()).or_else(|| {
        (placed.status == TaskSessionStatus::None && !open.is_empty())
            .then(|| format!("waiting for {}", open.join(", ")))
    });
    TaskReport {
        id: task.id.clone(),
        text: task.text.clone(),
        requirements: task.requirements.clone(),
        after: task.after.clone(),
        checks,
        state: state.to_owned(),
        why,
        session: view.map(|view| view.record.id.to_string()),
        commit: output::commit(placed),
        session_state: view.map(|view| view.state.clone()),
        status: placed.status,
    }
}

/// Describes what a plan waits for.
fn waits_for(stage: Option<PlanStage>, is_running: bool, placed: &[PlacedTask]) -> Option<String> {
    let continued = |running: &str, otherwise: &str| match is_running {
        true => running.to_owned(),
        false => format!("{otherwise} with: studio plan"),
    };
    let at_work = placed.iter().filter(|it| it.status == TaskSessionStatus::AtWork).count();
    Some(match stage {
        None => "corrected files".to_owned(),
        Some(PlanStage::Refine) => {
            continued("the model that refines the requirements", "refining the requirements")
        }
        Some(PlanStage::Approve) => "your approval of the requirements".to_owned(),
        Some(PlanStage::Split) => continued(
            "the model that splits the requirements into tasks",
            "splitting the requirements into tasks",
        ),
        Some(PlanStage::Agree) => "your approval of the tasks".to_owned(),
        Some(PlanStage::Work) if is_running => match at_work {
            0 => "its next step".to_owned(),
            n => count(n, "session"),
        },
        Some(PlanStage::Work) => "its continuation with: studio plan".to_owned(),
        Some(PlanStage::Over) => return None,
    })
}

fn print(plan: &PlanDetails) {
    let stage = plan.stage.as_deref().unwrap_or("invalid");
    let waits_for = plan.waits_for.as_ref().map(|it| format!(", waits for {it}"));
    let done = format!("{} of {} done", plan.done, count(plan.tasks.len(), "task"));
    report::out(&format!("{stage}: {done}{}", waits_for.unwrap_or_default()));
    for problem in &plan.problems {
        report::say(&printable(&format!("error: {}", problem.what)));
        problem.why.iter().for_each(|why| report::say(&printable(&format!("  why: {why}"))));
    }
    let requirement = |it: &RequirementReport| {
        let commits: Vec<&str> = it.commits.iter().map(|commit| head(commit, 12)).collect();
        let change = it.change.as_ref().map(|change| format!(" ({change})")).unwrap_or_default();
        [
            printable(&format!("{}{change}", it.id)),
            it.state.clone(),
            commits.join(" "),
            printable(&table::first_lines(&it.text, 2)),
        ]
    };
    let rows = plan.requirements.iter().map(requirement).collect();
    report::out(&table::plain(["ID", "STATE", "COMMITS", "REQUIREMENT"], rows));
    for text in &plan.removed {
        report::out(&printable(&format!("removed {text}")));
    }
    let task = |it: &TaskReport| {
        [
            it.id.clone(),
            it.state.clone(),
            it.after.join(" "),
            it.session.clone().unwrap_or_default(),
            printable(&table::first_lines(&it.text, 2)),
        ]
    };
    let rows = plan.tasks.iter().map(task).collect();
    report::out(&table::plain(["TASK", "STATE", "AFTER", "SESSION", "TEXT"], rows));
    for (file, word) in [(&plan.requirements_file, "approve"), (&plan.tasks_file, "agree")] {
        if plan.stage.as_deref() == Some(word) {
            report::say(&format!("approve {}: studio plan --approve {}", file.path, file.digest));
        }
    }
}
