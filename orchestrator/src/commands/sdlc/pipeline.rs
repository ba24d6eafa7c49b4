//! The pipeline: begins and continues a run, and carries out its steps.

use base::failure::{Failure, FailureKind, OrFail, Result};
use base::id::Id;
use base::lock::Lock;
use studio_core::session::record::PlanRef;
use studio_core::session::spec::{SessionSpec, SessionStart};
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;
use studio_core::{create_session, fork};

use super::RunArgs;
use super::output;
use super::range::{self, CommitRange};
use super::record::{self, PipelineRecord, SdlcState};
use super::stages::{PersonaStage, STAGES, StageAction, StageSessions};
use crate::commands::context::CommandContext;
use crate::commands::preflight;
use crate::commands::resume::{self, ResumeInput};
use crate::report;

/// A run of the pipeline, which only this process advances.
pub(crate) struct Pipeline<'a> {
    context: &'a CommandContext,
    state: SdlcState,
    record: PipelineRecord,
    _lock: Lock,
}

/// Takes the lock of the process that advances the pipeline.
pub(crate) fn take_lock(context: &CommandContext) -> Result<Lock> {
    context.repository.studio_dir()?;
    let path = record::lock_path(&context.repository);
    let lock = Lock::try_take(&path).or_fail(|| format!("cannot lock {}", path.display()))?;
    lock.ok_or_else(|| {
        Failure::refused("`studio sdlc run` is already running in this repository")
            .hint("studio sdlc status")
            .hint("or stop the other one with Ctrl-C, or its session with: studio stop ID")
    })
}

/// Returns the last session of each stage of a run.
pub(crate) fn sessions_of(
    context: &CommandContext,
    record: &PipelineRecord,
) -> Result<Vec<Option<SessionView>>> {
    let mut views = context.views()?;
    views.retain(|view| view.record.plan_ref.plan.as_ref() == Some(&record.id));
    let is_of = |view: &SessionView, stage: &PersonaStage| {
        view.record.plan_ref.name.as_deref() == Some(stage.persona)
    };
    let last = |stage| views.iter().rfind(|view| is_of(view, stage)).cloned();
    Ok(STAGES.iter().map(last).collect())
}

