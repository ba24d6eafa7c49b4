//! Executes the tasks of a plan: starts sessions when their dependencies have landed, sends
//! failures to agents, and lands the work.

use base::failure::{FailureKind, Result};
use base::id::Id;
use base::text::head;
use planner::plan::{self, TaskAction, TaskDigest, TaskSessionStatus};
use planner::requirement::Requirement;
use planner::task::Task;

use super::{Plan, output};
use crate::commands::watch::{StopWhen, WatchFrom, WatchOutcome, Watcher};
use crate::commands::{accept, confirm, discard, resume};
use crate::report;
use studio_core::create_session;
use studio_core::landing::{LandingOptions, Rejection};
use studio_core::launch::requirements::has_rounds;
use studio_core::session::disposition::Dispositions;
use studio_core::session::record::PlanRef;
use studio_core::session::spec::SessionSpec;
use studio_core::session::state::SessionState;
use studio_core::session::summary::Disposition;
use studio_core::session_view::SessionView;

/// How the execution ended.
pub(crate) enum ExecutionEnd {
    /// All tasks are done.
    Done,
    /// The user must look at it.
    Stuck,
    /// The user pressed Ctrl-C; everything is kept.
    Interrupted,
}

/// A task and its session.
pub(crate) struct PlacedTask {
    /// The session; `None` before it starts, or if the user discarded it.
    pub view: Option<SessionView>,
    /// The status of the session.
    pub status: TaskSessionStatus,
    /// The commit of earlier landed work on the task, with other requirements.
    pub earlier_commit: Option<String>,
}

