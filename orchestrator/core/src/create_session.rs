//! Creates sessions: every setting is resolved here and recorded once.

use std::collections::BTreeMap;

use base::config::studio::SessionLimits;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::lock::Lock;

use crate::fork;
use crate::project::Project;
use crate::schedule::default_jobs;
use crate::session::random;
use crate::session::record::{RunLimits, RunMode, SCHEMA, SessionRecord, Templates};
use crate::session::spec::SessionSpec;
use studio_git::{checkout, handle, start_point, worktree};

/// Maximum number of ids to try; there are 810,000 for each slug.
const MAX_ATTEMPTS: u32 = 200;

/// Records new sessions, each after its dependencies. The scheduler starts them when a job slot is
/// free.
pub fn create(project: &Project, specs: &[SessionSpec]) -> Result<Vec<Id>> {
    handle::keep_open(|| create_all(project, specs))
}

fn create_all(project: &Project, specs: &[SessionSpec]) -> Result<Vec<Id>> {
    let mut ids_by_name: BTreeMap<&str, Id> = BTreeMap::new();
    let mut ids = Vec::with_capacity(specs.len());
    let mut groups: BTreeMap<usize, Id> = BTreeMap::new();
    let run = base::random::hex::<8>().or_fail(|| "no random bytes")?;
    for spec in specs {
        let after = spec.after.iter().filter_map(|name| ids_by_name.get(name.as_str()).cloned());
        let group = spec.attempt.map(|attempt| groups.get(&attempt.task).cloned());
        let (id, ()) = create_one(project, spec, after.collect(), |record| {
            let own = || record.id.clone();
            let group = group.clone().map(|first| first.unwrap_or_else(own));
            let run = record.plan_ref.plan.clone().unwrap_or_else(|| run.clone());
            let run_mode = RunMode { run: Some(run), ..record.run_mode.clone() };
            let record = SessionRecord { group, run_mode, ..record.clone() };
            Ok(store(project, &record)?.then_some(()))
        })?;
        if let Some(attempt) = spec.attempt {
            groups.entry(attempt.task).or_insert_with(|| id.clone());
        }
        ids_by_name.extend(spec.plan_ref.name.as_deref().map(|name| (name, id.clone())));
        ids.push(id);
    }
    Ok(ids)
}

/// Records one new session and takes its lock, so that no scheduler starts it.
pub fn create_locked(project: &Project, spec: &SessionSpec) -> Result<(Id, Lock)> {
    create_one(project, spec, Vec::new(), |record| {
        project.store.create_locked(record, project.clock)
    })
}

/// Records a session under a free id; `store` returns `None` if the id is taken.
fn create_one<T>(
    project: &Project,
    spec: &SessionSpec,
    after: Vec<Id>,
    store: impl Fn(&SessionRecord) -> Result<Option<T>>,
) -> Result<(Id, T)> {
    let mut record = SessionRecord { after, ..draft(project, spec)? };
    project.repository.remember_checkout()?;
    for n in 0..MAX_ATTEMPTS {
        let id = Id::new(spec.words_of_id(), random::four_bytes(&spec.task, n)?);
        let request = record.templates.worktree_spec(&id, &record.base)?;
        record.session_repo = request.session_repo(&project.repository)?;
        if let Some(start) = &spec.start {
            record.session_repo.base.clone_from(&start.head);
        }
        record.id = id;
        worktree::refuse_blocked_branch(&*project.repository.open()?, &record.session_repo)?;
        let exists = project.repository.tip(&record.session_repo.branch)?.is_some();
        if !exists && let Some(stored) = store(&record)? {
            return Ok((record.id, stored));
        }
    }
    Err(Failure::refused("no free id was found for this task").hint("studio gc"))
}

/// Saves a new session with what it starts from; returns `false` if the id is taken.
fn store(project: &Project, record: &SessionRecord) -> Result<bool> {
    let Some(start) = &record.start else { return project.store.create(record, project.clock) };
    if project.store.dir(&record.id).exists()
        || !start_point::pin(&project.repository, &record.id, start)?
    {
        return Ok(false);
    }
    let result = project.store.create(record, project.clock);
    if !matches!(result, Ok(true)) {
        start_point::unpin(&project.repository, &record.id, start)?;
    } else if let Some(origin) = &record.origin
        && let Err(failure) = fork::clone_conversation(project, &record.id, origin)
    {
        project.console.note(&format!("{}; the agent gets a recap instead", failure.sentence()));
    }
    result
}

/// Returns the record of a session, except its id. Fails for a session that could not be started.
pub fn draft(project: &Project, spec: &SessionSpec) -> Result<SessionRecord> {
    let settings = &project.config.studio;
    let base = match &spec.start {
        Some(start) => start.base.clone(),
        None => project.repository.base(spec.base.as_deref())?,
    };
    checkout::refuse_unreadable(&project.repository, base.branch.as_ref())?;
    let templates =
        Templates { branch: settings.branch.clone(), worktree: settings.worktree.clone() };
    let mut checks = settings.checks.list();
    let additional: Vec<String> =
        spec.checks.iter().filter(|check| !checks.contains(check)).cloned().collect();
    checks.extend(additional);
    let mut run_mode = spec.run_mode.clone();
    if run_mode.jobs == 0 {
        run_mode.jobs = settings.jobs.unwrap_or_else(default_jobs);
    }
    run_mode.config = project.config_file.clone();
    run_mode.directory = project.directory.clone();
    run_mode.sandboxed = run_mode.sandboxed && project.config.sandbox.enabled;
    if settings.limits.budget_usd.is_some_and(|usd| !usd.is_finite() || usd < 0.0) {
        return Err(Failure::usage("`[studio.limits] budget_usd` must be a non-negative number")
            .hint("give a number, 0 or more"));
    }
    let id = Id::new(spec.words_of_id(), [0; 4]);
    let request = templates.worktree_spec(&id, &base)?;
    let start = spec.start.as_ref();
    Ok(SessionRecord {
        schema: SCHEMA,
        id,
        task: spec.task.clone(),
        agent: spec.agent.clone().unwrap_or_else(|| "g3".to_owned()),
        persona: spec.persona.clone(),
        model: spec.model.clone(),
        profile: spec.profile.clone(),
        base,
        session_repo: request.session_repo(&project.repository)?,
        templates,
        checks,
        limits: limits(&spec.limits, &settings.limits),
        run_mode,
        attempt: spec.attempt.map_or(1, |attempt| attempt.number),
        group: None,
        after: Vec::new(),
        plan_ref: spec.plan_ref.clone(),
        created_at: project.clock.stamp(),
        start: start.and_then(|start| Some(start.work.as_ref()?.start.clone())),
        origin: start.and_then(|start| start.origin.clone()),
    })
}

/// Returns the limits of the flags, else of the configuration; the default disk floor is 512 MiB.
fn limits(flags: &RunLimits, defaults: &SessionLimits) -> RunLimits {
    RunLimits {
        seconds: flags.seconds.or(defaults.timeout_seconds),
        turns: flags.turns.or(defaults.max_turns),
        tokens: flags.tokens.or(defaults.max_tokens),
        usd: flags.usd.or(defaults.budget_usd),
        total_usd: flags.total_usd.or(defaults.total_budget_usd),
        output_bytes: flags.output_bytes.or(defaults.output_bytes),
        disk_floor_bytes: Some(defaults.disk_floor_bytes.unwrap_or(512 << 20)),
        // The configuration applies when a run starts.
        memory_bytes: flags.memory_bytes,
        processes: flags.processes,
        disk_bytes: flags.disk_bytes,
    }
}
