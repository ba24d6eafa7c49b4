//! Creates sessions: every setting is resolved here and recorded once.

use std::collections::BTreeMap;

use base::config::studio::SessionLimits;
use base::failure::{Failure, Result};
use base::id::Id;

use crate::project::Project;
use crate::schedule::default_jobs;
use crate::session::random;
use crate::session::record::{RunLimits, SCHEMA, SessionRecord, Templates};
use crate::session::spec::SessionSpec;
use studio_git::{checkout, worktree};

/// Maximum number of ids to try; there are 810,000 for each slug.
const TRIES: u32 = 200;

/// Records new sessions, each after its dependencies. The scheduler starts them when a job slot is
/// free.
pub fn create(project: &Project, orders: &[SessionSpec]) -> Result<Vec<Id>> {
    let mut named: BTreeMap<&str, Id> = BTreeMap::new();
    let mut ids = Vec::with_capacity(orders.len());
    for order in orders {
        let after = order.after.iter().filter_map(|name| named.get(name.as_str()).cloned());
        let id = create_one(project, order, after.collect())?;
        named.extend(order.part.name.as_deref().map(|name| (name, id.clone())));
        ids.push(id);
    }
    Ok(ids)
}

fn create_one(project: &Project, order: &SessionSpec, after: Vec<Id>) -> Result<Id> {
    let mut record = SessionRecord { after, ..draft(project, order)? };
    project.repository.remember_checkout()?;
    for n in 0..TRIES {
        let id = Id::new(&order.task, random::four(&order.task, n)?);
        let wanted = record.templates.order(&id, &record.base)?;
        record.place = wanted.place(&project.repository)?;
        record.id = id;
        worktree::refuse_blocked_branch(&project.repository.open()?, &record.place)?;
        let taken = project.repository.tip(&record.place.branch)?.is_some();
        if !taken && project.store.create(&record, project.clock)? {
            return Ok(record.id);
        }
    }
    Err(Failure::refused("no free id was found for this task").hint("studio gc"))
}

/// Returns the record of a session, except its id. Fails for a session that could not be started.
pub fn draft(project: &Project, order: &SessionSpec) -> Result<SessionRecord> {
    let settings = &project.config.studio;
    let base = project.repository.base(order.base.as_deref())?;
    checkout::refuse_unreadable(&project.repository, base.branch.as_ref())?;
    let templates =
        Templates { branch: settings.branch.clone(), worktree: settings.worktree.clone() };
    let mut checks = settings.checks.list();
    let more: Vec<String> =
        order.checks.iter().filter(|check| !checks.contains(check)).cloned().collect();
    checks.extend(more);
    let mut manner = order.manner.clone();
    if manner.jobs == 0 {
        manner.jobs = settings.jobs.unwrap_or_else(default_jobs);
    }
    manner.config = project.config_file.clone();
    manner.directory = project.directory.clone();
    manner.sandboxed = manner.sandboxed && project.config.sandbox.enabled;
    if settings.limits.budget_usd.is_some_and(|usd| !usd.is_finite() || usd < 0.0) {
        return Err(Failure::usage("`[studio.limits] budget_usd` must be a non-negative number")
            .hint("give a number, 0 or more"));
    }
    let id = Id::new(&order.task, [0; 4]);
    let wanted = templates.order(&id, &base)?;
    Ok(SessionRecord {
        schema: SCHEMA,
        id,
        task: order.task.clone(),
        agent: order.agent.clone().unwrap_or_else(|| "g3".to_owned()),
        persona: order.persona.clone(),
        model: order.model.clone(),
        profile: order.profile.clone(),
        base,
        place: wanted.place(&project.repository)?,
        templates,
        checks,
        limits: limits(&order.limits, &settings.limits),
        manner,
        attempt: 1,
        after: Vec::new(),
        part: order.part.clone(),
        created_at: project.clock.stamp(),
    })
}

/// Returns the limits of the flags, else of the configuration; the default disk floor is 512 MiB.
fn limits(flags: &RunLimits, configured: &SessionLimits) -> RunLimits {
    RunLimits {
        seconds: flags.seconds.or(configured.timeout_seconds),
        turns: flags.turns.or(configured.max_turns),
        tokens: flags.tokens.or(configured.max_tokens),
        usd: flags.usd.or(configured.budget_usd),
        output_bytes: flags.output_bytes.or(configured.output_bytes),
        disk_floor_bytes: Some(configured.disk_floor_bytes.unwrap_or(512 << 20)),
    }
}