impl Plan<'_> {
    /// Returns whether all tasks are done.
    pub(crate) fn is_done(&self, tasks: &[Task], requirements: &[Requirement]) -> Result<bool> {
        Ok(self
            .task_statuses(tasks, requirements)?
            .iter()
            .all(|placed| placed.status == TaskSessionStatus::Done))
    }

    /// Returns all tasks with their sessions. A session belongs to a task if the task, its
    /// requirements and its dependencies are unchanged since the session was created.
    pub(crate) fn task_statuses(
        &self,
        tasks: &[Task],
        requirements: &[Requirement],
    ) -> Result<Vec<PlacedTask>> {
        let views = self.sessions()?;
        let dispositions = self.context.dispositions()?;
        let to_placed_task = |(task, digest): (&Task, TaskDigest)| {
            let is_of_task =
                |view: &&SessionView| view.record.plan_ref.name.as_ref() == Some(&task.id);
            let has_same_digest = |view: &SessionView| {
                view.record.plan_ref.digest.as_ref().is_some_and(|it| digest.matches(it))
            };
            let view = views.iter().filter(is_of_task).rfind(|view| has_same_digest(view)).cloned();
            let earlier_commit =
                views.iter().filter(is_of_task).filter(|view| !has_same_digest(view));
            let earlier_commit = earlier_commit.filter_map(landed_commit).next_back();
            let view = view.filter(|view| view.state != SessionState::Discarded);
            let status = match &view {
                _ if task.done => TaskSessionStatus::Done,
                None => TaskSessionStatus::None,
                Some(view) => match status_of(view) {
                    TaskSessionStatus::Ready
                        if self.remains_undone(&dispositions, &view.record.id) =>
                    {
                        TaskSessionStatus::Undone
                    }
                    status => status,
                },
            };
            PlacedTask { view, status, earlier_commit }
        };
        Ok(tasks.iter().zip(self.digests(tasks, requirements)).map(to_placed_task).collect())
    }

    /// Returns whether the user undid the landing of a session and did not agree to land it again.
    fn remains_undone(&self, dispositions: &Dispositions, id: &Id) -> bool {
        dispositions.is_landing_undone(id) && !self.land_again.contains(id)
    }

    /// Asks about each session whose landing was undone whether to land it again. The answer
    /// applies to this call of `studio plan`.
    fn ask_about_undone(&mut self, tasks: &[Task], requirements: &[Requirement]) -> Result<()> {
        for (task, placed) in tasks.iter().zip(self.task_statuses(tasks, requirements)?) {
            let Some(view) = placed.view.filter(|_| placed.status == TaskSessionStatus::Undone)
            else {
                continue;
            };
            let question = format!("the landing of task `{}` was undone; land it again?", task.id);
            if confirm::ask(&question) == Some(true) {
                self.land_again.insert(view.record.id);
            }
        }
        Ok(())
    }

    /// Returns the sessions of this plan, oldest first.
    fn sessions(&self) -> Result<Vec<SessionView>> {
        let mut views = self.context.views()?;
        views.retain(|view| view.record.plan_ref.plan.as_ref() == Some(&self.record.id));
        Ok(views)
    }

    /// Works until there is nothing left to do, or the user must look at it.
    pub(crate) fn execute(&mut self) -> Result<ExecutionEnd> {
        // The approved texts apply, even if the files change during the execution.
        let requirements =
            self.files.requirements(self.record.approved.as_deref().unwrap_or_default())?;
        let tasks =
            self.files.tasks(self.record.agreed.as_deref().unwrap_or_default(), &requirements)?;
        self.discard_obsolete(&tasks, &requirements)?;
        self.ask_about_undone(&tasks, &requirements)?;
        let digests = self.digests(&tasks, &requirements);
        let context = self.context;
        let mut watcher = Watcher::begin(context, WatchFrom::FromNow)?;
        let mut attempts = vec![0; tasks.len()];
        loop {
            let placed = self.task_statuses(&tasks, &requirements)?;
            let statuses: Vec<TaskSessionStatus> = placed.iter().map(|it| it.status).collect();
            let actions = plan::next_actions(&tasks, &statuses, &attempts);
            for (index, action) in &actions {
                attempts[*index] += 1;
                if let Err(failure) = self.perform(
                    *action,
                    (&tasks[*index], &digests[*index].current),
                    &placed[*index],
                    &requirements,
                ) {
                    // The other tasks continue.
                    report::say(&format!("{}: {}", tasks[*index].id, failure.full_text()));
                    attempts[*index] = u32::MAX;
                }
            }
            if !actions.is_empty() {
                context.schedule()?;
                continue;
            }
            let running: Vec<&Id> = placed
                .iter()
                .filter(|placed| placed.status == TaskSessionStatus::AtWork)
                .filter_map(|placed| Some(&placed.view.as_ref()?.record.id))
                .collect();
            if running.is_empty() {
                let all_done = statuses.iter().all(|statuses| *statuses == TaskSessionStatus::Done);
                return Ok(if all_done { ExecutionEnd::Done } else { ExecutionEnd::Stuck });
            }
            running.into_iter().for_each(|id| watcher.add(id));
            if watcher.run_until(StopWhen::One)? == WatchOutcome::Interrupted {
                return Ok(ExecutionEnd::Interrupted);
            }
        }
    }

    /// Discards sessions whose tasks are no longer part of the plan; `undo` restores them.
    fn discard_obsolete(&self, tasks: &[Task], requirements: &[Requirement]) -> Result<()> {
        let digests = self.digests(tasks, requirements);
        let is_planned = |view: &SessionView| {
            let part = &view.record.plan_ref;
            tasks.iter().zip(&digests).any(|(task, digest)| {
                part.name.as_ref() == Some(&task.id)
                    && part.digest.as_ref().is_some_and(|it| digest.matches(it))
            })
        };
        let mut obsolete = self.sessions()?;
        obsolete.retain(|view| !view.state.is_over() && !is_planned(view));
        if obsolete.is_empty() {
            return Ok(());
        }
        let operation = discard::discard_all(self.context, &obsolete)?;
        let ids: Vec<&str> = obsolete.iter().map(|view| view.record.id.as_str()).collect();
        report::say(&format!("discarded because the plan changed: {}", ids.join(", ")));
        report::say(&format!("undo: studio undo {operation}"));
        Ok(())
    }

    fn perform(
        &self,
        action: TaskAction,
        task: (&Task, &str),
        placed: &PlacedTask,
        requirements: &[Requirement],
    ) -> Result<()> {
        let view = match (&placed.view, action) {
            (None, _) | (_, TaskAction::Begin) => {
                return self.start_task(task, placed, requirements);
            }
            (Some(view), TaskAction::GoOn | TaskAction::Again | TaskAction::Land) => view,
        };
        let id = &view.record.id;
        match action {
            TaskAction::Begin => Ok(()),
            TaskAction::GoOn => resume::requeue(self.context, id, None),
            TaskAction::Again => {
                resume::requeue(self.context, id, Some(resume::retry_prompt(view)))
            }
            TaskAction::Land => {
                match accept::land_one(self.context, view, &LandingOptions::default()) {
                    Ok(landed) => {
                        output::landed(self.context, &landed);
                        Ok(())
                    }
                    Err(rejection) => self.handle_rejection(id, rejection),
                }
            }
        }
    }

    /// Sends a conflict, or a check that fails on the merged tree, to the agent.
    fn handle_rejection(&self, id: &Id, rejection: Rejection) -> Result<()> {
        let Rejection { failure, agent_prompt, .. } = rejection;
        match (failure.kind, agent_prompt) {
            (FailureKind::Conflict, Some(prompt)) => {
                resume::requeue(self.context, id, Some(prompt.into()))
            }
            (FailureKind::Failed, _) => {
                let branch = &self.record.branch;
                let tip = self.context.repository.base(Some(branch))?.commit;
                let text = format!(
                    "Your work does not land: {}. The branch `{branch}` is at commit {tip}. Commit \
                     what you have, run `git merge {tip}`, and make it pass.",
                    failure.full_text()
                );
                resume::requeue(self.context, id, Some(text))
            }
            (_, _) => Err(failure),
        }
    }

    fn start_task(
        &self,
        (task, digest): (&Task, &str),
        placed: &PlacedTask,
        requirements: &[Requirement],
    ) -> Result<()> {
        let mut spec = self.session_spec(task, placed.earlier_commit.as_deref(), requirements);
        spec.plan_ref.digest = Some(digest.to_owned());
        create_session::create(self.context, &[spec]).map(|_| ())
    }

    /// Returns the specification of a task's session; `earlier_commit` is the commit of earlier
    /// landed work on it.
    pub(crate) fn session_spec(
        &self,
        task: &Task,
        earlier_commit: Option<&str>,
        requirements: &[Requirement],
    ) -> SessionSpec {
        let agent = task.agent.clone().or_else(|| self.context.config.studio.agent.clone());
        let agent = agent.unwrap_or_else(|| "g3".to_owned());
        let mut text = task.text.clone();
        if let Some(commit) = earlier_commit {
            text.push_str(&format!(
                "\n\nEarlier work on this has landed as commit {}. Its requirements, or what it \
                 builds on, have changed since: bring it in line with them.",
                head(commit, 12)
            ));
        }
        let mut contract = plan::contract(task, requirements);
        // Only g3 has a coach; other agents, and personas, get the requirements as text.
        let persona = task.persona.as_deref();
        let has_coach = has_rounds(&self.context.config, &agent, persona);
        if let Some(lines) = contract.take_if(|_| !has_coach) {
            text.push_str(&format!("\n\nIt serves these requirements:\n\n{lines}"));
        }
        let mut checks = task.checks.clone();
        checks.extend(self.args.checks.iter().filter(|it| !task.checks.contains(it)).cloned());
        SessionSpec {
            agent: Some(agent),
            persona: task.persona.clone(),
            base: task.base.clone().or_else(|| Some(self.record.branch.clone())),
            checks,
            plan_ref: PlanRef {
                name: Some(task.id.clone()),
                paths: task.paths.clone(),
                requirements: task.requirements.clone(),
                contract,
                plan: Some(self.record.id.clone()),
                digest: None,
            },
            limits: self.args.limits.limits(),
            run_mode: self.run_mode(),
            ..SessionSpec::of(text)
        }
    }
}

/// Returns the status of a session in its plan.
fn status_of(view: &SessionView) -> TaskSessionStatus {
    match &view.state {
        // Its supervisor is landing it.
        SessionState::Ready if view.facts.locked => TaskSessionStatus::AtWork,
        SessionState::Ready => TaskSessionStatus::Ready,
        SessionState::Failed { .. } => TaskSessionStatus::Failed,
        SessionState::Stopped | SessionState::Crashed => TaskSessionStatus::Cut,
        SessionState::Accepted | SessionState::Empty => TaskSessionStatus::Done,
        SessionState::Discarded => TaskSessionStatus::None,
        SessionState::Queued
        | SessionState::Starting
        | SessionState::Working
        | SessionState::Waiting { .. }
        | SessionState::Checking
        | SessionState::Landing => TaskSessionStatus::AtWork,
    }
}

/// Returns the commit as which a session landed.
fn landed_commit(view: &SessionView) -> Option<String> {
    match &view.facts.disposition {
        Disposition::Accepted { commit, .. } => commit.clone(),
        Disposition::Open | Disposition::Landing | Disposition::Discarded { .. } => None,
    }
}