impl<'a> Pipeline<'a> {
    /// Continues the current run, or begins one; `None` if there are no commits for it.
    pub(crate) fn open(
        context: &'a CommandContext,
        args: &RunArgs,
    ) -> Result<Option<Pipeline<'a>>> {
        let lock = take_lock(context)?;
        let state = record::load(&context.repository)?;
        let current = state.pipeline.clone().filter(|record| !record.complete);
        let record = match current {
            Some(record) if args.commits.is_some() || args.from.is_some() => {
                let range = range::name(&record, 12);
                return Err(Failure::refused("the pipeline is not complete")
                    .because(format!("it works on {range} of `{}`", record.branch))
                    .hint("studio sdlc run      continues it")
                    .hint("studio sdlc reset    forgets it; its sessions are kept"));
            }
            Some(record) => {
                let settings = args.settings(Some(&record.settings));
                PipelineRecord { settings, ..record }
            }
            None => {
                let cursor = |branch: &str| state.cursors.get(branch).cloned();
                let from = args.from.as_deref();
                let range = CommitRange::select(context, args.commits, from, cursor)?;
                if range.commits.is_empty() {
                    drop(lock);
                    output::no_commits(context, &state, &range)?;
                    return Ok(None);
                }
                new_record(args, range)?
            }
        };
        let mut pipeline = Pipeline { context, state, record, _lock: lock };
        preflight::check(context, &[pipeline.spec(&STAGES[0], String::new(), None)])?;
        if pipeline.state.pipeline.as_ref() != Some(&pipeline.record) {
            pipeline.save()?;
        }
        Ok(Some(pipeline))
    }

    fn save(&mut self) -> Result<()> {
        self.state.pipeline = Some(self.record.clone());
        record::save(&self.context.repository, &self.state)
    }

    /// Returns the last session of each stage.
    pub(crate) fn sessions(&self) -> Result<Vec<Option<SessionView>>> {
        sessions_of(self.context, &self.record)
    }

    /// Carries out an action for a stage; returns its session.
    pub(crate) fn take(
        &self,
        (stage, action): (usize, StageAction),
        sessions: &StageSessions,
        args: &RunArgs,
    ) -> Result<Id> {
        let id = match (action, &sessions[stage]) {
            (StageAction::Retry, Some(view)) => {
                let id = view.record.id.clone();
                let has_failed_check = view.facts.summary.failed_check().is_some();
                let prompt = has_failed_check.then(|| resume::retry_prompt(view));
                let limits = args.limits.limits();
                let input = ResumeInput { prompt, limits, ..ResumeInput::default() };
                resume::requeue_with(self.context, &id, input)?;
                id
            }
            (StageAction::Wait, Some(view)) => view.record.id.clone(),
            (StageAction::Start, _) | (StageAction::Retry | StageAction::Wait, None) => {
                self.start(stage, sessions)?
            }
        };
        self.context.schedule()?;
        Ok(id)
    }

    /// Records the session of a stage: on top of the last stage that changed something and has not
    /// landed, else at the tip of the branch.
    fn start(&self, index: usize, sessions: &StageSessions) -> Result<Id> {
        let stage = &STAGES[index];
        let earlier = STAGES.iter().zip(sessions).take(index);
        let earlier = earlier.filter_map(|(stage, view)| Some((stage.persona, view.as_ref()?)));
        let has_changes = |view: &SessionView| view.work().is_some_and(|it| it.files_changed > 0);
        let changed: Vec<(&str, &SessionView)> = earlier
            .filter(|(_, view)| has_changes(view) && view.state != SessionState::Discarded)
            .collect();
        let lower = changed.iter().rfind(|(_, view)| !view.state.is_over());
        let start = lower.and_then(|(_, view)| fork::start_on_collected_work(view));
        let names: Vec<&str> = changed.iter().map(|(persona, _)| *persona).collect();
        let task = range::task(self.context, &self.record, stage, &names)?;
        let ids = create_session::create(self.context, &[self.spec(stage, task, start)])?;
        ids.into_iter().next().ok_or_else(|| Failure::failed("no session was created"))
    }

    /// Returns the specification of the session of a stage.
    fn spec(&self, stage: &PersonaStage, task: String, start: Option<SessionStart>) -> SessionSpec {
        let PipelineRecord { id, branch, settings, .. } = &self.record;
        SessionSpec {
            agent: Some("g3".to_owned()),
            persona: Some(stage.persona.to_owned()),
            model: settings.model.clone(),
            base: Some(branch.clone()),
            checks: settings.checks.clone(),
            plan_ref: PlanRef {
                name: Some(stage.persona.to_owned()),
                plan: Some(id.clone()),
                ..PlanRef::default()
            },
            limits: settings.limits,
            run_mode: settings.run_mode.clone(),
            start,
            ..SessionSpec::of(task)
        }
    }

    /// Completes the run: the next one begins after its last commit. Returns the exit code.
    pub(crate) fn complete(mut self, sessions: &StageSessions) -> Result<u8> {
        self.record.complete = true;
        self.state.cursors.insert(self.record.branch.clone(), self.record.to.clone());
        self.save()?;
        let accepts = self.record.settings.run_mode.accept;
        self.report(sessions);
        let is_unlanded = |view: &&SessionView| accepts && view.state == SessionState::Ready;
        let unlanded: Vec<&SessionView> = sessions.iter().flatten().filter(is_unlanded).collect();
        for view in &unlanded {
            let reason = view.facts.summary.note.as_deref().unwrap_or("it did not land");
            report::say(&format!("{}: {reason}", view.record.id));
        }
        Ok(if unlanded.is_empty() { 0 } else { FailureKind::Refused as u8 })
    }

    /// Reports a stage that did not finish. Returns the exit code.
    pub(crate) fn report_unfinished(self, stage: usize, sessions: &StageSessions) -> Result<u8> {
        self.report(sessions);
        if let Some(view) = &sessions[stage] {
            let reason = view.reason().unwrap_or_default();
            let persona = STAGES[stage].persona;
            report::say(&format!("{persona}: {}: {reason}", view.state.name()));
        }
        Ok(1)
    }

    /// Reports that the user stopped the current stage. Returns the exit code.
    pub(crate) fn report_interrupted(self) -> Result<u8> {
        let sessions = self.sessions()?;
        self.report(&sessions);
        Ok(130)
    }

    /// Prints the pipeline at the end of the command.
    fn report(self, sessions: &StageSessions) {
        let Pipeline { context, record, _lock: lock, .. } = self;
        // It shows whether another process advances the pipeline.
        drop(lock);
        output::end(context, &record, sessions);
    }
}

/// Returns the record of a new run.
fn new_record(args: &RunArgs, range: CommitRange) -> Result<PipelineRecord> {
    Ok(PipelineRecord {
        id: record::new_id()?,
        branch: range.branch.to_string(),
        from: range.from,
        to: range.to,
        commits: range.commits.len(),
        complete: false,
        settings: args.settings(None),
    })
}
