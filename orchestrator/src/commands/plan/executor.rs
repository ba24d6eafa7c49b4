//! Executes the tasks of a plan: starts sessions when their dependencies have landed, sends
//! failures to agents, and lands the work.

use base::failure::{FailureKind, Result};
use base::id::Id;
use base::text::{head, tail};
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

/// Maximum number of bytes of a failed check's output that the agent gets.
const TAIL: usize = 3000;

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
    pub standing: TaskSessionStatus,
    /// The commit of earlier landed work on the task, with other requirements.
    pub earlier: Option<String>,
}

impl Plan<'_> {
    /// Returns whether all tasks are done.
    pub(crate) fn is_done(&self, tasks: &[Task], all: &[Requirement]) -> Result<bool> {
        Ok(self
            .standing(tasks, all)?
            .iter()
            .all(|placed| placed.standing == TaskSessionStatus::Done))
    }

    /// Returns all tasks with their sessions. A session belongs to a task if the task, its
    /// requirements and its dependencies are unchanged since the session was created.
    pub(crate) fn standing(&self, tasks: &[Task], all: &[Requirement]) -> Result<Vec<PlacedTask>> {
        let views = self.sessions()?;
        let fates = self.context.dispositions()?;
        let placed = |(task, digest): (&Task, TaskDigest)| {
            let of_task =
                |view: &&SessionView| view.record.plan_ref.name.as_ref() == Some(&task.id);
            let same = |view: &SessionView| {
                view.record.plan_ref.digest.as_ref().is_some_and(|it| digest.is(it))
            };
            let view = views.iter().filter(of_task).rfind(|view| same(view)).cloned();
            let earlier = views.iter().filter(of_task).filter(|view| !same(view));
            let earlier = earlier.filter_map(landed_as).next_back();
            let view = view.filter(|view| view.state != SessionState::Discarded);
            let standing = match &view {
                _ if task.done => TaskSessionStatus::Done,
                None => TaskSessionStatus::None,
                Some(view) => match stands(view) {
                    TaskSessionStatus::Ready if self.stays_undone(&fates, &view.record.id) => {
                        TaskSessionStatus::Undone
                    }
                    standing => standing,
                },
            };
            PlacedTask { view, standing, earlier }
        };
        Ok(tasks.iter().zip(self.digests(tasks, all)).map(placed).collect())
    }

    /// Returns whether the user undid the landing of a session and did not agree to land it again.
    fn stays_undone(&self, fates: &Dispositions, id: &Id) -> bool {
        fates.is_landing_undone(id) && !self.land_again.contains(id)
    }

    /// Asks about each session whose landing was undone whether to land it again. The answer
    /// applies to this call of `studio plan`.
    fn ask_about_undone(&mut self, tasks: &[Task], all: &[Requirement]) -> Result<()> {
        for (task, placed) in tasks.iter().zip(self.standing(tasks, all)?) {
            let Some(view) = placed.view.filter(|_| placed.standing == TaskSessionStatus::Undone)
            else {
                continue;
            };
            let question = format!("the landing of task `{}` was undone; land it again?", task.id);
            if confirm::yes(&question) == Some(true) {
                self.land_again.insert(view.record.id);
            }
        }
        Ok(())
    }

    /// Returns the sessions of this plan, oldest first.
    fn sessions(&self) -> Result<Vec<SessionView>> {
        let mut views = self.context.views()?;
        views.retain(|view| view.record.plan_ref.plan.as_ref() == Some(&self.saved.id));
        Ok(views)
    }

    /// Works until there is nothing left to do, or the user must look at it.
    pub(crate) fn work(&mut self) -> Result<ExecutionEnd> {
        // The approved texts apply, even if the files change during the execution.
        let all = self.files.requirements(self.saved.approved.as_deref().unwrap_or_default())?;
        let tasks = self.files.tasks(self.saved.agreed.as_deref().unwrap_or_default(), &all)?;
        self.drop_others(&tasks, &all)?;
        self.ask_about_undone(&tasks, &all)?;
        let digests = self.digests(&tasks, &all);
        let context = self.context;
        let mut watcher = Watcher::begin(context, WatchFrom::FromNow)?;
        let mut tries = vec![0; tasks.len()];
        loop {
            let placed = self.standing(&tasks, &all)?;
            let standing: Vec<TaskSessionStatus> = placed.iter().map(|it| it.standing).collect();
            let acts = plan::next(&tasks, &standing, &tries);
            for (at, act) in &acts {
                tries[*at] += 1;
                if let Err(failure) =
                    self.carry_out(*act, (&tasks[*at], &digests[*at].now), &placed[*at], &all)
                {
                    // The other tasks continue.
                    report::say(&format!("{}: {}", tasks[*at].id, failure.in_full()));
                    tries[*at] = u32::MAX;
                }
            }
            if !acts.is_empty() {
                context.schedule()?;
                continue;
            }
            let at_work: Vec<&Id> = placed
                .iter()
                .filter(|placed| placed.standing == TaskSessionStatus::AtWork)
                .filter_map(|placed| Some(&placed.view.as_ref()?.record.id))
                .collect();
            if at_work.is_empty() {
                let done = standing.iter().all(|standing| *standing == TaskSessionStatus::Done);
                return Ok(if done { ExecutionEnd::Done } else { ExecutionEnd::Stuck });
            }
            at_work.into_iter().for_each(|id| watcher.add(id));
            if watcher.until(StopWhen::One)? == WatchOutcome::Interrupted {
                return Ok(ExecutionEnd::Interrupted);
            }
        }
    }

    /// Discards sessions whose tasks are no longer part of the plan; `undo` restores them.
    fn drop_others(&self, tasks: &[Task], all: &[Requirement]) -> Result<()> {
        let digests = self.digests(tasks, all);
        let wanted = |view: &SessionView| {
            let part = &view.record.plan_ref;
            tasks.iter().zip(&digests).any(|(task, digest)| {
                part.name.as_ref() == Some(&task.id)
                    && part.digest.as_ref().is_some_and(|it| digest.is(it))
            })
        };
        let mut others = self.sessions()?;
        others.retain(|view| !view.state.is_over() && !wanted(view));
        if others.is_empty() {
            return Ok(());
        }
        let operation = discard::drop_all(self.context, &others)?;
        let ids: Vec<&str> = others.iter().map(|view| view.record.id.as_str()).collect();
        report::say(&format!("discarded because the plan changed: {}", ids.join(", ")));
        report::say(&format!("undo: studio undo {operation}"));
        Ok(())
    }

    fn carry_out(
        &self,
        act: TaskAction,
        task: (&Task, &str),
        placed: &PlacedTask,
        all: &[Requirement],
    ) -> Result<()> {
        let view = match (&placed.view, act) {
            (None, _) | (_, TaskAction::Begin) => return self.begin_task(task, placed, all),
            (Some(view), TaskAction::GoOn | TaskAction::Again | TaskAction::Land) => view,
        };
        let id = &view.record.id;
        match act {
            TaskAction::Begin => Ok(()),
            TaskAction::GoOn => resume::wake(self.context, id, None),
            TaskAction::Again => resume::wake(self.context, id, Some(why_again(view))),
            TaskAction::Land => match accept::one(self.context, view, &LandingOptions::default()) {
                Ok(landed) => {
                    output::landed(self.context, &landed);
                    Ok(())
                }
                Err(refused) => self.not_landed(id, refused),
            },
        }
    }

    /// Sends a conflict, or a check that fails on the merged tree, to the agent.
    fn not_landed(&self, id: &Id, refused: Rejection) -> Result<()> {
        let Rejection { failure, agent_prompt, .. } = refused;
        match (failure.kind, agent_prompt) {
            (FailureKind::Conflict, Some(prompt)) => {
                resume::wake(self.context, id, Some(prompt.into()))
            }
            (FailureKind::Failed, _) => {
                let branch = &self.saved.branch;
                let tip = self.context.repository.base(Some(branch))?.commit;
                let text = format!(
                    "Your work does not land: {}. The branch `{branch}` is at commit {tip}. Commit \
                     what you have, run `git merge {tip}`, and make it pass.",
                    failure.in_full()
                );
                resume::wake(self.context, id, Some(text))
            }
            (_, _) => Err(failure),
        }
    }

    fn begin_task(
        &self,
        (task, digest): (&Task, &str),
        placed: &PlacedTask,
        all: &[Requirement],
    ) -> Result<()> {
        let mut order = self.order(task, placed.earlier.as_deref(), all);
        order.plan_ref.digest = Some(digest.to_owned());
        create_session::create(self.context, &[order]).map(|_| ())
    }

    /// Returns the specification of a task's session; `earlier` is the commit of earlier landed
    /// work on it.
    pub(crate) fn order(
        &self,
        task: &Task,
        earlier: Option<&str>,
        all: &[Requirement],
    ) -> SessionSpec {
        let agent = task.agent.clone().or_else(|| self.context.config.studio.agent.clone());
        let agent = agent.unwrap_or_else(|| "g3".to_owned());
        let mut text = task.text.clone();
        if let Some(commit) = earlier {
            text.push_str(&format!(
                "\n\nEarlier work on this has landed as commit {}. Its requirements, or what it \
                 builds on, have changed since: bring it in line with them.",
                head(commit, 12)
            ));
        }
        let mut contract = plan::contract(task, all);
        // Only g3 has a coach; other agents, and personas, get the requirements as text.
        let persona = task.persona.as_deref();
        let coached = has_rounds(&self.context.config, &agent, persona);
        if let Some(lines) = contract.take_if(|_| !coached) {
            text.push_str(&format!("\n\nIt serves these requirements:\n\n{lines}"));
        }
        let mut checks = task.checks.clone();
        checks.extend(self.args.checks.iter().filter(|it| !task.checks.contains(it)).cloned());
        SessionSpec {
            agent: Some(agent),
            persona: task.persona.clone(),
            base: task.base.clone().or_else(|| Some(self.saved.branch.clone())),
            checks,
            plan_ref: PlanRef {
                name: Some(task.id.clone()),
                paths: task.paths.clone(),
                requirements: task.requirements.clone(),
                contract,
                plan: Some(self.saved.id.clone()),
                digest: None,
            },
            limits: self.args.limits.limits(),
            run_mode: self.manner(),
            ..SessionSpec::of(text)
        }
    }
}

/// Returns the status of a session in its plan.
fn stands(view: &SessionView) -> TaskSessionStatus {
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
fn landed_as(view: &SessionView) -> Option<String> {
    match &view.facts.disposition {
        Disposition::Accepted { commit, .. } => commit.clone(),
        Disposition::Open | Disposition::Landing | Disposition::Discarded { .. } => None,
    }
}

/// Returns the prompt for the agent of a failed session.
fn why_again(view: &SessionView) -> String {
    let mut text = format!("It is not done yet: {}.", view.why().unwrap_or_default());
    let checks = view.facts.summary.checks.iter().flatten();
    for check in checks.filter(|check| !check.ok && !check.tail.trim().is_empty()) {
        let said = tail(check.tail.trim_end(), TAIL);
        text.push_str(&format!("\n\n`{}` wrote:\n{said}", check.command));
    }
    text + "\n\nSet that right."
}
